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

import hashlib
import json
import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import mtkit
from mtkit.base.errors import MtkitError, encodable
from mtkit.base.processes import available_cores
from mtkit.base.text import check_language
from mtkit.data import LINK_TYPE, PreparedData, Task
from mtkit.prepare.catalogue import find_corpus
from mtkit.prepare.language_check import warn_of_codes
from mtkit.prepare.links import LinkFile
from mtkit.prepare.passes import BLOCK, Passes
from mtkit.prepare.readers import catalogue_sources, parallel_files
from mtkit.prepare.report import Report
from mtkit.prepare.source import Source
from mtkit.prepare.sources import Corpus, Sources
from mtkit.prepare.tmx import language_subtags
from mtkit.prepare.tokenizer_from import ExistingVocabularies
from mtkit.prepare.treebank import Linearisation, Treebank
from mtkit.prepare.writer import check_free, create_prepared
from mtkit.prepare_config import FOR_TREES, PrepareConfig, prepare_config
from mtkit.tokenizer import SENTENCEPIECE_VERSION

log = logging.getLogger(__name__)

# The format of the records for a run that resumes; change the number when they change.
_RECORDS_FORMAT = 9
# The most processes per core; more would only use memory.
_WORKERS_PER_CORE = 8
# Subwords of the sentences of the Wall Street Journal (Section 6.3).
WSJ_VOCABULARY = 16_000
# The code of the target language of a parser.
TREES = "trees"


# Called with the finished data and its report.
OnFinished = Callable[[PreparedData, Report], None]


def prepare_corpus(
    name: str,
    out: Path,
    *,
    workers: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    on_finished: OnFinished | None = None,
    tokenizer_from: Path | None = None,
    overrides: Sequence[str] = (),
    **settings: Any,
) -> Report:
    """Prepare a corpus of the catalogue.

    Args:
        name: such as `wmt14-en-de`.
        out: the folder to write.
        workers: number of processes; by default one per core.
        force: replace the folder if it exists.
        dry_run: do everything, then delete the result.
        on_finished: called with the finished data and its report.
        tokenizer_from: a run folder or a prepared folder whose subwords are used, instead of
            learning new ones.
        overrides: settings as text, such as `max_ratio=3`.
        settings: of `PrepareConfig`; the default `vocab_size` is that of the catalogue.

    Raises:
        MtkitError: for an unknown name, a hub that cannot be reached, a folder that cannot be
            written, or a vocabulary size that is too large for the text.
    """
    corpus = find_corpus(name)
    existing = _existing(tokenizer_from, [(corpus.src_lang, corpus.tgt_lang)])
    if settings.get("vocab_size") is None and existing is None:
        settings["vocab_size"] = corpus.vocab_size
    config = _settings(existing, settings, overrides)
    _check_place(out, force=force, dry_run=dry_run)
    if not corpus.built_in:
        log.info("fetching %s from %s", corpus.name, corpus.source)
    of_split = catalogue_sources(corpus)
    sources = Sources(
        corpus.src_lang,
        corpus.tgt_lang,
        [of_split["train"]],
        of_split["valid"],
        of_split["test"],
    )
    facts = {"name": name, "licence": corpus.licence}
    return _prepare(
        Corpus([sources]),
        config,
        existing,
        out,
        facts,
        workers=workers,
        force=force,
        dry_run=dry_run,
        on_finished=on_finished,
    )


