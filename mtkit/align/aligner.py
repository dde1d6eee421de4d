"""Word alignments from attention.

How much a target word attends to a source word is the mean weight over some heads of the decoder;
weights are added over the subwords of the source word and averaged over those of the target word.
Each target word is linked to its best source word, and each source word to its best target word,
and these two alignments are symmetrised (`links_of`). Nothing is trained for this.

A head can be read at two steps: where the target subword is predicted, and one step later, where it
is the decoder's input. Early layers attend to the source of their input, late layers to that of
their prediction (Chen et al. 2020, https://aclanthology.org/2020.emnlp-main.42). Which heads align
best depends on the model: `choose_heads` finds them, and `AlignmentSettings` stores them in the
run.
"""

from __future__ import annotations

import functools
import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from mtkit.align.links import (
    METHODS,
    Alignment,
    Gold,
    Link,
    Links,
    Method,
    Spans,
    alignment_score,
    swapped,
    symmetrize,
    word_spans,
    words_of_subwords,
)
from mtkit.base.arguments import ArgumentError
from mtkit.base.errors import MtkitError
from mtkit.base.files import Record, read_record, write_record
from mtkit.batch_plan import plan_batches
from mtkit.config import ModelConfig
from mtkit.run_folder import ALIGNMENT, Run
from mtkit.tokenizer import EOS_ID, SpannedIds, Vocabularies

log = logging.getLogger(__name__)

FloatArray = npt.NDArray[np.floating[Any]]
Step = Literal["prediction", "input"]

# The most heads that are chosen; on Multi30k four were the best.
MAX_HEADS = 8
_ADVICE = "delete it; mtkit check --fit chooses heads again"


class AlignmentHead(Record):
    """An attention head of the decoder, and its step; layers and heads count from 1."""

    layer: int
    head: int
    step: Step

    def __str__(self) -> str:
        return f"{self.layer}.{self.head} ({self.step})"


class AlignmentSettings(Record):
    """How a run aligns words: `alignment.json`, which training and `mtkit check --fit` write.

    `error_rate` is the AER of the mean of the heads, between 0 and 1, on `pairs` sentence pairs.
    The heads were compared with `reference`: "lexicon", or what earlier versions had too.
    """

    heads: list[AlignmentHead]
    error_rate: float
    pairs: int
    reference: str

    @classmethod
    def load(cls, run: Path) -> AlignmentSettings | None:
        """Those of a run folder; None if it has none."""
        path = run / ALIGNMENT
        if not os.path.lexists(path):
            return None
        return read_record(path, cls, advice=_ADVICE)

    def save(self, run: Path) -> None:
        """Write them into a run folder."""
        write_record(run / ALIGNMENT, self)


def all_heads(model: ModelConfig) -> list[AlignmentHead]:
    """Every head of the decoder of a model at both steps."""
    return [
        AlignmentHead(layer=layer, head=head, step=step)
        for layer in range(1, model.decoder_layers + 1)
        for head in range(1, model.n_heads + 1)
        for step in get_args(Step)
    ]


def default_heads(model: ModelConfig) -> list[AlignmentHead]:
    """The heads of a model that was not tuned: those of the upper half of the layers."""
    lower = model.decoder_layers // 2
    return [head for head in all_heads(model) if head.layer > lower and head.step == "prediction"]


def heads_of(run: Run | None, model: ModelConfig) -> list[AlignmentHead]:
    """The heads that align words in a run.

    These are the heads it was tuned to, else the head that was trained on word alignments
    (`train.guided_alignment`), else the default, also for a model without a run.

    Raises:
        MtkitError: if the settings are damaged, or name a head that the model does not have.
    """
    if run is None:
        return default_heads(model)
    settings = AlignmentSettings.load(run.path)
    if settings is None:
        if run.config.train.guided_alignment:
            return [AlignmentHead(layer=run.config.guided_layer, head=1, step="input")]
        return default_heads(model)
    if not settings.heads or set(settings.heads) - set(all_heads(model)):
        raise MtkitError(
            f"{run.path / ALIGNMENT}: names heads that the model does not have; {_ADVICE}"
        )
    return settings.heads


