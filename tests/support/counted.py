"""What an update or a decoding step asks of a GPU, counted on a CPU.

Within `pretended_gpu` a tensor that is moved to `GPU` stays an ordinary tensor of the CPU, so all
numbers are real. Its memory is marked, and for Python the tensor is on "cuda": mtkit takes its ways
for a GPU. What a kernel makes of marked memory is marked too. As on a GPU, an operator with tensors
of both places is an error. The counts are those of operators and not of a GPU's kernels, which
differ from one PyTorch to the next, but they grow and shrink with them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")

# Functions of PyTorch that make a tensor from numbers of the host.
FROM_NUMBERS = (torch.tensor, torch.as_tensor, torch.asarray)
# Operators whose result has a shape, or is a number, that the host must wait for.
WAITED_FOR = {
    *("_local_scalar_dense", "equal", "is_nonzero"),
    *("nonzero", "masked_select", "bincount", "_unique2", "unique_consecutive", "unique_dim"),
}
INDEXING = {"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"}


@dataclass
class Counts:
    """What was asked of the pretended GPU; lines are those of mtkit, such as "model.py:395".

    Attributes:
        kernels: operators that compute or copy, by name. Views, and memory without contents, are
            none. A call of PyTorch's attention is one operator, "attention", and its backward pass
            is another.
        casts: those of them that only change a type, by line.
        waits: the host waits for a result, by line.
        uploads: copies from the host, by line.
        pageable: those of them that are from memory that is not pinned, by line.
    """

    kernels: Counter[str] = field(default_factory=Counter)
    casts: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    uploads: Counter[str] = field(default_factory=Counter)
    pageable: Counter[str] = field(default_factory=Counter)

    def copy(self) -> Counts:
        return Counts(*(Counter(counter) for counter in vars(self).values()))

    def __sub__(self, earlier: Counts) -> Counts:
        """What was asked since then."""
        pairs = zip(vars(self).values(), vars(earlier).values(), strict=True)
        return Counts(*(now - before for now, before in pairs))

    def clear(self) -> None:
        for counter in vars(self).values():
            counter.clear()


@contextmanager
def pretended_gpu() -> Iterator[Counts]:
    """Within it `GPU` is a device that can be used, in this thread."""
    counts = Counts()
    with ExitStack() as stack:
        for change in (
            patch("torch.autocast", _autocast),
            patch("torch.cuda.device", lambda _: nullcontext()),
            patch("torch.cuda.is_bf16_supported", lambda **_: True),
            patch("torch.cuda.get_device_name", lambda _: "pretended"),
        ):
            stack.enter_context(change)
        stack.enter_context(_Devices(stack.enter_context(_Operators(counts))))
        yield counts


_real_autocast = torch.autocast


def _autocast(device_type: str, **how: Any) -> Any:
    return _real_autocast("cpu" if device_type == "cuda" else device_type, **how)


def _marks(x: Tensor) -> dict[str, Any]:
    """The attributes of a tensor's memory, which stay with it."""
    return vars(x.untyped_storage())


def is_on_gpu(x: Tensor) -> bool:
    return "on_gpu" in _marks(x)


def _put_on_gpu(*results: Any) -> None:
    for x in tree_leaves(results):
        if isinstance(x, Tensor):
            _marks(x)["on_gpu"] = True


def _line() -> str:
    """The line of mtkit that is being computed; "backward" if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if "mtkit" in path.parts and "tests" not in path.parts:
            return f"{path.name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "backward"


class _Operators(TorchDispatchMode):
    """Counts operators with a tensor on the GPU, and marks what they make."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts
        # New tensors are made on the GPU.
        self.making = False
        # What is computed now are not operators of the GPU.
        self.paused = False

    @contextmanager
    def set(self, **flags: bool) -> Iterator[None]:
        """Within it, some of the attributes have other values."""
        before = {name: getattr(self, name) for name in flags}
        vars(self).update(flags)
        try:
            yield
        finally:
            vars(self).update(before)

    def upload(self, source: Tensor) -> None:
        """Count a copy from the host."""
        line = _line()
        self.counts.uploads[line] += 1
        if "pinned" not in _marks(source):
            self.counts.pageable[line] += 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        if torch.is_inference_mode_enabled() and _is_composite(func):
            # Elsewhere it is taken apart before.
            with self:
                return func.decompose(*args, **kwargs)
        pinned = kwargs.pop("pin_memory", False)
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        of_gpu = [x for x in tensors if is_on_gpu(x)]
        before = {x.untyped_storage()._cdata for x in tensors}
        result = func(*args, **kwargs)
        made = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        if pinned:
            for x in made:
                _marks(x)["pinned"] = True
        if of_gpu or self.making:
            self._count(func, args, tensors, of_gpu, writes=self._writes(func, made, before))
            if not (func._schema.name == "aten::copy_" and not is_on_gpu(args[0])):
                _put_on_gpu(made)
        return result

    @staticmethod
    def _writes(func: Any, made: list[Tensor], before: set[int]) -> bool:
        """Whether an operator is a kernel: it changes an argument, or makes new contents."""
        new = any(x.untyped_storage()._cdata not in before for x in made)
        return func._schema.is_mutable or (new and "empty" not in func._schema.name)

    def _count(
        self,
        func: Any,
        args: tuple[Any, ...],
        tensors: list[Tensor],
        of_gpu: list[Tensor],
        *,
        writes: bool,
    ) -> None:
        counts, name = self.counts, func._schema.name.removeprefix("aten::")
        of_host = [x for x in tensors if not is_on_gpu(x)]
        if name == "copy_" and of_host:
            if is_on_gpu(args[0]):
                self.upload(args[1])
            elif not (len(args) > 2 and args[2]):
                counts.waits[_line()] += 1
        elif name in INDEXING:
            for x in of_host:
                self.upload(x)
            if any(x.dtype == torch.bool for x in tree_leaves(args[1]) if isinstance(x, Tensor)):
                counts.waits[_line()] += 1
        elif any(x.dim() for x in of_host) and of_gpu:
            raise RuntimeError(f"{name} of tensors on the CPU and on the GPU")
        if name in WAITED_FOR or (name == "repeat_interleave" and len(args) < 2):
            counts.waits[_line()] += 1
        if writes:
            counts.kernels[name] += 1
        is_cast = name == "_to_copy" or (name == "copy_" and args[0].dtype != args[1].dtype)
        if is_cast and not of_host:
            counts.casts[_line()] += 1


