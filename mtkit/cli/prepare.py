"""The command `mtkit prepare`."""

from __future__ import annotations

import logging
import math
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mtkit.cli.console import print_text, say, width
from mtkit.cli.options import (
    DATA_ROOT,
    Command,
    PathArgument,
    examples,
    hardware_option,
    information_option,
    option_group,
    refuse_given,
)

if TYPE_CHECKING:
    from mtkit.data import PreparedData
    from mtkit.prepare import Report, Source

log = logging.getLogger(__name__)

# In the context: the names of the parameters, in the order in which they are on the command line.
_ORDER = "mtkit.prepare.order"


class _OrderedCommand(Command):
    """A command that knows the order of its options.

    Those after a --pair belong to it, and a --tag belongs to the corpus before it.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as usual, and keep their order."""
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[_ORDER] = [parameter.name for parameter in order]
        return super().parse_args(ctx, args)


data_option = option_group("Your data")
several_option = option_group("Several languages")
trees_option = option_group("Your treebank")
cleaning_option = option_group("Cleaning and vocabulary")
output_option = option_group("Output")


@click.command(
    cls=_OrderedCommand,
    short_help="Clean and encode a parallel corpus.",
    epilog=examples(
        "mtkit prepare demo-en-de",
        "mtkit prepare mine --src-lang en --tgt-lang de --vocab-size 8000 \\",
        "  --train train.en train.de --valid valid.en valid.de --test test.en test.de",
        "mtkit prepare mine --src-lang en --tgt-lang de --vocab-size 8000 \\",
        "  --train-from pairs.tsv --valid-from valid.tsv --force",
        "mtkit prepare many --vocab-size 8000 \\",
        "  --pair en de --train train.en train.de --valid valid.en valid.de \\",
        "  --pair de en --train train.de train.en --valid valid.de valid.en",
        "mtkit prepare parser --trees train.trees --valid-trees valid.trees \\",
        "  --vocab-size 8000",
    ),
)
@click.argument("name", required=False)
@data_option("--src-lang", metavar="L", help="Language code of the source, such as en.")
@data_option("--tgt-lang", metavar="L", help="Language code of the target, such as de.")
@data_option(
    "--train",
    type=(PathArgument, PathArgument),
    multiple=True,
    metavar="SRC TGT",
    help="Training corpus as two files with one sentence per line, plain or compressed (.gz, .bz2,"
    " .xz, .zst). Repeatable.",
)
@data_option(
    "--train-from",
    multiple=True,
    metavar="SOURCE",
    help="Training corpus in another form: a .tsv, .tmx, .parquet or .jsonl file with both sides;"
    " hf:OWNER/DATASET[:CONFIG][:SPLIT] on the Hugging Face hub; or a file name without its"
    " language, such as news for news.en and news.de. Repeatable.",
)
@data_option(
    "--weight",
    type=click.FloatRange(0, min_open=True),
    multiple=True,
    metavar="W",
    help="Oversampling factor of each corpus: first of each --train, then of each --train-from."
    " Give one per corpus, or none.",
)
@data_option(
    "--tag",
    multiple=True,
    metavar="NAME",
    help="Tag of the --train or --train-from before it, such as bt for back-translations: its"
    " sources begin with this token, so that the model can tell them from others.",
)
@data_option(
    "--alignments",
    type=PathArgument,
    multiple=True,
    metavar="FILE",
    help="Word alignments of each training corpus, as an aligner prints them (0-0 1-2), for"
    " train.guided_alignment: first of each --train, then of each --train-from.",
)
@data_option(
    "--valid",
    type=(PathArgument, PathArgument),
    multiple=True,
    metavar="SRC TGT",
    help="Validation set as two files.",
)
@data_option(
    "--valid-from",
    multiple=True,
    metavar="SOURCE",
    help="Validation set in a form of --train-from.",
)
@data_option(
    "--valid-also",
    type=(str, PathArgument, PathArgument),
    multiple=True,
    metavar="NAME SRC TGT",
    help="A further validation set, as two files, that training measures too: with general text,"
    " for example, it shows what fine-tuning forgets. Repeatable.",
)
@data_option(
    "--test",
    type=(PathArgument, PathArgument),
    multiple=True,
    metavar="SRC TGT",
    help="Test set as two files.",
)
@data_option(
    "--test-from", multiple=True, metavar="SOURCE", help="Test set in a form of --train-from."
)
@several_option(
    "--pair",
    type=(str, str),
    multiple=True,
    metavar="SRC TGT",
    help="Source and target language of a direction of a multilingual model, such as en de. The"
    " options of its data follow, up to the next --pair. Repeatable.",
)
@several_option(
    "--temperature",
    type=click.FloatRange(1),
    metavar="T",
    help="Sample from each --pair in proportion to the number of its pairs to the power 1/T."
    " 1 (default): as they are. 5, for example: much more of the small ones.",
)
@trees_option(
    "--trees",
    type=PathArgument,
    multiple=True,
    metavar="FILE",
    help="Training treebank for parsing, bracketed as the Penn Treebank, plain or compressed."
    " Repeatable.",
)
@trees_option(
    "--self-trained",
    type=PathArgument,
    multiple=True,
    metavar="FILE",
    help="Trees that another parser wrote, as further training data. Repeatable. --weight takes"
    " first the factor of each --trees, then that of each --self-trained.",
)
@trees_option("--valid-trees", type=PathArgument, metavar="FILE", help="Validation trees.")
@trees_option("--test-trees", type=PathArgument, metavar="FILE", help="Test trees.")
@cleaning_option(
    "--vocab-size",
    type=click.IntRange(1),
    metavar="N",
    help="Vocabulary size of the BPE. Default: that of the catalogue, or 37,000 for your data. For"
    " trees, that of their sentences, by default 16,000.",
)
@cleaning_option(
    "--tokenizer-from",
    type=PathArgument,
    metavar="FOLDER",
    help="Run folder or prepared folder whose subwords are used, instead of learning new ones. To"
    " train a model further, its data needs the subwords of its run.",
)
@cleaning_option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of cleaning, BPE or noise, as in max_ratio=3 and noise.case=0.05."
    " Repeatable. --settings prints all settings.",
)
@cleaning_option(
    "--no-cleaning",
    is_flag=True,
    help="Drop only pairs that are empty, too long, or not UTF-8.",
)
@output_option(
    "--out", type=PathArgument, metavar="FOLDER", help="Output folder. Default: data/NAME."
)
@output_option("--force", is_flag=True, help="Replace the output folder if it exists.")
@output_option(
    "--report",
    "page_path",
    type=PathArgument,
    metavar="FILE",
    help="Write statistics of the corpus to an HTML page.",
)
@hardware_option(
    "--workers", type=click.IntRange(1), metavar="N", help="Processes. Default: one per core."
)
@information_option(
    "--dry-run",
    is_flag=True,
    help="Print how many pairs would be dropped, with samples. Write nothing.",
)
@information_option("--list", "list_corpora", is_flag=True, help="Print the catalogue of corpora.")
@information_option(
    "--settings", "list_settings", is_flag=True, help="Print every setting and its default."
)
def prepare(
    name: str | None,
    list_corpora: bool,
    list_settings: bool,
    dry_run: bool,
    page_path: Path | None,
    out: Path | None,
    force: bool,
    workers: int | None,
    vocab_size: int | None,
    tokenizer_from: Path | None,
    overrides: tuple[str, ...],
    no_cleaning: bool,
    trees: tuple[Path, ...],
    self_trained: tuple[Path, ...],
    valid_trees: Path | None,
    test_trees: Path | None,
    pair: tuple[tuple[str, str], ...],
    temperature: float | None,
    **data: Any,
) -> None:
    """Clean a parallel corpus, learn BPE, and encode it for training.

    NAME is a corpus of the catalogue, which --list prints. For your own data, NAME is any name;
    give --src-lang, --tgt-lang, a training corpus and a validation set. For a model of several
    languages, give each direction as --pair, followed by its data. For a parser, give --trees and
    --valid-trees.

    Every dropped pair is listed in dropped.tsv.gz, with file, line and reason. To resume an
    interrupted run, run the same command again.
    """
    from mtkit.cli import tables

    if list_corpora or list_settings:
        printed = tables.catalogue if list_corpora else tables.preparation_settings
        print_text(printed(width=width()))
        return
    if name is None:
        raise click.UsageError("give the NAME of a corpus; mtkit prepare --list prints them")
    if Path(name).name != name or name.startswith("."):
        raise click.UsageError(f"NAME: {name!r} cannot be the name of a folder under data/")
    treebank = _OwnTrees(trees, self_trained, valid_trees, test_trees, data)
    is_treebank = treebank.is_given()
    if not pair:
        refuse_given(["temperature"], "requires --pair")
    elif is_treebank:
        raise click.UsageError(
            "--pair is for a parallel corpus, and cannot be combined with --trees"
        )
    data = _with_tags(data)
    directions = _directions(pair, data) if pair else []
    own = _OwnData(**data)
    is_own = not is_treebank and not directions and own.is_given()
    target = out or DATA_ROOT / name
    from mtkit.prepare import (
        prepare_corpus,
        prepare_files,
        prepare_multilingual,
        prepare_trees,
    )
    from mtkit.prepare_config import NO_CLEANING

    common: dict[str, Any] = {
        "workers": workers,
        "force": force,
        "dry_run": dry_run,
        "vocab_size": vocab_size,
        "tokenizer_from": tokenizer_from,
        "overrides": (*NO_CLEANING, *overrides) if no_cleaning else overrides,
    }
    run: Callable[..., Report]
    sources: dict[str, Any] = {}
    if is_treebank:
        run, sources = prepare_trees, treebank.sources()
    elif directions:
        run = prepare_multilingual
        sources["directions"] = [one.sources() for one in directions]
        sources["temperature"] = temperature or 1.0
    elif is_own:
        run, sources = prepare_files, own.sources()
    else:
        run = prepare_corpus
    if page_path:
        _check_page_place(page_path, target, _files_in(sources))
        common["on_finished"] = _page_writer(page_path)
    done = run(name, target, **sources, **common)
    if log.isEnabledFor(logging.INFO):
        click.echo(tables.preparation(done), err=True, nl=False)
    if dry_run:
        print_text(tables.dropped_samples(done))
        log.info("dry run: nothing was written")
    else:
        report = f"; report: {page_path}" if page_path else ""
        log.info("wrote %s%s; to train on it:", done.path, report)
        if log.isEnabledFor(logging.INFO):
            config, start = _config_for(done, tokenizer_from, is_treebank=is_treebank)
            say(f"mtkit train --config {config} --data {shlex.quote(str(done.path))}{start}")


