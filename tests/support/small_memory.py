"""A device that runs out of memory, pretended."""

from typing import Any

import torch

from mtkit.base.launched import given_rank
from mtkit.train import gradients
from mtkit.train.micro_batches import padded_tokens
from mtkit.train.trainer import Trainer


def hold(tokens: int, *, rank: int | None = None, late: bool = False) -> None:
    """Have a worker, or all, run out of memory with more padded tokens at a time.

    With `late`, only after the check of the memory, and in the backward computation.
    """
    if rank not in (None, given_rank() or 0):
        return
    make, losses, check = gradients.make_batch, gradients.Gradients.losses, Trainer.check_memory

    def made(pairs: Any, indices: Any) -> Any:
        if padded_tokens(pairs, indices) > tokens:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return make(pairs, indices)

    def of_pass(self: Any, pass_: Any) -> Any:
        of_losses = losses(self, pass_)
        if sum(padded_tokens(*micro_batch) for micro_batch in pass_.micro_batches) > tokens:
            return of_losses._replace(translation=Full.apply(of_losses.translation))
        return of_losses

    def checked(self: Any) -> None:
        check(self)
        gradients.Gradients.losses = of_pass  # type: ignore[method-assign]

    if late:
        Trainer.check_memory = checked  # type: ignore[method-assign]
    else:
        gradients.make_batch = made


class Full(torch.autograd.Function):
    """Passes a number on, and runs out of memory in the backward computation."""

    @staticmethod
    def forward(_: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")