def _is_composite(func: Any) -> bool:
    return bool(
        func._can_decompose()
        and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    )


class _Devices(TorchFunctionMode):
    """Says that marked tensors are on the GPU, and does what is asked with devices."""

    def __init__(self, operators: _Operators) -> None:
        super().__init__()
        self.operators = operators

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        x = args[0] if args and isinstance(args[0], Tensor) else None
        if x is not None:
            if name == "__get__" and func.__self__ in (Tensor.device, Tensor.is_cuda):
                if not is_on_gpu(x):
                    return func(*args, **kwargs)
                return GPU if func.__self__ is Tensor.device else True
            if name in ("pin_memory", "is_pinned"):
                return self._pinned(x) if name == "pin_memory" else "pinned" in _marks(x)
            if name in ("to", "cpu", "cuda", "numpy", "__array__", "tolist"):
                return self._moved(func, name, x, args[1:], kwargs)
        if func is F.scaled_dot_product_attention and x is not None and is_on_gpu(x):
            return _Attention.apply(self.operators, kwargs, *args)
        if kwargs.get("device") != GPU:
            return func(*args, **kwargs)
        del kwargs["device"]
        if func in FROM_NUMBERS or name == "new_tensor":
            return self._moved(Tensor.to, "to", func(*args, **kwargs), (GPU,), {})
        with self.operators.set(making=True):
            return func(*args, **kwargs)

    def _pinned(self, x: Tensor) -> Tensor:
        with self.operators.set(paused=True):
            copy = x.clone(memory_format=torch.contiguous_format)
        _marks(copy)["pinned"] = True
        return copy

    def _moved(
        self, func: Any, name: str, x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of `x.to`, `x.cpu`, and of what reads a tensor on the host."""
        target = {"to": None, "cuda": GPU}.get(name, CPU)
        for given in (*args, *kwargs.values()) if name == "to" else ():
            if isinstance(given, Tensor):
                target = GPU if is_on_gpu(given) else CPU
            elif isinstance(given, str | torch.device):
                target = torch.device(given)
        if target is not None and (target.type == "cuda") != is_on_gpu(x):
            if target.type == "cuda":
                self.operators.upload(x)
            elif not kwargs.get("non_blocking"):
                self.operators.counts.waits[_line()] += 1
            # Both places are the memory of the CPU; only a copy can have other marks.
            with self.operators.set(paused=True):
                x = x.clone()
            if target.type == "cuda":
                _put_on_gpu(x)
        if name == "cuda":
            return x
        return func(x, *map(_of_cpu, args), **{key: _of_cpu(v) for key, v in kwargs.items()})


def _of_cpu(argument: Any) -> Any:
    return CPU if isinstance(argument, str | torch.device) else argument


class _Attention(torch.autograd.Function):
    """PyTorch's attention as one operator, and its backward pass as another.

    On a GPU these are one or two kernels; on a CPU they consist of many if there is dropout. The
    results are laid out as a GPU's kernels write them, (B, T, H, K).
    """

    @staticmethod
    def forward(ctx: Any, operators: _Operators, how: dict[str, Any], *qkv: Tensor) -> Tensor:
        operators.counts.kernels["attention"] += 1
        ctx.operators = operators
        ctx.qkv = [x.detach().requires_grad_(x.requires_grad) for x in qkv]
        with torch.enable_grad(), operators.set(paused=True):
            ctx.out = F.scaled_dot_product_attention(*ctx.qkv, **how)
            out = _by_position(ctx.out.detach())
        _put_on_gpu(out)
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        ctx.operators.counts.kernels["attention backward"] += 1
        with ctx.operators.set(paused=True):
            wanted = torch.autograd.grad(ctx.out, ctx.qkv, grad_outputs)
            gradients = list(map(_by_position, wanted))
        _put_on_gpu(gradients)
        return None, None, *gradients


def _by_position(x: Tensor) -> Tensor:
    """The same (B, H, T, K), with T before H in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)
