"""Lines of several sentences: cut before they are translated, and joined after it.

The translation of a line is that of its sentences, in their order. Each sentence is translated, and
its words are aligned, on its own.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mtkit.align import Aligner, Alignment, Link, Spans, word_spans
from mtkit.base.sentences import separator, split
from mtkit.translate.decoder import Part, Translation
from mtkit.translate.reading import Window


@dataclass(frozen=True)
class CutWindow:
    """A window whose lines were cut.

    Attributes:
        window: the sentences as its lines, with the numbers of the lines that they come from.
        spans: of each line, the characters of each of its sentences, without spaces around them;
            empty if the lines are not cut.
    """

    window: Window
    spans: list[Spans]


class SentenceCutter:
    """Cuts lines into sentences, and joins the translations of these.

    Args:
        src_lang, tgt_lang: language codes.
        splits: whether lines are cut at all.
    """

    def __init__(self, src_lang: str, tgt_lang: str, *, splits: bool) -> None:
        self._src_lang, self._tgt_lang = src_lang, tgt_lang
        self._separator = separator(tgt_lang)
        self._splits = splits

    def cut(self, window: Window) -> CutWindow:
        """The sentences of some lines.

        The sentences that a forced beginning covers are translated together, so that the
        translation of the line begins with it.
        """
        if not self._splits:
            return CutWindow(window, [])
        spans: list[Spans] = []
        prefixes: list[str] = []
        for index, line in enumerate(window.lines):
            prefix = window.prefixes[index] if window.prefixes is not None else ""
            together = len(split(prefix, self._tgt_lang)) if prefix else 1
            of_line = list(_spans(split(line, self._src_lang)))
            of_line[:together] = [(of_line[0][0], of_line[:together][-1][1])]
            spans.append(of_line)
            prefixes += [prefix, *[""] * (len(of_line) - 1)]
        lines = [
            line[start:end]
            for line, of_line in zip(window.lines, spans, strict=True)
            for start, end in of_line
        ]
        numbers = [window.number_of(index) for index, of_line in enumerate(spans) for _ in of_line]
        given = None if window.prefixes is None else prefixes
        return CutWindow(Window(window.first_line, lines, given, numbers), spans)

    def joined(self, cut: CutWindow, found: list[list[Translation]]) -> list[list[Translation]]:
        """The translations of lines, from those of their sentences.

        The k-th translation of a line has the k-th of each sentence, or the last if it has fewer.

        Args:
            cut: the sentences of the lines.
            found: of each sentence, best first.
        """
        if not cut.spans:
            return found
        rest = iter(found)
        lines = []
        for of_line in cut.spans:
            sentences = list(itertools.islice(rest, len(of_line)))
            if len(sentences) == 1:
                lines.append(sentences[0])
                continue
            lines.append(
                [
                    self._line(of_line, [best[min(k, len(best) - 1)] for best in sentences])
                    for k in range(max(map(len, sentences)))
                ]
            )
        return lines

    def _line(self, spans: Spans, sentences: list[Translation]) -> Translation:
        """The translation of a line of several sentences."""
        texts: list[str] = []
        parts: list[Part] = []
        end = 0
        for span, one in zip(spans, sentences, strict=True):
            if one.text:
                start = end + len(self._separator) * bool(texts)
                end = start + len(one.text)
                texts.append(one.text)
                parts.append((span, (start, end)))
        log_prob = sum(one.log_prob for one in sentences)
        log_probs = tuple(itertools.chain(*(one.log_probs for one in sentences)))
        # The mean keeps the order of the translations, the best first.
        score = sum(one.score for one in sentences) / len(sentences)
        return Translation(
            self._separator.join(texts),
            score,
            log_prob,
            all(one.finished for one in sentences),
            tuple(itertools.chain(*(one.pieces for one in sentences))),
            log_probs,
            max(one.seconds for one in sentences),
            tuple(itertools.chain(*(one.missing for one in sentences))),
            parts=tuple(parts),
        )


def _spans(sentences: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where each sentence is in its line, without the spaces around it."""
    start = 0
    for sentence in sentences:
        inner = sentence.strip()
        first = start + sentence.find(inner)
        yield first, first + len(inner)
        start += len(sentence)


def align_by_sentence(
    aligner: Aligner,
    sources: Sequence[str],
    translations: Sequence[Translation],
    *,
    numbers: Sequence[int],
) -> list[Alignment]:
    """The word alignment of each line with its translation; each sentence is aligned on its own.

    Args:
        aligner: of the model.
        sources: lines.
        translations: of each line.
        numbers: of the lines, for messages.

    Returns:
        Of each line; its words are those of the whole line.
    """
    parts = [
        one.parts or (((0, len(source)), (0, len(one.text))),)
        for source, one in zip(sources, translations, strict=True)
    ]
    pairs = [
        (source[slice(*src)], one.text[slice(*tgt)], number)
        for source, one, number, of_line in zip(sources, translations, numbers, parts, strict=True)
        for src, tgt in of_line
    ]
    aligned = iter(
        aligner.align(
            [source for source, _, _ in pairs],
            [text for _, text, _ in pairs],
            numbers=[number for _, _, number in pairs],
        )
    )
    return [
        _whole_line(source, one.text, of_line, list(itertools.islice(aligned, len(of_line))))
        for source, one, of_line in zip(sources, translations, parts, strict=True)
    ]


def _whole_line(
    source: str, text: str, parts: Sequence[Part], alignments: Sequence[Alignment]
) -> Alignment:
    """The alignment of a line from those of its sentences."""
    if len(parts) == 1 and parts[0][1] == (0, len(text)):
        return alignments[0]
    src_words, tgt_words = word_spans(source), word_spans(text)
    weights: dict[Link, float] = {}
    for (src, tgt), one in zip(parts, alignments, strict=True):
        for (i, j), weight in one.weights.items():
            # Sentences without a space between them can share a word.
            link = (
                _word_at(src_words, src[0] + one.src_words[i][0]),
                _word_at(tgt_words, tgt[0] + one.tgt_words[j][0]),
            )
            weights[link] = max(weight, weights.get(link, 0.0))
    return Alignment(dict(sorted(weights.items())), src_words, tgt_words)


def _word_at(words: Spans, position: int) -> int:
    """The word that a character of a line is in."""
    return bisect_right(words, position, key=lambda word: word[0]) - 1
