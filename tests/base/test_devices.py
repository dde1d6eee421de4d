"""What there is to compute on: which arithmetic is native, and what running out of memory is."""

import os
import platform
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import CPU, slow
from support.errors import message_of
from support.program import printed

from mtkit.base import devices, memory
from mtkit.base.devices import choose_device, float32_arithmetic, prepare_gpu, select_matmul_backend
from mtkit.base.errors import MtkitError
from mtkit.base.memory import is_out_of_memory, memory_explained
from mtkit.convert.export_run import export
from mtkit.translate import Translator

GPU = torch.device("cuda")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        MemoryError(),
        RuntimeError("std::bad_alloc"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_memory_that_ran_out_is_known_by_what_pytorch_and_python_say(error: Exception):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "text",
    [
        "could not create a primitive",
        "could not create a primitive descriptor for a matmul primitive",
        "could not create a memory object",
        "could not execute a primitive",
    ],
)
def test_onednn_fails_for_want_of_memory_only_where_there_is_none(text, monkeypatch):
    monkeypatch.setattr(memory, "AMPLE", 4096)
    assert not is_out_of_memory(RuntimeError(text))
    monkeypatch.setattr(memory, "AMPLE", 2**62)
    assert is_out_of_memory(RuntimeError(text))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits its memory as Linux does")
def test_under_a_limit_to_its_memory_a_process_knows_that_it_is_short():
    program = (
        "import resource; from mtkit.base.memory import is_out_of_memory, disable_malloc_trim\n"
        "disable_malloc_trim()\n"
        "error = RuntimeError('could not create a primitive')\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 100_000_000,) * 2)\n"
        "assert is_out_of_memory(error)\n"
    )
    printed("-c", program)


def test_memory_that_runs_out_is_one_line_and_another_error_keeps_its_traceback():
    with (
        pytest.raises(MtkitError, match=r"^out of memory doing this; do that$"),
        memory_explained("doing this; do that"),
    ):
        raise MemoryError
    with pytest.raises(RuntimeError, match="shapes"), memory_explained("doing this"):
        raise RuntimeError("shapes do not match")


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="these are names of x86 CPUs"
)
@pytest.mark.parametrize("limit", [slow("AVX2"), slow("AVX512_CORE"), "avx512_core_vnni"])
def test_bf16_is_not_chosen_where_onednn_is_kept_from_its_units(limit: str):
    # oneDNN reads this once, hence another process.
    program = (
        "import torch; from mtkit.base.devices import choose_precision\n"
        "print(choose_precision('auto', torch.device('cpu')))\n"
    )
    assert printed("-c", program, ONEDNN_MAX_CPU_ISA=limit) == "fp32\n"


