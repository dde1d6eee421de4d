"""Beam search and greedy search whose bookkeeping stays on the device of the model.

They find what `search.beam_search` and `independent.greedy_search` find, which are the reference:
sums are in float64, and ties are resolved in the same way. All slots are live in every step. After
the first step nothing is copied to the device, and once in `CHECK_EVERY` steps one array is copied
to the host, which learns from it which sentences are finished.

Sampling, terms of a glossary and token masks (of parsers) need the host in every step: they are for
the searches on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtkit.translate.constraints import Array, Constraints
from mtkit.translate.independent import Tokens
from mtkit.translate.search import DONE_PART, Cache, History, Step, top_k
from mtkit.translate.settings import Hypothesis, SearchSettings

# The host waits for the device once in so many steps.
CHECK_EVERY = 8
# The rank of a hypothesis that the length limit cut off, after all finished ones.
LAST = float(np.finfo(np.float64).min)


def to_host(tensors: Sequence[Tensor]) -> list[Array]:
    """Arrays of tensors of 8-byte numbers on one device, by one copy.

    Nothing else in this module copies to the host.
    """
    together = torch.cat([one.flatten().view(torch.int64) for one in tensors]).cpu().numpy()
    ends = np.cumsum([one.numel() for one in tensors])
    types = [np.float64 if one.is_floating_point() else np.int64 for one in tensors]
    return [
        part.view(dtype).reshape(tuple(one.shape))
        for part, dtype, one in zip(np.split(together, ends), types, tensors, strict=False)
    ]


def beam_search_on_device(
    step: Step[Cache],
    cache: Cache,
    settings: SearchSettings,
    *,
    beam_size: int,
    n_best: int = 1,
    rank_cut_off: bool = False,
) -> list[list[Hypothesis]]:
    """The best hypotheses of B sentences; arguments and result are those of `beam_search`.

    Raises:
        ValueError: if the constraints have masks.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best {n_best} is not between 1 and the beam size {beam_size}")
    limits, W = np.array(settings.max_lengths, dtype=np.int64), beam_size
    chooser = _Chooser(settings, beam_size, rank_cut_off=rank_cut_off)
    constrainer = _Constrainer(settings, beam_size)
    beams = _Beams.start(settings, beam_size, n_best)
    history = History(len(limits), W)
    # The sentence of each row of the batch. Of every sentence: the finished hypotheses.
    active = np.arange(len(limits))
    ranks, log_probs = (np.full((len(limits), n_best), -np.inf) for _ in range(2))
    pointers = np.zeros((len(limits), n_best), dtype=np.int64)
    rows = torch.arange(len(active) * W, device=settings.device)
    tokens_BW = torch.full_like(beams.pointers[:, :1], settings.bos_id).expand(-1, W)
    done, longest = 0, int(limits.max(initial=0))
    while done < longest:
        since: list[tuple[Tensor, Tensor, Tensor]] = []
        for length in range(done + 1, min(done + CHECK_EVERY, longest) + 1):
            next_RV = step(tokens_BW.reshape(-1), rows, cache)
            constrainer.forbid(next_RV, length - 1)
            log_probs_BW, tokens_BW, parents_BW, ended = chooser.choose(next_RV, beams.log_probs)
            since.append((tokens_BW, parents_BW, log_probs_BW))
            beams = chooser.rank(beams._replace(log_probs=log_probs_BW), ended, length)
            if length in limits[active]:
                beams = chooser.cut_off(beams, length)
            constrainer.advance(parents_BW, tokens_BW, length - 1)
            cache.reorder(parents_BW)
        live_B = (beams.log_probs > -torch.inf).any(1).long()
        found = (live_B, beams.ranks, beams.totals, beams.pointers)
        copied = to_host([*found, *(part for one in since for part in one)])
        live = copied[0] > 0
        ranks[active], log_probs[active], pointers[active] = copied[1:4]
        for at in range(4, len(copied), 3):
            history.append(active, *copied[at : at + 3])
        done += len(since)
        if not live.any():
            break
        if live.mean() <= 1 - DONE_PART:
            kept = _first(live_B, int(live.sum()))
            cache.select(kept)
            constrainer.select(kept)
            beams = _Beams(*(one.index_select(0, kept) for one in beams))
            tokens_BW, active = tokens_BW.index_select(0, kept), active[live]
            rows = rows[: len(active) * W]
    return [
        [
            _hypothesis(history, sentence, float(log_prob), int(pointer), W, settings)
            for rank, log_prob, pointer in zip(*of_sentence, strict=True)
            if rank > -np.inf
        ]
        for sentence, of_sentence in enumerate(zip(ranks, log_probs, pointers, strict=True))
    ]


