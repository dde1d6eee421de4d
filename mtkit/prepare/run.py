"""Prepares a folder from a corpus name or files: download, filter, learn subwords, encode.

The training pairs are read three times, block by block, and processed on all cores:

1. **Check.** The per-pair filters are applied to every pair. The data for comparing pairs is
   written to flat files, in which duplicates and misaligned segments are then searched.
2. **Learn.** The words of the kept pairs, or of an even sample of them, are counted, and the
   subword vocabulary is learned from the counts.
3. **Encode.** The kept pairs are segmented into subwords, filtered by these, and written. Some of
   them may get noise before they are written.

The later stages compare every block with the one that the first stage read, before it is used: a
source that changes meanwhile is refused, so its lines are never paired wrongly.

Memory is bounded for any size of the corpus. A block gives the same results in any process, and
blocks are joined in their order, so the bytes of the folder depend only on the input and the
settings. A run with the same input and settings resumes a stopped one: the first two stages are
reused as a whole, the third in parts.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mtkit
from mtkit.base.arguments import checks_arguments
from mtkit.base.errors import MtkitError, encodable
from mtkit.base.files import naming_file, sha256_of_json
from mtkit.base.launched import available_cores
from mtkit.base.overrides import list_hint
from mtkit.base.yaml import cut
from mtkit.check import KINDS
from mtkit.config import Count
from mtkit.data import LINK_TYPE, PreparedData, Split
from mtkit.prepare.catalogue import CatalogueEntry, find_corpus
from mtkit.prepare.corpus import Corpus, DirectionSources
from mtkit.prepare.link_files import LinkFile
from mtkit.prepare.passes import BLOCK, Passes
from mtkit.prepare.readers import catalogue_sources, memory, parallel_files
from mtkit.prepare.results import Report
from mtkit.prepare.source import Source
from mtkit.prepare.source_languages import warn_of_codes
from mtkit.prepare.tokenizer_from import ExistingVocabularies
from mtkit.prepare.writer import check_free, create_prepared
from mtkit.prepare_config import FOR_TREES, PrepareConfig, prepare_config
from mtkit.tokenizer import SENTENCEPIECE_VERSION

log = logging.getLogger(__name__)

# The format of the records for a run that resumes; change the number when they change.
_RECORDS_FORMAT = 15
# Subwords of the sentences of the Wall Street Journal (Section 6.3).
WSJ_VOCABULARY = 16_000


@checks_arguments
@dataclasses.dataclass(frozen=True)
class PrepareOptions:
    """How a corpus is prepared.

    Attributes:
        settings: of `PrepareConfig`, by name. The default `vocab_size` is that of the catalogue, or
            the paper's 16,000 for trees.
        overrides: settings as text, such as `max_ratio=3`, which take precedence.
        tokenizer_from: a run folder or a prepared folder whose subwords are used, instead of
            learning new ones.
        added_languages: as NEW=LIKE, languages that they get a tag for (`ExistingVocabularies`).
        add_characters: add the characters of the training text that they lack.
        workers: number of processes; by default one per core.
        force: replace the folder if it exists.
        dry_run: do everything, then delete the result.
        check: a file; the pairs that are kept are checked, and what is found is written there.
        on_finished: called with the finished data and its report.
    """

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    overrides: Sequence[str] = ()
    tokenizer_from: Path | None = None
    added_languages: Sequence[str] = ()
    add_characters: bool = False
    workers: Count | None = None
    force: bool = False
    dry_run: bool = False
    check: Path | None = None
    on_finished: Callable[[PreparedData, Report], None] | None = None

    @classmethod
    def from_keywords(cls, **given: Any) -> PrepareOptions:
        """Options by their names; every other name is one of `settings`."""
        names = {field.name for field in dataclasses.fields(cls)}
        settings = {key: given.pop(key) for key in list(given) if key not in names}
        return cls(settings=settings, **given)


@checks_arguments
def prepare(corpus: Corpus | str, out: Path, options: PrepareOptions | None = None) -> Report:
    """Prepare your own corpus, or one of the catalogue by its name, into the folder `out`.

    Raises:
        MtkitError: for an unknown name, a hub that cannot be reached, a folder that cannot be
            written, a vocabulary size that is too large for the text; or naming the file, and the
            line if there is one, that must be fixed.
    """
    options = options or PrepareOptions()
    entry = None
    if isinstance(corpus, str):
        entry = find_corpus(corpus)
        # Its sources are fetched when nothing else is wrong.
        nothing = memory("not fetched", [])
        corpus = _of_catalogue(entry, {"train": nothing, "valid": nothing, "test": nothing})
    else:
        corpus.check()
        if not corpus.is_parsing:
            warn_of_codes(corpus.language_pairs)
    existing = _existing(options, corpus)
    config = _settings(options, corpus, existing, entry.vocab_size if entry else None)
    _refuse_settings(options, corpus, config)
    with naming_file(out):
        check_free(out, force=options.force or options.dry_run)
    if entry is not None:
        corpus = _of_catalogue(entry, catalogue_sources(entry))
    facts = _facts(corpus, config, existing)
    origins = {split: corpus.facts(split) for split in corpus.sources()}
    key = sha256_of_json([_RECORDS_FORMAT, BLOCK, facts, origins])
    keep = not options.dry_run
    with create_prepared(out, force=options.force, key=key, keep=keep) as writer:
        writer.describe(**facts)
        workers = available_cores() if options.workers is None else options.workers
        try:
            passes = Passes(corpus, config, writer, workers, existing, origins, options.check)
            report = passes.run(out)
        except KeyboardInterrupt:
            if keep:
                log.warning("stopped; run the same command again to continue")
            raise
        if options.on_finished is not None and not keep:
            options.on_finished(writer.finish(), report)
    if options.on_finished is not None and keep:
        # An error from here on loses no work.
        options.on_finished(PreparedData.open(out), report)
    return report


@checks_arguments
def prepare_files(
    name: str,
    out: Path,
    *,
    src_lang: str,
    tgt_lang: str,
    train: Sequence[Source | tuple[Path, Path]],
    valid: Source | tuple[Path, Path],
    test: Source | tuple[Path, Path] | None = None,
    valid_also: Mapping[str, Source | tuple[Path, Path]] | None = None,
    alignments: Sequence[Path] = (),
    **options: Any,
) -> Report:
    """Prepare your own sentence pairs, of one direction; raises as `prepare`.

    Args:
        train: sources, or pairs of a source and a target file, one sentence per line.
        valid, test: likewise, one each.
        valid_also: further validation sets by name.
        alignments: for each training source the word alignments of its pairs; or none.
        options: of `PrepareOptions`, and settings of `PrepareConfig`.
    """

    def source(given: Source | tuple[Path, Path]) -> Source:
        return parallel_files(*given) if isinstance(given, tuple) else given

    sources = DirectionSources(
        src_lang,
        tgt_lang,
        [source(pair) for pair in train],
        source(valid),
        source(test) if test else None,
        {set_name: source(pair) for set_name, pair in (valid_also or {}).items()},
        [LinkFile(Path(path)) for path in alignments],
    )
    return prepare(Corpus(name, [sources]), out, PrepareOptions.from_keywords(**options))


def _of_catalogue(entry: CatalogueEntry, sources: Mapping[Split, Source]) -> Corpus:
    direction = DirectionSources(
        entry.src_lang, entry.tgt_lang, [sources["train"]], sources["valid"], sources["test"]
    )
    return Corpus(entry.name, [direction], licence=entry.licence)


def _existing(options: PrepareOptions, corpus: Corpus) -> ExistingVocabularies | None:
    """The vocabularies of `tokenizer_from`, if it is given."""
    if (options.added_languages or options.add_characters) and (
        options.tokenizer_from is None or corpus.is_parsing
    ):
        raise MtkitError(
            "--add-language, --add-characters: are for sentence pairs, and require "
            "--tokenizer-from RUN"
        )
    if options.tokenizer_from is None:
        return None
    return ExistingVocabularies.open(
        Path(options.tokenizer_from),
        corpus,
        added_languages=options.added_languages,
        adds_characters=options.add_characters,
    )


def _settings(
    options: PrepareOptions,
    corpus: Corpus,
    existing: ExistingVocabularies | None,
    vocab_size: int | None,
) -> PrepareConfig:
    """All settings; `vocab_size` is that of the catalogue."""
    base = FOR_TREES if corpus.is_parsing else ()
    given = {key: value for key, value in options.settings.items() if value is not None}
    if existing is not None:
        return existing.config(given, options.overrides, base=base)
    default = WSJ_VOCABULARY if corpus.is_parsing else vocab_size
    return prepare_config({"vocab_size": default, **given}, [*base, *options.overrides])


def _refuse_settings(options: PrepareOptions, corpus: Corpus, config: PrepareConfig) -> None:
    """Refuse settings that the corpus cannot be prepared with, before any work is done."""
    if unknown := [kind for kind in config.drop_findings if kind not in KINDS]:
        kinds = ", ".join(KINDS) + list_hint(unknown[0])
        raise MtkitError(f"drop_findings: {cut(unknown[0])} is none of {kinds}")
    of_pairs = {
        "drop_findings": config.drop_findings,
        "check": options.check,
        "noise": config.noise.is_on,
    }
    if corpus.is_parsing and (given := [key for key, value in of_pairs.items() if value]):
        raise MtkitError(f"{given[0]}: is for sentence pairs, and not for a treebank; remove it")
    if not corpus.is_parsing and not config.tree_tags:
        raise MtkitError("tree_tags: is a setting for treebanks; remove it")
    if corpus.has_links and config.max_tokens > (most := np.iinfo(LINK_TYPE).max):
        raise MtkitError(f"max_tokens: at most {most:,} with alignments, not {config.max_tokens}")


def _facts(
    corpus: Corpus, config: PrepareConfig, existing: ExistingVocabularies | None
) -> dict[str, Any]:
    """What the manifest says of the corpus and of how it is prepared."""
    src_langs, tgt_langs = zip(*corpus.language_pairs, strict=True)
    facts: dict[str, Any] = {
        "name": encodable(corpus.name),
        # Each once, in the order of the directions.
        "src_lang": ",".join(dict.fromkeys(src_langs)),
        "tgt_lang": ",".join(dict.fromkeys(tgt_langs)),
        "settings": config.model_dump(),
        "versions": {"mtkit": mtkit.__version__, "sentencepiece": SENTENCEPIECE_VERSION},
        "licence": corpus.licence,
        "temperature": corpus.temperature if corpus.is_multilingual else None,
        "task": corpus.task if corpus.is_parsing else None,
        "tokenizer_from": existing.facts if existing else None,
    }
    return {key: value for key, value in facts.items() if value is not None}
