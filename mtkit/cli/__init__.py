"""The commands: parse, call the floors below, print.

Standard output carries data only, in UTF-8 whatever the locale; notes, progress and errors go to
standard error. What a command needs is imported inside it, so that help answers at once.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
import shlex
import shutil
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from mtkit import __version__
from mtkit.cli.streams import has_input, has_output, output_file, standard_input, standard_streams
from mtkit.errors import MtkitError, one_line

if TYPE_CHECKING:
    from mtkit.checkpoint import Run
    from mtkit.config import Config, DecodeConfig
    from mtkit.data import PreparedData, Split
    from mtkit.prepare import Report
    from mtkit.score import System
    from mtkit.translate import Scored, Translation, Translator, Window

log = logging.getLogger(__name__)

DATA_ROOT = Path("data")
RUNS_ROOT = Path("runs")

Command = TypeVar("Command", bound=Callable[..., Any])
PathArgument = click.Path(path_type=Path)


# Variables that say how threads wait for each other, and what is set where a user sets none of
# them: for a moment in a loop, then asleep, so that other programs have the core. By default they
# stay in the loop so long that training takes half as long again where other programs run
# (benchmarks/busy.py). GOMP_SPINCOUNT, in turns of that loop, is for the library that PyTorch has
# on Linux; others read OMP_WAIT_POLICY.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
WAIT_BRIEFLY = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}


def main() -> None:
    """The program `mtkit`: runs a command and turns what went wrong into a line and a status."""
    if not any(name in os.environ for name in WAITING):
        os.environ.update(WAIT_BRIEFLY)  # before PyTorch is loaded
    with standard_streams():
        _run()


def _run() -> None:
    try:
        # Click would answer an interrupt with 1; standalone_mode=False leaves that to us.
        status = commands.main(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        if os.environ.get("LOCAL_RANK", "0") == "0" or not _is_worker():
            # All workers of a machine have the same command line.
            message = error.format_message()
            if isinstance(error, click.MissingParameter):
                # Click lists the choices one below the other.
                message = " ".join(message.split())
            _say_error(f"{message}{hint}")
        sys.exit(error.exit_code)
    except MtkitError as error:
        if not error.told:
            _say_error(str(error))
        _leave(error.status)
    except (KeyboardInterrupt, click.Abort) as error:
        if not _is_later_worker():
            # Click has made its own of it.
            cause = error.__cause__ if isinstance(error, click.Abort) else error
            reason = str(cause) if isinstance(cause, KeyboardInterrupt) else ""
            _say(f"mtkit: interrupted{f': {reason}' if reason else ''}")
        _leave(130)
    except BrokenPipeError:
        # The reader closed the pipe.
        _leave(1)
    except Exception as error:
        # A worker that meets such a fault is started again, if --max-restarts says so.
        if not _is_worker() and (reason := _fault_of_the_system(error)):
            _say_error(reason)
            _leave(1)
        # Our bug. Those who start workers tell it from what a user can mend by the status.
        if not _is_worker():
            raise
        from mtkit.train import BROKEN

        traceback.print_exc()
        _leave(BROKEN)


def _fault_of_the_system(error: Exception) -> str:
    """What an operation on a file met that nobody has put into better words; nothing else."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        name = error.filename
        return f"{os.fsdecode(name) if isinstance(name, bytes) else name}: {error.strerror}"
    encoding = sys.getfilesystemencoding()
    if isinstance(error, UnicodeEncodeError) and encoding.lower() not in ("utf-8", "utf8"):
        return (
            f"{error.object}: cannot be the name of a file in this locale, whose encoding is "
            f"{encoding}; set PYTHONUTF8=1"
        )
    return ""


def _leave(status: int) -> None:
    """End the program; a worker at once, because its connections to others may never close."""
    if _is_worker():
        with suppress(OSError, MtkitError):
            sys.stderr.flush()
            sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


def _is_worker() -> bool:
    """Whether this process was started among workers."""
    if "RANK" not in os.environ:
        # Certainly not; the full answer takes as long as loading PyTorch.
        return False
    from mtkit.devices import given_rank

    return given_rank() is not None


def _is_later_worker() -> bool:
    """Whether another worker prints what all of them have to say."""
    return _is_worker() and os.environ["RANK"] != "0"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="mtkit", message="%(prog)s %(version)s")
@click.option("-q", "--quiet", is_flag=True, help="Print warnings and errors only.")
def commands(quiet: bool) -> None:
    """Machine translation with the Transformer of "Attention Is All You Need".

    \b
    From nothing to a scored translation:
      mtkit prepare demo-en-de
      mtkit train --config demo
      mtkit translate < input.txt
      mtkit score
    """
    _configure_logging(quiet=quiet)


def _example(text: str) -> str:
    """The end of a command's help: an example that runs as printed."""
    return f"\b\nExample:\n  {text}"


def _run_option(function: Command) -> Command:
    return click.option(
        "--run", "run_path", type=PathArgument, help="Run folder; default: the newest under runs/."
    )(function)


def _device_option(function: Command) -> Command:
    return click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="Where to compute; auto takes a GPU if there is one.",
    )(function)


