"""Sorting and copying for the searches: the best tokens on a device, and results to the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mtkit.search_settings import Array

# With fewer scores than this, two stages are slower than one.
TWO_STAGES_FROM = 100_000
BLOCK = 64


def top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (R, V) and where they are, each (R, k); in two stages if long."""
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


def to_host(tensors: Sequence[Tensor]) -> list[Array]:
    """Arrays of tensors of 8-byte numbers on one device, by the only copy of a block of steps."""
    together = torch.cat([tensor.flatten().view(torch.int64) for tensor in tensors]).cpu().numpy()
    ends = np.cumsum([tensor.numel() for tensor in tensors])
    types = [np.float64 if tensor.is_floating_point() else np.int64 for tensor in tensors]
    return [
        part.view(dtype).reshape(tuple(tensor.shape))
        for part, dtype, tensor in zip(np.split(together, ends), types, tensors, strict=False)
    ]


def indices_of(live_N: Tensor, count: int) -> Tensor:
    """The indices of the `count` true elements, ascending; unlike `nonzero`, without waiting."""
    return live_N.long().sort(descending=True, stable=True).indices[:count]
