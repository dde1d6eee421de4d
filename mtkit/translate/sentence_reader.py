"""From lines to sentences with their ids, and from the translations of sentences to those of lines.

The translation of a line is that of its sentences, in their order, and so is its word alignment.
"""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtkit.base.copied import has_language
from mtkit.base.errors import MtkitError
from mtkit.base.sentences import separator, split
from mtkit.translate.doubts import IncompleteTranslations, check_sentence, place_of
from mtkit.translate.loading import LoadedRuns
from mtkit.translate.reading import Window
from mtkit.translate.requests import SENTENCE_STRIDE, Part, Range, Sentence, Translation

if TYPE_CHECKING:
    from mtkit.align import Aligner, Alignment, Link, Spans
    from mtkit.translate.glossary.terms import Demand, Glossary

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SentenceReader:
    """Makes sentences of lines, and lines of their translations.

    A sentence has at most `LoadedRuns.source_limit` subwords with EOS, and what is given of its
    translation as many as the model has positions; more are cut off.
    """

    runs: LoadedRuns
    glossary: Glossary | None = None
    warns: bool = True

    def read(
        self, window: Window, doubts: IncompleteTranslations | None = None
    ) -> list[list[Sentence]]:
        """The sentences of each line.

        The sentences that a forced beginning covers are translated together, so that the
        translation of the line begins with it. A text that is copied has no ids: it is without
        letters, or only addresses and placeholders, and a model would invent words for it.

        Raises:
            MtkitError: if a parser is given beginnings of trees.
        """
        if self.runs.task.name == "parsing" and any(window.prefixes or []):
            raise MtkitError("a parser cannot be combined with target prefixes")
        prefixes = window.prefixes or [""] * len(window.lines)
        spans = list(map(self._cut, window.lines, prefixes))
        line_numbers = [window.number_of(i) for i, of_line in enumerate(spans) for _ in of_line]
        # Sentences of a line are sampled independently, the first as a whole line would be.
        groups = itertools.groupby(line_numbers)
        numbers = [n + i * SENTENCE_STRIDE for n, same in groups for i, _ in enumerate(same)]
        cut = [
            (line[start:end], prefix if index == 0 else "", (start, end))
            for line, prefix, of_line in zip(window.lines, prefixes, spans, strict=True)
            for index, (start, end) in enumerate(of_line)
        ]
        encoded = self._encode([self.runs.task.source_text(text) for text, _, _ in cut])
        forced = self.runs.vocabularies.tgt.encode_batch([prefix for _, prefix, _ in cut])
        sentences, copies = [], self.runs.config.copy_numbers
        for number, (text, _, span), ids, prefix in zip(numbers, cut, encoded, forced, strict=True):
            place = place_of(number % SENTENCE_STRIDE, doubts)
            truncated = self._truncate(ids, place, *self.runs.source_limit)
            terms, words = self._demanded(text, ids), self.runs.task.words(text)
            is_copied = copies and not (words or prefix or terms or has_language(text))
            source = [] if is_copied else ids
            begin = self.target(prefix, place)
            sentences.append(Sentence(number, source, begin, terms, words, text, span, truncated))
        rest = iter(sentences)
        return [list(itertools.islice(rest, len(of_line))) for of_line in spans]

    def encode(self, lines: Sequence[str], numbers: Iterable[int]) -> list[list[int]]:
        """Ids of each line without EOS, with its tag, cut with a warning; none if blank."""
        encoded = self._encode(lines)
        for number, ids in zip(numbers, encoded, strict=True):
            self._truncate(ids, place_of(number, None), *self.runs.source_limit)
        return encoded

    def target(self, ids: Sequence[int], place: str) -> list[int]:
        """What is given of a translation, with its language tag; cut as a source is."""
        ids, most = [*self.runs.tgt_prefix, *ids], self.runs.max_positions
        if most is not None:
            self._truncate(ids, f"{place}, translation", most, "model.max_positions")
        return ids

    def _encode(self, lines: Sequence[str]) -> list[list[int]]:
        """As `encode`, of any length."""
        encoded = self.runs.vocabularies.src.encode_batch(lines)
        for line, ids in zip(lines, encoded, strict=True):
            if not line.strip():
                # Some spaces, such as U+0085, are subwords to the tokenizer.
                ids.clear()
            elif ids:
                ids[:0] = self.runs.src_prefix
        return encoded

    def _truncate(self, ids: list[int], place: str, most: int, setting: str) -> bool:
        """Cut ids to a limit with EOS, with a warning that names its setting; whether it did."""
        size = len(ids) + 1
        if size > most and self.warns:
            log.warning("%s: cut from %d to %d tokens (%s)", place, size, most, setting)
        del ids[most - 1 :]
        return size > most

    def _demanded(self, text: str, ids: Sequence[int]) -> list[Demand]:
        """The target terms that the translation of a text must contain."""
        if self.glossary is None:
            return []
        tokenizer = self.runs.vocabularies.src
        # Of a text that was cut, only what is left is translated.
        whole = text if len(ids) + 1 < self.runs.source_limit[0] else tokenizer.decode(ids)
        return self.glossary.demands(whole, tokenizer, prefix=self.runs.src_prefix)

    def _cut(self, line: str, prefix: str) -> list[Range]:
        """The characters of each sentence, without spaces around it."""
        if self.runs.task.name == "parsing" or self.runs.config.split_sentences is False:
            return [(0, len(line))]
        together = len(split(prefix, self.runs.tgt_lang)) if prefix else 1
        spans = list(_spans(split(line, self.runs.src_lang)))
        spans[:together] = [(spans[0][0], spans[:together][-1][1])]
        return spans

    def results(
        self, sentence: Sentence, translations: Sequence[Translation] | None
    ) -> list[Translation]:
        """What the task makes of the translations of a sentence; one without ids is copied."""
        if translations is None:
            return [Translation(sentence.text.strip())]
        results = []
        for t in translations:
            text, repaired = self.runs.task.result(sentence.words, t.text)
            results.append(replace(t, text=text, repaired=repaired, truncated=sentence.truncated))
        return results

    def translated_line(
        self,
        sentences: Sequence[Sentence],
        translations: Sequence[Sequence[Translation] | None],
        doubts: IncompleteTranslations | None = None,
    ) -> list[Translation]:
        """The translations of a line; `translations` has None where nothing was decoded."""
        results = list(map(self.results, sentences, translations))
        for sentence, (best, *_) in zip(sentences, results, strict=True):
            check_sentence(sentence, best, doubts)
        return self.join(sentences, results)

    def join(
        self, sentences: Sequence[Sentence], translations: Sequence[list[Translation]]
    ) -> list[Translation]:
        """The translations of a line: the k-th has the k-th, or the last, of each sentence."""
        if len(translations) == 1:
            return translations[0]
        return [
            self._line(sentences, [best[min(k, len(best) - 1)] for best in translations])
            for k in range(max(map(len, translations)))
        ]

    def _line(self, sentences: Sequence[Sentence], results: Sequence[Translation]) -> Translation:
        texts: list[str] = []
        parts: list[Part] = []
        end, between = 0, separator(self.runs.tgt_lang)
        for sentence, result in zip(sentences, results, strict=True):
            if result.text:
                start = end + len(between) * bool(texts)
                end = start + len(result.text)
                texts.append(result.text)
                parts.append((sentence.span, (start, end)))
        return Translation(
            between.join(texts),
            # The mean keeps the order of the translations, the best first.
            score=sum(result.score for result in results) / len(results),
            log_prob=sum(result.log_prob for result in results),
            finished=all(result.finished for result in results),
            pieces=tuple(itertools.chain(*(result.pieces for result in results))),
            log_probs=tuple(itertools.chain(*(result.log_probs for result in results))),
            seconds=max(result.seconds for result in results),
            missing=tuple(itertools.chain(*(result.missing for result in results))),
            parts=tuple(parts),
            truncated=any(result.truncated for result in results),
        )


def _spans(sentences: Sequence[str]) -> Iterator[Range]:
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
    words: Callable[[str], Spans] | None = None,
) -> list[Alignment]:
    """The word alignment of each line with its translation, by the words of the line."""
    from mtkit.align import word_spans

    words = words or word_spans
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
    aligned = iter(aligner.align(texts, translated, numbers=of_pairs, words=words))
    return [
        _whole_line((source, best.text), of_line, [*itertools.islice(aligned, len(of_line))], words)
        for source, best, of_line in zip(sources, translations, parts, strict=True)
    ]


def _whole_line(
    lines: tuple[str, str],
    parts: Sequence[Part],
    alignments: Sequence[Alignment],
    words: Callable[[str], Spans],
) -> Alignment:
    """The alignment of a line from those of its sentences."""
    if len(parts) == 1 and parts[0][1] == (0, len(lines[1])):
        return alignments[0]
    from mtkit.align import Alignment

    src_words, tgt_words = map(words, lines)
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
