"""Corpora of several directions and of trees, prepared from keyword arguments."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mtkit import prepare as preparing
from mtkit.prepare.link_files import LinkFile


def prepare_several(
    name: str,
    out: Path,
    *,
    directions: Sequence[Mapping[str, Any]],
    temperature: float = 1.0,
    tags: Literal["source", "both"] | None = None,
    **options: Any,
) -> preparing.Report:
    """Each direction has the arguments about data that `mtkit.prepare.prepare_files` has."""
    corpus = preparing.Corpus(
        name,
        [_sources(**direction) for direction in directions],
        is_multilingual=True,
        temperature=temperature,
        tags=tags,
    )
    return preparing.prepare(corpus, out, preparing.PrepareOptions.from_keywords(**options))


def prepare_trees(
    name: str,
    out: Path,
    *,
    train: Sequence[preparing.Treebank],
    valid: preparing.Treebank,
    test: preparing.Treebank | None = None,
    src_lang: str = "en",
    **options: Any,
) -> preparing.Report:
    sources = preparing.DirectionSources(src_lang, "trees", train, valid, test)
    return preparing.prepare(
        preparing.Corpus(name, [sources], task="parsing"),
        out,
        preparing.PrepareOptions.from_keywords(**options),
    )


def _sources(
    *,
    train: Sequence[Any],
    valid: Any,
    test: Any = None,
    valid_also: Mapping[str, Any] | None = None,
    alignments: Sequence[Path] = (),
    **languages: str,
) -> preparing.DirectionSources:
    def source(given: Any) -> preparing.Source:
        return preparing.parallel_files(*given) if isinstance(given, tuple) else given

    return preparing.DirectionSources(
        **languages,
        train=[source(files) for files in train],
        valid=source(valid),
        test=source(test) if test else None,
        valid_also={name: source(files) for name, files in (valid_also or {}).items()},
        links=[LinkFile(path) for path in alignments],
    )
