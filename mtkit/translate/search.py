"""Beam search over a scoring callable (Section 6.1), after tensor2tensor's, and greedy search.

This module does not depend on models or text. A step function returns the log-probabilities of the
next token of every live hypothesis, and its cache is reordered with the hypotheses.

A sentence has W slots for hypotheses. Scores of R live hypotheses come from the device; the
selection is made in float64 on the host, where ties are always resolved in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# With fewer scores than this, two stages are slower than one.
TWO_STAGES_FROM = 100_000
BLOCK = 64
# Finished sentences stay in the batch until they are this share of it: removing them copies all
# caches, and keeping them costs only their share of attention.
DONE_PART = 0.25

Array = NDArray[Any]


class StepCache(Protocol):
    """The state that a step function keeps of its hypotheses."""

    def reorder(self, parents: Tensor) -> None:
        """Slot w of sentence b continues the hypothesis of slot `parents[b, w]`."""

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences, in that order."""


Cache = TypeVar("Cache", bound=StepCache)
# From newest tokens (R,), their slots among B·W (R,), and a cache that it changes, to (R, V).
Step = Callable[[Tensor, Tensor, Cache], Tensor]
PenaltyForm = Literal["gnmt", "power"]


@dataclass(frozen=True)
class Hypothesis:
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
        forbidden: tokens that are never in an output.
    """

    min_length: int = 0
    no_repeat_ngram: int = 0
    prefixes: Sequence[Sequence[int]] | None = None
    masks: Sequence[TokenMask] | None = None
    forbidden: Sequence[int] = ()


def length_penalty(length: int, alpha: float, form: PenaltyForm = "gnmt") -> float:
    """The divisor of the log-probability of a hypothesis; the length includes EOS.

    `gnmt` is ((5 + length) / 6) ** alpha (Wu et al. 2016), as in the paper. `power` is
    length ** alpha; fairseq and others use it with a different search.
    """
    return float(length**alpha if form == "power" else ((5 + length) / 6) ** alpha)


def top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (R, V) and where they are, each (R, k), largest first.

    For many long rows this has two stages: the k largest are in the k blocks with the largest
    maxima.
    """
    R, V = values.shape
    blocks = V // BLOCK
    if R * V < TWO_STAGES_FROM or blocks < 2 * k:
        return values.topk(k)
    whole = torch.unflatten(values[:, : blocks * BLOCK], 1, (blocks, BLOCK))
    best = whole.amax(-1).topk(k, sorted=False).indices
    row = torch.arange(R, device=values.device).unsqueeze(1)
    candidates = whole[row, best].flatten(1)
    index = (best.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=values.device)).flatten(1)
    if V % BLOCK:
        rest = torch.arange(blocks * BLOCK, V, device=values.device).expand(R, -1)
        candidates = torch.cat((candidates, values[:, blocks * BLOCK :]), dim=1)
        index = torch.cat((index, rest), dim=1)
    top, at = candidates.topk(k)
    return top, index.gather(1, at)