def prepare_files(
    name: str,
    out: Path,
    *,
    src_lang: str,
    tgt_lang: str,
    train: Sequence[Source | tuple[Path, Path]],
    valid: Source | tuple[Path, Path],
    test: Source | tuple[Path, Path] | None = None,
    valid_also: Mapping[str, Source | tuple[Path, Path]] = MappingProxyType({}),
    alignments: Sequence[Path] = (),
    workers: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    on_finished: OnFinished | None = None,
    tokenizer_from: Path | None = None,
    overrides: Sequence[str] = (),
    **settings: Any,
) -> Report:
    """Prepare your own sentence pairs.

    Args:
        name: the name of the data.
        out: the folder to write.
        src_lang, tgt_lang: language codes.
        train: sources, from `readers`, or pairs of a source and a target file, plain or
            compressed, one sentence per line. The vocabulary of the source has the tags of these
            sources, `Tokenizer.corpus_tags`.
        valid, test: likewise, one each.
        valid_also: further validation sets by name, which training measures too. They do not
            select the best checkpoint.
        alignments: for each training source the word alignments of its pairs, in the Pharaoh
            format, for `train.guided_alignment`; or none.
        workers, force, dry_run, on_finished, tokenizer_from, overrides: as in `prepare_corpus`.
        settings: of `PrepareConfig`.

    Raises:
        MtkitError: naming the file, and the line if there is one, that must be fixed.
    """
    for option, language in (("src_lang", src_lang), ("tgt_lang", tgt_lang)):
        check_language(option, language)
    warn_of_codes([(src_lang, tgt_lang)])
    existing = _existing(tokenizer_from, [(src_lang, tgt_lang)], train=train)
    config = _settings(existing, settings, overrides)
    _check_place(out, force=force, dry_run=dry_run)
    sources = _sources(
        config,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        train=train,
        valid=valid,
        test=test,
        valid_also=valid_also,
        alignments=alignments,
    )
    facts = {"name": encodable(name)}
    return _prepare(
        Corpus([sources]),
        config,
        existing,
        out,
        facts,
        workers=workers,
        force=force,
        dry_run=dry_run,
        on_finished=on_finished,
    )


def prepare_multilingual(
    name: str,
    out: Path,
    *,
    directions: Sequence[Mapping[str, Any]],
    temperature: float = 1.0,
    workers: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    on_finished: OnFinished | None = None,
    tokenizer_from: Path | None = None,
    overrides: Sequence[str] = (),
    **settings: Any,
) -> Report:
    """Prepare sentence pairs of several directions for one model.

    The vocabulary of the source has a tag for each target language, `Tokenizer.language_tags`, and
    every encoded source begins with the tag of its target language, before the tag of its training
    source if there is one. Filters compare the pairs of a direction with each other only; but a
    training pair counts as overlap with the sets of all directions that have its languages.

    Args:
        name: the name of the data.
        out: the folder to write.
        directions: of each the arguments of `prepare_files` about its data: `src_lang`, `tgt_lang`,
            `train`, `valid`, and if wanted `test`, `valid_also` and `alignments`.
        temperature: of sampling between the directions, at least 1: an epoch has pairs of each in
            proportion to ``size ** (1 / temperature)``; all pairs of the largest direction once.
        workers, force, dry_run, on_finished, tokenizer_from, overrides: as in `prepare_corpus`.
        settings: of `PrepareConfig`.

    Raises:
        MtkitError: naming the file, and the line if there is one, that must be fixed.
    """
    pairs = [(one["src_lang"], one["tgt_lang"]) for one in directions]
    _check_pairs(pairs)
    warn_of_codes(pairs)
    if not (math.isfinite(temperature) and temperature >= 1):
        raise MtkitError(f"temperature: must be at least 1, not {temperature}")
    train = [source for one in directions for source in one["train"]]
    existing = _existing(tokenizer_from, pairs, is_multilingual=True, train=train)
    config = _settings(existing, settings, overrides)
    _check_place(out, force=force, dry_run=dry_run)
    corpus = Corpus(
        [_sources(config, **one) for one in directions],
        is_multilingual=True,
        temperature=float(temperature),
    )
    sets = [name for one in corpus.directions for name in one.valid_also]
    for place, name_of_set in enumerate(sets):
        if name_of_set in sets[:place] or name_of_set in [one.name for one in corpus.directions]:
            raise MtkitError(
                f"--valid-also: {name_of_set} is already the name of a validation set; give another"
            )
    if corpus.has_links and not all(one.links for one in corpus.directions):
        raise MtkitError("alignments: give them for all directions, or for none")
    facts = {"name": encodable(name), "temperature": corpus.temperature}
    return _prepare(
        corpus,
        config,
        existing,
        out,
        facts,
        workers=workers,
        force=force,
        dry_run=dry_run,
        on_finished=on_finished,
    )