@dataclass(frozen=True)
class WordAttention:
    """How much the target words of a pair attend to its source words.

    Only words that have subwords are here; those behind the limit of a line have none.

    Attributes:
        matrix: (target words, source words + 1), the last column for EOS. Rows sum to 1.
        src, tgt: the indices in the line of the words of the columns and the rows.
    """

    matrix: FloatArray
    src: list[int]
    tgt: list[int]


def links_of(
    forward: WordAttention,
    backward: WordAttention | None = None,
    method: Method = "grow-diag-final-and",
) -> dict[Link, float]:
    """The links of a pair, and their weights.

    Every target word is linked to its best source word, and every source word to its best target
    word. With two models, the weight of two words is the geometric mean of those of both models: a
    partner that only one model sees is rarely right. A word that attends more to EOS than to its
    best partner has none.

    Args:
        forward: of the pair.
        backward: of the pair with source and target exchanged, by a model of the other direction.
        method: joins the links to the best source words and those to the best target words.
    """
    src, tgt, weights = forward.src, forward.tgt, forward.matrix[:, :-1]
    if backward is None:
        to_source = _best(weights, tgt, src, at_end=forward.matrix[:, -1])
        # A target word without a partner cannot be the partner of a source word.
        partners = sorted({word for word, _ in to_source})
        to_target = _best(weights[np.searchsorted(tgt, partners)].T, src, partners)
    else:
        # Only words that both models have read.
        src = sorted({*forward.src} & {*backward.tgt})
        tgt = sorted({*forward.tgt} & {*backward.src})
        there = forward.matrix[np.searchsorted(forward.tgt, tgt)]
        back = backward.matrix[np.searchsorted(backward.tgt, src)]
        of_forward = there[:, np.searchsorted(forward.src, src)].astype(np.float64)
        weights = np.sqrt(of_forward * back[:, np.searchsorted(backward.src, tgt)].T)
        to_source = _best(weights, tgt, src, at_end=there[:, -1])
        to_target = _best(weights.T, src, tgt, at_end=back[:, -1])
    links = sorted(symmetrize(swapped(to_source), to_target, method))
    rows = dict(zip(tgt, weights.tolist(), strict=True))
    column = {word: number for number, word in enumerate(src)}
    return {(i, j): rows[j][column[i]] for i, j in links}


def _best(
    matrix: FloatArray, rows: list[int], columns: list[int], *, at_end: FloatArray | float = 0.0
) -> Links:
    """Each row with its best column, by their words, unless EOS has a larger weight."""
    if not matrix.size:
        return frozenset()
    # Python's numbers are faster indices.
    best, is_aligned = matrix.argmax(1).tolist(), (matrix.max(1) >= at_end).tolist()
    return frozenset(
        (row, columns[column])
        for row, column, has_word in zip(rows, best, is_aligned, strict=True)
        if has_word
    )


class _Line(NamedTuple):
    """One side of a pair: its ids up to the limit, none if it is blank, and its words.

    `starts` are the first subwords of the words that have one, and `indices` these words.
    """

    ids: list[int]
    words: Spans
    starts: list[int]
    indices: list[int]


def _cut_line(line: str, encoded: SpannedIds, limit: int, words: Spans) -> _Line:
    # Some spaces, such as U+0085, are subwords to the tokenizer.
    ids, spans = (encoded.ids[:limit], encoded.spans[:limit]) if words else ([], [])
    first: dict[int, int] = {}
    starting = words_of_subwords(words, [start for start, _ in spans])
    for number, (word, (_, end)) in enumerate(zip(starting, spans, strict=True)):
        first.setdefault(word, number)
        # Characters that are words of their own may have a subword together.
        while word + 1 < len(words) and words[word][1] == words[word + 1][0] < end:
            first.setdefault(word := word + 1, number)
    return _Line(ids, words, list(first.values()), list(first))


Pair = tuple[_Line, _Line]


class PairAttention(ABC):
    """The attention of the heads of one or more models, in given pairs.

    Sources end with EOS; translations have neither BOS nor EOS.

    Args:
        models: their sizes.
        heads: of each model; the attribute has those of all.

    Raises:
        MtkitError: for a head that a model does not have, or if a model has none of the heads.
    """

    device_type = "cpu"

    def __init__(
        self, models: Sequence[ModelConfig], heads: Sequence[Sequence[AlignmentHead]]
    ) -> None:
        self.heads = [head for of_model in heads for head in of_model]
        for model, of_model in zip(models, heads, strict=True):
            if not of_model:
                raise ArgumentError("heads: give one or more")
            if unknown := set(of_model) - set(all_heads(model)):
                raise ArgumentError(f"heads: the model does not have {min(map(str, unknown))}")

    @abstractmethod
    def mean(self, src: list[list[int]], tgt: list[list[int]]) -> Sequence[FloatArray]:
        """The mean weights of all heads for a batch: of each pair (T, S), or larger."""

    @abstractmethod
    def by_head(self, src: list[list[int]], tgt: list[list[int]]) -> Iterator[Sequence[FloatArray]]:
        """Likewise, of each head on its own."""


