"""What several commands share: groups of options, checks between options, and data, runs, text."""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from mtkit.base.errors import MtkitError, one_line
from mtkit.cli.console import standard_input

if TYPE_CHECKING:
    from mtkit.data import PreparedData
    from mtkit.run_folder import Run
    from mtkit.translate import Translator


log = logging.getLogger(__name__)

DATA_ROOT = Path("data")
RUNS_ROOT = Path("runs")

One = TypeVar("One")
Other = TypeVar("Other")
# What adds options to the function of a command.
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _GivenPath(click.Path):
    """A path that is not empty, because an empty one would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("is empty; give a path", param, ctx)
        if str(value).startswith("--") and not os.path.lexists(value):
            self.fail(f"{value}: is an option, not a path; give all paths before it", param, ctx)
        return super().convert(value, param, ctx)


PathArgument = _GivenPath(path_type=Path)
# Text that has a path in it, or may be one.
PathText = _GivenPath()

# Characters of the first column of a help page; a longer option has a line to itself.
_OPTION_WIDTH = 26


# ---------------------------------------------------------------------------------------------
# Help


# The type of an option by what stands for its value in the help; text for all others.
_TYPES = {
    "FILE": PathArgument,
    "FOLDER": PathArgument,
    "PATH": PathArgument,
    "N": click.IntRange(1),
}

# Threads or processes; more than the CPUs of any machine only need memory.
WORKERS = click.IntRange(1, 1024)


class GroupedOption(click.Option):
    """An option that is printed in a group of the help, under this heading.

    It is declared as in the help: `--force` is a flag, `--out FOLDER` has a value of this name,
    and `--format [text|html]` one of two.
    """

    def __init__(self, declarations: Sequence[str], *, group: str, **attributes: Any) -> None:
        option, _, value = declarations[0].partition(" ")
        if value.startswith("["):
            attributes["type"] = click.Choice(value[1:-1].split("|"))
        elif value:
            attributes = {"type": _TYPES.get(value), "metavar": value} | attributes
        elif "type" not in attributes:
            attributes["is_flag"] = True
        super().__init__([option, *declarations[1:]], **attributes)
        self.group = group

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What stands in brackets after the help: not the range, which an error names."""
        return {key: fact for key, fact in super().get_help_extra(ctx).items() if key != "range"}


class Command(click.Command):
    """A command whose help has its options in groups, in the order of their first options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group; `--help` itself is in the last one."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and isinstance(parameter, click.Option):
                group = getattr(parameter, "group", INFORMATION)
                groups.setdefault(group, []).append(row)
        groups[INFORMATION] = groups.pop(INFORMATION)
        for heading, rows in groups.items():
            with formatter.section(heading):
                # Padded, so that all groups have one second column.
                padded = [(option.ljust(_OPTION_WIDTH), text) for option, text in rows]
                formatter.write_dl(padded, col_max=_OPTION_WIDTH)


def option_group(heading: str) -> Callable[..., Decorator]:
    """`click.option` for the options of one group of the help."""
    return partial(click.option, cls=GroupedOption, group=heading)


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator."""
    return lambda function: reduce(lambda command, add: add(command), reversed(options), function)


INFORMATION = "Information"
in_out_option = option_group("Input and output")
model_option = option_group("Model")
search_option = option_group("Search")
parsing_option = option_group("Parsing")
hardware_option = option_group("Hardware")
information_option = option_group(INFORMATION)


def command(
    short_help: str, *examples: str, cls: type[Command] = Command, **attributes: Any
) -> Callable[..., Command]:
    """`click.command` for a command whose help ends with examples, which run as printed."""
    epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in examples)])
    return click.command(cls=cls, short_help=short_help, epilog=epilog, **attributes)


# ---------------------------------------------------------------------------------------------
# Checks between options


def given(*names: str) -> list[str]:
    """Those of these parameters that are on the command line, as a user writes them."""
    context, written = click.get_current_context(), list[str]()
    for option in context.command.params:
        name = option.name or ""
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            is_off = context.params.get(name) is False and bool(option.secondary_opts)
            written.append((option.secondary_opts if is_off else option.opts)[0])
    return written