def greedy_search_on_device(
    step: Step[Cache], cache: Cache, settings: SearchSettings
) -> list[list[Hypothesis]]:
    """One hypothesis for each of B sentences; arguments and result are those of `greedy_search`.

    Raises:
        ValueError: if the constraints have masks.
    """
    limits, eos_id = np.array(settings.max_lengths, dtype=np.int64), settings.eos_id
    longest = int(limits.max(initial=0))
    history = Tokens(len(limits), 1, longest)
    constrainer = _Constrainer(settings, 1)
    # The sentence of each row of the batch; the live sentences, and their rows.
    active = np.arange(len(limits))
    sentences_R = rows_R = np.flatnonzero(limits > 0)
    limits_B = torch.as_tensor(limits, device=settings.device)
    live_B = (limits_B > 0).long()
    rows = torch.arange(len(active), device=settings.device)
    newest_B = torch.full_like(limits_B, settings.bos_id)
    while len(sentences_R):
        done, since = len(history), []
        for length in range(done + 1, min(done + CHECK_EVERY, longest) + 1):
            next_BV = step(newest_B, rows, cache)
            constrainer.forbid(next_BV, length - 1)
            gains_B, newest_B = next_BV.max(-1)
            constrainer.advance(None, newest_B.unsqueeze(1), length - 1)
            since.append((newest_B, gains_B))
        tokens_TB, gains_TB = map(torch.stack, zip(*since, strict=True))
        for tokens, gains in zip(*to_host([tokens_TB, gains_TB.double()]), strict=True):
            possible_R = gains[rows_R] > -np.inf
            history.append(sentences_R, tokens[rows_R], gains[rows_R], possible_R)
            stays_R = possible_R & (tokens[rows_R] != eos_id)
            stays_R &= limits[sentences_R] > len(history)
            sentences_R, rows_R = sentences_R[stays_R], rows_R[stays_R]
            if not len(sentences_R):
                break
        # The device finds the live rows too, so that they are not copied to it.
        stays_TB = (tokens_TB != eos_id) & (gains_TB > -torch.inf)
        live_B = live_B * (stays_TB.all(0) & (limits_B > len(history)))
        if 0 < len(sentences_R) <= (1 - DONE_PART) * len(active):
            kept = _first(live_B, len(sentences_R))
            cache.select(kept)
            constrainer.select(kept)
            newest_B, limits_B = newest_B[kept], limits_B[kept]
            active, rows_R = sentences_R, np.arange(len(sentences_R))
            live_B, rows = torch.ones_like(limits_B), rows[: len(active)]
    return history.hypotheses(eos_id, settings.penalty)


def _first(live_B: Tensor, count: int) -> Tensor:
    """The indices of the ones, of which there are `count`, in their order."""
    return live_B.sort(descending=True, stable=True).indices[:count]


def _hypothesis(
    history: History, sentence: int, log_prob: float, pointer: int, W: int, settings: SearchSettings
) -> Hypothesis:
    """The hypothesis that a pointer of `_Chooser` means."""
    rest, slot = divmod(pointer, W)
    length, finished = divmod(rest, 2)
    score = log_prob / settings.penalty(length)
    # EOS is in no slot.
    steps = length - finished
    return history.hypothesis(sentence, slot, steps, log_prob, score, finished=bool(finished))