def _checkpoint_option(function: Command) -> Command:
    return click.option(
        "--checkpoint",
        metavar="WHICH",
        help="average:N, best, last or a step; default: the"
        " average that the run's configuration asks for.",
    )(function)


def _decode_options(function: Command) -> Command:
    for option in (
        _checkpoint_option,
        click.option("--beam-size", type=click.IntRange(1), help="Hypotheses kept per sentence."),
        click.option("--length-penalty", type=float, help="alpha of ((5 + length) / 6) ** alpha."),
        click.option(
            "--batch-tokens", type=click.IntRange(1), help="Source tokens translated at a time."
        ),
        click.option(
            "--precision",
            type=click.Choice(["auto", "fp32", "bf16", "int8"]),
            help="Of matrix products; auto is fp32. int8 is for x86 CPUs: faster, a little worse.",
        ),
        _device_option,
        click.option(
            "--workers",
            type=click.IntRange(1),
            help="Processes on this machine that translate; default: one for each GPU, or one.",
        ),
    )[::-1]:
        function = option(function)
    return function


@commands.command(epilog=_example("mtkit prepare demo-en-de"))
@click.argument("name", required=False)
@click.option("--list", "list_corpora", is_flag=True, help="Print the catalogue and stop.")
@click.option("--src-lang", metavar="L", help="Source language of own files, such as en.")
@click.option("--tgt-lang", metavar="L", help="Target language of own files, such as de.")
@click.option(
    "--train",
    type=(PathArgument, PathArgument),
    multiple=True,
    metavar="SRC TGT",
    help="Own training files, plain or .gz, .bz2, .xz, .zst; repeatable.",
)
@click.option(
    "--train-from",
    multiple=True,
    metavar="SOURCE",
    help="Own training pairs in one place: hf:owner/dataset[:config][:split], a file that ends in"
    " .tsv, .tmx, .parquet or .jsonl, or what two files have before .en and .de; repeatable.",
)
@click.option(
    "--weight",
    type=click.FloatRange(0, min_open=True),
    multiple=True,
    help="How often an epoch sees the pairs of a --train, then of a --train-from; give as many.",
)
@click.option(
    "--valid", type=(PathArgument, PathArgument), metavar="SRC TGT", help="Own validation files."
)
@click.option("--valid-from", metavar="SOURCE", help="The same in one place.")
@click.option(
    "--test", type=(PathArgument, PathArgument), metavar="SRC TGT", help="Own test files."
)
@click.option("--test-from", metavar="SOURCE", help="The same in one place.")
@click.option(
    "--vocab-size",
    type=click.IntRange(1),
    help="Pieces of the joint BPE; default: the catalogue's, or 37,000 for own files.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a rule of cleaning or of the subwords, as in max_ratio=3; repeatable."
    " --settings prints them.",
)
@click.option(
    "--no-cleaning",
    is_flag=True,
    help="Keep every pair but those that are empty, too long or not UTF-8.",
)
@click.option("--settings", "list_settings", is_flag=True, help="Print the settings and stop.")
@click.option("--workers", type=click.IntRange(1), help="Processes; default: one for each core.")
@click.option(
    "--dry-run", is_flag=True, help="Print what would be dropped, with samples, and write nothing."
)
@click.option(
    "--report",
    "page_path",
    type=PathArgument,
    metavar="FILE",
    help="Write a page of HTML about it.",
)
@click.option("--out", type=PathArgument, help="Folder to write; default: data/NAME.")
@click.option("--force", is_flag=True, help="Replace the folder if it exists.")
def prepare(
    name: str | None,
    list_corpora: bool,
    src_lang: str | None,
    tgt_lang: str | None,
    train: tuple[tuple[Path, Path], ...],
    train_from: tuple[str, ...],
    weight: tuple[float, ...],
    valid: tuple[Path, Path] | None,
    valid_from: str | None,
    test: tuple[Path, Path] | None,
    test_from: str | None,
    vocab_size: int | None,
    overrides: tuple[str, ...],
    no_cleaning: bool,
    list_settings: bool,
    workers: int | None,
    dry_run: bool,
    page_path: Path | None,
    out: Path | None,
    force: bool,
) -> None:
    """Make training data of a corpus: fetch, clean, learn subwords, encode.

    NAME is a corpus of the catalogue (--list prints it), or any name for own data, which is
    given with --src-lang, --tgt-lang, --train and --valid, or --train-from and --valid-from.

    Every pair that is dropped is listed in dropped.tsv.gz, with file, line and reason. Stopped
    and started again, the same command goes on with what is done.
    """
    from mtkit.cli import tables as report

    if list_corpora:
        _need_output()
        _print(report.catalogue(width=_width()))
        return
    if list_settings:
        _need_output()
        _print(report.preparation_settings(width=_width()))
        return
    if name is None:
        raise click.UsageError("give the NAME of a corpus; mtkit prepare --list prints them")
    if Path(name).name != name or name.startswith("."):
        raise click.UsageError(f"NAME: {name!r} cannot be the name of a folder under data/")
    if (valid and valid_from) or (test and test_from):
        raise click.UsageError("give --valid or --valid-from, and --test or --test-from, not both")
    own = {
        "--src-lang": src_lang,
        "--tgt-lang": tgt_lang,
        "--train or --train-from": train or train_from,
        "--valid or --valid-from": valid or valid_from,
    }
    missing = [option for option, value in own.items() if not value]
    is_own = len(missing) < len(own) or bool(test or test_from)
    if is_own and missing:
        raise click.UsageError(f"own data needs {', '.join(own)}; missing: {', '.join(missing)}")
    if weight and len(weight) != len(train) + len(train_from):
        raise click.UsageError("--weight: give one for each --train and --train-from, or none")
    for number in weight:
        if not math.isfinite(number):
            raise click.UsageError(f"--weight: expected a finite number, not {number}")
    if dry_run:
        _need_output()
    target = out or DATA_ROOT / name
    from mtkit.config import NO_CLEANING
    from mtkit.prepare import prepare_corpus, prepare_files

    common: dict[str, Any] = {
        "workers": workers,
        "force": force,
        "dry_run": dry_run,
        "look": _page_writer(page_path) if page_path else None,
        "vocab_size": vocab_size,
        "overrides": (*NO_CLEANING, *overrides) if no_cleaning else overrides,
    }
    if not is_own:
        done = prepare_corpus(name, target, **common)
    else:
        from mtkit.prepare import Source, parallel_files, parse_source

        assert src_lang is not None
        assert tgt_lang is not None

        def source(place: tuple[Path, Path] | str, weight: float = 1.0) -> Source:
            if isinstance(place, tuple):
                return parallel_files(*place, weight=weight)
            return parse_source(place, src_lang=src_lang, tgt_lang=tgt_lang, weight=weight)

        places: list[tuple[Path, Path] | str] = [*train, *train_from]
        valid_place, test_place = valid or valid_from, test or test_from
        assert valid_place is not None
        done = prepare_files(
            name,
            target,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            train=list(map(source, places, weight or [1.0] * len(places))),
            valid=source(valid_place),
            test=source(test_place) if test_place else None,
            **common,
        )
    if log.isEnabledFor(logging.INFO):
        click.echo(report.preparation(done), err=True, nl=False)
    if dry_run:
        _print(report.dropped_samples(done))
        log.info("dry run: nothing was written")
    else:
        log.info("wrote %s", done.path)