def refuse_given(names: Iterable[str], why: str) -> None:
    """Refuse parameters that are given; the error names the first, and `why` follows."""
    if useless := given(*names):
        raise click.UsageError(f"{useless[0]} {why}")


# ---------------------------------------------------------------------------------------------
# Shared options


def _shard(_context: Any, _option: Any, value: str | None) -> tuple[int, int] | None:
    """The numbers of `I/N`."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", value)
    index, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= index <= count:
        raise click.UsageError(
            f"--shard: expected I/N with I from 1 to N, as in 2/8, not {value!r}"
        )
    return index, count


def _named_files(
    _context: Any, _option: Any, values: tuple[str, ...]
) -> tuple[tuple[str, Path], ...]:
    """The name of the metric and the file of each `NAME=FILE`."""
    if not values:
        return ()
    from mtkit.score import METRIC_NAMES

    parts = [value.partition("=") for value in values]
    for value, (name, _, file) in zip(values, parts, strict=True):
        if not name or not file:
            raise click.UsageError(
                f"--segment-scores: expected NAME=FILE, as in COMET=scores.txt, not {value!r}"
            )
        if name.lower() in METRIC_NAMES:
            raise click.UsageError(
                f"--segment-scores: {name} is a metric of mtkit; give these scores another name, "
                "or use --metric"
            )
    return tuple((one_line(name), Path(file)) for name, _, file in parts)


def only_one(_context: Any, option: click.Parameter, paths: tuple[Path, ...]) -> Path | None:
    """The only path of an option, of which Click would silently take the last one."""
    if (count := len(set(paths))) > 1:
        name = option.opts[0]
        raise click.UsageError(f"{name}: give one {name.removeprefix('--')}, not {count}")
    return paths[0] if paths else None


def one_run_option(option: Callable[..., Decorator], *, help: str) -> Decorator:
    """`--run`, of a command that reads or writes one run, in the group of `option`."""
    return option("--run FOLDER", "run_path", multiple=True, callback=only_one, help=help)


run_option = one_run_option(model_option, help="Run folder. Default: the newest under runs/.")

checkpoint_option = model_option(
    "--checkpoint WHICH",
    help="Checkpoint to use: average:N (the average of the newest N), best, last, or a step."
    " Default: the average that the configuration of the run sets.",
)

language_options = together(
    model_option(
        "--src-lang L",
        help="Source language, of a model with several. It changes no translation, but a"
        " direction that was not trained is reported.",
    ),
    model_option("--tgt-lang L", help="Target language, of a model with several."),
)

output_option = in_out_option(
    "--output FILE",
    "output_path",
    help="Output file, compressed if its name ends in .gz, .bz2, .xz or .zst. Default, or -:"
    " standard output.",
)

output_options = together(
    output_option,
    in_out_option(
        "--restart",
        help="With --output: discard the partial results of an interrupted run and start over.",
    ),
    in_out_option(
        "--shard I/N",
        callback=_shard,
        help="Only the I-th of N parts of the lines of the input file. The outputs of all parts, in"
        " order, are the output of the whole file.",
    ),
)

json_option = in_out_option("--json", "as_json", help="Print JSON.")

# Which text of the data of runs is translated.
data_text_options = together(
    in_out_option(
        "--data FOLDER",
        "data_path",
        help="Prepared folder with the text. Default: the one that the run was trained on.",
    ),
    in_out_option(
        "--split [test|valid]",
        default="test",
        help="Translate the test set (default) or the validation set of the data.",
    ),
)

references_option = in_out_option(
    "--reference FILE",
    "references",
    multiple=True,
    help="File of reference translations, one per line. Repeatable, for several references.",
)

test_set_option = in_out_option(
    "--test-set NAME[:SRC-TGT]",
    "test_set",
    help="Test set of sacreBLEU, such as wmt14/full:en-de, downloaded the first time. With a"
    " run, the languages may be left out. `sacrebleu --list` prints the names.",
)


def segment_score_options(option: Callable[..., Decorator]) -> Decorator:
    """`--segment-scores` and `--lower-is-better`, in the group of `option`."""
    return together(
        option(
            "--segment-scores NAME=FILE",
            "segment_scores",
            multiple=True,
            callback=_named_files,
            help="Scores that another program (COMET, MetricX) or a person gave to each line: one"
            " number per line, tab-separated columns, or JSON lines. The score is their mean. With"
            " several systems, give it once for each, in the same order.",
        ),
        option(
            "--lower-is-better NAME",
            "lower_is_better",
            multiple=True,
            help="Lower scores of this metric of --segment-scores are better. Repeatable.",
        ),
    )


def runs_option(several: str) -> Decorator:
    """`--run`, of a command that takes several, and what it does with them."""
    text = f"Run folder. Repeatable: {several}. Default: the newest under runs/."
    return model_option("--run FOLDER", "run_paths", multiple=True, help=text)


scored_runs_option = runs_option("several runs are compared")

length_penalty_option = search_option(
    "--length-penalty ALPHA",
    type=float,
    help="Length penalty alpha: higher favours longer translations, 0 is off.",
)

beam_options = together(
    search_option("--beam-size N", help="Beam size. 1: greedy search."),
    length_penalty_option,
    search_option(
        "--stop [auto|exact|likely]",
        help="When beam search ends a sentence. exact: when no other hypothesis can win. likely:"
        " when none can win within three more subwords, which is faster, most of all on text unlike"
        " the training text. auto (default): exact, but likely for translate and serve.",
    ),
)

whole_lines_option = search_option(
    "--split-sentences/--no-split-sentences",
    default=None,
    help="Translate the sentences of a line one by one. Default: each line as a whole, as"
    " published scores are.",
)

well_formed_option = parsing_option(
    "--well-formed/--no-well-formed",
    "well_formed_trees",
    default=None,
    help="Search only among well-formed trees, so that none needs to be repaired.",
)

device_option = hardware_option(
    "--device [auto|cpu|cuda]",
    default="auto",
    help="Device to compute on. auto (default): a GPU if there is one, else the CPU.",
)

precision_option = hardware_option(
    "--precision [auto|fp32|bf16|int8]",
    help="Precision of matrix products. auto (default): fp32, but for translate and serve bf16 if"
    " the native engine runs on a CPU with AMX, or on AMD since Zen 4. int8 is the fastest on most"
    " CPUs, and slightly less accurate.",
)

processes_option = hardware_option(
    "--workers N", type=WORKERS, help="Processes. Default: one per core."
)

settings_option = information_option(
    "--settings", "list_settings", help="Print every setting and its default."
)

# What PyTorch alone computes is in float32, whatever precision the run translates in.
IN_PYTORCH: dict[str, Any] = {"engine": "torch", "precision": "fp32"}

batch_tokens_option = hardware_option(
    "--batch-tokens N", help="Batch size in source tokens. Lower it if memory runs out."
)

hardware_options = together(
    device_option,
    hardware_option(
        "--engine [auto|native|torch]",
        help="What translates on a CPU: the native engine or PyTorch. auto (default): the native"
        " engine where it can, else PyTorch.",
    ),
    hardware_option(
        "--workers N", type=WORKERS, help="Threads of the native engine. Default: one per core."
    ),
    precision_option,
    batch_tokens_option,
)


# ---------------------------------------------------------------------------------------------
# Data, runs and text


@dataclass(frozen=True)
class DecodeOptions:
    """Changes of the `decode` section, and other arguments of `Translator.load`."""

    changes: dict[str, Any]
    others: dict[str, Any]

    @classmethod
    def parse(cls, **values: Any) -> DecodeOptions:
        """From the values of the decoding options; None leaves the setting of the run."""
        names = {"checkpoint", "device", "workers", "src_lang", "tgt_lang"} & values.keys()
        others = {name: values.pop(name) for name in names}
        return cls({key: v for key, v in values.items() if v is not None}, others)

    def setting(self, run: Run, name: str) -> Any:
        """The value that a setting has: that of the option, else that of the run."""
        return self.changes.get(name, getattr(run.config.decode, name))

    def load(self, runs: Sequence[Run], **more: Any) -> Translator:
        """A translator with one run, or an ensemble of several; `more` come before `others`."""
        from mtkit.config import change_decoding
        from mtkit.translate import Translator

        config = change_decoding(runs[0].config.decode, self.changes)
        return Translator.load(runs, config=config, **self.others | more)


def keep_few_shapes() -> None:
    """Limit the memory for compiled shapes, before PyTorch is loaded; the user may set others."""
    # PyTorch keeps what it has compiled for shapes of matrices, up to 1,024 of them, and some take
    # a megabyte. A server, or a long text in HTML, has that many, and compiling again is cheap.
    os.environ.setdefault("LRU_CACHE_CAPACITY", "64")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")


def open_data(path: Path | None) -> PreparedData:
    """A prepared folder; without a path the newest one."""
    from mtkit import data

    if path is None:
        path = data.find_data(DATA_ROOT)
        log.info("data: %s", path)
    return data.PreparedData.open(path)


def open_run(path: Path | None) -> Run:
    """A run; without a path the newest one, and a note if that is not finished."""
    from mtkit import run_folder

    if path:
        return run_folder.Run.open(path)
    run = run_folder.find_run(RUNS_ROOT)
    step, last = run.checkpoints()[-1].step, run.config.train.last_step
    if step < last and not run.manifest.converted_by:
        log.info(
            "%s: the newest run; it is still training, or was stopped, at step %d of %d",
            run.path,
            step,
            last,
        )
    return run


def refuse_parser(run: Run) -> None:
    """Refuse a run of another task, for a command that is for translations."""
    if run.manifest.data.task != "translation":
        command = click.get_current_context().command_path
        raise MtkitError(
            f"{run.path}: is a parser, and {command} is for translations; give another run"
        )


def data_of(run: Run, path: Path | None = None, *, advice: str) -> PreparedData:
    """The data of a run, or where they were moved to; an error with advice if gone or changed."""
    from mtkit.data import PreparedData, is_prepared

    if path is None and not is_prepared(run.data_path):
        raise MtkitError(f"{run.path}: its data, {run.data_path}, is not there; {advice}")
    data = PreparedData.open(path or run.data_path)
    if data.fingerprint != run.manifest.data.fingerprint:
        raise MtkitError(
            f"{data.path}: is not what {run.path} was trained on, or was prepared anew; {advice}"
        )
    return data


def identity(run: Run) -> str:
    """The name of a run, and what tells it from others of this name."""
    from mtkit.base.files import sha256_of_json

    return f"{run.path.name} {sha256_of_json(run.manifest.model_dump())[:16]}"


def name_of(path: Path) -> str:
    """The name of an input for messages; - is standard input."""
    return "standard input" if str(path) == "-" else str(path)


def refuse_document(path: Path) -> None:
    """Refuse a document, by its ending, where lines of text are read."""
    from mtkit.base.text import uncompressed_name
    from mtkit.documents import FORMATS, UNREAD

    if uncompressed_name(path).suffix.lower()[1:] in (*FORMATS, *UNREAD):
        command = click.get_current_context().command_path
        raise MtkitError(
            f"{path}: is a document, and {command} reads plain text, one sentence on a line; save "
            "its text as a .txt of such lines"
        )


def lines_of(path: Path, *, keeps_mark: bool = False) -> Iterator[str]:
    """The lines of a file, or of standard input (-), as from `decode_lines`; of no document."""
    from mtkit.base.text import decode_lines, read_lines

    refuse_document(path)
    if str(path) == "-":
        return decode_lines(standard_input(), name=name_of(path), keeps_mark=keeps_mark)
    return read_lines(path, keeps_mark=keeps_mark)


def refuse_stdin_twice(paths: Iterable[Path | None], *, advice: str = "") -> None:
    """Refuse `-` for more than one input."""
    if [*map(str, paths)].count("-") > 1:
        raise click.UsageError(f"standard input (-) can be read once{advice}")


def zip_lines(
    lines: Iterable[One], others: Iterable[Other], *, paths: tuple[Path, Path]
) -> Iterator[tuple[One, Other]]:
    """Each line with the same line of another input; an error at the end of the shorter one."""
    for number, (line, other) in enumerate(itertools.zip_longest(lines, others), start=1):
        if line is None or other is None:
            shorter, longer = map(name_of, paths if line is None else paths[::-1])
            raise MtkitError(f"{shorter}: has no line {number:,}, but {longer} has one")
        yield line, other
