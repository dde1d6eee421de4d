"""The commands: parse, call the floors below, print.

Standard output carries data only; notes, progress and errors go to standard error. What a command
needs is imported inside it, so that help answers at once.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from mtkit import __version__
from mtkit.errors import MtkitError

if TYPE_CHECKING:
    from mtkit.checkpoint import Run
    from mtkit.config import DecodeConfig
    from mtkit.data import PreparedData
    from mtkit.prepare import Report

log = logging.getLogger(__name__)

DATA_ROOT = Path("data")
RUNS_ROOT = Path("runs")

Command = TypeVar("Command", bound=Callable[..., Any])
PathArgument = click.Path(path_type=Path)


def main() -> None:
    """The program `mtkit`: runs a command and turns what went wrong into a line and a status."""
    try:
        # Click would answer an interrupt with 1; standalone_mode=False leaves that to us.
        status = commands.main(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        _say(f"mtkit: error: {error.format_message()}{hint}")
        sys.exit(error.exit_code)
    except MtkitError as error:
        _say(f"mtkit: error: {error}")
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        _say("mtkit: interrupted")
        sys.exit(130)


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


def _decode_options(function: Command) -> Command:
    for option in (
        click.option(
            "--checkpoint",
            metavar="WHICH",
            help="average:N, best, last or a step; default: the"
            " average that the run's configuration asks for.",
        ),
        click.option("--beam-size", type=click.IntRange(1), help="Hypotheses kept per sentence."),
        click.option("--length-penalty", type=float, help="alpha of ((5 + length) / 6) ** alpha."),
        click.option(
            "--batch-tokens", type=click.IntRange(1), help="Source tokens translated at a time."
        ),
        _device_option,
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
    "--valid", type=(PathArgument, PathArgument), metavar="SRC TGT", help="Own validation files."
)
@click.option(
    "--test", type=(PathArgument, PathArgument), metavar="SRC TGT", help="Own test files."
)
@click.option(
    "--vocab-size",
    type=click.IntRange(1),
    help="Pieces of the joint BPE; default: the catalogue's, or 37,000 for own files.",
)
@click.option("--out", type=PathArgument, help="Folder to write; default: data/NAME.")
@click.option("--force", is_flag=True, help="Replace the folder if it exists.")
def prepare(
    name: str | None,
    list_corpora: bool,
    src_lang: str | None,
    tgt_lang: str | None,
    train: tuple[tuple[Path, Path], ...],
    valid: tuple[Path, Path] | None,
    test: tuple[Path, Path] | None,
    vocab_size: int | None,
    out: Path | None,
    force: bool,
) -> None:
    """Make training data of a corpus: fetch, clean, learn subwords, encode.

    NAME is a corpus of the catalogue (--list prints it), or any name for own files, which are
    given with --src-lang, --tgt-lang, --train and --valid.
    """
    if list_corpora:
        _print_catalogue()
        return
    if name is None:
        raise click.UsageError("give the NAME of a corpus; mtkit prepare --list prints them")
    if Path(name).name != name or name.startswith("."):
        raise click.UsageError(f"NAME: {name!r} cannot be the name of a folder under data/")
    own = {"--src-lang": src_lang, "--tgt-lang": tgt_lang, "--train": train, "--valid": valid}
    missing = [option for option, value in own.items() if not value]
    target = out or DATA_ROOT / name
    from mtkit.prepare import prepare_corpus, prepare_files

    if len(missing) == len(own) and test is None:
        report = prepare_corpus(name, target, vocab_size=vocab_size, force=force)
    elif missing:
        raise click.UsageError(f"own files need {', '.join(own)}; missing: {', '.join(missing)}")
    else:
        assert src_lang is not None
        assert tgt_lang is not None
        assert valid is not None
        report = prepare_files(
            name,
            target,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            train=list(train),
            valid=valid,
            test=test,
            vocab_size=vocab_size,
            force=force,
        )
    _print_report(report)


@commands.command(epilog=_example("mtkit train --config demo"))
@click.option(
    "--config",
    "config_name",
    required=True,
    metavar="FILE_OR_PRESET",
    help="A YAML file, or a preset: base, big, small or demo.",
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
@click.option("--restart", is_flag=True, help="Begin again, deleting the run's checkpoints.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check everything, print the configuration with a forecast of memory and time, and stop.",
)
def train(
    config_name: str,
    data_path: Path | None,
    run_path: Path | None,
    overrides: tuple[str, ...],
    device: str,
    restart: bool,
    dry_run: bool,
) -> int:
    """Train a model on prepared data.

    Continues by itself where the run folder has a checkpoint of the same configuration and data.
    Ctrl-C saves and stops.
    """
    from mtkit import config as settings

    config = settings.load_config(config_name, overrides)
    data = _find_data(data_path or (Path(config.data.dir) if config.data.dir else None))
    from mtkit import train as training

    if dry_run:
        click.echo(training.forecast(config, data, device=device), nl=False)
        return 0
    target = run_path or RUNS_ROOT / f"{data.name}-{settings.config_name(config_name)}"
    finished = training.run(config, data, target, device=device, restart=restart, command=sys.argv)
    return 0 if finished else 130


@commands.command(epilog=_example("echo 'The old woman reads a book.' | mtkit translate"))
@_run_option
@click.option("--input", "input_path", type=PathArgument, help="File; default: standard input.")
@click.option("--output", "output_path", type=PathArgument, help="File; default: standard output.")
@_decode_options
@click.option(
    "--nbest",
    type=click.IntRange(1),
    help="Print this many translations of each line: line number, score and text, tab-separated.",
)
def translate(
    run_path: Path | None,
    input_path: Path | None,
    output_path: Path | None,
    checkpoint: str | None,
    beam_size: int | None,
    length_penalty: float | None,
    batch_tokens: int | None,
    device: str,
    nbest: int | None,
) -> None:
    """Translate lines of text: one line in, one line out, in order."""
    run = _find_run(run_path)
    from mtkit.data import decode_lines, open_binary
    from mtkit.translate import Translator, ready_lines

    with ExitStack() as stack:
        if input_path is None:
            if sys.stdin.isatty():
                log.info("translating what you type; end with Ctrl-D")
            lines = decode_lines(sys.stdin.buffer, name="standard input")
        else:
            source = stack.enter_context(open_binary(input_path))
            lines = decode_lines(source, name=str(input_path))
        output = stack.enter_context(_output(output_path))
        config = _decode_config(run, beam_size, length_penalty, batch_tokens)
        translator = Translator.load(run, checkpoint=checkpoint, config=config, device=device)
        number = 0
        for window in ready_lines(lines):
            found = translator.translate_window(window, first_line=number + 1, n_best=nbest or 1)
            for translations in found:
                number += 1
                if nbest is None:
                    output.write(f"{translations[0].text}\n".encode())
                    continue
                for translation in translations:
                    row = f"{number}\t{translation.score:.6f}\t{translation.text}\n"
                    output.write(row.encode())
            output.flush()


@commands.command(epilog=_example("mtkit score"))
@click.argument("hypotheses", metavar="[HYP]", required=False, type=PathArgument)
@click.option(
    "--reference",
    "references",
    type=PathArgument,
    multiple=True,
    help="References for HYP; repeatable for several sets.",
)
@_run_option
@click.option(
    "--data",
    "data_path",
    type=PathArgument,
    help="Prepared folder with the test set; default: the one the run was trained on.",
)
@_decode_options
@click.option(
    "--metric",
    "metrics",
    type=click.Choice(["bleu", "chrf", "ter"]),
    multiple=True,
    help="Repeatable; default: bleu.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def score(
    hypotheses: Path | None,
    references: tuple[Path, ...],
    run_path: Path | None,
    data_path: Path | None,
    checkpoint: str | None,
    beam_size: int | None,
    length_penalty: float | None,
    batch_tokens: int | None,
    device: str,
    metrics: tuple[Any, ...],
    as_json: bool,
) -> None:
    """Score translations with sacreBLEU; each score comes with its signature.

    Without HYP, the newest run translates the test set of its data and that is scored. HYP is a
    file of detokenised translations, or - for standard input, scored against --reference.
    """
    from mtkit import score as scoring

    if hypotheses is not None:
        if not references:
            raise click.UsageError("HYP needs at least one --reference")
        translated = list(_lines_of(hypotheses))
        reference_sets = [list(_lines_of(path)) for path in references]
        for path, lines in zip(references, reference_sets, strict=True):
            if len(lines) != len(translated):
                raise MtkitError(
                    f"{hypotheses} has {len(translated)} lines and {path} has {len(lines)}; "
                    "line n of one must be scored against line n of the other"
                )
    elif references:
        raise click.UsageError("--reference needs HYP, the translations to score")
    else:
        run = _find_run(run_path)
        src, tgt = _data_of(run, data_path).text("test")
        from mtkit.translate import Translator

        config = _decode_config(run, beam_size, length_penalty, batch_tokens)
        translator = Translator.load(run, checkpoint=checkpoint, config=config, device=device)
        translated = list(_with_bar(translator.translate(src), total=len(src)))
        reference_sets = [tgt]
    scores = [
        scoring.score(translated, reference_sets, metric=metric) for metric in metrics or ("bleu",)
    ]
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps([asdict(value) for value in scores], indent=2))
    else:
        for value in scores:
            click.echo(str(value))


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


def _decode_config(
    run: Run, beam_size: int | None, length_penalty: float | None, batch_tokens: int | None
) -> DecodeConfig:
    given = {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "batch_tokens": batch_tokens,
    }
    changes = {key: value for key, value in given.items() if value is not None}
    return run.config.decode.model_copy(update=changes)


# Reading and printing


def _lines_of(path: Path) -> Iterator[str]:
    from mtkit.data import decode_lines, read_lines

    if str(path) == "-":
        return decode_lines(sys.stdin.buffer, name="standard input")
    return read_lines(path)


@contextmanager
def _output(path: Path | None) -> Iterator[IO[bytes]]:
    """Standard output, or a file that appears under its name when it is whole."""
    if path is None:
        yield sys.stdout.buffer
        return
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            partial.unlink()


def _with_bar(lines: Iterable[str], *, total: int) -> Iterable[str]:
    from tqdm import tqdm

    bar: Iterable[str] = tqdm(
        lines, desc="translating", total=total, unit=" lines", leave=False, disable=None
    )
    return bar


def _print_catalogue() -> None:
    from rich.console import Console
    from rich.table import Table

    from mtkit.corpora import CATALOGUE

    table = Table(box=None, pad_edge=False)
    for heading in ("NAME", "PAIRS", "DOWNLOAD", "PIECES", "LICENCE", "SOURCE"):
        table.add_column(heading, justify="right" if heading in ("PAIRS", "PIECES") else "left")
    for corpus in CATALOGUE:
        table.add_row(
            corpus.name,
            f"{corpus.train_pairs:,}",
            "none" if corpus.download_mb is None else f"{corpus.download_mb:,} MB",
            f"{corpus.vocab_size:,}",
            corpus.licence,
            corpus.source,
        )
    # Into a file or pipe a row stays on its line.
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _print_report(report: Report) -> None:
    kept = report.pairs["train"] - sum(report.dropped.values())
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("training pairs read", f"{report.pairs['train']:,}")
    for reason, count in report.dropped.items():
        table.add_row(f"  dropped: {reason}", f"{count:,}")
    table.add_row("training pairs kept", f"{kept:,}")
    table.add_row("  source tokens", f"{report.tokens[0]:,}")
    table.add_row("  target tokens", f"{report.tokens[1]:,}")
    table.add_row("validation pairs", f"{report.pairs['valid']:,}")
    table.add_row("test pairs", f"{report.pairs['test']:,}")
    table.add_row("pieces", f"{report.vocab_size:,}")
    if log.isEnabledFor(logging.INFO):
        Console(stderr=True).print(table)
    log.info("wrote %s", report.path)


def _say(message: str) -> None:
    click.echo(message, err=True)


class _NoteHandler(logging.Handler):
    """Notes on standard error, above a progress bar where there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        prefix = "mtkit: " if record.levelno < logging.WARNING else "mtkit: warning: "
        tqdm.write(prefix + record.getMessage(), file=sys.stderr)


def _configure_logging(*, quiet: bool) -> None:
    package = logging.getLogger("mtkit")
    package.setLevel(logging.WARNING if quiet else logging.INFO)
    package.handlers = [_NoteHandler()]
    package.propagate = False