@pytest.mark.parametrize(
    ("able", "onednn", "native"),
    [
        # AVX-512 alone: oneDNN takes bfloat16, and computes in float32.
        ({"avx2": True, "avx512_f": True, "avx512_vnni": True}, True, False),
        ({"avx512_bf16": True}, True, True),
        ({"amx_bf16": True}, True, True),
        ({"avx512_bf16": True, "amx_bf16": True}, False, False),
        # Arm, where oneDNN is not the one to ask.
        ({"bf16": True}, False, True),
        ({}, True, False),
    ],
)
def test_bf16_is_native_where_the_cpu_has_units_that_onednn_may_use(
    able, onednn, native, monkeypatch
):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)
    assert devices.has_native_bf16(CPU) == native


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["one two", "three four"], "translating 2 sentences at a time; lower decode.batch_tokens"),
        (["one two"], "translating a sentence of"),
    ],
)
def test_memory_that_runs_out_while_translating_is_one_line_with_what_to_lower(
    lines, message, untrained, monkeypatch
):
    def no_room(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8")

    config = untrained.config.decode.model_copy(update={"engine": "torch"})
    with Translator.load(untrained, device="cpu", config=config) as translator:
        monkeypatch.setattr("mtkit.translate.pytorch.decoder.beam_search", no_room)
        with pytest.raises(MtkitError, match=r"^out of memory translating") as error:
            list(translator.translate(lines))
    assert message in str(error.value)


def test_memory_that_runs_out_while_a_model_is_loaded_or_exported_is_one_line(
    untrained, tmp_path, monkeypatch
):
    def no_room(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("mtkit.native.NativeModel", no_room)
    monkeypatch.setattr("mtkit.translate.pytorch.models.Transformer", no_room)
    for engine in ("auto", "torch"):
        config = untrained.config.decode.model_copy(update={"engine": engine})
        with pytest.raises(MtkitError, match=r"^out of memory loading the model;"):
            Translator.load(untrained, device="cpu", config=config)
    monkeypatch.undo()
    monkeypatch.setattr("mtkit.convert.export_run._check_text", no_room)
    with pytest.raises(MtkitError, match=r"^out of memory exporting;"):
        export(untrained, tmp_path / "out", format="safetensors")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What PyTorch says of GPUs; a test may change it. PyTorch's switches exist without a GPU."""
    said: dict[str, Any] = {"count": 1, "capability": (8, 6), "kernels": ["sm_80", "sm_90"]}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: said["count"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: said["capability"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: said["kernels"])
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    for name in devices._ALLOCATOR_VARIABLES:
        # Set and deleted, so that it is as before after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield said
    torch.backends.cuda.enable_cudnn_sdp(before)


def as_worker(monkeypatch: pytest.MonkeyPatch, local_rank: int) -> None:
    given = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "host", "LOCAL_RANK": str(local_rank)}
    for name, value in given.items():
        monkeypatch.setenv(name, value)


def test_attention_on_a_gpu_is_not_computed_by_cudnn(gpus: dict[str, Any]):
    # It would compile a plan for each new shape.
    assert choose_device("auto") == GPU
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_a_cpu_is_chosen_without_any_change_for_gpus(gpus: dict[str, Any]):
    assert choose_device("cpu", tf32=True) == CPU
    assert torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.get_float32_matmul_precision() == "highest"
    assert "PYTORCH_ALLOC_CONF" not in os.environ


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not have them")
@pytest.mark.parametrize("given", ["", *sorted(devices._ALLOCATOR_VARIABLES)])
def test_the_memory_of_a_gpu_has_expandable_segments_unless_the_user_has_set_options(
    given, gpus, monkeypatch
):
    if given:
        monkeypatch.setenv(given, "backend:native")
    prepare_gpu(GPU)
    variables = {
        name: os.environ[name] for name in devices._ALLOCATOR_VARIABLES & os.environ.keys()
    }
    options = {given: "backend:native"} if given else None
    assert variables == (options or {"PYTORCH_ALLOC_CONF": "expandable_segments:True"})


@pytest.mark.parametrize("of_cpu", ["highest", "medium"])
def test_tf32_is_used_on_a_gpu_only_if_it_is_set_and_never_on_a_cpu(of_cpu, gpus):
    torch.set_float32_matmul_precision(of_cpu)
    before = torch.backends.mkldnn.matmul.fp32_precision
    for tf32, library in ((False, "cuBLAS"), (True, "cuBLAS in TF32"), (False, "cuBLAS")):
        choose_device("cuda", tf32=tf32)
        assert select_matmul_backend(GPU) == library
        assert select_matmul_backend(GPU, "bf16") == "cuBLAS"
        assert torch.backends.mkldnn.matmul.fp32_precision in (before, "ieee")
        # PyTorch's compiler asks for it, and gets an error if two switches contradict each other.
        assert (torch.get_float32_matmul_precision() == "medium") == (of_cpu == "medium")
    assert torch.get_float32_matmul_precision() == of_cpu


@pytest.mark.parametrize(
    ("capability", "kernels", "remedy"),
    [
        ((8, 6), ["sm_80", "sm_90"], None),
        ((9, 0), ["sm_90a"], None),
        ((12, 1), ["sm_90", "compute_120"], None),
        ((9, 0), ["gfx90a", "gfx942"], None),
        ((7, 0), [], None),
        ((7, 0), ["sm_75", "sm_80", "sm_120"], "supports 7.5, 8.0, 12.0; install a PyTorch build "
         "for an older CUDA, or use --device cpu"),
        ((8, 0), ["sm_86", "compute_86"], "supports 8.6; install a PyTorch build for an older"),
        ((12, 0), ["sm_80", "sm_90"], "supports 8.0, 9.0; install a PyTorch build for a newer"),
    ],
)  # fmt: skip
def test_a_gpu_for_which_pytorch_has_no_kernels_is_refused_with_the_remedy(
    capability, kernels, remedy, gpus
):
    gpus |= {"capability": capability, "kernels": kernels}
    if remedy is None:
        prepare_gpu(GPU)
        return
    error = message_of(choose_device, "auto")
    has = f"Tesla V100 has compute capability {capability[0]}.{capability[1]}, and this PyTorch "
    assert error.startswith(has + remedy)


def test_pytorch_itself_does_not_warn_of_a_gpu_that_is_refused(gpus, monkeypatch):
    def warn(_: object) -> tuple[int, int]:
        warnings.warn("Found GPU0 Tesla V100 …\nmany lines", stacklevel=2)
        return 7, 0

    monkeypatch.setattr(torch.cuda, "get_device_capability", warn)
    with pytest.raises(MtkitError, match=r"^Tesla V100 has compute capability 7\.0"):
        prepare_gpu(GPU)


@pytest.mark.parametrize(
    ("local_rank", "count", "index"), [(0, 1, 0), (3, 4, 3), (0, 4, 0), (3, 1, 0)]
)
def test_a_worker_has_the_gpu_of_its_number_or_the_only_one_that_it_is_shown(
    local_rank, count, index, gpus, monkeypatch
):
    gpus["count"] = count
    as_worker(monkeypatch, local_rank)
    assert choose_device("auto") == torch.device("cuda", index)


def test_more_workers_than_the_gpus_that_each_of_them_sees_are_refused(gpus, monkeypatch):
    gpus["count"] = 2
    as_worker(monkeypatch, 2)
    with pytest.raises(MtkitError, match=r"^worker 3 on this machine has no GPU; there are 2$"):
        choose_device("cuda")


@pytest.mark.parametrize(
    ("name", "error", "is_onednn"),
    [("AMD EPYC", 0.0, True), ("AMD EPYC", 1e-2, False), ("Intel(R) Xeon(R)", 0.0, False)],
)
def test_onednn_multiplies_matrices_on_amd_if_it_is_as_exact_as_float32(
    name, error, is_onednn, monkeypatch
):
    able = {"cpu_name": name, "avx512_f": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    monkeypatch.setattr(
        torch.nn.functional,
        "linear",
        lambda x, y: ((1 + error) * (x.double() @ y.double().t())).float(),
    )
    assert (select_matmul_backend(CPU) == "oneDNN") == is_onednn
    assert torch.get_float32_matmul_precision() == ("medium" if is_onednn else "highest")


def test_matrix_products_are_never_less_exact_than_float32():
    route = select_matmul_backend(CPU)
    chosen = torch.get_float32_matmul_precision()
    assert (route == "oneDNN") == (chosen == "medium")
    x = torch.randn(200, 300, generator=torch.Generator().manual_seed(1))
    exact = x.double() @ x.double().t()
    error = (torch.nn.functional.linear(x, x) - exact).abs().max() / exact.abs().max()
    assert error < 1e-6
    # The choice for a model in bfloat16 does not depend on the model before it.
    select_matmul_backend(CPU, "bf16")
    assert torch.get_float32_matmul_precision() == "highest"
    with float32_arithmetic(CPU):
        assert torch.get_float32_matmul_precision() == chosen
    assert torch.get_float32_matmul_precision() == "highest"
