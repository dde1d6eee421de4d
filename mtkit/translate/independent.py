"""Decoding of hypotheses that do not compete, as in greedy search and in sampling.

Like `search`, this module does not depend on models or text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from operator import add

import numpy as np
import torch
from torch import Tensor

from mtkit.translate.constrainer import Constrainer
from mtkit.translate.constraints import Array
from mtkit.translate.search import DONE_PART, Cache, Step
from mtkit.translate.settings import Hypothesis, SearchSettings


def greedy_search(
    step: Step[Cache], cache: Cache, settings: SearchSettings
) -> list[list[Hypothesis]]:
    """One hypothesis for each of B sentences: the most probable token at every step, until EOS.

    Arguments are those of `beam_search`, with a cache of B slots. A sentence has no hypothesis if
    the constraints excluded all tokens.
    """
    return decode_independently(step, cache, settings, _most_probable, slots=1)


def decode_independently(
    step: Step[Cache],
    cache: Cache,
    settings: SearchSettings,
    choose: Callable[[Tensor, Array, int], tuple[Array, Array]],
    *,
    slots: int,
) -> list[list[Hypothesis]]:
    """Independent hypotheses: each continues with the token that is chosen for it.

    Args:
        choose: from (R, V) log-probabilities, the indices (R,) of their hypotheses among all B·W,
            and the number of tokens so far, to tokens and their log-probabilities, (R,) each.

    Returns:
        Per sentence its hypotheses in the order of slots, without those that had no possible token.
    """
    max_lengths, eos_id = settings.max_lengths, settings.eos_id
    limits = np.repeat(np.array(max_lengths, dtype=np.int64), slots)
    history = Tokens(len(max_lengths), slots, max(max_lengths, default=0))
    constrainer = Constrainer(settings.constraints, slots, eos_id)
    on_device = partial(torch.as_tensor, device=settings.device)
    # The indices of the live hypotheses among all, and their slots in the batch.
    hypotheses_R = rows_R = np.flatnonzero(limits > 0)
    newest_R = np.full(len(hypotheses_R), settings.bos_id)
    rows = on_device(rows_R)
    in_batch = len(max_lengths)
    while len(hypotheses_R):
        log_probs_RV = step(on_device(newest_R), rows, cache)
        constrainer.forbid(log_probs_RV, history, *np.divmod(hypotheses_R, slots))
        newest_R, gains_R = choose(log_probs_RV, hypotheses_R, len(history))
        possible_R = gains_R > -np.inf
        history.append(hypotheses_R, newest_R, gains_R, possible_R)
        stays_R = possible_R & (newest_R != eos_id) & (limits[hypotheses_R] > len(history))
        sentences_R, slots_R = np.divmod(hypotheses_R[stays_R], slots)
        constrainer.advance(sentences_R, slots_R, slots_R, newest_R[stays_R])
        if stays_R.all():
            continue
        hypotheses_R, rows_R, newest_R = hypotheses_R[stays_R], rows_R[stays_R], newest_R[stays_R]
        sentences_R, slots_R = np.divmod(rows_R, slots)
        live, renumbered_R = np.unique(sentences_R, return_inverse=True)
        if 0 < len(live) <= (1 - DONE_PART) * in_batch:
            cache.select(on_device(live))
            in_batch = len(live)
            rows_R = renumbered_R * slots + slots_R
        rows = on_device(rows_R)
    return history.hypotheses(eos_id, settings.penalty)


def _most_probable(log_probs_RV: Tensor, hypotheses_R: Array, done: int) -> tuple[Array, Array]:
    """The best token of each row and its log-probability; of equal ones the lowest id."""
    if log_probs_RV.device.type == "cpu":
        # PyTorch's function takes twenty times as long.
        values_RV = log_probs_RV.numpy()
        ids_R = values_RV.argmax(1)
        return ids_R, values_RV[np.arange(len(ids_R)), ids_R]
    top_R, best_R = log_probs_RV.max(-1)
    return best_R.cpu().numpy(), top_R.cpu().numpy()


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

    def append(
        self, hypotheses_R: Array, tokens_R: Array, log_probs_R: Array, possible_R: Array
    ) -> None:
        """Append a token to some hypotheses; an impossible token removes its hypothesis."""
        self._tokens[hypotheses_R, self._done] = tokens_R
        self._log_probs[hypotheses_R, self._done] = log_probs_R
        self._done += 1
        self._lengths[hypotheses_R] = np.where(possible_R, self._done, 0)

    def tokens(self, sentence: int, slot: int, length: int) -> tuple[int, ...]:
        """The first `length` tokens of a hypothesis."""
        return tuple(self._tokens[sentence * self._slots + slot, :length].tolist())

    def hypotheses(self, eos_id: int, penalty: Callable[[int], float]) -> list[list[Hypothesis]]:
        """All hypotheses, sentence by sentence."""
        found: list[list[Hypothesis]] = [[] for _ in range(len(self._lengths) // self._slots)]
        for index in self._lengths.nonzero()[0]:
            length = int(self._lengths[index])
            tokens = self._tokens[index, :length].tolist()
            gains = self._log_probs[index, :length].tolist()
            finished = tokens[-1] == eos_id
            if finished:
                del tokens[-1]
            # In order: `sum` compensates for rounding in some versions of Python.
            log_prob = reduce(add, gains)
            score = log_prob / penalty(length)
            found[index // self._slots].append(
                Hypothesis(tuple(tokens), log_prob, score, finished, tuple(gains))
            )
        return found