def _page_writer(path: Path) -> Callable[[PreparedData, Report], None]:
    """Writes the page about a preparation to a file, which is there as a whole or not at all."""
    from mtkit.prepare import check_page, write_page

    # Not after hours of work.
    check_page(path)

    def write(data: PreparedData, done: Report) -> None:
        write_page(path, data, done)
        log.info("wrote %s", path)

    return write


@commands.command(epilog=_example("mtkit train --config demo"))
@click.option(
    "--config",
    "config_name",
    required=True,
    metavar="FILE_OR_PRESET",
    help="A YAML file, or a preset, such as base, big, small, demo or table3-c-n2.",
)
@click.option(
    "--data",
    "data_path",
    type=PathArgument,
    help="Prepared folder; default: data.dir of the configuration, else the newest under data/.",
)
@click.option(
    "--run", "run_path", type=PathArgument, help="Run folder; default: runs/<data>-<config>."
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Change a setting, as in train.max_steps=20000; repeatable.",
)
@_device_option
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Processes that train together on this machine; default: one for each GPU.",
)
@click.option(
    "--max-restarts",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Start the workers again if one breaks down, at most this many times.",
)
@click.option("--restart", is_flag=True, help="Begin again, deleting the run's checkpoints.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check everything, print the configuration with a forecast of memory, time and cost,"
    " and stop.",
)
def train(
    config_name: str,
    data_path: Path | None,
    run_path: Path | None,
    overrides: tuple[str, ...],
    device: str,
    workers: int | None,
    max_restarts: int,
    restart: bool,
    dry_run: bool,
) -> int:
    """Train a model on prepared data.

    Continues by itself where the run folder has a checkpoint of the same configuration and data.
    Ctrl-C saves and stops. On several machines, start it with torchrun: torchrun ... -m -- mtkit
    train ...
    """
    from mtkit import config as settings

    config = settings.load_config(config_name, overrides)
    where = data_path or (Path(config.data.dir) if config.data.dir else None)
    from mtkit.devices import given_rank, workers_wanted
    from mtkit.train import is_launched, launch

    alone = given_rank() is None
    if not alone and not is_launched() and (workers or max_restarts):
        raise click.UsageError(
            "--workers and --max-restarts are for mtkit to start workers, and these were started"
            " already; torchrun has --nproc-per-node and --max-restarts"
        )
    count = workers or workers_wanted(device)
    if dry_run:
        if not _is_later_worker():
            _need_output()
            _print(_forecast(config, where, device, count))
        return 0
    data = _find_data(where)
    target = run_path or RUNS_ROOT / f"{data.name}-{settings.config_name(config_name)}"
    if alone and (count > 1 or max_restarts):
        # Workers that start later must not find something newer.
        found = [f"--data={data.path}", f"--run={target}"]
        command = ["-m", "mtkit", *sys.argv[1:], *found]
        return launch(command, count, max_restarts=max_restarts)
    from mtkit import train as training

    finished = training.run(config, data, target, device=device, restart=restart, command=sys.argv)
    return 0 if finished else 130