class Aligner:
    """Aligns the words of given pairs, up to a limit of subwords of each line.

    A batch has `batch_tokens` source or target tokens. Limit and prefixes are those of
    `LoadedRuns`; prefixes are aligned with nothing.
    """

    def __init__(
        self,
        attention: PairAttention,
        vocabularies: Vocabularies,
        batch_tokens: int,
        *,
        limit: tuple[int, str],
        src_prefix: Sequence[int] = (),
        tgt_prefix: Sequence[int] = (),
    ) -> None:
        self._src_prefix, self._tgt_prefix = list(src_prefix), list(tgt_prefix)
        self._attention, self.heads = attention, attention.heads
        self._vocabularies = vocabularies
        self._batch_tokens = batch_tokens
        max_tokens, self._setting = limit
        # One is EOS, or BOS of the translation.
        self._limit = max_tokens - 1 - max(len(self._src_prefix), len(self._tgt_prefix))

    def align(
        self,
        sources: Sequence[str],
        translations: Sequence[str],
        *,
        reverse: Aligner | None = None,
        method: Method = "grow-diag-final-and",
        numbers: Sequence[int] | None = None,
        words: Callable[[str], Spans] = word_spans,
    ) -> list[Alignment]:
        """The alignment of every pair; a pair with a blank line has no links.

        `words` gives start and end of what is aligned, in characters of a line.

        Raises:
            MtkitError: for an unknown method.
        """
        if method not in METHODS:
            raise ArgumentError(f"method: one of {', '.join(METHODS)}, not {method!r}")
        if numbers is None:
            numbers = range(1, len(sources) + 1)
        pairs = self._encode({"source": sources, "translation": translations}, numbers, words)
        backward: Sequence[WordAttention | None] = [None] * len(pairs)
        if reverse is not None:
            swapped_sides = {"translation": translations, "source": sources}
            others = reverse._encode(swapped_sides, numbers, words)
        alignments = [Alignment({}, src.words, tgt.words) for src, tgt in pairs]
        for batch in self._batches(pairs):
            forward = self._mean([pairs[i] for i in batch])
            if reverse is not None:
                backward = reverse._mean([others[i] for i in batch])
            for i, there, back in zip(batch, forward, backward, strict=False):
                alignments[i] = replace(alignments[i], weights=links_of(there, back, method))
        return alignments

    def by_head(
        self, sources: Sequence[str], translations: Sequence[str]
    ) -> list[list[WordAttention]]:
        """For each pair the attention of each of `heads`, not their mean."""
        sides = {"source": sources, "translation": translations}
        pairs = self._encode(sides, range(1, len(sources) + 1))
        nothing = WordAttention(np.zeros((0, 1), np.float32), [], [])
        attentions = [[nothing] * len(self.heads) for _ in pairs]
        for batch in self._batches(pairs):
            of_batch = [pairs[i] for i in batch]
            weights = self._attention.by_head(*self._ids(of_batch))
            by_head = [self._of_words(of_batch, of_head) for of_head in weights]
            for i, of_heads in zip(batch, zip(*by_head, strict=True), strict=True):
                attentions[i] = list(of_heads)
        return attentions

    def _encode(
        self,
        sides: dict[str, Sequence[str]],
        numbers: Sequence[int],
        words: Callable[[str], Spans] = word_spans,
    ) -> list[Pair]:
        """The lines as subwords; numbers of lines and names of the sides are for warnings."""
        lines = []
        for tokenizer, (side, texts) in zip(self._vocabularies, sides.items(), strict=True):
            encoded = tokenizer.encode_with_spans(texts)
            warned: set[int] = set()
            for number, text in zip(numbers, encoded, strict=True):
                if len(text.ids) > self._limit and number not in warned:
                    warned.add(number)
                    log.warning(
                        "line %d: only %d of %d subwords of the %s are aligned (%s)",
                        number,
                        self._limit,
                        len(text.ids),
                        side,
                        self._setting,
                    )
            lines.append(
                [
                    _cut_line(line, ids, self._limit, words(line))
                    for line, ids in zip(texts, encoded, strict=True)
                ]
            )
        return list(zip(*lines, strict=True))

    def _batches(self, pairs: Sequence[Pair]) -> Iterator[list[int]]:
        """The indices of the pairs in batches, without pairs that have a blank line."""
        wanted = np.array([i for i, (src, tgt) in enumerate(pairs) if src.ids and tgt.ids], int)
        if not len(wanted):
            return
        lengths = [np.array([len(pairs[i][side].ids) + 1 for i in wanted]) for side in (0, 1)]
        longest = max(int(side.max()) for side in lengths)
        for rows in plan_batches(*lengths, budget=max(self._batch_tokens, longest)):
            yield wanted[rows].tolist()

    def _mean(self, pairs: Sequence[Pair]) -> list[WordAttention]:
        """The mean attention of all heads of each pair."""
        return self._of_words(pairs, self._attention.mean(*self._ids(pairs)))

    def _ids(self, pairs: Sequence[Pair]) -> tuple[list[list[int]], list[list[int]]]:
        src = [[*self._src_prefix, *line.ids, EOS_ID] for line, _ in pairs]
        return src, [[*self._tgt_prefix, *line.ids] for _, line in pairs]

    def _of_words(
        self, pairs: Sequence[Pair], weights: Sequence[FloatArray]
    ) -> list[WordAttention]:
        """The attention of words from that of subwords, for each pair (T, S + 1) at least."""
        attentions, first, start = [], len(self._src_prefix), len(self._tgt_prefix)
        for (src, tgt), of_pair in zip(pairs, weights, strict=True):
            rows = of_pair[start : start + len(tgt.ids)]
            matrix = rows[:, first : first + len(src.ids) + 1]
            # The sum over the subwords of a source word, and the mean over those of a target word.
            by_source = np.add.reduceat(matrix, [*src.starts, len(src.ids)], axis=1)
            counts = np.diff([*tgt.starts, len(tgt.ids)]).clip(1)
            mean = np.add.reduceat(by_source, tgt.starts, axis=0) / counts[:, None]
            attentions.append(WordAttention(mean, src.indices, tgt.indices))
        return attentions