class _Beams(NamedTuple):
    """The hypotheses of the sentences in the batch; all are tensors of B rows.

    Attributes:
        log_probs: (B, W) in float64, of those that continue, best first; -inf in an empty slot.
        ranks: (B, n_best), what the best finished ones are sorted by, -inf for none: the score, or
            `LAST`.
        totals: (B, n_best), their log-probabilities.
        pointers: (B, n_best), where they are, in one number: length, whether finished, slot.
        limits: (B, 1), the maximum lengths.
        penalties: (B, 1), those of the maximum lengths.
    """

    log_probs: Tensor
    ranks: Tensor
    totals: Tensor
    pointers: Tensor
    limits: Tensor
    penalties: Tensor

    @classmethod
    def start(cls, settings: SearchSettings, slots: int, n_best: int) -> _Beams:
        """Before the first step: all hypotheses begin alike, so only the first one is live."""
        limits = np.array(settings.max_lengths, dtype=np.int64)[:, None]
        log_probs = np.full((len(limits), slots), -np.inf)
        log_probs[limits[:, 0] > 0, 0] = 0.0
        penalties = np.array([[settings.penalty(max(1, int(one)))] for one in limits[:, 0]])
        ranks = np.full((len(limits), n_best), -np.inf)
        pointers = np.zeros(ranks.shape, dtype=np.int64)
        arrays = (log_probs, ranks, ranks, pointers, limits, penalties)
        return cls(*(torch.as_tensor(one, device=settings.device) for one in arrays))


