"""The Triton code of layers and loss, written and compiled for a kind of GPU, without a GPU.

`triton_code.py 90` does it for compute capability 9.0, and prints what it did as JSON. It needs a
CUDA build of PyTorch with Triton, and a C++ compiler. Nothing is run: PyTorch is told that there is
a GPU, its tensors have no data, and the code is taken from the compiler when it is written.
"""

import ctypes
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
import types
import warnings
from pathlib import Path
from typing import Any
from unittest import mock


def guard() -> ctypes.CDLL:
    """Compile cuda_guard.cpp and load it: before PyTorch, which takes the hooks that it finds."""
    spec = importlib.util.find_spec("torch")
    root, source = Path(spec.origin).parent, Path(__file__).with_name("cuda_guard.cpp")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "guard.so")
        flags = ["-shared", "-fPIC", "-std=c++20", f"-I{root}/include"]
        link = [f"-L{root}/lib", f"-Wl,-rpath,{root}/lib", "-lc10", "-ltorch_cpu"]
        subprocess.run(["g++", *flags, str(source), *link, "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


if __name__ == "__main__":
    GUARD = guard()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

ROWS, V = 24_576, 37_000


class WrittenError(Exception):
    """The code of a function and of its gradient is written, and would run now."""


def pretend(major: int) -> None:
    """Have PyTorch and Triton compile for a GPU that is not there."""
    GUARD.install()
    import torch._functorch.config
    import torch._inductor.config
    import triton
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor.fx_passes import fuse_attention, joint_graph, misc_patterns, pad_mm
    from torch._inductor.runtime import triton_helpers
    from torch._subclasses import fake_tensor
    from triton.backends.compiler import GPUTarget

    shared = {8: 166_912, 9: 232_448}[major]
    facts = types.SimpleNamespace(
        name="none", major=major, minor=0, total_memory=80 << 30, multi_processor_count=108,
        warp_size=32, regs_per_multiprocessor=65_536, max_threads_per_multi_processor=2048,
        max_threads_per_block=1024, shared_memory_per_block_optin=shared, gcnArchName="",
    )  # fmt: skip
    stream = types.SimpleNamespace(cuda_stream=0, stream_id=0, device_index=0, device_type=1)
    answers: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            "is_available": True, "device_count": 1, "current_device": 0, "_lazy_init": None,
            "get_device_properties": facts, "get_device_capability": (major, 0),
            "get_device_name": "none", "current_stream": stream, "_exchange_device": 0,
            "_maybe_exchange_device": 0, "is_current_stream_capturing": False,
            "get_rng_state": torch.zeros(16, dtype=torch.uint8), "set_rng_state": None,
            "is_bf16_supported": True, "synchronize": None,
        },
        torch._C: {
            "_cuda_getCurrentRawStream": 0, "_cuda_getDevice": 0, "_cuda_setDevice": None,
            "_cuda_exchangeDevice": 0, "_cuda_maybeExchangeDevice": 0, "_cuda_getDeviceCount": 1,
        },
        CudaInterface: {
            "is_available": True, "current_device": 0, "get_device_properties": facts,
            "device_count": 1, "current_stream": stream, "get_compute_capability": 10 * major,
            "is_triton_capable": True, "raise_if_triton_unavailable": None,
        },
        CudaInterface.Worker: {"get_device_properties": facts, "current_device": 0},
        torch.cuda.amp.common: {"amp_definitely_not_available": False},
        fake_tensor: {"init_gpu_context": None},
        triton_helpers: {"set_driver_to_gpu": None},
        # These trace examples on the device, to find patterns that layers do not have.
        fuse_attention: {"_sfdp_init": None},
        joint_graph: {"_pad_mm_init": None},
        pad_mm: {"_pad_mm_init": None},
        misc_patterns: {"_misc_patterns_init": None},
    }  # fmt: skip
    for owner, values in answers.items():
        for name, value in values.items():
            setattr(owner, name, staticmethod(lambda *_, it=value, **__: it))
    config: dict[Any, dict[str, Any]] = {
        torch._inductor.config: {
            "compile_threads": 1, "fx_graph_cache": False, "shape_padding": False,
            "joint_graph_constant_folding": False,
        },
        # The gradient is compiled with the function, because that never returns.
        torch._functorch.config: {
            "enable_autograd_cache": False, "force_non_lazy_backward_lowering": True
        },
    }  # fmt: skip
    for owner, values in config.items():
        for name, value in values.items():
            setattr(owner, name, value)
    driver = mock.MagicMock()
    driver.get_current_target.return_value = GPUTarget("cuda", 10 * major, 32)
    driver.get_active_torch_device.return_value = torch.device("cuda", 0)
    driver.get_current_device.return_value = 0
    driver.utils.get_device_properties.return_value = {"max_shared_mem": shared}
    triton.runtime.driver.set_active(driver)
    F.scaled_dot_product_attention = fused_attention


