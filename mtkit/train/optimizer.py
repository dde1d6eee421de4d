"""The optimizers: Adam, as in the paper (Section 5.3), and Muon.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) is for matrices. Adam scales
the gradient of each weight by itself. Muon takes a matrix as a whole: its change is the momentum of
its gradients with all singular values set near one, so that no direction is learned much faster
than the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mtkit.config import TrainConfig

# The momentum of Jordan et al.
_MOMENTUM = 0.95
# Five steps of this polynomial move singular values in (0, 1] near one (ibid.).
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
_STEPS = 5
# With this factor an update is about as large as one of Adam, so both take the same learning rate
# (Liu et al. 2025, https://arxiv.org/abs/2502.16982).
_SIZE_OF_ADAM = 0.2
# As in `torch.optim.Muon`.
_EPSILON = 1e-7


def new_optimizer(
    named: Mapping[str, nn.Parameter], settings: TrainConfig, *, dtype: torch.dtype
) -> torch.optim.Optimizer:
    """The optimizer of `train.optimizer`; its rate is set before each update.

    Muon changes the matrices of the layers, and multiplies in the precision `dtype`. Adam changes
    all other parameters, with the same learning rate: embeddings, of which an update changes single
    rows, biases and layer norms.
    """
    betas = (settings.adam_beta1, settings.adam_beta2)

    def adam(parameters: list[nn.Parameter]) -> torch.optim.Adam:
        return torch.optim.Adam(parameters, betas=betas, eps=settings.adam_epsilon, fused=True)

    matrices = {
        name: parameter
        for name, parameter in named.items()
        if parameter.ndim == 2 and name.startswith(("encoder.", "decoder."))
    }
    if settings.optimizer == "adam" or not matrices:
        return adam(list(named.values()))
    others = [parameter for name, parameter in named.items() if name not in matrices]
    return Muon([*matrices.values()], adam(others) if others else None, dtype=dtype)


class Muon(torch.optim.Optimizer):
    """Muon for some parameters, and Adam for others.

    `torch.optim.Muon` computes the same, but always multiplies in bfloat16. On a CPU without such
    instructions an update of a model of three million parameters then takes many seconds. Here the
    precision can be chosen, and matrices of the same shape are computed together.
    """

    def __init__(
        self, matrices: Sequence[nn.Parameter], adam: torch.optim.Adam | None, *, dtype: torch.dtype
    ) -> None:
        super().__init__(matrices, {"lr": 0.0})
        same_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for matrix in matrices:
            same_shape[matrix.shape].append(matrix)
        self._same_shape = list(same_shape.values())
        self._adam = adam
        self._dtype = dtype
        if adam is not None:
            # One list of groups, and one dictionary of states, for all who read or change them.
            self.param_groups += adam.param_groups
            self.state = adam.state

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Change the parameters by their gradients; `closure` must be None."""
        assert closure is None
        if self._adam is not None:
            self._adam.step()
        rate = self.param_groups[0]["lr"]
        for matrices in self._same_shape:
            directions = orthogonal(
                torch.stack([self._momentum(matrix) for matrix in matrices]).to(self._dtype)
            )
            size = _SIZE_OF_ADAM * max(matrices[0].shape) ** 0.5
            for matrix, direction in zip(matrices, directions, strict=True):
                matrix.add_(direction.to(matrix.dtype), alpha=-rate * size)

    def _momentum(self, matrix: nn.Parameter) -> Tensor:
        """The gradient, with Nesterov's momentum."""
        gradient = matrix.grad
        assert gradient is not None
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        momentum = state["momentum"]
        momentum.lerp_(gradient, 1.0 - _MOMENTUM)
        return gradient.lerp(momentum, _MOMENTUM)


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices with the same singular vectors, and singular values near one.

    The singular values of each matrix are divided by the root of the sum of their squares. Then
    each s becomes a·s + b·s³ + c·s⁵, five times (a Newton-Schulz iteration), which moves all from
    0.002 upwards to between 0.68 and 1.20; a decomposition would take much longer.

    The matrices (N, R, C) may have any precision.
    """
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.mT).mT
    a, b, c = _POLYNOMIAL
    norms = torch.linalg.matrix_norm(matrices, keepdim=True)
    matrices = matrices / norms.clamp(min=_EPSILON)
    for _ in range(_STEPS):
        squares = matrices @ matrices.mT
        powers = torch.baddbmm(squares, squares, squares, beta=b, alpha=c)
        matrices = torch.baddbmm(matrices, powers, matrices, beta=a)
    return matrices