def prepare_trees(
    name: str,
    out: Path,
    *,
    src_lang: str = "en",
    train: Sequence[Treebank],
    valid: Treebank,
    test: Treebank | None = None,
    workers: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    on_finished: OnFinished | None = None,
    tokenizer_from: Path | None = None,
    overrides: Sequence[str] = (),
    **settings: Any,
) -> Report:
    """Prepare a treebank for a parser (Section 6.3): sentences as sources, trees as targets.

    Of the filters only the limit of tokens applies. Sentences are taken as they are in the trees.
    The source has a vocabulary of `vocab_size`, by default the paper's 16,000 for the Wall Street
    Journal, or of `src_vocab_size`. That of the target has one subword for each bracket and each
    tag.

    Args:
        name: the name of the data.
        out: the folder to write.
        src_lang: code of the language that is parsed.
        train: treebanks; those that another parser wrote likewise, each with its weight.
        valid, test: treebanks.
        workers, force, dry_run, on_finished, tokenizer_from, overrides: as in `prepare_corpus`.
        settings: of `PrepareConfig`.

    Raises:
        MtkitError: naming the file, and the line if there is one, that must be fixed.
    """
    check_language("src_lang", src_lang)
    existing = _existing(tokenizer_from, [(src_lang, TREES)], task="parsing")
    if settings.get("vocab_size") is None and existing is None:
        settings["vocab_size"] = WSJ_VOCABULARY
    config = _settings(existing, settings, overrides, of_trees=True)
    _check_place(out, force=force, dry_run=dry_run)
    if not train:
        raise MtkitError("there is no training data; give at least one treebank")
    _check_links(config)
    linearisation = Linearisation(config.tree_tags)
    sources = Sources(src_lang, TREES, train, valid, test, linearisation=linearisation)
    return _prepare(
        Corpus([sources]),
        config,
        existing,
        out,
        {"name": encodable(name), "task": "parsing"},
        workers=workers,
        force=force,
        dry_run=dry_run,
        on_finished=on_finished,
    )


def _check_place(out: Path, *, force: bool, dry_run: bool) -> None:
    """Refuse, before any work is done, a folder that cannot be written."""
    try:
        os.lstat(out)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # the name is too long, or not possible
        reason = getattr(error, "strerror", None) or error
        raise MtkitError(f"{out}: cannot be written: {reason}") from error
    if not dry_run:
        check_free(out, force=force)