def fused_attention(
    q: Any, k: Any, v: Any, attn_mask: Any, dropout_p: float, is_causal: bool
) -> Any:
    """The kernels that a GPU chooses: flash attention, or with a mask the memory-efficient one."""
    if attn_mask is None:
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(q, k, v, dropout_p, is_causal)[0]
    shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    bias = torch.zeros(attn_mask.shape, dtype=q.dtype, device=q.device)
    bias = bias.masked_fill(~attn_mask, -torch.inf).expand(shape)
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    return efficient(q, k, v, bias, True, dropout_p, is_causal)[0]


class Compiler:
    """Takes the code of every graph from PyTorch's compiler."""

    def __init__(self) -> None:
        from torch._inductor.graph import GraphLowering

        self.graphs: list[dict[str, Any]] = []
        self.kernels: dict[str, str] = {}
        self._part = ""

        def take(graph: GraphLowering) -> Any:
            code = graph.codegen()[0].value
            kernels = re.findall(r"triton\('(\w+)', '''(.*?)''', device_str='cuda'\)", code, re.S)
            self.kernels |= {f"{self._part} {name}": source for name, source in kernels}
            launches = len(re.findall(r"^\s+triton_\w+\.run\(", code, re.M))
            size = int(graph.count_bytes()[0])
            self.graphs.append({"of": self._part, "launches": launches, "bytes": size})
            return types.SimpleNamespace(call=stop, runner=None, __file__="none", key=None)

        def stop(_: object) -> None:
            raise WrittenError

        GraphLowering.compile_to_module = take

    def write(self, part: str, function: Any, *args: Any, **how: Any) -> None:
        """Have the code written of what a function compiles when it is called."""
        self._part = part
        try:
            function(*args, **how)
        except WrittenError:
            return
        raise AssertionError(f"{part} was not compiled")

    def compile(self) -> list[str]:
        """Compile all kernels to machine code; returns what failed."""
        return [
            f"{name}: {error}" for name, code in self.kernels.items() if (error := failure(code))
        ]


def failure(code: str) -> str:
    """Why a kernel does not compile to machine code; empty if it does."""
    from torch._inductor.async_compile import _load_triton_kernel_from_source

    (name,) = re.findall(r"^def (\w+)", code, re.M)
    try:
        _load_triton_kernel_from_source(name, code).precompile(warm_cache_only=True)
    except Exception as error:
        return repr(error)
    return ""


def main(major: int) -> None:
    """Write and compile the code of the layers of base and big, and of the loss."""
    warnings.simplefilter("ignore")
    start = time.monotonic()
    pretend(major)
    from torch._dynamo.utils import counters
    from torch._subclasses import FakeTensorMode

    from mtkit.base.compiling import compile_layers
    from mtkit.config import load_config
    from mtkit.kernels.gpu_loss import loss_on_gpu
    from mtkit.model import DecoderLayer, EncoderLayer

    compiler = Compiler()
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        for preset in ("base", "big"):
            config = load_config(preset).model
            encoder, decoder = EncoderLayer(config), DecoderLayer(config)
            compile_layers([encoder, decoder])
            src, tgt = (torch.randn(600, n, config.d_model, requires_grad=True) for n in (40, 41))
            mask = torch.ones(600, 1, 1, 40, dtype=torch.bool)
            with torch.autocast("cuda", torch.bfloat16):
                compiler.write(f"{preset} encoder", encoder, src, mask)
                compiler.write(f"{preset} decoder", decoder, tgt, src, mask)
        states, weight, bias = (
            torch.randn(n, requires_grad=True) for n in ((ROWS, 512), (V, 512), V)
        )
        targets = torch.zeros(ROWS, dtype=torch.int64)
        for name, own in (("loss", None), ("loss with bias", bias)):
            compiler.write(
                name, loss_on_gpu, states, weight, targets, label_smoothing=0.1, pad_id=0, bias=own,
                dtype=torch.bfloat16, compiled=True,
            )  # fmt: skip
    written = time.monotonic()
    failed = compiler.compile()
    # The check itself: this is no Triton.
    broken = next(iter(compiler.kernels.values())).replace("tl.store(", "tl.no_such_function(")
    facts = {
        "graphs": compiler.graphs,
        "breaks": dict(counters["graph_break"]),
        "kernels": len(compiler.kernels),
        "failed": failed,
        "finds_faults": bool(failure(broken)),
        "seconds": [round(written - start), round(time.monotonic() - written)],
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main(int(sys.argv[1]) // 10)
