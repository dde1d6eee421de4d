"""What only a GPU does: waits, kernels, time of new shapes, memory.

Each check is in `support.cuda_checks`. `make test` has it find a fault that is planted without a
GPU, and `pytest -m gpu` one on the GPU. Times are measured here and nowhere else in the tests:
PyTorch's attention for a new shape can take forty times as long as for a known one.
"""

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import changed
from support import cuda_checks
from torch.nn.attention import SDPBackend, sdpa_kernel

from mtkit.base.devices import choose_device
from mtkit.base.errors import MtkitError
from mtkit.config import Config
from mtkit.data import IntArray, PreparedData
from mtkit.train import assembly as train
from mtkit.train.trainer import Trainer

needs_gpu = pytest.mark.gpu

# What an update may have. None of it may make the host wait for the GPU.
VARIANTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({}, {"precision": "fp32"}),
    ({"positions": "learned", "norm": "pre", "activation": "silu"}, {"ema": 0.9}),
    ({"attention_window": 2, "d_k": 24, "attention_dropout": 0.1}, {"bpe_dropout": 0.1}),
    ({"output_bias": True}, {"optimizer": "muon"}),
    ({}, {"guided_alignment": 0.1}),
    ({}, {"gpu_path": "plain", "compile": False}),
    ({}, {"lora_rank": 4}),
    ({}, {"freeze": ("embedding", "encoder")}),
]


@pytest.fixture
def gpu() -> torch.device:
    """The GPU, prepared as for a training."""
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")
    return choose_device("cuda")


@pytest.fixture
def config(config) -> Config:
    config = changed(config, "model", d_model=64, d_ff=128, n_heads=4, dropout=0.1)
    return changed(config, "train", device_batch_tokens=None, precision="auto")


def updates_on(gpu: torch.device, config: Config, data: PreparedData) -> Callable[[], object]:
    """A function that makes the next update, after some have been made."""
    trainer = Trainer(config, data, device=gpu)

    def update() -> None:
        trainer.update(next(trainer.batches))

    for _ in range(3):
        update()
    torch.cuda.synchronize()
    return update


def test_a_wait_is_found_and_another_error_is_not_taken_for_one(monkeypatch):
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def fail(message: str) -> None:
        raise RuntimeError(message)

    wait = "called a synchronizing CUDA operation"
    assert cuda_checks.first_wait(lambda: fail(wait)) == wait
    assert cuda_checks.first_wait(lambda: None) is None
    with pytest.raises(RuntimeError, match="no kernel image"):
        cuda_checks.first_wait(lambda: fail("no kernel image"))
    assert modes == 3 * ["error", "default"]


@needs_gpu
def test_a_wait_of_a_gpu_is_found(gpu):
    x = torch.ones(2, device=gpu)
    assert cuda_checks.first_wait(lambda: x.sum().item()) is not None
    assert cuda_checks.first_wait(lambda: x[x > 0]) is not None
    assert cuda_checks.first_wait(lambda: x + 1) is None


@needs_gpu
@pytest.mark.parametrize(("model", "training"), VARIANTS)
def test_an_update_never_waits_for_the_gpu(model, training, gpu, config, linked):
    config = changed(changed(config, "model", **model), "train", **training)
    assert cuda_checks.first_wait(updates_on(gpu, config, linked)) is None


def test_kernels_of_cudnns_attention_are_told_from_others():
    planted = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x64x64"
    others = [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128>>",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cudnn",
        "Memcpy HtoD (Pinned -> Device)",
    ]
    assert cuda_checks.cudnn_attention([*others, planted]) == [planted]


@needs_gpu
def test_cudnns_attention_is_found_where_it_runs(gpu):
    q = torch.randn(2, 4, 64, 64, device=gpu, dtype=torch.bfloat16)

    def attend() -> None:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(q, q, q)

    try:
        attend()
    except RuntimeError as error:
        pytest.skip(f"cuDNN has no attention for this GPU: {error}")
    assert cuda_checks.cudnn_attention(cuda_checks.kernels_of(attend))