class HeadChoice(NamedTuple):
    """Heads, the error rate of their mean attention from 0 to 1, and that of the default."""

    heads: list[AlignmentHead]
    error_rate: float
    default_error_rate: float


def choose_heads(
    aligner: Aligner,
    sources: Sequence[str],
    translations: Sequence[str],
    golds: Sequence[Gold],
    *,
    default: Sequence[AlignmentHead],
) -> HeadChoice:
    """The heads whose mean agrees best with gold alignments, of those of the aligner.

    Heads are added one by one, each time the one that lowers the error rate most, while one does.
    The result is not worse than the default.
    """
    attentions = aligner.by_head(sources, translations)
    error_rate = functools.partial(_error_rate, attentions, golds)
    known = [aligner.heads.index(head) for head in default]
    known_rate = error_rate(known)
    chosen: list[int] = []
    lowest = math.inf
    while len(chosen) < MAX_HEADS:
        others = sorted(set(range(len(aligner.heads))) - set(chosen))
        rates = {candidate: error_rate([*chosen, candidate]) for candidate in others}
        best = min(rates, key=rates.__getitem__, default=None)
        if best is None or rates[best] >= lowest:
            break
        chosen.append(best)
        lowest = rates[best]
    if known_rate < lowest:
        lowest, chosen = known_rate, known
    return HeadChoice([aligner.heads[i] for i in chosen], lowest, known_rate)


def _error_rate(
    attentions: Sequence[Sequence[WordAttention]], golds: Sequence[Gold], chosen: Sequence[int]
) -> float:
    """The alignment error rate of the mean of some heads."""
    links = []
    for of_heads in attentions:
        mean = np.mean([of_heads[i].matrix for i in chosen], axis=0)
        links.append(frozenset(links_of(replace(of_heads[0], matrix=mean))))
    return alignment_score(links, golds).error_rate