def beam_search(
    step: Step[Cache],
    cache: Cache,
    *,
    max_lengths: Sequence[int],
    beam_size: int,
    bos_id: int,
    eos_id: int,
    alpha: float,
    penalty_form: PenaltyForm = "gnmt",
    n_best: int = 1,
    constraints: Constraints | None = None,
    rank_cut_off: bool = False,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of B sentences.

    Every decoding step considers 2·W candidates, so that even if W of them end, W continue. With
    W = 1 it considers one: this is greedy search, which ends when the best token is EOS.

    Log-probabilities only fall, so the highest possible score of an unfinished hypothesis is its
    log-probability over the largest penalty that is still possible. A hypothesis that cannot beat
    the worst of `n_best` finished ones is pruned, and a sentence without live hypotheses is
    finished. This never changes the result: the hypotheses that a pruned one would have removed
    from the beam are even less probable.

    Args:
        step: from tokens, slots and cache to log-probabilities.
        cache: of B sentences with W slots each.
        max_lengths: per sentence, the maximum number of tokens of an output, including EOS.
        beam_size: W, hypotheses kept per sentence.
        bos_id: first token of every hypothesis.
        eos_id: the token that ends one.
        alpha: strength of the length penalty; 0 ranks by log-probability.
        penalty_form: of `length_penalty`.
        n_best: hypotheses returned per sentence, at most W.
        constraints: on outputs.
        rank_cut_off: whether hypotheses that the length limit cuts off are ranked among the
            finished ones, for a limit shorter than good outputs; otherwise they come after them.
        device: the device of `step`.

    Returns:
        For each sentence up to `n_best` hypotheses, best first. Unfinished ones appear only if the
        length limit cut a sentence off.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best {n_best} is not between 1 and the beam size {beam_size}")
    penalty = partial(length_penalty, alpha=alpha, form=penalty_form)
    if beam_size == 1:
        return decode_independently(
            step,
            cache,
            _most_probable,
            max_lengths=max_lengths,
            slots=1,
            bos_id=bos_id,
            eos_id=eos_id,
            penalty=penalty,
            constraints=constraints,
            device=device,
        )
    W, considered = beam_size, 2 * beam_size
    limits = np.array(max_lengths, dtype=np.int64)
    found = [Finished(n_best) for _ in limits]
    results: list[list[Hypothesis]] = [[] for _ in limits]
    history = History(len(limits), W)
    masks = _Masks.of(constraints, W)
    # The sentence of each row of the batch, and its hypotheses: all begin with the same token, so
    # only the first one is live.
    active = np.arange(len(limits))
    log_probs_BW = np.full((len(active), W), -np.inf)
    log_probs_BW[limits > 0, 0] = 0.0
    tokens_BW = np.full((len(active), W), bos_id, dtype=np.int64)
    on_device = partial(torch.as_tensor, device=device)
    while (log_probs_BW > -np.inf).any():
        length = len(history) + 1
        B = len(active)
        rows_R = np.flatnonzero(log_probs_BW > -np.inf)
        next_RV = step(on_device(tokens_BW.flat[rows_R]), on_device(rows_R), cache)
        if constraints is not None:
            constrain(next_RV, constraints, history, active[rows_R // W], rows_R % W, eos_id)
        if masks is not None:
            masks.forbid(next_RV, active[rows_R // W], rows_R % W)
        top_RC, ids_RC = top_k(next_RV, min(considered, next_RV.shape[1]))

        # The candidates of a sentence, from all its hypotheses.
        candidates = np.full((B * W, top_RC.shape[1]), -np.inf)
        candidates[rows_R] = log_probs_BW.flat[rows_R][:, None] + top_RC.double().cpu().numpy()
        candidates = candidates.reshape(B, -1)
        ids = np.zeros((B * W, top_RC.shape[1]), dtype=np.int64)
        ids[rows_R] = ids_RC.cpu().numpy()
        order_BC = np.argsort(-candidates, axis=1, kind="stable")[:, :considered]
        top_BC = np.take_along_axis(candidates, order_BC, axis=1)
        tokens_BC = np.take_along_axis(ids.reshape(B, -1), order_BC, axis=1)
        parents_BC = order_BC // top_RC.shape[1]

        possible_BC = top_BC > -np.inf
        ended_BC = (tokens_BC == eos_id) & possible_BC
        for place, rank in zip(*ended_BC.nonzero(), strict=True):
            log_prob = float(top_BC[place, rank])
            score = log_prob / penalty(length)
            finished = found[active[place]]
            if score > finished.worst:
                slot = parents_BC[place, rank]
                finished.add(
                    history.hypothesis(
                        active[place], slot, length - 1, log_prob, score, finished=True
                    )
                )

        # The best W that continue, in order; of 2·W candidates at most W ended.
        keep_BW = np.argsort(ended_BC | ~possible_BC, axis=1, kind="stable")[:, :W]
        going_on = ~np.take_along_axis(ended_BC, keep_BW, axis=1)
        log_probs_BW = np.where(going_on, np.take_along_axis(top_BC, keep_BW, axis=1), -np.inf)
        parents_BW = np.take_along_axis(parents_BC, keep_BW, axis=1)
        tokens_BW = np.take_along_axis(tokens_BC, keep_BW, axis=1)
        history.append(active, tokens_BW, parents_BW, log_probs_BW)
        if masks is not None:
            places, slots = (log_probs_BW > -np.inf).nonzero()
            parents, tokens = parents_BW[places, slots], tokens_BW[places, slots]
            masks.advance(active[places], slots, parents, tokens)

        live = prune(
            log_probs_BW,
            active,
            history,
            found,
            results,
            limits=limits,
            penalty=penalty,
            rank_cut_off=rank_cut_off,
        )
        if not live.any():
            break
        active, log_probs_BW, tokens_BW = reordered(
            cache, parents_BW, live, (active, log_probs_BW, tokens_BW), device=device
        )
    return [finished.best + cut_off for finished, cut_off in zip(found, results, strict=True)]


def reordered(
    cache: StepCache,
    parents_BW: Array,
    live: Array,
    arrays: Sequence[Array],
    *,
    device: torch.device | None,
) -> Sequence[Array]:
    """Reorder a cache after a decoding step, and remove finished sentences if they are many.

    Args:
        cache: of the B sentences.
        parents_BW: for each slot, the slot of the hypothesis that it continues.
        live: (B,), whether a sentence has live hypotheses.
        arrays: one row for each sentence.
        device: of the cache.

    Returns:
        The arrays, without the rows of the sentences that were removed.
    """
    cache.reorder(torch.as_tensor(parents_BW, device=device))
    if live.mean() > 1 - DONE_PART:
        return arrays
    kept = live.nonzero()[0]
    cache.select(torch.as_tensor(kept, device=device))
    return [array[kept] for array in arrays]


def prune(
    log_probs_BW: Array,
    active: Array,
    history: History,
    found: Sequence[Finished],
    results: Sequence[list[Hypothesis]],
    *,
    limits: Array,
    penalty: Callable[[int], float],
    rank_cut_off: bool,
) -> Array:
    """Remove the hypotheses that cannot win any more, and those at the length limit.

    Args:
        log_probs_BW: of the hypotheses after the newest step; those that are removed become -inf.
        active: the sentence of each row of the batch.
        history: of all sentences.
        found: the finished hypotheses of all sentences; with `rank_cut_off`, also those cut off.
        results: without `rank_cut_off`, those cut off are appended here.
        limits: maximum length of each sentence.
        penalty: from a length to the divisor of a log-probability.
        rank_cut_off: as in `beam_search`.

    Returns:
        Which rows of the batch have a live hypothesis, (B,).
    """
    length = len(history)
    # The penalty rises or falls with the length (sign of alpha), so one end is the largest.
    worst = np.array([found[sentence].worst for sentence in active])
    ahead = [max(penalty(length + 1), penalty(limit)) for limit in limits[active].tolist()]
    log_probs_BW[log_probs_BW / np.array(ahead)[:, None] <= worst[:, None]] = -np.inf

    at_limit = limits[active] <= length
    for place in at_limit.nonzero()[0]:
        alive = np.flatnonzero(log_probs_BW[place] > -np.inf)
        sentence = active[place]
        missing = found[sentence].n_best - len(found[sentence].best)
        for slot in alive if rank_cut_off else alive[:missing]:
            log_prob = float(log_probs_BW[place, slot])
            score = log_prob / penalty(length)
            cut_off = history.hypothesis(sentence, slot, length, log_prob, score, finished=False)
            if rank_cut_off:
                found[sentence].add(cut_off)
            else:
                results[sentence].append(cut_off)
    log_probs_BW[at_limit] = -np.inf
    live: Array = np.any(log_probs_BW > -np.inf, axis=1)
    return live


def decode_independently(
    step: Step[Cache],
    cache: Cache,
    choose: Callable[[Tensor, Array, int], tuple[Array, Array]],
    *,
    max_lengths: Sequence[int],
    slots: int,
    bos_id: int,
    eos_id: int,
    penalty: Callable[[int], float],
    constraints: Constraints | None,
    device: torch.device | None,
) -> list[list[Hypothesis]]:
    """Independent hypotheses: each continues with the token that is chosen for it.

    Args:
        choose: from (R, V) log-probabilities, the indices (R,) of their hypotheses among all B·W,
            and the number of tokens so far, to tokens and their log-probabilities, (R,) each.

    Returns:
        Per sentence its hypotheses in the order of slots, without those that had no possible token.
    """
    limits = np.repeat(np.array(max_lengths, dtype=np.int64), slots)
    history = Tokens(len(max_lengths), slots, max(max_lengths, default=0))
    masks = _Masks.of(constraints, slots)
    # The indices of the live hypotheses among all, and their slots in the batch.
    own_R = rows_R = np.flatnonzero(limits > 0)
    newest_R = np.full(len(own_R), bos_id)
    rows = torch.as_tensor(rows_R, device=device)
    in_batch = len(max_lengths)
    while len(own_R):
        log_probs_RV = step(torch.as_tensor(newest_R, device=device), rows, cache)
        if constraints is not None:
            sentences_R, slots_R = np.divmod(own_R, slots)
            constrain(log_probs_RV, constraints, history, sentences_R, slots_R, eos_id)
        if masks is not None:
            masks.forbid(log_probs_RV, *np.divmod(own_R, slots))
        newest_R, gains_R = choose(log_probs_RV, own_R, len(history))
        possible_R = gains_R > -np.inf
        history.append(own_R, newest_R, gains_R, possible_R)
        stays_R = possible_R & (newest_R != eos_id) & (limits[own_R] > len(history))
        if masks is not None:
            sentences_R, slots_R = np.divmod(own_R[stays_R], slots)
            masks.advance(sentences_R, slots_R, slots_R, newest_R[stays_R])
        if stays_R.all():
            continue
        own_R, rows_R, newest_R = own_R[stays_R], rows_R[stays_R], newest_R[stays_R]
        sentences_R, slots_R = np.divmod(rows_R, slots)
        live, renumbered_R = np.unique(sentences_R, return_inverse=True)
        if 0 < len(live) <= (1 - DONE_PART) * in_batch:
            cache.select(torch.as_tensor(live, device=device))
            in_batch = len(live)
            rows_R = renumbered_R * slots + slots_R
        rows = torch.as_tensor(rows_R, device=device)
    return history.hypotheses(eos_id, penalty)


def _most_probable(log_probs_RV: Tensor, own_R: Array, done: int) -> tuple[Array, Array]:
    """The best token of each row and its log-probability; of equal ones the lowest id."""
    if log_probs_RV.device.type == "cpu":
        # PyTorch's function takes twenty times as long.
        values_RV = log_probs_RV.numpy()
        ids_R = values_RV.argmax(1)
        return ids_R, values_RV[np.arange(len(ids_R)), ids_R]
    top_R, best_R = log_probs_RV.max(-1)
    return best_R.cpu().numpy(), top_R.cpu().numpy()


class Finished:
    """The finished hypotheses of one sentence, best first."""

    def __init__(self, n_best: int) -> None:
        self.n_best = n_best
        self.best: list[Hypothesis] = []

    @property
    def worst(self) -> float:
        """The score to beat; -inf if any score is accepted."""
        return self.best[-1].score if len(self.best) == self.n_best else -np.inf

    def add(self, hypothesis: Hypothesis) -> None:
        """Insert it by its score; the worst of more than `n_best` is dropped."""
        self.best.append(hypothesis)
        # A stable sort, so of two equal scores the one found first stays first.
        self.best.sort(key=lambda other: -other.score)
        del self.best[self.n_best :]


class Tokens:
    """The tokens of hypotheses that keep their slots, B·W of them, of up to T tokens."""

    def __init__(self, sentences: int, slots: int, longest: int) -> None:
        self._slots = slots
        self._done = 0
        self._tokens = np.zeros((sentences * slots, longest), dtype=np.int64)
        self._log_probs = np.zeros((sentences * slots, longest))
        self._lengths = np.zeros(sentences * slots, dtype=np.int64)

    def __len__(self) -> int:
        return self._done

    def append(self, own_R: Array, tokens_R: Array, log_probs_R: Array, possible_R: Array) -> None:
        """Append a token to some hypotheses; an impossible token removes its hypothesis."""
        self._tokens[own_R, self._done] = tokens_R
        self._log_probs[own_R, self._done] = log_probs_R
        self._done += 1
        self._lengths[own_R] = np.where(possible_R, self._done, 0)

    def tokens(self, sentence: int, slot: int, length: int) -> tuple[int, ...]:
        """The first `length` tokens of a hypothesis."""
        return tuple(self._tokens[sentence * self._slots + slot, :length].tolist())

    def hypotheses(self, eos_id: int, penalty: Callable[[int], float]) -> list[list[Hypothesis]]:
        """All hypotheses, sentence by sentence."""
        found: list[list[Hypothesis]] = [[] for _ in range(len(self._lengths) // self._slots)]
        for own in self._lengths.nonzero()[0]:
            length = int(self._lengths[own])
            tokens = self._tokens[own, :length].tolist()
            gains = self._log_probs[own, :length].tolist()
            finished = tokens[-1] == eos_id
            if finished:
                del tokens[-1]
            log_prob = sum(gains)
            score = log_prob / penalty(length)
            found[own // self._slots].append(
                Hypothesis(tuple(tokens), log_prob, score, finished, tuple(gains))
            )
        return found


class History:
    """The tokens of all hypotheses of all sentences, linked from the newest to the first."""

    def __init__(self, sentences: int, slots: int) -> None:
        self._shape = sentences, slots
        self._steps: list[tuple[Array, Array, Array]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def append(
        self, sentences: Array, tokens_BW: Array, parents_BW: Array, log_probs_BW: Array
    ) -> None:
        """Append a token to the slots of these sentences, each after that of its parent slot.

        `log_probs_BW` are those of the whole hypotheses up to that token. `parents_BW` must
        broadcast to that shape.
        """
        tokens, parents = np.zeros(self._shape, np.int64), np.zeros(self._shape, np.int64)
        totals = np.zeros(self._shape)
        tokens[sentences], parents[sentences] = tokens_BW, parents_BW
        totals[sentences] = log_probs_BW
        self._steps.append((tokens, parents, totals))

    def tokens(self, sentence: int, slot: int, length: int) -> tuple[int, ...]:
        """The tokens of the hypothesis in a slot after `length` steps."""
        return tuple(self._trace(sentence, slot, length)[0])

    def hypothesis(
        self,
        sentence: int,
        slot: int,
        length: int,
        log_prob: float,
        score: float,
        *,
        finished: bool,
    ) -> Hypothesis:
        """The hypothesis in a slot after `length` steps; `log_prob` includes EOS if finished."""
        tokens, totals = self._trace(sentence, slot, length)
        if finished:
            totals.append(log_prob)
        gains = tuple(total - before for before, total in pairwise([0.0, *totals]))
        return Hypothesis(tuple(tokens), log_prob, score, finished, gains)

    def _trace(self, sentence: int, slot: int, length: int) -> tuple[list[int], list[float]]:
        """Tokens, and the log-probability up to each."""
        backwards, totals_backwards = [], []
        for tokens, parents, totals in reversed(self._steps[:length]):
            backwards.append(int(tokens[sentence, slot]))
            totals_backwards.append(float(totals[sentence, slot]))
            slot = parents[sentence, slot]
        return backwards[::-1], totals_backwards[::-1]


class _Masks:
    """The states of all hypotheses in their masks."""

    def __init__(self, masks: Sequence[TokenMask], slots: int) -> None:
        self._masks = masks
        self._states = [[mask.start()] * slots for mask in masks]

    @classmethod
    def of(cls, constraints: Constraints | None, slots: int) -> Self | None:
        """Those of the constraints; None if there are none."""
        masks = constraints and constraints.masks
        return cls(masks, slots) if masks else None

    def forbid(self, log_probs_RV: Tensor, sentences_R: Array, slots_R: Array) -> None:
        """Forbid, in place, what may not follow in the hypotheses of these slots."""
        allowed = [
            self._masks[sentence].allowed(self._states[sentence][slot])
            for sentence, slot in zip(sentences_R, slots_R, strict=True)
        ]
        forbidden_RV = ~torch.from_numpy(np.stack(allowed)).to(log_probs_RV.device)
        log_probs_RV.masked_fill_(forbidden_RV, -torch.inf)

    def advance(
        self, sentences_R: Array, slots_R: Array, parents_R: Array, tokens_R: Array
    ) -> None:
        """A slot gets the state of the hypothesis of its parent slot, with one more token."""
        advanced = [
            self._masks[sentence].advance(self._states[sentence][parent], int(token))
            for sentence, parent, token in zip(sentences_R, parents_R, tokens_R, strict=True)
        ]
        for sentence, slot, state in zip(sentences_R, slots_R, advanced, strict=True):
            self._states[sentence][slot] = state


def constrain(
    log_probs_RV: Tensor,
    constraints: Constraints,
    history: History | Tokens,
    sentences_R: Array,
    slots_R: Array,
    eos_id: int,
) -> None:
    """Forbid, in place, the next tokens that the constraints exclude."""
    done = len(history)
    if constraints.forbidden:
        log_probs_RV[:, list(constraints.forbidden)] = -torch.inf
    forced: dict[int, int] = {}
    if constraints.prefixes is not None and done < max(map(len, constraints.prefixes), default=0):
        for row, sentence in enumerate(sentences_R):
            prefix = constraints.prefixes[sentence]
            if done < len(prefix):
                forced[row] = prefix[done]
    if done < constraints.min_length:
        log_probs_RV[:, eos_id] = -torch.inf
    n = constraints.no_repeat_ngram
    if 0 < n <= done:
        for row, (sentence, slot) in enumerate(zip(sentences_R, slots_R, strict=True)):
            tokens = history.tokens(sentence, slot, done)
            # The tokens that earlier followed the n - 1 newest tokens.
            newest = tokens[done - n + 1 :]
            repeats = [
                tokens[at + n - 1]
                for at in range(done - n + 1)
                if tokens[at : at + n - 1] == newest
            ]
            if row not in forced:
                log_probs_RV[row, repeats] = -torch.inf
    for row, token in forced.items():
        kept = log_probs_RV[row, token].clone()
        log_probs_RV[row] = -torch.inf
        log_probs_RV[row, token] = kept