@needs_gpu
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_an_update_uses_no_attention_of_cudnn(precision, gpu, config, tiny_data):
    config = changed(config, "train", precision=precision)
    kernels = cuda_checks.kernels_of(updates_on(gpu, config, tiny_data))
    # More than one for each layer, or the profiler saw nothing.
    assert len(kernels) > 20
    assert not cuda_checks.cudnn_attention(kernels)


def test_new_shapes_that_take_long_are_noticed():
    # Measured on an H100 with cuDNN's attention: 720 ms and 19 ms.
    assert cuda_checks.slow_when_new([0.72, 0.70, 0.74], [0.019, 0.021, 0.019])
    assert not cuda_checks.slow_when_new([0.021, 0.5, 0.022], [0.019, 0.021, 0.019])


@needs_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_new_shapes_take_at_most_twice_the_time_of_known_ones(compiled, gpu, config, tiny_data):
    if compiled:
        pytest.importorskip("triton")
    trainer = Trainer(changed(config, "train", compile=compiled), tiny_data, device=gpu)

    def seconds(pairs: IntArray) -> float:
        torch.cuda.synchronize()
        started = time.perf_counter()
        trainer.update([pairs])
        torch.cuda.synchronize()
        return time.perf_counter() - started

    # Every number of pairs is another shape.
    for count in range(101, 121):
        seconds(np.arange(count))
    new, known = ([seconds(np.arange(count)) for count in range(121, 151)] for _ in range(2))
    assert not cuda_checks.slow_when_new(new, known), (new, known)


def test_advice_about_memory_that_does_not_help_is_noticed():
    def with_room_for(most: int, advised: int) -> Callable[[int | None], bool]:
        def train(limit: int | None) -> bool:
            if limit is None or limit > most:
                advice = f"give --set train.device_batch_tokens={advised}"
                raise MtkitError(f"it does not fit in memory, {advice}")
            return True

        return train

    cuda_checks.assert_advice_helps(with_room_for(100, 90))
    with pytest.raises(MtkitError, match="does not fit"):
        cuda_checks.assert_advice_helps(with_room_for(100, 110))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        cuda_checks.assert_advice_helps(lambda _: True)


@pytest.fixture
def little_memory(gpu) -> Iterator[Callable[[], None]]:
    """A function that leaves 300 MB of the GPU free for this process."""

    def limit() -> None:
        gc.collect()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(gpu).total_memory
        room = torch.cuda.memory_reserved() + 300 * 2**20
        torch.cuda.set_per_process_memory_fraction(room / total)

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.fixture
def large(config) -> Config:
    """Few parameters and many activations: some 1.5 GB for all pairs, and 8 MB for one of them."""
    config = changed(config, "model", d_model=32, d_ff=16_384, dropout=0.0)
    tokens = {"batch_tokens": 200_000, "device_batch_tokens": 200_000, "batches_per_update": 1}
    return changed(config, "train", **tokens, max_steps=2, precision="fp32", compile=False)


@needs_gpu
def test_the_advice_to_a_training_short_of_memory_helps(large, tiny_data, tmp_path, little_memory):
    def train_with(limit: int | None) -> bool:
        given = changed(large, "train", device_batch_tokens=limit or 200_000)
        return train.run(given, tiny_data, tmp_path / f"{limit}", device="cuda")

    little_memory()
    cuda_checks.assert_advice_helps(train_with)


@needs_gpu
def test_an_update_for_which_memory_runs_out_is_computed_in_halves(
    gpu, large, tiny_data, little_memory, caplog
):
    update = [np.arange(len(tiny_data.pairs("train")))]
    whole = Trainer(large, tiny_data, device=gpu).update(update).translation.item()
    assert not caplog.messages
    little_memory()
    halves = Trainer(large, tiny_data, device=gpu).update(update).translation.item()
    assert caplog.messages[0] == "step 1: out of memory; trying again in 2 passes"
    assert halves == pytest.approx(whole, rel=1e-5)
