"""What a decoder is given, and what it gives back: batches of sentences, and translations."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mtkit.config import DecodeConfig
from mtkit.translate.reading import Window

if TYPE_CHECKING:
    from mtkit.translate.glossary.terms import Demand

Range = tuple[int, int]
# The characters of a sentence in its line, and those of its translation.
Part = tuple[Range, Range]

# The distance between the numbers of the sentences of a line; no input has as many lines.
SENTENCE_STRIDE = 2**40


@dataclass(frozen=True)
class Sentence:
    """A sentence to translate, or a line that is translated as a whole.

    Attributes:
        number: that of its line, and `SENTENCE_STRIDE` more for each sentence before it in the
            line. With the seed it determines its samples.
        ids: of the source, without EOS; empty if there is nothing to translate.
        prefix: ids that the translation begins with, possibly none.
        terms: the target terms that the translation must contain.
        words: of a parser, the words of the sentence.
        text: as it is in the line.
        span: its characters in the line; of a line that was cut, without the spaces around them.
        truncated: whether the end of the text is not in the ids, because it was too long.
    """

    number: int
    ids: Sequence[int]
    prefix: Sequence[int] = ()
    terms: Sequence[Demand] = ()
    words: Sequence[str] = ()
    text: str = ""
    span: Range = (0, 0)
    truncated: bool = False

    @property
    def line(self) -> int:
        """The number of its line."""
        return self.number % SENTENCE_STRIDE


@dataclass(frozen=True)
class Translation:
    """One hypothesis for a sentence, or for a line.

    Attributes:
        text: detokenised, on one line.
        score: log-probability over the length penalty, or with minimum Bayes risk decoding the
            mean chrF against the other samples; 0 for a blank line. Of a line that was split,
            the mean of the scores of its sentences.
        log_prob: sum of the natural log-probabilities of its tokens.
        finished: False if it was cut off at the length limit.
        pieces: its subwords, with EOS at the end if it is finished; none for a blank line.
        log_probs: natural log-probability of each subword.
        seconds: the time of its batch.
        missing: target terms that the glossary demands and the text does not contain.
        repaired: for a tree, whether what the model wrote was not well-formed; None for text.
        parts: of a line of several sentences, those with a translation; empty if the line was
            translated as a whole.
        truncated: whether the end of the source was not translated, because it was too long.
    """

    text: str
    score: float = 0.0
    log_prob: float = 0.0
    finished: bool = True
    pieces: tuple[str, ...] = ()
    log_probs: tuple[float, ...] = ()
    seconds: float = 0.0
    missing: tuple[str, ...] = ()
    repaired: bool | None = None
    parts: tuple[Part, ...] = ()
    truncated: bool = False


@dataclass(eq=False)
class PendingBatch:
    """Sentences that are decoded as one batch; `future` is set if a thread decodes them."""

    sentences: Sequence[Sentence]
    n_best: int
    future: Future[list[list[Translation]]] | None = None

    @property
    def is_done(self) -> bool:
        """Whether `finish` returns without waiting."""
        return self.future is not None and self.future.done()


class PendingWindow(NamedTuple):
    """A window that is being translated: the sentences of each line, and the batches of them."""

    window: Window
    lines: list[list[Sentence]]
    batches: list[PendingBatch]


def hypotheses_of(config: DecodeConfig, n_best: int) -> int:
    """The number of hypotheses of a sentence that are decoded at a time."""
    if config.mbr_samples:
        # Independent of `n_best`, because the best sample depends on the samples compared.
        return config.mbr_samples
    return n_best if config.sample else max(config.beam_size, n_best)