def _check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse languages of directions whose tags or names would not tell them apart."""
    for option, side in (("src_lang", 0), ("tgt_lang", 1)):
        for pair in pairs:
            check_language(option, pair[side])
            if not re.fullmatch(r"[A-Za-z0-9_-]+", pair[side]):
                raise MtkitError(
                    f"{option}: {pair[side]!r} has a character that a language tag cannot have; "
                    "use letters, digits, hyphens and underscores of ASCII"
                )
    if same := [src for src, tgt in pairs if src == tgt]:
        raise MtkitError(
            f"the direction {same[0]} to {same[0]} has the same language twice; give two languages"
        )
    if twice := [pair for number, pair in enumerate(pairs) if pair in pairs[:number]]:
        raise MtkitError(
            f"the direction {' to '.join(twice[0])} is given twice; give all its corpora together"
        )
    names = [f"{src}-{tgt}" for src, tgt in pairs]
    if same := [name for number, name in enumerate(names) if name in names[:number]]:
        raise MtkitError(f"two directions have the name {same[0]}; choose other language codes")
    spelled: dict[tuple[str, ...], str] = {}
    for code in (code for pair in pairs for code in pair):
        first = spelled.setdefault(tuple(language_subtags(code)), code)
        if first != code:
            raise MtkitError(f"{first} and {code} are codes of the same language; use one of them")


def _number_of_workers(workers: int | None) -> int:
    if workers is None:
        return available_cores()
    if workers < 1:
        raise MtkitError(f"workers: there must be at least one, not {workers}")
    most = _WORKERS_PER_CORE * available_cores()
    if workers > most:
        log.info("starting %d workers; more would not be faster on this machine", most)
    return min(workers, most)


def _link_files(paths: Sequence[Path], *, sources: int, config: PrepareConfig) -> list[LinkFile]:
    """The files of word alignments, one per training source, or none."""
    if paths and len(paths) != sources:
        raise MtkitError(
            f"alignments: give a file for each of the {sources} training sources, not {len(paths)}"
        )
    if paths:
        _check_links(config)
    return [LinkFile(Path(path)) for path in paths]


def _check_links(config: PrepareConfig) -> None:
    if config.max_tokens > (most := np.iinfo(LINK_TYPE).max):
        raise MtkitError(f"max_tokens: at most {most:,} with alignments, not {config.max_tokens}")


def _named_sources(
    given: Mapping[str, Source | tuple[Path, Path]],
) -> dict[str, Source]:
    """Further validation sets; refuses names that cannot be part of a file name."""
    for name in given:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}", name):
            raise MtkitError(
                f"--valid-also: {name!r} cannot be the name of a validation set; use at most 50 "
                "letters, digits, dots, hyphens and underscores of ASCII, a letter or digit first"
            )
    # Not all file systems distinguish them.
    if len({name.lower() for name in given}) < len(given):
        raise MtkitError("--valid-also: two names differ only in capital letters; change one")
    return {name: _as_source(source) for name, source in given.items()}


def _as_source(source: Source | tuple[Path, Path]) -> Source:
    return parallel_files(*source) if isinstance(source, tuple) else source


def _existing(
    folder: Path | None,
    directions: Sequence[tuple[str, str]],
    *,
    task: Task = "translation",
    is_multilingual: bool = False,
    train: Sequence[Source | tuple[Path, Path]] = (),
) -> ExistingVocabularies | None:
    """The vocabularies of `tokenizer_from`, if it is given."""
    if folder is None:
        return None
    tags = [source.tag for source in train if isinstance(source, Source)]
    return ExistingVocabularies.open(
        Path(folder),
        directions,
        task=task,
        is_multilingual=is_multilingual,
        corpus_tags=dict.fromkeys(tag for tag in tags if tag is not None),
    )


def _sources(
    config: PrepareConfig,
    *,
    src_lang: str,
    tgt_lang: str,
    train: Sequence[Source | tuple[Path, Path]],
    valid: Source | tuple[Path, Path],
    test: Source | tuple[Path, Path] | None = None,
    valid_also: Mapping[str, Source | tuple[Path, Path]] = MappingProxyType({}),
    alignments: Sequence[Path] = (),
) -> Sources:
    """The sources of a direction, from the arguments of `prepare_files`."""
    if not train:
        raise MtkitError("there is no training data; give at least one training source")
    found = Sources(
        src_lang,
        tgt_lang,
        [_as_source(source) for source in train],
        _as_source(valid),
        _as_source(test) if test else None,
        _named_sources(valid_also),
        _link_files(alignments, sources=len(train), config=config),
    )
    for source in found.held_out.values():
        if source is not None and source.tag is not None:
            raise MtkitError(
                f"{source.name}: only training data can have a tag; remove {source.tag}"
            )
    return found


def _settings(
    existing: ExistingVocabularies | None,
    settings: dict[str, Any],
    overrides: Sequence[str],
    *,
    of_trees: bool = False,
) -> PrepareConfig:
    """The settings of a preparation, of trees or of sentence pairs."""
    base = FOR_TREES if of_trees else ()
    if existing is None:
        config = prepare_config(settings, [*base, *overrides])
    else:
        config = existing.config(settings, overrides, base=base)
    if of_trees and config.noise.is_on:
        raise MtkitError(
            "noise: is a setting for sentence pairs, because a parser reads the words as they are "
            "in the treebank; remove it"
        )
    if not of_trees and not config.tree_tags:
        raise MtkitError("tree_tags: is a setting for treebanks; remove it, or give --trees")
    return config


def _prepare(
    corpus: Corpus,
    config: PrepareConfig,
    existing: ExistingVocabularies | None,
    out: Path,
    facts: dict[str, Any],
    *,
    workers: int | None,
    force: bool,
    dry_run: bool,
    on_finished: OnFinished | None,
) -> Report:
    number = _number_of_workers(workers)
    facts |= {
        # Each once, in the order of the directions.
        "src_lang": ",".join(dict.fromkeys(one.src_lang for one in corpus.directions)),
        "tgt_lang": ",".join(dict.fromkeys(one.tgt_lang for one in corpus.directions)),
        "settings": config.model_dump(mode="json"),
        "versions": {"mtkit": mtkit.__version__, "sentencepiece": SENTENCEPIECE_VERSION},
    }
    if existing is not None:
        facts["tokenizer_from"] = existing.facts
    origins = {split: corpus.facts(split) for split in corpus.sources()}
    depends_on = [_RECORDS_FORMAT, BLOCK, facts, origins]
    key = hashlib.sha256(json.dumps(depends_on).encode()).hexdigest()
    with create_prepared(out, force=force, key=key, keep=not dry_run) as writer:
        writer.describe(**facts)
        try:
            report = Passes(corpus, config, writer, number, existing).run(out, origins)
        except KeyboardInterrupt:
            if not dry_run:
                log.warning("stopped; run the same command again to continue")
            raise
        if on_finished is not None and dry_run:
            on_finished(writer.finish(), report)
    if on_finished is not None and not dry_run:
        # An error from here on loses no work.
        on_finished(PreparedData.open(out), report)
    return report