@commands.command(
    epilog=_example("echo 'The old woman buys a red umbrella.' | mtkit translate"),
    context_settings={"allow_extra_args": True},
)
@click.option(
    "--run",
    "run_paths",
    type=PathArgument,
    multiple=True,
    help="Run folder; repeatable, for the mean of several models; default: the newest under runs/.",
)
@click.option(
    "--input", "input_path", type=PathArgument, help="File; default, and -: standard input."
)
@click.option(
    "--output", "output_path", type=PathArgument, help="File; default, and -: standard output."
)
@_decode_options
@click.option(
    "--nbest",
    type=click.IntRange(1, 1000),
    help="Print this many translations of each line: line number, score and text, tab-separated"
    " (with --mbr-samples, at most the different ones drawn).",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object for each line: translations with scores, subwords and seconds.",
)
@click.option(
    "--target-prefix",
    "prefix_path",
    type=PathArgument,
    help="File with what each translation is to begin with, a line for each line of input.",
)
@click.option("--min-length", type=click.IntRange(0), help="Subwords before an output may end.")
@click.option("--max-length", type=click.IntRange(1), help="Most subwords of an output.")
@click.option(
    "--no-repeat-ngram",
    type=click.IntRange(0),
    help="So many subwords in a row never come twice in an output; 0 allows all.",
)
@click.option(
    "--sample/--no-sample", default=None, help="Draw translations instead of searching the best."
)
@click.option(
    "--mbr-samples",
    type=click.IntRange(0),
    help="Draw so many and take the one most like the others by chrF (minimum Bayes risk).",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, min_open=True),
    help="Of draws: below 1 the probable come more often.",
)
@click.option(
    "--top-k",
    type=click.IntRange(0),
    help="Draw from so many of the most probable subwords; 0 for all.",
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    help="Draw from the most probable subwords that have so much of the probability together.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    help="Of draws: with the number of a line it fixes what is drawn.",
)
@click.option(
    "--split-sentences/--no-split-sentences",
    default=None,
    help="Translate the sentences of a line one by one; needs pip install 'mtkit[split]'.",
)
@click.option(
    "--restart", is_flag=True, help="Forget what an interrupted start with --output has done."
)
def translate(
    run_paths: tuple[Path, ...],
    input_path: Path | None,
    output_path: Path | None,
    nbest: int | None,
    as_json: bool,
    prefix_path: Path | None,
    restart: bool,
    **decode: Any,
) -> None:
    """Translate lines of text: one line in, one line out, in order.

    With --output, what is done lies beside the file until all is: after a kill, the same command
    goes on. Started on several machines with torchrun, it shares the lines out among them.
    """
    if words := click.get_current_context().args:
        raise click.UsageError(_how_text_is_given(words))
    runs = [_find_run(path) for path in run_paths or (None,)]
    _refuse_useless(runs[0].config.decode, decode)
    input_path = None if str(input_path) == "-" else input_path
    output_path = None if str(output_path) == "-" else output_path
    if input_path is None and not has_input():
        raise click.UsageError("standard input is closed; give --input")
    if output_path is None and not has_output():
        raise click.UsageError("standard output is closed; give --output")
    if decode["split_sentences"] or runs[0].config.decode.split_sentences:
        given = {"--nbest": (nbest or 1) > 1, "--target-prefix": prefix_path is not None}
        if useless := [option for option, is_given in given.items() if is_given]:
            raise click.UsageError(
                f"{useless[0]} is for lines that are translated whole, not with --split-sentences"
            )
    from mtkit.cli.progress import count_lines, shown_progress
    from mtkit.data import decode_lines, open_binary
    from mtkit.devices import given_rank, given_world_size
    from mtkit.translate import Job, Window, ready_lines, windows

    if output_path is not None:
        # A link stays a link, and two of them are one output.
        if output_path.is_symlink():
            output_path = output_path.resolve()
        _refuse_to_replace(output_path, input_path, prefix_path)
    if restart and not _keeps_parts(output_path):
        raise click.UsageError("--restart is for a translation into a file with --output")
    if restart and given_world_size() > 1:
        raise click.UsageError("--restart: run it once without torchrun, or delete the parts")
    with ExitStack() as stack:
        typed = input_path is None and sys.stdin.isatty()
        if input_path is None:
            lines = _lines_of(Path("-"))
        else:
            source = stack.enter_context(open_binary(input_path))
            lines = decode_lines(source, name=str(input_path))
        prefixes = None if prefix_path is None else list(_lines_of(prefix_path))
        if prefixes is not None:
            lines = _as_many_as(prefixes, lines, name=str(prefix_path))
        translator = stack.enter_context(_load_translator(runs, **decode))
        if typed:
            log.info("translating what you type; end with Ctrl-D")

        to_be_shown = (
            log.isEnabledFor(logging.INFO)
            and sys.stderr.isatty()
            and (output_path is not None or not sys.stdout.isatty())
        )
        is_counted = to_be_shown and input_path is not None and input_path.is_file()
        total = count_lines(input_path) if is_counted and input_path is not None else None
        progress = stack.enter_context(shown_progress(total, is_wanted=is_counted))

        def translated(windows: Iterable[tuple[int, list[str]]]) -> Iterator[bytes]:
            # The translator looks ahead of what it yields.
            first_lines: deque[int] = deque()

            def given() -> Iterator[Window]:
                for first_line, window in windows:
                    progress.begin(first_line)
                    first_lines.append(first_line)
                    start = first_line - 1
                    of_window = prefixes and prefixes[start : start + len(window)]
                    yield Window(first_line, window, of_window)

            for found in translator.translate_windows(
                given(), n_best=nbest or 1, progress=progress.advance
            ):
                first_line = first_lines.popleft()
                numbered = enumerate(found, first_line)
                if as_json:
                    yield _objects(numbered)
                elif nbest is not None:
                    yield _rows(numbered)
                else:
                    yield "".join(f"{best.text}\n" for best, *_ in found).encode()
                # It is asked for the next one when this is written.
                progress.finish(first_line - 1 + len(found))

        if output_path is not None and _keeps_parts(output_path):
            how = _how(runs, translator, nbest=nbest, as_json=as_json, prefixes=prefixes)
            rank, world_size = given_rank() or 0, given_world_size()
            job = Job(output_path, how, restart=restart, rank=rank, world_size=world_size)
            try:
                job.run((window for _, window in windows(lines, size=len)), translated)
            except KeyboardInterrupt:
                saved = "no lines are saved yet"
                if job.has_parts():
                    saved = "what is done is saved"
                    if world_size == 1 and progress.done:
                        saved = f"the first {progress.done:,} lines are saved"
                    saved += "; to continue, run the same command, without --restart"
                raise KeyboardInterrupt(saved) from None
            return
        output: IO[bytes] = sys.stdout.buffer
        if output_path is not None:
            output = stack.enter_context(output_file(output_path))
        if typed and prefixes is None:
            ready = _typed_lines(f"{translator.src_lang or 'source'}> ")
        else:
            ready = ready_lines(lines)
        try:
            for text in translated(_numbered(ready)):
                output.write(text)
                # At once, so that the reader does not wait.
                output.flush()
        except KeyboardInterrupt:
            if typed:
                raise
            raise KeyboardInterrupt(f"{progress.done:,} lines were written") from None


