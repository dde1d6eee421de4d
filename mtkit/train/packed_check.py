"""The check that a packed pass has the loss and the gradient of its batches one by one.

It is made on every GPU before the first update, because no test can know all GPUs and drivers.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mtkit.base.errors import one_line
from mtkit.base.memory import is_out_of_memory
from mtkit.train.distributed import Workers
from mtkit.train.gradients import Gradients
from mtkit.train.micro_batches import MicroBatch, Pass

log = logging.getLogger(__name__)

# The pairs that are compared: some in each of two batches, so that masks and packing matter.
_BATCHES, _PAIRS = 2, 16
# How many of the first pairs they are chosen from; of these, only the shorter half is used.
_LOOKED_AT = 1000
# The difference that is allowed, as a part of the value. bfloat16 has 8 significant bits.
_TOLERANCE = {"fp32": 1e-3, "bf16": 3e-2}


def use_plain_if_packed_differs(gradients: Gradients) -> None:
    """Compute updates batch by batch if a packed pass gives other results, with a warning.

    Every worker compares by itself, so that one that fails does not leave the others waiting. If
    the model is sharded, all workers compare together, and an error of a packed pass is not caught.
    """
    micro_batches, model = gradients.micro_batches, gradients.model
    # On a CPU, tests compare both ways; who sets `packed` wants no comparison.
    may_differ = micro_batches.device_type != "cpu" and gradients.settings.gpu_path == "auto"
    if not (micro_batches.packed and may_differ):
        return
    alone, caught = gradients, tuple[type[Exception], ...]()
    if not gradients.settings.fsdp:
        alone = replace(gradients, parallel=model, workers=Workers())
        caught = (RuntimeError, TypeError)
    some = _some_batches(gradients)
    was_training, wrong = model.training, ""
    model.eval()  # without dropout
    try:
        packed = _loss_and_norm(alone, [Pass(0, some)])
    except caught as error:
        if is_out_of_memory(error):
            raise
        wrong = f"fails ({one_line(str(error))[:200]})"
        model.zero_grad()
    micro_batches.packed = False
    with torch.compiler.set_stance("force_eager") if gradients.compiled else nullcontext():
        plain = _loss_and_norm(alone, [Pass(i, [part]) for i, part in enumerate(some)])
    tolerance = _TOLERANCE[gradients.precision]
    # False for NaN as well.
    if not wrong and not torch.isclose(packed, plain, rtol=tolerance, atol=0.0).all():
        (loss, norm), (plain_loss, plain_norm) = packed.tolist(), plain.tolist()
        wrong = (
            f"has loss {loss:.6g} and gradient norm {norm:.6g}, and batch by batch they are "
            f"{plain_loss:.6g} and {plain_norm:.6g}"
        )
    model.train(was_training)
    if not gradients.workers.any(bool(wrong)):
        micro_batches.packed = True
        return
    log.warning(
        "train.gpu_path: on this GPU a packed pass %s; training batch by batch and uncompiled "
        "(plain), which is slower; please report this",
        wrong or "is wrong on another worker",
    )
    if gradients.compiled:
        gradients.compiled = False
        torch.compiler.set_stance("force_eager")  # for the rest of the process


def _some_batches(gradients: Gradients) -> list[MicroBatch]:
    """A few short pairs in each of some batches."""
    pairs = gradients.pairs
    some = np.arange(min(len(pairs), _LOOKED_AT))
    lengths = np.maximum(pairs.src.lengths[some], pairs.tgt.lengths[some])
    half = np.argsort(lengths, kind="stable")[: -(-len(some) // 2)]
    room = gradients.micro_batches.limit // int(lengths[half].max())
    count = max(1, min(_BATCHES * _PAIRS, room) // _BATCHES) * _BATCHES
    chosen = half[np.linspace(0, len(half) - 1, count).astype(np.int64)]
    return [(pairs, indices) for indices in np.split(chosen, _BATCHES)]


def _loss_and_norm(gradients: Gradients, passes: list[Pass]) -> Tensor:
    """(2,): the summed loss of this worker, and the norm of the gradient of all."""
    tokens = sum(pass_.target_tokens for pass_ in passes)
    losses = gradients.add_up(passes, step=0, tokens=tokens)
    gradient = [p.grad for p in gradients.model.parameters() if p.grad is not None]
    norm: Tensor = torch.nn.utils.get_total_norm(gradient)
    if hasattr(norm, "full_tensor"):  # of a model that is sharded over the workers
        norm = norm.full_tensor()
    gradients.model.zero_grad()
    return torch.stack((losses.translation.double(), norm.double())).cpu()
