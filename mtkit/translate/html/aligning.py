"""Word alignments of lines with their translations, which are those of their sentences."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mtkit.translate.requests import Part, Translation

if TYPE_CHECKING:
    from mtkit.align import Aligner, Alignment, Link, Spans


def align_by_sentence(
    aligner: Aligner,
    sources: Sequence[str],
    translations: Sequence[Translation],
    *,
    numbers: Sequence[int],
) -> list[Alignment]:
    """The word alignment of each line with its translation, by the words of the line."""
    parts = [
        best.parts or (((0, len(source)), (0, len(best.text))),)
        for source, best in zip(sources, translations, strict=True)
    ]
    pairs = [
        (source[slice(*src)], best.text[slice(*tgt)], number)
        for source, best, number, of_line in zip(sources, translations, numbers, parts, strict=True)
        for src, tgt in of_line
    ]
    texts, translated, of_pairs = zip(*pairs, strict=True) if pairs else ((), (), ())
    aligned = iter(aligner.align(texts, translated, numbers=of_pairs))
    return [
        _whole_line(source, best.text, of_line, list(itertools.islice(aligned, len(of_line))))
        for source, best, of_line in zip(sources, translations, parts, strict=True)
    ]


def _whole_line(
    source: str, text: str, parts: Sequence[Part], alignments: Sequence[Alignment]
) -> Alignment:
    """The alignment of a line from those of its sentences."""
    if len(parts) == 1 and parts[0][1] == (0, len(text)):
        return alignments[0]
    from mtkit.align import Alignment, word_spans

    src_words, tgt_words = word_spans(source), word_spans(text)
    weights: dict[Link, float] = {}
    for (src, tgt), alignment in zip(parts, alignments, strict=True):
        for (i, j), weight in alignment.weights.items():
            # Sentences without a space between them can share a word.
            link = (
                _word_at(src_words, src[0] + alignment.src_words[i][0]),
                _word_at(tgt_words, tgt[0] + alignment.tgt_words[j][0]),
            )
            weights[link] = max(weight, weights.get(link, 0.0))
    return Alignment(dict(sorted(weights.items())), src_words, tgt_words)


def _word_at(words: Spans, position: int) -> int:
    """The word that a character of a line is in."""
    return bisect_right(words, position, key=lambda word: word[0]) - 1
