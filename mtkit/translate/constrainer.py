"""Applies constraints to the log-probabilities of the next tokens in a search."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mtkit.translate.constraints import Array, Constraints, TokenHistory


class Constrainer:
    """Applies constraints in a search."""

    def __init__(self, constraints: Constraints | None, slots: int, eos_id: int) -> None:
        self._constraints = constraints or Constraints()
        self._eos_id = eos_id
        self._prefixes = self._constraints.prefixes or ()
        self._longest_prefix = max(map(len, self._prefixes), default=0)
        self._masks = self._constraints.masks or ()
        # Per sentence and slot, the state in its mask.
        self._states = [[mask.start()] * slots for mask in self._masks]

    def forbid(
        self, log_probs_RV: Tensor, history: TokenHistory, sentences_R: Array, slots_R: Array
    ) -> None:
        """Forbid, in place, the next tokens that the constraints exclude."""
        constraints, done = self._constraints, len(history)
        if constraints.forbidden:
            log_probs_RV[:, list(constraints.forbidden)] = -torch.inf
        forced: dict[int, int] = {}
        if done < self._longest_prefix:
            prefixes = enumerate(self._prefixes[sentence] for sentence in sentences_R)
            forced = {row: prefix[done] for row, prefix in prefixes if done < len(prefix)}
        if done < constraints.min_length:
            log_probs_RV[:, self._eos_id] = -torch.inf
        n = constraints.no_repeat_ngram
        if 0 < n <= done:
            for row, (sentence, slot) in enumerate(zip(sentences_R, slots_R, strict=True)):
                if row not in forced:
                    repeats = _repeats(history.tokens(sentence, slot, done), n)
                    log_probs_RV[row, repeats] = -torch.inf
        for row, token in forced.items():
            kept = log_probs_RV[row, token].clone()
            log_probs_RV[row] = -torch.inf
            log_probs_RV[row, token] = kept
        if self._masks:
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
        if not self._masks:
            return
        advanced = [
            self._masks[sentence].advance(self._states[sentence][parent], int(token))
            for sentence, parent, token in zip(sentences_R, parents_R, tokens_R, strict=True)
        ]
        for sentence, slot, state in zip(sentences_R, slots_R, advanced, strict=True):
            self._states[sentence][slot] = state


def _repeats(tokens: tuple[int, ...], n: int) -> list[int]:
    """The tokens that earlier followed the n - 1 newest tokens."""
    done = len(tokens)
    newest = tokens[done - n + 1 :]
    return [tokens[at + n - 1] for at in range(done - n + 1) if tokens[at : at + n - 1] == newest]