# More pairs than this are too many for the preset `small`.
_SMALL = 200_000


def _config_for(done: Report, tokenizer_from: Path | None, *, is_treebank: bool) -> tuple[str, str]:
    """The preset that suits prepared data, and the other options that it needs."""
    from mtkit.data import PreparedData

    origin = PreparedData.open(done.path).manifest.tokenizer_from
    if origin is not None and origin["kind"] == "run folder":
        return "fine-tune", f" --init-from {shlex.quote(str(tokenizer_from))}"
    if is_treebank:
        return "parsing-small", ""
    if done.path.name.startswith("demo-"):
        return "demo", ""
    return "small" if done.pairs["train"] <= _SMALL else "base", ""


class _TrainingCorpus(NamedTuple):
    """The value of a --train or --train-from, and of the --tag after it."""

    place: tuple[Path, Path] | str
    tag: str | None = None


def _with_tags(data: dict[str, Any]) -> dict[str, Any]:
    """The options of the user's own data, with each --tag in the `_TrainingCorpus` before it.

    Raises:
        click.UsageError: if there is none, or if it has a tag already.
    """
    tags = iter(data["tag"])
    found: dict[str, list[_TrainingCorpus]] = {"train": [], "train_from": []}
    before: list[_TrainingCorpus] | None = None
    for name in click.get_current_context().meta[_ORDER]:
        if name in found:
            before = found[name]
            before.append(_TrainingCorpus(data[name][len(before)]))
        elif name == "tag":
            tag = next(tags)
            if before is None:
                raise click.UsageError(
                    f"--tag {tag}: put it after the --train or --train-from that it is for"
                )
            if before[-1].tag is not None:
                raise click.UsageError(
                    f"--tag {tag}: the corpus before it has the tag {before[-1].tag} already; give "
                    "one tag for each --train or --train-from"
                )
            before[-1] = before[-1]._replace(tag=tag)
        elif name == "pair" or name.startswith(("valid", "test")):
            # A tag after these would look as if it belonged to them.
            before = None
    return {name: value for name, value in data.items() if name != "tag"} | found