def _refuse_to_replace(output: Path, source: Path | None, prefixes: Path | None) -> None:
    """Refuse an output that is one of the inputs."""
    if not output.is_file():
        return
    if source is None and sys.stdin is not None:
        with suppress(OSError, ValueError):  # it is not a file
            if os.path.samestat(os.fstat(sys.stdin.fileno()), output.stat()):
                raise click.UsageError("--output would replace the standard input")
    for option, path in (("--input", source), ("--target-prefix", prefixes)):
        if path is not None and path.exists() and output.samefile(path):
            raise click.UsageError(f"--output would replace the {option}")


def _how_text_is_given(words: Sequence[str]) -> str:
    """The usage error for text, or the name of a file, that is given as an argument."""
    for word in words:
        if os.path.isfile(word):
            return f"{shlex.quote(word)} is a file: give it with --input {shlex.quote(word)}"
    text = shlex.quote(" ".join(words))
    if len(text) > 60:
        text = "'...'"
    return f"text comes from standard input: echo {text} | mtkit translate; a file with --input"


def _refuse_useless(config: DecodeConfig, given: dict[str, Any]) -> None:
    """Options about draws, where a run and its options draw nothing."""
    drawn = given["sample"] or given["mbr_samples"] or config.sample or config.mbr_samples
    for name in ("temperature", "top_k", "top_p", "seed"):
        if given[name] is not None and not drawn:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} is about draws, and nothing is drawn; add --sample or --mbr-samples N"
            )


