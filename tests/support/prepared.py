"""Corpora of several directions and of trees, prepared from keyword arguments."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mtkit.prepare import (
    Corpus,
    DirectionSources,
    PrepareOptions,
    Report,
    Source,
    Treebank,
    parallel_files,
    prepare,
)
from mtkit.prepare.link_files import LinkFile


def prepare_several(
    name: str,
    out: Path,
    *,
    directions: Sequence[Mapping[str, Any]],
    temperature: float = 1.0,
    tags: Literal["source", "both"] | None = None,
    **options: Any,
) -> Report:
    """Each direction has the arguments about data that `mtkit.prepare.prepare_files` has."""
    corpus = Corpus(
        name,
        [_sources(**one) for one in directions],
        is_multilingual=True,
        temperature=temperature,
        tags=tags,
    )
    return prepare(corpus, out, PrepareOptions.from_keywords(**options))


def prepare_trees(
    name: str,
    out: Path,
    *,
    train: Sequence[Treebank],
    valid: Treebank,
    test: Treebank | None = None,
    src_lang: str = "en",
    **options: Any,
) -> Report:
    sources = DirectionSources(src_lang, "trees", train, valid, test)
    return prepare(
        Corpus(name, [sources], task="parsing"), out, PrepareOptions.from_keywords(**options)
    )


def _sources(
    *,
    train: Sequence[Any],
    valid: Any,
    test: Any = None,
    valid_also: Mapping[str, Any] | None = None,
    alignments: Sequence[Path] = (),
    **languages: str,
) -> DirectionSources:
    def source(given: Any) -> Source:
        return parallel_files(*given) if isinstance(given, tuple) else given

    return DirectionSources(
        **languages,
        train=[source(one) for one in train],
        valid=source(valid),
        test=source(test) if test else None,
        valid_also={name: source(one) for name, one in (valid_also or {}).items()},
        links=[LinkFile(path) for path in alignments],
    )
