"""The command `mtkit prepare`."""

from __future__ import annotations

import itertools
import logging
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.cli import options as shared
from mtkit.cli.console import print_text, say
from mtkit.cli.output import checked_file

if TYPE_CHECKING:
    from mtkit.prepare import Corpus, Report, Source

log = logging.getLogger(__name__)

data_option = shared.option_group("Your data")
cleaning_option = shared.option_group("Cleaning and vocabulary")
output_option = shared.option_group("Output")
# The options that describe a corpus.
_DATA = ("src_lang", "tgt_lang", "train", "train_from", "valid", "valid_from", "test", "test_from")
# A split in two files.
two_files: dict[str, Any] = {"type": (shared.PathArgument, shared.PathArgument), "multiple": True}


@shared.command(
    "Clean and encode a parallel corpus.",
    "mtkit prepare demo-en-de",
    "mtkit prepare mine --src-lang en --tgt-lang de --vocab-size 8000 \\",
    "  --train train.en train.de --valid valid.en valid.de --test test.en test.de",
    "mtkit prepare mine --src-lang en --tgt-lang de --vocab-size 8000 \\",
    "  --train-from pairs.tsv --valid-from valid.tsv --force",
    "mtkit prepare corpus.yaml",
)
@click.argument("name", required=False)
@click.argument("corpus_file", required=False, type=shared.PathArgument, metavar="[CORPUS.yaml]")
@data_option("--src-lang L", help="Language code of the source, such as en.")
@data_option("--tgt-lang L", help="Language code of the target, such as de.")
@data_option(
    "--train SRC TGT",
    **two_files,
    help="Training corpus as two files with one sentence per line, plain or compressed (.gz, .bz2,"
    " .xz, .zst). Repeatable.",
)
@data_option(
    "--train-from SOURCE",
    multiple=True,
    help="Training corpus in another form: a .tsv, .tmx, .parquet or .jsonl file with both sides;"
    " hf:OWNER/DATASET[:CONFIG][:SPLIT] on the Hugging Face hub; or a file name without its"
    " language, such as news for news.en and news.de. Repeatable.",
)
@data_option("--valid SRC TGT", **two_files, help="Validation set as two files.")
@data_option("--valid-from SOURCE", multiple=True, help="Validation set in a form of --train-from.")
@data_option("--test SRC TGT", **two_files, help="Test set as two files.")
@data_option("--test-from SOURCE", multiple=True, help="Test set in a form of --train-from.")
@cleaning_option(
    "--vocab-size N",
    help="Vocabulary size of the BPE. Default: that of the catalogue, or 37,000 for your data. For"
    " trees, that of their sentences, by default 16,000.",
)
@cleaning_option(
    "--tokenizer-from FOLDER",
    help="Run folder or prepared folder whose subwords are used, instead of learning new ones. To"
    " train a model further, its data needs the subwords of its run.",
)
@cleaning_option(
    "--add-language NEW=LIKE",
    "added_languages",
    multiple=True,
    help="Give a multilingual --tokenizer-from a tag for the language NEW, which begins as that of"
    " its language LIKE when a model is trained with --init-from. Repeatable.",
)
@cleaning_option(
    "--add-characters",
    help="Add the characters of the training text that --tokenizer-from lacks. They begin as what"
    " they were spelled with.",
)
@cleaning_option(
    "--set KEY=VALUE",
    "overrides",
    multiple=True,
    help="Change a setting of cleaning, BPE or noise, as in max_ratio=3 and noise.case=0.05."
    " Repeatable. --settings prints all settings.",
)
@cleaning_option("--no-cleaning", help="Drop only pairs that are empty, too long, or not UTF-8.")
@output_option("--out FOLDER", help="Output folder. Default: data/NAME.")
@output_option("--force", help="Replace the output folder if it exists.")
@output_option("--report FILE", "page_path", help="Write statistics of the corpus to an HTML page.")
@output_option(
    "--check FILE",
    "check_path",
    help="Check the pairs that are kept, as mtkit check does, and write a table of findings, worst"
    " first: file, line, kind, severity, reason, source and target, tab-separated.",
)
@shared.processes_option
@shared.information_option(
    "--dry-run", help="Print how many pairs would be dropped, with samples. Write nothing."
)
@shared.information_option("--list", "list_corpora", help="Print the catalogue of corpora.")
@shared.settings_option
def prepare(
    name: str | None,
    corpus_file: Path | None,
    list_corpora: bool,
    list_settings: bool,
    page_path: Path | None,
    check_path: Path | None,
    out: Path | None,
    vocab_size: int | None,
    overrides: tuple[str, ...],
    no_cleaning: bool,
    **given: Any,
) -> None:
    """Clean a parallel corpus, learn BPE, and encode it for training.

    NAME is a corpus of the catalogue, which --list prints. For your own data, NAME is any name;
    give --src-lang, --tgt-lang, a training corpus and a validation set. Or describe the data in a
    file CORPUS.yaml, which can have weights and tags of corpora, word alignments, several languages
    and treebanks. NAME is then by default the name of the file.

    Every dropped pair is listed in dropped.tsv.gz, with file, line and reason. To resume an
    interrupted run, run the same command again.
    """
    from mtkit.cli import tables
    from mtkit.prepare_config import NO_CLEANING, PrepareConfig

    if list_corpora or list_settings:
        print_text(tables.catalogue() if list_corpora else tables.settings(PrepareConfig))
        return
    if name is None:
        raise click.UsageError("give the NAME of a corpus; mtkit prepare --list prints them")
    if corpus_file is None and name.endswith((".yaml", ".yml")):
        corpus_file, name = Path(name), Path(name).stem
    if Path(name).name != name or name.startswith("."):
        raise click.UsageError(f"NAME: {name!r} cannot be the name of a folder under data/")
    data = {key: given.pop(key) for key in _DATA}
    if corpus_file is not None:
        shared.refuse_given(
            data, f"cannot be combined with {corpus_file}, which describes the data"
        )
    is_own = corpus_file is None and any(data.values())
    if is_own:
        _check_complete(data)
    from mtkit.prepare import PrepareOptions, load_corpus, write_page
    from mtkit.prepare import prepare as run

    corpus: Corpus | str = name
    settings: dict[str, Any] = {}
    if corpus_file is not None:
        corpus, settings = load_corpus(corpus_file, name=name)
        if corpus.task == "parsing":
            shared.refuse_given(
                ["no_cleaning"], "is not needed for a treebank: trees are not cleaned"
            )
            shared.refuse_given(["check_path"], "is for sentence pairs, and not for a treebank")
    elif is_own:
        corpus = _own_corpus(name, **data)
    target = out or shared.DATA_ROOT / name
    inputs = [] if isinstance(corpus, str) else corpus.files
    inputs += [corpus_file] if corpus_file else []
    page_path = _file("--report", page_path, target, inputs)
    check_path = _file("--check", check_path, target, inputs)
    if page_path and page_path == check_path:
        raise click.UsageError("--check and --report: give two files")
    options = PrepareOptions(
        settings=settings | ({} if vocab_size is None else {"vocab_size": vocab_size}),
        overrides=(*NO_CLEANING, *overrides) if no_cleaning else overrides,
        check=check_path,
        on_finished=partial(write_page, page_path) if page_path else None,
        **given,
    )
    done = run(corpus, target, options)
    if options.dry_run:
        print_text(tables.dropped_samples(done))
    # After the samples and every warning, so that they are the last lines on a terminal.
    if log.isEnabledFor(logging.INFO):
        click.echo(tables.preparation(done), err=True, nl=False)
    written = [f"report: {page_path}"] if page_path else []
    written += [f"findings: {check_path}"] if check_path else []
    report = "".join(f"; {part}" for part in written)
    if options.dry_run:
        log.info("dry run: no data was written%s", report)
    else:
        log.info("wrote %s%s; to train on it:", done.path, report)
        if log.isEnabledFor(logging.INFO):
            config, start = _config_for(done, options.tokenizer_from)
            say(f"mtkit train --config {config} --data {shlex.quote(str(done.path))}{start}")


