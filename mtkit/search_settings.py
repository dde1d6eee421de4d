"""Records of a search: its settings and constraints, sampling, and the hypotheses it finds.

Both engines have these records, so nothing here depends on models, on text or on PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
PenaltyForm = Literal["gnmt", "power"]
StopRule = Literal["exact", "likely"]
# With the rule `likely`, within how many further tokens another hypothesis must be able to win. Of
# 1, 2 and 3, the first with which no BLEU on Multi30k was lost (benchmarks/README.md).
LOOKAHEAD = 3


class TokenMask(Protocol):
    """Which tokens may follow in the hypotheses of one sentence.

    A hypothesis has a state, of any type, which is never changed: the hypotheses that continue it
    share it.
    """

    def start(self) -> Any:
        """The state of a hypothesis without tokens."""

    def advance(self, state: Any, token: int) -> Any:
        """The state after one more token, which was allowed; EOS never comes here."""

    def allowed(self, state: Any) -> Array:
        """(V,): whether each token may follow."""


@dataclass(frozen=True)
class Constraints:
    """Constraints on outputs; the reported probabilities are still the model's.

    Attributes:
        min_length: minimum number of tokens before EOS.
        no_repeat_ngram: no n-gram of this size occurs twice in an output; 0 allows all.
        prefixes: per sentence, the tokens that the output begins with; None for no prefix.
        masks: per sentence, which tokens may follow, regardless of the other constraints; None to
            allow all.
        forbidden: tokens that are in no output but as a part of its prefix, where they are certain:
            their log-probability is 0, because the model has no choice.
    """

    min_length: int = 0
    no_repeat_ngram: int = 0
    prefixes: Sequence[Sequence[int]] | None = None
    masks: Sequence[TokenMask] | None = None
    forbidden: Sequence[int] = ()


class Hypothesis(NamedTuple):
    """A translation found by the search.

    Attributes:
        tokens: ids without BOS and EOS.
        log_prob: sum of the natural log-probabilities of its tokens, including EOS if finished.
        score: `log_prob` over the length penalty.
        finished: False if it was cut off at the length limit.
        token_log_probs: the log-probability of each token.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool
    token_log_probs: tuple[float, ...]


def length_penalty(length: int, alpha: float, form: PenaltyForm = "gnmt") -> float:
    """The divisor of the log-probability of a hypothesis; the length includes EOS.

    `gnmt` is ((5 + length) / 6) ** alpha (Wu et al. 2016), as in the paper. `power` is
    length ** alpha; fairseq and others use it with a different search.
    """
    return float(length**alpha if form == "power" else ((5 + length) / 6) ** alpha)


@dataclass(frozen=True)
class SearchSettings:
    """What every search is given, besides the model.

    Attributes:
        max_lengths: per sentence, the maximum number of tokens of an output, including EOS.
        bos_id: first token of every hypothesis.
        eos_id: the token that ends one.
        alpha: strength of the length penalty; 0 ranks by log-probability.
        penalty_form: of `length_penalty`.
        constraints: on outputs.
        device: the device of the step function.
        stop: when a beam search ends a sentence; see `beam_search`.
    """

    max_lengths: Sequence[int]
    bos_id: int
    eos_id: int
    alpha: float
    penalty_form: PenaltyForm = "gnmt"
    constraints: Constraints | None = None
    device: torch.device | None = None
    stop: StopRule = "exact"

    def penalty(self, length: int) -> float:
        """`length_penalty` with these settings."""
        return length_penalty(length, self.alpha, self.penalty_form)

    def penalties(self, longest: int) -> list[float]:
        """The penalties of lengths 1 to `longest`."""
        return [self.penalty(length) for length in range(1, longest + 1)]


@dataclass(frozen=True)
class Sampling:
    """Settings of sampling; they are applied in this order.

    Attributes:
        temperature: log-probabilities are divided by it; above 0. Below 1, probable tokens become
            more probable.
        top_k: sample only from this many most probable tokens; 0 for all.
        top_p: sample only from the fewest most probable tokens whose probabilities sum to this,
            at least one; above 0, and 1 for all. Nucleus sampling (Holtzman et al. 2020).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def uniforms(seed: int, lines: Sequence[int], *, n_samples: int, steps: int) -> Array:
    """Random numbers for `sample`; each is independent of how many others are requested.

    Philox (Salmon et al. 2011) is a function of a key, here the seed and the line, and of a
    counter, here the sample and the step.

    Args:
        seed: from 0, in 64 bits.
        lines: a number for each of B sentences, likewise.
        n_samples: W, samples of each sentence.
        steps: T, the maximum number of tokens of a hypothesis.

    Returns:
        (B, W, T) in [0, 1), multiples of 2 ** -53.
    """
    bits = np.empty((len(lines), n_samples, steps), dtype=np.uint64)
    for of_line, line in zip(bits, lines, strict=True):
        philox = np.random.Philox(key=np.array([seed, line], dtype=np.uint64))
        for of_sample in of_line:
            of_sample[:] = philox.random_raw(steps)
            # Every count gives four numbers, and a sample has 2 ** 64 counts.
            philox.advance(2**64 - -(-steps // 4))
    return (bits >> np.uint64(11)) * 2.0**-53


def stratified_uniforms(seed: int, lines: Sequence[int], *, n_samples: int, steps: int) -> Array:
    """Random numbers for samples whose mean varies less than that of independent samples.

    At each step, each of W equal parts of [0, 1) has the number of one sample: a Latin hypercube
    (McKay, Beckman and Conover 1979, https://doi.org/10.2307/1268522). The numbers of one sample
    are independent. Arguments and shape, (B, W, T), are those of `uniforms`.
    """
    draws = uniforms(seed, lines, n_samples=n_samples, steps=steps)
    part = draws.argsort(axis=1).argsort(axis=1)
    # The place in the part comes from later bits, because the order depends on the first ones.
    return (part + draws * 2.0**20 % 1) / n_samples
