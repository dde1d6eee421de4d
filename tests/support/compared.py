"""Texts for pages that compare systems."""

from collections.abc import Sequence

from mtkit.score import ScoredText


def compared_text(
    name: str,
    references: Sequence[str] | None = None,
    sources: Sequence[str] = (),
    src_lang: str = "",
    tgt_lang: str = "",
    others: Sequence[list[str]] = (),
) -> ScoredText:
    """A text with one set of references, or with others too, or with none."""
    sets = [] if references is None else [list(references), *others]
    return ScoredText(src_lang, tgt_lang, list(sources), sets, name=name)