# More pairs than this are too many for the preset `small`.
_SMALL = 200_000


def _config_for(done: Report, tokenizer_from: Path | None) -> tuple[str, str]:
    """The preset that suits prepared data, and the other options that it needs."""
    from mtkit.data import PreparedData

    manifest = PreparedData.open(done.path).manifest
    origin = manifest.tokenizer_from
    if origin is not None and origin["kind"] == "run folder":
        return "fine-tune", f" --init-from {shlex.quote(str(tokenizer_from))}"
    if manifest.task == "parsing":
        return "parsing-small", ""
    if done.path.name.startswith("demo-"):
        return "demo", ""
    return "small" if done.pairs["train"] <= _SMALL else "base", ""


def _check_complete(data: dict[str, Any]) -> None:
    """Refuse data of which something is missing, or given twice."""
    for split in ("valid", "test"):
        if (count := len(data[split]) + len(data[f"{split}_from"])) > 1:
            raise click.UsageError(
                f"--{split}, --{split}-from: give one set, not {count}; a corpus file can have "
                "further validation sets (valid_also)"
            )
    required = {
        "--src-lang": data["src_lang"],
        "--tgt-lang": data["tgt_lang"],
        "--train or --train-from": data["train"] or data["train_from"],
        "--valid or --valid-from": data["valid"] or data["valid_from"],
    }
    if missing := [option for option, value in required.items() if not value]:
        raise click.UsageError(
            f"your own data requires {', '.join(required)}; missing: {', '.join(missing)}"
        )


def _own_corpus(name: str, src_lang: str, tgt_lang: str, **data: Any) -> Corpus:
    from mtkit.prepare import Corpus, DirectionSources, parallel_files, parse_source

    for path in itertools.chain(*data["train"], *data["valid"], *data["test"]):
        shared.refuse_document(path)

    def sources(split: str) -> list[Source]:
        places = data[f"{split}_from"]
        parsed = [parse_source(place, src_lang=src_lang, tgt_lang=tgt_lang) for place in places]
        return [parallel_files(*files) for files in data[split]] + parsed

    train, (valid,), test = map(sources, ("train", "valid", "test"))
    direction = DirectionSources(src_lang, tgt_lang, train, valid, test[0] if test else None)
    return Corpus(name, [direction])


def _file(option: str, path: Path | None, out: Path, inputs: Sequence[Path]) -> Path | None:
    """The file that an option names; refuses an input, and a file in the output folder."""
    from mtkit.base.files import resolved

    if path is not None and resolved(path).is_relative_to(resolved(out)):
        raise click.UsageError(
            f"{option}: {path} is in the output folder {out}, which is written as a whole; give a "
            "file outside it"
        )
    return checked_file(option, path, {f"input {file}": file for file in inputs})