def _typed_lines(prompt: str) -> Iterator[list[str]]:
    """What a person types, a line at a time, until Ctrl-D; each is answered before the next."""
    with suppress(ImportError):
        import readline  # noqa: F401 - with it `input` edits lines and knows the earlier ones
    # Bytes that are no text must not end what a person has begun.
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    # Into a file or pipe the prompt would be part of the data.
    prompt = prompt if sys.stdout.isatty() else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        yield [line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")]
        yield []


def _numbered(windows: Iterable[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Each window with the number of its first line, from 1."""
    first_line = 1
    for window in windows:
        yield first_line, window
        first_line += len(window)


def _rows(numbered: Iterable[tuple[int, list[Translation]]]) -> bytes:
    """Of each translation the line's number, the score and the text."""
    return "".join(
        f"{number}\t{translation.score:.6f}\t{translation.text}\n"
        for number, translations in numbered
        for translation in translations
    ).encode()


def _objects(numbered: Iterable[tuple[int, list[Translation]]]) -> bytes:
    """A JSON object for each line."""
    return "".join(
        json.dumps(
            {
                "line": number,
                "translations": [
                    {
                        "text": found.text,
                        "score": round(found.score, 6),
                        "log_prob": round(found.log_prob, 6),
                        "finished": found.finished,
                        "tokens": [
                            [piece, round(log_prob, 6)]
                            for piece, log_prob in zip(found.pieces, found.log_probs, strict=True)
                        ],
                    }
                    for found in translations
                ],
                "seconds": round(translations[0].seconds, 6),
            },
            ensure_ascii=False,
        )
        + "\n"
        for number, translations in numbered
    ).encode()


def _how(
    runs: Sequence[Run],
    translator: Translator,
    *,
    nbest: int | None,
    as_json: bool,
    prefixes: list[str] | None,
) -> dict[str, str]:
    """Whatever a translation depends on besides its input."""
    from mtkit.files import sha256_of_json

    settings = translator.config.model_dump()
    # How much is translated at a time changes nothing.
    del settings["batch_tokens"], settings["average_checkpoints"]
    names = [f"{run.path.name} {sha256_of_json(run.manifest.model_dump())[:16]}" for run in runs]
    return {
        "run": ", ".join(names),
        "checkpoint": translator.checkpoint,
        **{f"decode.{name}": str(value) for name, value in settings.items()},
        "--nbest": str(nbest),
        "--json": str(as_json),
        "--target-prefix": _digest("\n".join(prefixes)) if prefixes is not None else "none",
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _as_many_as(prefixes: list[str], lines: Iterator[str], *, name: str) -> Iterator[str]:
    """The lines, if there are as many of them."""
    count = 0
    for line in lines:
        if count == len(prefixes):
            raise MtkitError(f"{name}: ends after {count:,} lines, but the input goes on")
        yield line
        count += 1
    if count < len(prefixes):
        raise MtkitError(f"{name}: has {len(prefixes):,} lines, but the input has {count:,}")


@commands.command(epilog=_example("mtkit score"))
@click.argument("hypotheses", metavar="[HYP]...", nargs=-1, type=PathArgument)
@click.option(
    "--reference",
    "references",
    type=PathArgument,
    multiple=True,
    help="References for HYP; repeatable for several sets.",
)
@click.option(
    "--run",
    "run_paths",
    type=PathArgument,
    multiple=True,
    help="Run folder; repeatable; default: the newest under runs/.",
)
@click.option(
    "--data",
    "data_path",
    type=PathArgument,
    help="Prepared folder with the test set; default: the one the run was trained on.",
)
@click.option(
    "--split",
    type=click.Choice(["test", "valid"]),
    default="test",
    show_default=True,
    help="Which text of the data a run translates.",
)
@_decode_options
@click.option(
    "--metric",
    "metrics",
    type=click.Choice(["bleu", "chrf", "ter"]),
    multiple=True,
    help="Repeatable; default: bleu.",
)
@click.option(
    "--protocol",
    type=click.Choice(["wmt", "paper"]),
    default="wmt",
    show_default=True,
    help="paper adds the BLEU that the paper reports: Moses tokens, compounds split.",
)
@click.option("--tgt-lang", metavar="L", help="Language of HYP, for --protocol paper.")
@click.option(
    "--paired",
    is_flag=True,
    help="Test every system against the first: 95 % intervals, and p-values of the paired"
    " bootstrap and of approximate randomisation.",
)
@click.option(
    "--sentence",
    is_flag=True,
    help="Print the score of every sentence: line number, scores, translation and reference,"
    " tab-separated.",
)
@click.option("--worst-first", is_flag=True, help="With --sentence: in order of the first score.")
@click.option(
    "--model-score",
    is_flag=True,
    help="Print what the model thinks of --hyp as a translation of --src: line number,"
    " log-probability, and that over the length penalty, tab-separated; with --json every token.",
)
@click.option("--src", "src_path", type=PathArgument, help="Source text for --model-score.")
@click.option("--hyp", "hyp_path", type=PathArgument, help="Its translations.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def score(
    hypotheses: tuple[Path, ...],
    references: tuple[Path, ...],
    run_paths: tuple[Path, ...],
    data_path: Path | None,
    split: Split,
    metrics: tuple[Any, ...],
    protocol: str,
    tgt_lang: str | None,
    paired: bool,
    sentence: bool,
    worst_first: bool,
    model_score: bool,
    src_path: Path | None,
    hyp_path: Path | None,
    as_json: bool,
    **decode: Any,
) -> None:
    """Score translations with sacreBLEU; each score comes with its signature.

    Without HYP, the newest run translates the test set of its data and that is scored. HYP is a
    file of detokenised translations, or - for standard input, scored against --reference. Several
    files, or several runs, are put into one table; runs of one configuration under different
    seeds are summed up by their mean and standard deviation.
    """
    from mtkit import score as scoring
    from mtkit.checkpoint import seed_groups
    from mtkit.cli import tables as report

    _need_output()
    if len({model_score, src_path is not None, hyp_path is not None}) > 1:
        raise click.UsageError("--model-score, --src and --hyp go together")
    if src_path is not None and hyp_path is not None:
        useless: list[Any] = [hypotheses, references, run_paths[1:], data_path, metrics]
        useless += [
            split != "test",
            protocol != "wmt",
            tgt_lang,
            paired,
            sentence,
            worst_first,
            decode["workers"],
        ]
        if any(useless):
            raise click.UsageError("--model-score takes one run, --src and --hyp, and no more")
        if src_path == hyp_path == Path("-"):
            raise click.UsageError("standard input (-) can be read once")
        run = _find_run(run_paths[0] if run_paths else None)
        _print(report.model_scores(_scored(run, src_path, hyp_path, decode), as_json=as_json))
        return
    for_runs = {"run": run_paths, "data": data_path, **decode, "device": None}
    if hypotheses and (given := [name for name, value in for_runs.items() if value]):
        option = f"--{given[0].replace('_', '-')}"
        raise click.UsageError(f"{option} is about translating; HYP is translated already")
    if references and not hypotheses:
        raise click.UsageError("--reference needs HYP, the translations to score")
    if worst_first and not sentence:
        raise click.UsageError("--worst-first orders what --sentence prints")
    if tgt_lang is not None and (protocol != "paper" or not tgt_lang):
        raise click.UsageError("--tgt-lang names the language of HYP for --protocol paper")
    runs = [] if hypotheses else [_find_run(path) for path in run_paths or (None,)]
    if paired and len(hypotheses or runs) < 2:
        raise click.UsageError("--paired compares systems: give two or more HYP or --run")
    if paired:
        # Before anything is translated.
        scoring.check_seed()
    if sentence and (paired or len(hypotheses or runs) > 1):
        raise click.UsageError("--sentence is for one system")
    if runs and tgt_lang is None:
        tgt_lang = runs[0].manifest.data.tgt_lang or None
    wanted: list[scoring.Metric] = list(dict.fromkeys(metrics)) or ["bleu"]
    if protocol == "paper":
        if tgt_lang is None:
            raise click.UsageError("--protocol paper needs --tgt-lang, for its tokeniser")
        # The two stand side by side, whatever else was asked for.
        wanted = ["bleu", "paper", *(metric for metric in wanted if metric != "bleu")]

    if runs:
        systems, reference_sets = _systems_of_runs(runs, data_path, split, decode)
    else:
        systems, reference_sets = _systems_of_files(hypotheses, references)
    if protocol == "paper":
        log.info("%s", scoring.PAPER_NOTE)
    if paired:
        scoring.note_twins(systems)
    how = {"tgt_lang": tgt_lang}
    if sentence:
        (system,) = systems
        of_lines = [
            scoring.sentence_scores(system.translations, reference_sets, metric=metric, **how)
            for metric in wanted
        ]
        for scores in of_lines:
            log.info("%s %s", scores[0].name, scores[0].signature)
        order = {"worst_first": worst_first, "as_json": as_json}
        _print(report.sentences(system, reference_sets, of_lines, **order))
        return
    by_metric = [
        scoring.compare(systems, reference_sets, metric=metric, **how)
        if paired
        else [scoring.score(s.translations, reference_sets, metric=metric, **how) for s in systems]
        for metric in wanted
    ]
    names, groups = [one_line(system.name) for system in systems], seed_groups(runs)
    _print(report.scores(names, by_metric, groups, as_json=as_json, width=_width()))


@commands.command(
    epilog=_example("mtkit export runs/demo-en-de-demo demo-ct2 --format ctranslate2")
)
@click.argument("run_path", metavar="RUN", type=PathArgument)
@click.argument("out", type=PathArgument)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["ctranslate2", "huggingface", "safetensors"]),
    required=True,
    help="CTranslate2, a MarianMTModel of transformers, or a run folder of one checkpoint.",
)
@_checkpoint_option
@click.option(
    "--quantization",
    type=click.Choice(["float32", "float16", "int8"]),
    help="How CTranslate2 keeps the matrices; default: float32.",
)
@click.option(
    "--check",
    type=PathArgument,
    metavar="FILE",
    help="Source text to check with; default: the validation text of the run's data.",
)
@click.option("--force", is_flag=True, help="Replace OUT if it is an earlier export.")
def export(
    run_path: Path,
    out: Path,
    format_: Any,
    checkpoint: str | None,
    quantization: Any,
    check: Path | None,
    force: bool,
) -> None:
    """Write the model of the run folder RUN into the folder OUT, for other software.

    What was written is loaded again by the software it is for, and translates up to 500 lines;
    where it does not do what the run does, nothing is left at OUT.
    """
    if quantization is not None and format_ != "ctranslate2":
        raise click.UsageError("--quantization is for --format ctranslate2")
    run = _find_run(run_path)
    from mtkit.convert import export as export_run

    usage = export_run(
        run,
        out,
        format=format_,
        checkpoint=checkpoint,
        quantization=quantization or "float32",
        check=check,
        force=force,
    )
    log.info("wrote %s; to use it:", out)
    if log.isEnabledFor(logging.INFO):
        _say(usage.rstrip())


def _forecast(config: Config, data_path: Path | None, device: str, world_size: int) -> str:
    """What a dry run prints; a shape can be looked at before there is any data."""
    from mtkit import train as training
    from mtkit.data import find_data

    if data_path is None:
        try:
            find_data(DATA_ROOT)
        except MtkitError:
            return training.forecast_without_data(config)
    data = _find_data(data_path)
    return training.forecast(config, data, device=device, world_size=world_size)


# Finding things, and saying what was found


def _find_data(path: Path | None) -> PreparedData:
    from mtkit import data

    if path is None:
        path = data.find_data(DATA_ROOT)
        log.info("data: %s", path)
    return data.PreparedData.open(path)


def _find_run(path: Path | None) -> Run:
    from mtkit import checkpoint

    return checkpoint.Run.open(path) if path else checkpoint.find_run(RUNS_ROOT)


def _data_of(run: Run, path: Path | None) -> PreparedData:
    """The data a run was trained on, held to its checksum unless it was named."""
    from mtkit.data import PreparedData

    if path is not None:
        return PreparedData.open(path)
    try:
        data = PreparedData.open(run.data_path)
    except MtkitError as error:
        raise MtkitError(
            f"the test set of {run.path} is not there any more ({error}); "
            "give --data, or HYP and --reference"
        ) from error
    if data.fingerprint != run.data_fingerprint:
        raise MtkitError(
            f"{data.path}: was prepared anew since {run.path} was trained on it; "
            "give --data to score on it all the same"
        )
    return data


def _systems_of_files(
    hypotheses: tuple[Path, ...], references: tuple[Path, ...]
) -> tuple[list[System], list[list[str]]]:
    from mtkit.score import System, refuse_unequal

    if not references:
        raise click.UsageError("HYP needs at least one --reference")
    if [*hypotheses, *references].count(Path("-")) > 1:
        raise click.UsageError("standard input (-) can be read once")
    systems = [System(str(path), list(_lines_of(path))) for path in hypotheses]
    reference_sets = [list(_lines_of(path)) for path in references]
    for system in systems:
        for path, lines in zip(references, reference_sets, strict=True):
            refuse_unequal(system.name, system.translations, str(path), lines)
    return systems, reference_sets


def _systems_of_runs(
    runs: list[Run], data_path: Path | None, split: Split, decode: dict[str, Any]
) -> tuple[list[System], list[list[str]]]:
    """The translations of every run; all of the same text."""
    from mtkit.score import System

    texts = [_data_of(run, data_path).text(split) for run in runs]
    for run, text in zip(runs, texts, strict=True):
        if text != texts[0]:
            raise MtkitError(
                f"{run.path} was trained on data with another {split} text than {runs[0].path}; "
                "scores on them cannot be compared (give --data to take one for all)"
            )
    src, tgt = texts[0]
    from mtkit.cli.progress import shown_progress
    from mtkit.translate import Window, windows

    systems = []
    for run in runs:
        found: list[str] = []
        with (
            _load_translator([run], **decode) as translator,
            shown_progress(len(src), is_wanted=log.isEnabledFor(logging.INFO)) as progress,
        ):
            given = (Window(first, lines) for first, lines in windows(src, size=len))
            for window in translator.translate_windows(given, progress=progress.advance):
                found += [best.text for best, *_ in window]
                progress.finish(len(found))
        systems.append(System(str(run.path), found))
    return systems, [tgt]


def _scored(run: Run, src_path: Path, hyp_path: Path, decode: dict[str, Any]) -> Iterator[Scored]:
    from mtkit.score import refuse_unequal

    sources, translations = list(_lines_of(src_path)), list(_lines_of(hyp_path))
    refuse_unequal(str(hyp_path), translations, str(src_path), sources)
    translator = _load_translator([run], **decode | {"workers": 1})
    return translator.score_given(sources, translations)


def _load_translator(
    runs: Sequence[Run],
    *,
    checkpoint: str | None,
    device: str,
    workers: int | None,
    **settings: Any,
) -> Translator:
    """Of runs; `settings` are those of the first one's `decode` that are not None."""
    from mtkit.config import change_decoding
    from mtkit.devices import given_rank, workers_wanted
    from mtkit.translate import Translator

    changes = {key: value for key, value in settings.items() if value is not None}
    config = change_decoding(runs[0].config.decode, changes)
    if workers is None:
        # A worker among others has its GPU already.
        workers = workers_wanted(device) if given_rank() is None else 1
    return Translator.load(
        runs, checkpoint=checkpoint, config=config, device=device, workers=workers
    )


# Reading and printing


def _lines_of(path: Path) -> Iterator[str]:
    from mtkit.data import decode_lines, read_lines

    if str(path) == "-":
        return decode_lines(standard_input(), name="standard input")
    return read_lines(path)


def _keeps_parts(output: Path | None) -> bool:
    """Whether the output is a file that can appear as a whole; a device or a pipe cannot."""
    return output is not None and (output.is_file() or not output.exists())


def _print(text: str) -> None:
    click.echo(text, nl=False)


def _width() -> int:
    """Characters of a line of standard output; a file or pipe has no limit."""
    from mtkit.cli import tables as report

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else report.UNBROKEN


def _need_output() -> None:
    """Refuse a closed standard output before the work whose result would go there."""
    if not has_output():
        raise MtkitError("standard output is closed")


def _say(message: str) -> None:
    click.echo(message, err=True)


def _say_error(message: str) -> None:
    _say(f"mtkit: error: {one_line(message)}")


class _NoteHandler(logging.Handler):
    """Notes on standard error, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        prefix = "mtkit: "
        if record.levelno >= logging.WARNING:
            prefix += f"{record.levelname.lower()}: "
        tqdm.write(prefix + one_line(record.getMessage()), file=sys.stderr)


def _configure_logging(*, quiet: bool) -> None:
    package = logging.getLogger("mtkit")
    level = logging.WARNING if quiet else logging.INFO
    # The first worker says what all have to say; only errors are each one's own.
    package.setLevel(logging.ERROR if _is_later_worker() else level)
    package.handlers = [_NoteHandler()]
    package.propagate = False