@dataclass(frozen=True)
class _OwnData:
    """The options that describe the user's own data of one direction.

    Every field but the languages has all values of its option.
    """

    src_lang: str | None
    tgt_lang: str | None
    train: Sequence[_TrainingCorpus] = ()
    train_from: Sequence[_TrainingCorpus] = ()
    weight: Sequence[float] = ()
    alignments: Sequence[Path] = ()
    valid: Sequence[tuple[Path, Path]] = ()
    valid_from: Sequence[str] = ()
    valid_also: Sequence[tuple[str, Path, Path]] = ()
    test: Sequence[tuple[Path, Path]] = ()
    test_from: Sequence[str] = ()

    def is_given(self) -> bool:
        """Whether there are such options at all, which then must be complete.

        Raises:
            click.UsageError: if something is missing, or given twice.
        """
        for split in ("valid", "test"):
            files, other = getattr(self, split), getattr(self, f"{split}_from")
            if files and other:
                raise click.UsageError(f"--{split}-from cannot be combined with --{split}")
            if len(files) + len(other) > 1:
                raise click.UsageError(
                    f"--{split}: give one set, not {len(files) + len(other)}; further validation "
                    "sets have a name, --valid-also NAME SRC TGT"
                )
        required = {
            "--src-lang": self.src_lang,
            "--tgt-lang": self.tgt_lang,
            "--train or --train-from": self.train or self.train_from,
            "--valid or --valid-from": self.valid or self.valid_from,
        }
        missing = [option for option, value in required.items() if not value]
        optional = self.test or self.test_from or self.valid_also or self.alignments
        is_given = len(missing) < len(required) or bool(optional)
        if is_given and missing:
            raise click.UsageError(
                f"your own data requires {', '.join(required)}; missing: {', '.join(missing)}"
            )
        names = Counter(name for name, _, _ in self.valid_also)
        if twice := [name for name, count in names.items() if count > 1]:
            raise click.UsageError(f"--valid-also: the name {twice[0]} is given twice")
        corpora = len(self.train) + len(self.train_from)
        if self.alignments and len(self.alignments) != corpora:
            raise click.UsageError(
                "--alignments: give one for each --train and --train-from, or none"
            )
        _check_weights(self.weight, corpora, "--train and --train-from")
        return is_given

    def sources(self) -> dict[str, Any]:
        """The data as arguments of `prepare_files`."""
        from mtkit.prepare import parallel_files, parse_source

        src_lang, tgt_lang = self.src_lang, self.tgt_lang
        assert src_lang is not None
        assert tgt_lang is not None

        def source(place: tuple[Path, Path] | str, **more: Any) -> Source:
            if isinstance(place, tuple):
                return parallel_files(*place, **more)
            return parse_source(place, src_lang=src_lang, tgt_lang=tgt_lang, **more)

        train = [*self.train, *self.train_from]
        places: list[tuple[Path, Path] | str] = [*self.valid, *self.valid_from]
        (valid,) = places
        tests: list[tuple[Path, Path] | str] = [*self.test, *self.test_from]
        return {
            "src_lang": src_lang,
            "tgt_lang": tgt_lang,
            "train": [
                source(one.place, weight=weight, tag=one.tag)
                for one, weight in zip(train, self.weight or [1.0] * len(train), strict=True)
            ],
            "valid": source(valid),
            "test": source(tests[0]) if tests else None,
            "valid_also": {name: (src, tgt) for name, src, tgt in self.valid_also},
            "alignments": self.alignments,
        }


