"""From a corpus name or files to a prepared folder: fetch, check, clean, learn subwords, encode.

The training pairs are read three times, block by block, and worked on by all cores:

1. **Check.** Every pair is judged by itself, and what is needed to compare it with others is noted
   in flat files; then duplicates and segments out of step are looked for there.
2. **Learn.** The words of the pairs that are kept, or of an even sample of them, are counted, and
   subwords are learned from the counts.
3. **Encode.** The pairs that are kept are cut into subwords, judged by those, and written.

The later stages compare every block that they read with what the first one read, before anything
is done with it: a source that changes meanwhile is refused, and never mis-paired.

Memory is bounded whatever the size of the corpus. A block gives the same results in any process
and blocks are put together in their order, so the folder's bytes depend on the input and the
settings only. What a stopped run has finished is used by the next one with the same input and
settings: the first two stages as a whole, of the third every part.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mtkit
from mtkit.config import PrepareConfig, prepare_config
from mtkit.data import PreparedData, check_free
from mtkit.errors import MtkitError, encodable, one_line
from mtkit.prepare.catalogue import find_corpus
from mtkit.prepare.passes import (
    BLOCK,
    SPLITS,
    Passes,
    Report,
    Sources,
)
from mtkit.prepare.readers import catalogue_sources, parallel_files
from mtkit.prepare.source import Source
from mtkit.processes import available_cores
from mtkit.tokenizer import SENTENCEPIECE_VERSION

log = logging.getLogger(__name__)

# Of what is noted for a run that takes up a stopped one: another number for other notes.
_NOTES_FORMAT = 3
# Processes for each core beyond which more of them only take memory.
_WORKERS_PER_CORE = 8


# Called with data that is finished, and what was done.
OnFinished = Callable[[PreparedData, Report], None]


def prepare_corpus(
    name: str,
    out: Path,
    *,
    workers: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    on_finished: OnFinished | None = None,
    overrides: Sequence[str] = (),
    **settings: Any,
) -> Report:
    """Prepare a corpus of the catalogue.

    Args:
        name: such as `wmt14-en-de`.
        out: the folder to write.
        workers: processes; by default one for each core.
        force: replace the folder if it exists.
        dry_run: do everything, and leave nothing behind.
        on_finished: called with the finished data.
        overrides: of settings, as in `max_ratio=3`.
        settings: of `PrepareConfig`; `vocab_size` is by default as the catalogue says.

    Raises:
        MtkitError: for an unknown name, a hub that cannot be reached, a folder that cannot be
            written, or a vocabulary larger than the text supports.
    """
    corpus = find_corpus(name)
    if settings.get("vocab_size") is None:
        settings["vocab_size"] = corpus.vocab_size
    config = prepare_config(settings, overrides)
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
        sources,
        config,
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
    workers: int | None = None,
    force: bool = False,
    dry_run: bool = False,
    on_finished: OnFinished | None = None,
    overrides: Sequence[str] = (),
    **settings: Any,
) -> Report:
    """Prepare own sentence pairs.

    Args:
        name: what the data is called.
        out: the folder to write.
        src_lang, tgt_lang: language codes.
        train: sources, from `mtkit.sources`, or pairs of a source and a target file, plain or
            compressed, a sentence a line.
        valid, test: likewise one each.
        workers, force, dry_run, on_finished, overrides: as `prepare_corpus` takes them.
        settings: of `PrepareConfig`.

    Raises:
        MtkitError: naming the file, and the line where there is one, that must be fixed.
    """
    config = prepare_config(settings, overrides)
    _check_place(out, force=force, dry_run=dry_run)
    for option, language in (("src_lang", src_lang), ("tgt_lang", tgt_lang)):
        _check_language(option, language)
    if not train:
        raise MtkitError("there is nothing to train on; give at least one training source")
    sources = Sources(
        src_lang,
        tgt_lang,
        [_as_source(source) for source in train],
        _as_source(valid),
        _as_source(test) if test else None,
    )
    facts = {"name": encodable(name)}
    return _prepare(
        sources,
        config,
        out,
        facts,
        workers=workers,
        force=force,
        dry_run=dry_run,
        on_finished=on_finished,
    )


def _check_place(out: Path, *, force: bool, dry_run: bool) -> None:
    """Refuse a folder that cannot be written before any work is done."""
    try:
        os.lstat(out)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # the name is too long, or not possible
        reason = getattr(error, "strerror", None) or error
        raise MtkitError(f"{out}: cannot be written: {reason}") from error
    if not dry_run:
        check_free(out, force=force)


def _check_language(option: str, language: str) -> None:
    """Refuse what is not a code, whichever languages there are."""
    if not isinstance(language, str) or not re.fullmatch(r"\S{1,100}", language):
        raise MtkitError(f"{option}: {language!r} is not a language code, such as en or pt-BR")
    if one_line(language) != language:
        raise MtkitError(f"{option}: {language!r} has a character that cannot be printed")


def _number_of_workers(workers: int | None) -> int:
    if workers is None:
        return available_cores()
    if workers < 1:
        raise MtkitError(f"workers: there must be at least one, not {workers}")
    most = _WORKERS_PER_CORE * available_cores()
    if workers > most:
        log.info("%d workers are started; more than these gain nothing on this machine", most)
    return min(workers, most)


def _as_source(source: Source | tuple[Path, Path]) -> Source:
    return parallel_files(*source) if isinstance(source, tuple) else source


def _prepare(
    sources: Sources,
    config: PrepareConfig,
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
        "src_lang": sources.src_lang,
        "tgt_lang": sources.tgt_lang,
        "settings": config.model_dump(mode="json"),
        "versions": {"mtkit": mtkit.__version__, "sentencepiece": SENTENCEPIECE_VERSION},
    }
    origins = {split: [source.facts() for source in sources.of(split)] for split in SPLITS}
    depends_on = [_NOTES_FORMAT, BLOCK, facts, origins]
    key = hashlib.sha256(json.dumps(depends_on).encode()).hexdigest()
    with PreparedData.create(out, force=force, key=key, keep=not dry_run) as writer:
        writer.describe(**facts)
        try:
            report = Passes(sources, config, writer, number).run(out, origins)
        except KeyboardInterrupt:
            if not dry_run:
                log.warning("stopped; run the same command again to continue")
            raise
        if on_finished is not None and dry_run:
            on_finished(writer.finish(), report)
    if on_finished is not None and not dry_run:
        # What goes wrong from here on costs no work.
        on_finished(PreparedData.open(out), report)
    return report
