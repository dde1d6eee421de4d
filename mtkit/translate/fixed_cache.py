"""The cache of `engine` for the search on a GPU (`device_search`).

A step copies nothing between host and device, and its shapes stay the same for some steps. Letters
in shapes are those of `engine`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mtkit.model import Transformer
from mtkit.translate.engine import DecoderCache, LayerCache

# There is room for this many steps more at a time.
STEPS_OF_BLOCK = 8


def reserve_positions(model: Transformer, longest: int) -> None:
    """Have a model make the encodings of positions for this many steps, before the first one."""
    if model.config.positions != "learned":
        # The table is made on the host when it is too short.
        model.positions(0, longest, like=model.embedding.weight)


class FixedLayerCache(LayerCache):
    """A `LayerCache` with room for whole blocks of steps; it is zero where nothing was written."""

    def append(self, k: Tensor, v: Tensor, *, newest: int) -> list[Tensor]:
        """As in `LayerCache`, but the `newest` positions end with those of the whole block."""
        B, W, H = self.shape
        start = self.length
        self.length = start + W
        end = _in_blocks(self.length, W)
        if end > self._room:
            # Not copied for every block: the room grows by half.
            room, self._room = self._room, max(end, _in_blocks(self._room * 3 // 2, W))
            grown = [x.new_zeros(B * H, self._room, x.shape[-1] // H) for x in (k, v)]
            if room:
                for new, old in zip(grown, self._kv, strict=True):
                    new[:, :room] = old
            self._kv = grown
        for buffer, new in zip(self._kv, (k, v), strict=True):
            by_head = new.view(B, W, H, -1).transpose(1, 2)
            buffer.view(B, H, self._room, -1)[:, :, start : self.length] = by_head
        return [buffer.narrow(1, end - newest, newest) for buffer in self._kv]

    def select(self, sentences: Tensor, rows: Tensor) -> None:
        """As in `LayerCache`."""
        _, W, H = self.shape
        self.shape = len(sentences), W, H
        self._room = _in_blocks(self.length, W)
        self._kv = [buffer[:, : self._room].index_select(0, rows) for buffer in self._kv]


class FixedCache(DecoderCache):
    """A `DecoderCache` for a search in which all slots are live in every step.

    Attention covers the positions of whole blocks of steps; those that are not written yet have a
    bias of -inf, like those of other hypotheses.
    """

    of_layer = FixedLayerCache

    def reorder(self, parents: Tensor) -> None:
        """As in `DecoderCache`."""
        if self.shape[1] > 1:
            super().reorder(parents)

    def advance(self, rows: Tensor, window: int | None) -> None:
        """Start the next step; the slots `rows` are all B·W, in order."""
        _, W, _ = self.shape
        start, self.steps = self.steps * W, self.steps + 1
        end, first = _in_blocks(start + W, W), 0
        # With a single hypothesis, it is the same for all sentences.
        ancestors = self.ancestors if W > 1 else self.ancestors[:1]
        if end > ancestors.shape[-1]:
            ancestors = F.pad(ancestors, (0, end - start), value=-torch.inf)
        ancestors[:, :, start : start + W] = self._own
        if window is not None and self.steps > window + 1:
            left = (self.steps - window - 1) * W
            ancestors[:, :, left - W : left].fill_(-torch.inf)
            first = _in_blocks(left + 1, W) - _in_blocks(1, W)
        self.ancestors, self.seen = ancestors, end - first
        seen = ancestors[:, :, first:]
        self.ancestor_bias = self._for_heads(seen) if W > 1 else seen

    def _has_padding(self, memory_mask: Tensor) -> bool:
        # The device is not asked.
        return len(memory_mask) > 1


def _in_blocks(positions: int, slots: int) -> int:
    """Cached positions rounded up to whole blocks of steps, of `slots` positions each."""
    block = STEPS_OF_BLOCK * slots
    return -(-positions // block) * block