def _directions(pair: Sequence[tuple[str, str]], data: dict[str, Any]) -> list[_OwnData]:
    """The options of each `--pair`: those that stand between it and the next one.

    Args:
        pair: the values of `--pair`.
        data: the values of the other options, by the names of `_OwnData`.

    Raises:
        click.UsageError: if an option stands before the first `--pair`, or something is missing.
    """
    refuse_given(["src_lang", "tgt_lang"], "cannot be combined with --pair, which has both")
    repeatable = [name for name in data if name not in ("src_lang", "tgt_lang")]
    rest = {name: iter(data[name]) for name in repeatable}
    found: list[dict[str, list[Any]]] = []
    for name in click.get_current_context().meta[_ORDER]:
        if name == "pair":
            found.append({one: [] for one in repeatable})
        elif name in rest:
            if not found:
                option = name.replace("_", "-")
                raise click.UsageError(
                    f"--{option} is before the first --pair; each --pair comes before its data"
                )
            found[-1][name].append(next(rest[name]))
    directions = [
        _OwnData(src_lang, tgt_lang, **one)
        for (src_lang, tgt_lang), one in zip(pair, found, strict=True)
    ]
    for one in directions:
        if not (one.src_lang and one.tgt_lang):
            codes = " ".join(code or "''" for code in (one.src_lang, one.tgt_lang))
            raise click.UsageError(f"--pair {codes}: a language code is empty")
        try:
            one.is_given()
        except click.UsageError as error:
            name = f"--pair {one.src_lang} {one.tgt_lang}"
            raise click.UsageError(f"{name}: {error.message}") from error
    return directions


