"""Applies constraints to the log-probabilities of the next tokens in a search.

It stays on the device of the model, except for token masks, which are computed on the host.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mtkit.search_settings import Constraints, SearchSettings


class Constrainer:
    """Applies the constraints of a search with W slots for each of the B sentences in the batch."""

    def __init__(self, settings: SearchSettings, slots: int) -> None:
        constraints = settings.constraints or Constraints()
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
        # (B, W, T): the tokens of every hypothesis; only for n-grams.
        longest = max(settings.max_lengths, default=0) if self._n else 0
        self._tokens = self._prefixes.new_zeros(B, slots, longest)
        self._masks = list(constraints.masks or ())
        # Per sentence and slot, the state in its mask.
        self._states = [[mask.start()] * slots for mask in self._masks]

    def forbid(self, log_probs_RV: Tensor, rows: Tensor, done: int) -> None:
        """Forbid tokens after `done` ones, in place, for the slots `rows` (R,) among B·W."""
        forces = done < self._longest_prefix
        if forces:
            wanted = self._prefixes[rows // self._slots, done].unsqueeze(1)
            is_forced, wanted = wanted >= 0, wanted.clamp(min=0)
            is_certain = torch.isin(wanted, self._forbidden)
            # Not where the model computes no numbers.
            is_certain &= log_probs_RV.gather(1, wanted) > -torch.inf
        if len(self._forbidden):
            log_probs_RV.index_fill_(1, self._forbidden, -torch.inf)
        if done < self._min_length:
            log_probs_RV[:, self._eos_id].fill_(-torch.inf)
        if forces:
            kept = log_probs_RV.gather(1, wanted).masked_fill(is_certain, 0.0)
        if 0 < self._n <= done:
            self._forbid_repeats(log_probs_RV, self._tokens.flatten(0, 1)[rows, :done])
        if forces:
            kept = torch.where(is_forced, kept, log_probs_RV.gather(1, wanted))
            log_probs_RV.masked_fill_(is_forced, -torch.inf).scatter_(1, wanted, kept)
        if self._masks:
            hypotheses = [divmod(row, self._slots) for row in rows.tolist()]
            allowed = [self._masks[b].allowed(self._states[b][w]) for b, w in hypotheses]
            forbidden_RV = ~torch.from_numpy(np.stack(allowed)).to(log_probs_RV.device)
            log_probs_RV.masked_fill_(forbidden_RV, -torch.inf)

    def _forbid_repeats(self, log_probs_RV: Tensor, tokens_RT: Tensor) -> None:
        """Forbid the tokens that earlier followed the n - 1 newest ones."""
        done, n = tokens_RT.shape[1], self._n
        followers = tokens_RT[:, n - 1 :]
        repeated = torch.ones_like(followers, dtype=torch.bool)
        for k in range(n - 1):
            newest = tokens_RT[:, done - n + 1 + k, None]
            repeated &= tokens_RT[:, k : k + followers.shape[1]] == newest
        # By addition, because a token can be there several times.
        excluded = torch.zeros_like(repeated, dtype=log_probs_RV.dtype)
        excluded.masked_fill_(repeated, -torch.inf)
        log_probs_RV.scatter_add_(1, followers, excluded)

    def advance(
        self, parents_BW: Tensor | None, tokens_BW: Tensor, live_BW: Tensor, done: int
    ) -> None:
        """The hypotheses in live slots continue those of the parents, which had `done` tokens.

        Without parents, each continues that in its own slot.
        """
        if self._n:
            if parents_BW is not None:
                rows = parents_BW.unsqueeze(-1).expand_as(self._tokens)
                self._tokens = self._tokens.gather(1, rows)
            self._tokens[:, :, done] = tokens_BW
        if self._masks:
            before, tokens = self._states, tokens_BW.tolist()
            parents = [range(self._slots)] * len(tokens)
            if parents_BW is not None:
                parents = parents_BW.tolist()
            self._states = [list(states) for states in before]
            for b, w in live_BW.nonzero().tolist():
                state = before[b][parents[b][w]]
                self._states[b][w] = self._masks[b].advance(state, tokens[b][w])

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences."""
        self._prefixes = self._prefixes[sentences]
        self._tokens = self._tokens[sentences]
        if self._masks:
            kept = sentences.tolist()
            self._masks = [self._masks[b] for b in kept]
            self._states = [self._states[b] for b in kept]