class _Chooser:
    """One step of the beam search: what `search.Chooser`, `Finished` and `_prune` do on the host.

    Args:
        settings: those of the search.
        slots: W.
        rank_cut_off: as in `beam_search`.
    """

    def __init__(self, settings: SearchSettings, slots: int, *, rank_cut_off: bool) -> None:
        self._slots = slots
        self._eos_id = settings.eos_id
        self._rank_cut_off = rank_cut_off
        # By length. A GPU multiplies by the reciprocal of a number of the host, which would round
        # differently; by one of its own it divides.
        lengths = range(1, max(settings.max_lengths, default=0) + 2)
        penalties = np.array([1.0, *map(settings.penalty, lengths)])
        self._penalties = torch.as_tensor(penalties, device=settings.device)
        self._own = torch.arange(slots, device=settings.device)

    def choose(
        self, next_RV: Tensor, log_probs_BW: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
        """The W best continuations of B·W hypotheses: log-probabilities, tokens and parents.

        Also, of the 2·W candidates, the log-probabilities of those that ended now, -inf for others,
        and the parents of all.
        """
        B, W = log_probs_BW.shape
        top_RC, ids_RC = top_k(next_RV, min(2 * W, next_RV.shape[1]))
        C = top_RC.shape[1]
        candidates = log_probs_BW.unsqueeze(-1) + top_RC.view(B, W, C)
        sums, order = candidates.view(B, -1).sort(dim=1, descending=True, stable=True)
        sums, order = sums[:, : 2 * W], order[:, : 2 * W]
        tokens = ids_RC.view(B, -1).gather(1, order)
        parents = order // C
        is_eos = tokens == self._eos_id
        ended = sums.masked_fill(~is_eos, -torch.inf)
        # Those that continue stay in their order; the others are behind them.
        kept, at = sums.masked_fill(is_eos, -torch.inf).sort(dim=1, descending=True, stable=True)
        at = at[:, :W]
        return kept[:, :W], tokens.gather(1, at), parents.gather(1, at), (ended, parents)

    def rank(self, beams: _Beams, ended: tuple[Tensor, Tensor], length: int) -> _Beams:
        """Rank the hypotheses that ended, and remove those that cannot win any more."""
        log_probs, parents = ended
        pointers = parents + (2 * length + 1) * self._slots
        beams = _merged(beams, log_probs / self._penalties[length], log_probs, pointers)
        # The penalty rises or falls with the length, so one end is the largest.
        bounds = beams.log_probs / torch.maximum(self._penalties[length + 1], beams.penalties)
        lost = bounds <= beams.ranks[:, -1:]
        return beams._replace(log_probs=beams.log_probs.masked_fill(lost, -torch.inf))

    def cut_off(self, beams: _Beams, length: int) -> _Beams:
        """Rank and remove the hypotheses of the sentences whose limit is this length."""
        cut = beams.log_probs.masked_fill(beams.limits > length, -torch.inf)
        ranks = cut / self._penalties[length] if self._rank_cut_off else cut.clamp(max=LAST)
        pointers = (self._own + 2 * length * self._slots).expand_as(cut)
        beams = _merged(beams, ranks, cut, pointers)
        at_limit = beams.limits <= length
        return beams._replace(log_probs=beams.log_probs.masked_fill(at_limit, -torch.inf))


def _merged(beams: _Beams, ranks: Tensor, totals: Tensor, pointers: Tensor) -> _Beams:
    """With more hypotheses among the finished ones; of equal ranks the first found is first."""
    n_best = beams.ranks.shape[1]
    ordered, order = torch.cat((beams.ranks, ranks), 1).sort(dim=1, descending=True, stable=True)
    order = order[:, :n_best]
    return beams._replace(
        ranks=ordered[:, :n_best],
        totals=torch.cat((beams.totals, totals), 1).gather(1, order),
        pointers=torch.cat((beams.pointers, pointers), 1).gather(1, order),
    )


class _Constrainer:
    """What `constraints.Constrainer` does on the host.

    Args:
        settings: those of the search.
        slots: W.
    """

    def __init__(self, settings: SearchSettings, slots: int) -> None:
        constraints = settings.constraints or Constraints()
        if constraints.masks:
            raise ValueError("token masks are for the search on the host")
        self._eos_id, self._min_length = settings.eos_id, constraints.min_length
        self._slots, self._n = slots, constraints.no_repeat_ngram
        B, device = len(settings.max_lengths), settings.device
        forbidden = np.array(constraints.forbidden, dtype=np.int64)
        self._forbidden = torch.as_tensor(forbidden, device=device)
        prefixes = constraints.prefixes or [()] * B
        self._longest_prefix = max(map(len, prefixes), default=0)
        # (B, P): -1 behind a prefix.
        padded = np.full((B, self._longest_prefix), -1)
        for row, prefix in zip(padded, prefixes, strict=True):
            row[: len(prefix)] = prefix
        self._prefixes = torch.as_tensor(padded, device=device)
        # (B, W, T): the tokens of every hypothesis, -1 behind them; only for n-grams.
        longest = max(settings.max_lengths, default=0) if self._n else 0
        shape = B, slots, longest
        self._tokens = torch.full(shape, -1, dtype=torch.int64, device=device)

    def forbid(self, log_probs_RV: Tensor, done: int) -> None:
        """Forbid, in place, the tokens that the constraints exclude after `done` tokens."""
        if len(self._forbidden):
            log_probs_RV.index_fill_(1, self._forbidden, -torch.inf)
        if done < self._min_length:
            log_probs_RV[:, self._eos_id].fill_(-torch.inf)
        forces = done < self._longest_prefix
        if forces:
            # (R, 1)
            wanted = self._prefixes[:, done].repeat_interleave(self._slots).unsqueeze(1)
            is_forced, wanted = wanted >= 0, wanted.clamp(min=0)
            kept = log_probs_RV.gather(1, wanted)
        if 0 < self._n <= done:
            self._forbid_repeats(log_probs_RV, done)
        if forces:
            kept = torch.where(is_forced, kept, log_probs_RV.gather(1, wanted))
            log_probs_RV.masked_fill_(is_forced, -torch.inf).scatter_(1, wanted, kept)

    def _forbid_repeats(self, log_probs_RV: Tensor, done: int) -> None:
        """Forbid the tokens that earlier followed the n - 1 newest ones."""
        tokens, n = self._tokens.flatten(0, 1), self._n
        followers = tokens[:, n - 1 :]
        repeated = followers >= 0
        for k in range(n - 1):
            newest = tokens[:, done - n + 1 + k, None]
            repeated = repeated & (tokens[:, k : k + followers.shape[1]] == newest)
        # By addition, because a token can be there several times.
        excluded = torch.zeros_like(repeated, dtype=log_probs_RV.dtype)
        excluded.masked_fill_(repeated, -torch.inf)
        log_probs_RV.scatter_add_(1, followers.clamp(min=0), excluded)

    def advance(self, parents_BW: Tensor | None, tokens_BW: Tensor, done: int) -> None:
        """The hypotheses in their slots continue those of the parents, which had `done` tokens."""
        if not self._n:
            return
        if parents_BW is not None:
            rows = parents_BW.unsqueeze(-1).expand_as(self._tokens)
            self._tokens = self._tokens.gather(1, rows)
        self._tokens[:, :, done] = tokens_BW

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences."""
        self._prefixes = self._prefixes.index_select(0, sentences)
        self._tokens = self._tokens.index_select(0, sentences)