@dataclass(frozen=True)
class _OwnTrees:
    """The options that describe the user's own trees; `data` has those of `_OwnData`."""

    trees: tuple[Path, ...]
    self_trained: tuple[Path, ...]
    valid: Path | None
    test: Path | None
    data: dict[str, Any]

    def is_given(self) -> bool:
        """Whether there are such options at all, which then must be complete.

        Raises:
            click.UsageError: if something is missing, or belongs to a parallel corpus.
        """
        if not (self.trees or self.self_trained or self.valid or self.test):
            return False
        if not (self.trees and self.valid):
            raise click.UsageError("a treebank requires --trees and --valid-trees")
        refuse_given(
            [name for name in self.data if name not in ("src_lang", "weight")],
            "is for a parallel corpus, and cannot be combined with --trees",
        )
        refuse_given(["no_cleaning"], "is not needed with --trees: trees are not cleaned")
        _check_weights(
            self.data["weight"],
            len(self.trees) + len(self.self_trained),
            "--trees and --self-trained",
        )
        return True

    def sources(self) -> dict[str, Any]:
        """The data as arguments of `prepare_trees`."""
        from mtkit.prepare import Treebank

        assert self.valid is not None
        files = [*self.trees, *self.self_trained]
        weights = self.data["weight"] or [1.0] * len(files)
        return {
            "src_lang": self.data["src_lang"] or "en",
            "train": [
                Treebank(file, weight=weight) for file, weight in zip(files, weights, strict=True)
            ],
            "valid": Treebank(self.valid),
            "test": Treebank(self.test) if self.test else None,
        }


def _check_weights(weights: Sequence[float], corpora: int, options: str) -> None:
    if weights and len(weights) != corpora:
        raise click.UsageError(f"--weight: give one for each {options}, or none")
    for number in weights:
        if not math.isfinite(number):
            raise click.UsageError(f"--weight: expected a finite number, not {number}")


def _files_in(value: Any) -> list[Path]:
    """The files among the arguments of `prepare_files` and its siblings."""
    if isinstance(value, Path):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [file for one in value for file in _files_in(one)]
    return list(getattr(value, "files", ()))


def _check_page_place(page: Path, out: Path, inputs: Sequence[Path]) -> None:
    """Refuse a page that would replace an input, or that would be in the output folder."""
    from mtkit.base.files import resolved

    for path in inputs:
        if page.exists() and path.exists() and page.samefile(path):
            raise click.UsageError(f"--report would replace the input {path}; give another file")
    if resolved(page).is_relative_to(resolved(out)):
        raise click.UsageError(
            f"--report: {page} is in the output folder {out}, which is written as a whole; give a "
            "file outside it"
        )


def _page_writer(path: Path) -> Callable[[PreparedData, Report], None]:
    """Writes the report of a corpus to a file, all or nothing."""
    from mtkit.prepare import check_page, write_page

    # Now, not after hours of work.
    check_page(path)

    def write(data: PreparedData, done: Report) -> None:
        write_page(path, data, done)
        log.info("wrote %s", path)

    return write
