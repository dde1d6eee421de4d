"""What of a model is trained: all weights, some of them, or a low-rank change of its matrices.

Also the exponential moving average of the weights. Whatever is trained, the model itself always has
ordinary weights, so the forward pass, validation, and everything that reads a checkpoint know
nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from mtkit.base.errors import MtkitError
from mtkit.base.overrides import list_hint
from mtkit.checkpoint import Tensors
from mtkit.config import TrainConfig
from mtkit.tokenizer import BOS_ID, EOS_ID
from mtkit.train.distributed import load_whole_state, whole_state

# Kinds of tensors in the state of a training, behind the name of a parameter.
_VALUE, _BASE = "value", "base"
_EMBEDDING = "embedding.weight"
# In `train.freeze`: all rows of a matrix before this one.
ROWS = re.compile(r"(.+)\[:(\d{1,9})\]")


class TrainedParameters:
    """The parameters of a model that the optimizer trains.

    With `train.lora_rank` (LoRA, Hu et al. 2022, https://arxiv.org/abs/2106.09685) a matrix W is
    W₀ + (α/r)·B·A, of which only A and B are trained. A has r rows and B has r columns. Instead of
    composing W in the forward pass, W is composed after each update, and the gradient of W gives
    those of A and B by the chain rule, which is the same: dA = (α/r)·Bᵀ·dW, dB = (α/r)·dW·Aᵀ.

    The model has its initial weights. Parameters that are not trained lose their gradient.

    Raises:
        MtkitError: for a name in `train.freeze` or `train.lora_matrices` that no parameter has, and
            if nothing is left to train.

    Rows of a matrix that a name such as `embedding.weight[:8000]` does not freeze are trained, also
    with LoRA, and if another name freezes the matrix.
    """

    def __init__(self, model: nn.Module, settings: TrainConfig) -> None:
        self._model = model
        self._ema = settings.ema
        self._sharded = settings.fsdp
        parameters = dict(model.named_parameters())
        matches = {pattern: ROWS.fullmatch(pattern) for pattern in settings.freeze}
        whole = [pattern for pattern, match in matches.items() if match is None]
        frozen = _matching(parameters, whole, key="train.freeze")
        self._rows: dict[str, _LastRows] = {}
        for match in filter(None, matches.values()):
            for name in _matching(parameters, [match[1]], key="train.freeze"):
                self._rows[name] = _LastRows(parameters[name], int(match[2]))
        frozen -= self._rows.keys()
        self._low_rank: dict[str, _LowRank] = {}
        if settings.lora_rank:
            chosen = _matching(parameters, settings.lora_matrices, key="train.lora_matrices")
            matrices = [n for n in parameters if n in chosen - frozen and parameters[n].ndim == 2]
            if not matrices:
                raise MtkitError("train.lora_matrices: no matrix is left to train")
            alpha = settings.lora_alpha or 2.0 * settings.lora_rank
            self._low_rank = {
                name: _LowRank(name, parameters[name], settings.lora_rank, alpha)
                for name in matrices
            }
            frozen = parameters.keys() - matrices - self._rows.keys()
        self._parts: list[_LowRank | _LastRows] = [*self._low_rank.values(), *self._rows.values()]
        for name in frozen:
            parameters[name].requires_grad_(False)
        # By name: what the optimizer changes.
        self.named: dict[str, nn.Parameter] = {}
        for name, parameter in parameters.items():
            if name in self._low_rank:
                self.named[f"{name}.lora_a"] = self._low_rank[name].a
                self.named[f"{name}.lora_b"] = self._low_rank[name].b
            elif name in self._rows:
                self.named[f"{name}.rows"] = self._rows[name].rows
            elif name not in frozen:
                self.named[name] = parameter
        if not self.named:
            raise MtkitError("train.freeze: nothing is left to train")
        self._changing = {n: p for n, p in parameters.items() if p.requires_grad}
        self._ties_start = self._is_start_eos()
        self._means: Tensors = {}
        if self._ema:
            self._means = {name: p.detach().clone() for name, p in self._changing.items()}

    @property
    def count(self) -> int:
        """The number of trained values."""
        return sum(parameter.numel() for parameter in self.named.values())

    @torch.no_grad()
    def before_update(self) -> None:
        """Give the optimizer the gradients of what it changes."""
        if self._ties_start:
            gradient = self._changing[_EMBEDDING].grad
            assert gradient is not None
            gradient[[BOS_ID, EOS_ID]] = gradient[BOS_ID] + gradient[EOS_ID]
        for part in self._parts:
            part.take_gradient()

    @torch.no_grad()
    def after_update(self, step: int) -> None:
        """Change the weights of the model as the optimizer changed what it trains, at `step`."""
        for part in self._parts:
            part.compose()
        if self._ema:
            # Early updates count less, as in TensorFlow's ExponentialMovingAverage.
            share = min(self._ema, (1 + step) / (10 + step))
            for name, mean in self._means.items():
                mean.lerp_(self._changing[name], 1.0 - share)

    def _is_start_eos(self) -> bool:
        """Whether BOS has the row of EOS, as in imports of M2M-100; it stays so, for an export."""
        matrix = self._changing.get(_EMBEDDING)
        if matrix is None or matrix.is_meta or self._sharded:
            return False
        return torch.equal(matrix[BOS_ID], matrix[EOS_ID])

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it, the model has the moving average of its weights, if there is one."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, mean in self._means.items():
            weight = self._changing[name]
            kept = weight.clone()
            weight.copy_(mean)
            mean.copy_(kept)

    def weights(self) -> Tensors:
        """The weights to translate with, by name: the moving average, if there is one."""
        return {**self._model.state_dict(), **self._means}

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """What a training needs to resume, besides `weights` and the optimizer's state."""
        for name, low_rank in self._low_rank.items():
            yield f"{name}.{_BASE}", low_rank.base
            yield f"{name}.lora_a.{_VALUE}", low_rank.a
            yield f"{name}.lora_b.{_VALUE}", low_rank.b
        for name in self._means:
            if name not in self._low_rank:
                yield f"{name}.{_VALUE}", self._changing[name]

    def training_state(self, optimizer: torch.optim.Optimizer) -> tuple[Tensors, Tensors]:
        """Copies of the weights, and of what else a resumed training needs, by name, on the CPU.

        If the model is sharded, all workers must call this, and the first one gets all of it.
        """
        if self._sharded:
            weights, moments = whole_state(self._model, optimizer)
        else:
            weights = self.weights()
            moments = {name: optimizer.state[parameter] for name, parameter in self.named.items()}
        flat = {
            f"{name}.{key}": value
            for name, state in moments.items()
            for key, value in state.items()
        }
        return _copies_on_cpu(weights), _copies_on_cpu(flat | dict(self.state()))

    def saved_bytes(self, optimizer: torch.optim.Optimizer) -> int:
        """The size of what `training_state` gives after an update."""
        saved = [*self.weights().values(), *dict(self.state()).values()]
        for group in optimizer.param_groups:
            # Adam keeps two numbers for each value, Muon one.
            saved += group["params"] * (2 if "betas" in group else 1)
        return sum(tensor.nbytes for tensor in saved)

    @torch.no_grad()
    def load_training_state(
        self, optimizer: torch.optim.Optimizer, weights: Tensors, state: Tensors
    ) -> None:
        """Load the result of `training_state`."""
        moments: dict[str, Tensors] = {name: {} for name in self.named}
        values: Tensors = {}
        for name, value in state.items():
            owner, _, key = name.rpartition(".")
            if key == _VALUE:
                values[owner] = value
            elif key != _BASE:
                moments[owner][key] = value
        if self._sharded:
            load_whole_state(self._model, optimizer, weights, moments)
            return
        self._model.load_state_dict(weights)
        self._ties_start = self._is_start_eos()
        for name, mean in self._means.items():
            mean.copy_(weights[name])
        for name, value in values.items():
            (self.named | self._changing)[name].copy_(value)
        for name, low_rank in self._low_rank.items():
            low_rank.base.copy_(state[f"{name}.{_BASE}"])
            low_rank.compose()
        for last_rows in self._rows.values():
            last_rows.take_weights()
        for name, parameter in self.named.items():
            # Adam's step count must be on the device of its kernel.
            of_parameter = {key: value.to(parameter.device) for key, value in moments[name].items()}
            optimizer.state[parameter] = of_parameter


def _copies_on_cpu(tensors: Tensors) -> Tensors:
    # From a GPU into memory that is not paged, so that the program waits once and not for each.
    copies = {
        name: tensor.detach().to("cpu", copy=True, non_blocking=True)
        for name, tensor in tensors.items()
    }
    for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
        torch.cuda.synchronize(device)
    return copies


class _LowRank:
    """A matrix with a low-rank change: W₀ (out, in), A (rank, in) random and B (out, rank) zero."""

    def __init__(self, name: str, matrix: nn.Parameter, rank: int, alpha: float) -> None:
        rows, columns = matrix.shape
        if rank > min(rows, columns):
            raise MtkitError(
                f"train.lora_rank: {rank} is more than the smaller side of {name}, which is {rows} "
                f"by {columns}"
            )
        self._matrix, self._scale = matrix, alpha / rank
        self.base = matrix.detach().clone()
        self.a = nn.Parameter(torch.empty(rank, columns, device=matrix.device))
        self.b = nn.Parameter(torch.zeros(rows, rank, device=matrix.device))
        nn.init.kaiming_uniform_(self.a, a=5**0.5)

    def take_gradient(self) -> None:
        gradient = self._matrix.grad
        assert gradient is not None
        self.a.grad = self._scale * (self.b.t() @ gradient)
        self.b.grad = self._scale * (gradient @ self.a.t())

    def compose(self) -> None:
        torch.addmm(self.base, self.b, self.a, alpha=self._scale, out=self._matrix)


class _LastRows:
    """The last rows (R, D) of a matrix, which change while the others stay."""

    def __init__(self, matrix: nn.Parameter, first: int) -> None:
        self._matrix, self._first = matrix, first
        self.rows = nn.Parameter(matrix.detach()[first:].clone())
        if not len(self.rows):
            raise MtkitError(f"train.freeze: there is no row from [:{first}] on; leave it out")

    def take_gradient(self) -> None:
        gradient = self._matrix.grad
        assert gradient is not None
        self.rows.grad = gradient[self._first :]

    def compose(self) -> None:
        self._matrix[self._first :] = self.rows

    def take_weights(self) -> None:
        self.rows.copy_(self._matrix[self._first :])


def is_named(name: str, pattern: str) -> bool:
    """Whether a pattern matches the name of a parameter, or is its beginning as whole parts."""
    return fnmatchcase(name, pattern) or name.startswith(pattern.rstrip(".") + ".")


def _matching(names: Iterable[str], patterns: Sequence[str], *, key: str) -> set[str]:
    """The names that a pattern matches, or that begin with a pattern as whole parts."""
    names = list(names)
    matching: set[str] = set()
    for pattern in patterns:
        matched = {name for name in names if is_named(name, pattern)}
        if not matched:
            parts = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
            raise MtkitError(
                f"{key}: no parameter has the name {pattern}; they begin with {parts}, for example "
                f"{names[0]}{list_hint(pattern)}"
            )
        matching |= matched
    return matching
