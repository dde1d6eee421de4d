"""What an update asks of a GPU, counted without one: kernels, casts, waits and copies."""

from collections import Counter
from typing import Any

import pytest
import torch
from conftest import changed, slow
from support.counted import GPU, Counts, pretended_gpu

from mtkit import batches
from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.model import Transformer
from mtkit.tokenizer import PAD_ID
from mtkit.train.trainer import Trainer

# The batches of an update that is compared with one of `FEW` of them.
MANY, FEW = 6, 2
# What each batch may cost besides attention, for its mask: compare, fill, negate, fill again.
MASK = 4

VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {"precision": "fp32"},
    "bf16": {},
    "Muon": {"optimizer": "muon"},
    "Muon in float32": {"optimizer": "muon", "precision": "fp32"},
    "learned positions": {"positions": "learned"},
    "window": {"attention_window": 2},
    "norm first": {"norm": "pre"},
    "SiLU": {"activation": "silu"},
    "dropout of attention": {"attention_dropout": 0.1},
    "dropout of activations": {"activation_dropout": 0.1},
    "BPE-dropout": {"bpe_dropout": 0.1},
    "moving average": {"ema": 0.999},
    "freeze": {"freeze": ["embedding", "encoder.0"]},
    "LoRA": {"lora_rank": 2},
    "other head widths": {"d_k": 8, "d_v": 24},
    "output bias": {"output_bias": True},
    "guided alignment": {"guided_alignment": 0.1},
}
# The others are left to `make test-slow`.
FIRST = ("bf16", "Muon in float32", "window", "BPE-dropout", "LoRA", "guided alignment")
# What is made for each batch anew, besides the mask: the bands of three layers, forwards only; and
# of the guided head the product, softmax and loss, forwards and backwards.
ALSO = {"window": 3 * 12, "guided alignment": 40}


def of_gpu(config: Config, **settings: Any) -> Config:
    """Updates of `MANY` batches in bfloat16, all on the device at a time, with other settings."""
    given = {"decoder_layers": 2, "batch_tokens": 600, "batches_per_update": MANY}
    # Not compiled: what a real GPU of this machine could do does not matter.
    given |= {"device_batch_tokens": None, "precision": "bf16", "compile": False} | settings
    for section in ("model", "train"):
        names = type(getattr(config, section)).model_fields.keys() & given.keys()
        config = changed(config, section, **{name: given[name] for name in names})
    return config


def counted(config: Config, data: PreparedData) -> tuple[Counts, Counts]:
    """What updates of `FEW` and of `MANY` batches ask of a GPU, after a first update."""
    with pretended_gpu() as counts:
        trainer = Trainer(config, data, device=GPU)

        def of_update(number: int) -> Counts:
            batches = next(trainer.batches)
            assert len(batches) == MANY
            counts.clear()
            trainer.update(batches[:number])
            return counts.copy()

        of_update(MANY)
        return of_update(FEW), of_update(MANY)


def besides_attention(kernels: Counter[str]) -> int:
    return sum(number for name, number in kernels.items() if not name.startswith("attention"))


def faults(few: Counts, many: Counts, *, also: int = 0) -> dict[str, Counter[str]]:
    """What is wrong with updates of these counts; `also`: kernels that each batch may have."""
    kernels = many.kernels - few.kernels
    if besides_attention(kernels) <= (MANY - FEW) * (MASK + also):
        kernels.clear()
    named = {
        "waits": many.waits,
        "not pinned": many.pageable,
        "casts for each batch": many.casts - few.casts,
        "kernels for each batch": kernels,
    }
    return {name: where for name, where in named.items() if where}


@pytest.mark.parametrize("name", [name if name in FIRST else slow(name) for name in VARIANTS])
def test_an_update_neither_waits_nor_costs_more_for_more_batches(name, config, tiny_data, request):
    guided = name == "guided alignment"
    data = request.getfixturevalue("linked") if guided else tiny_data
    few, many = counted(of_gpu(config, **VARIANTS[name]), data)
    assert not faults(few, many, also=ALSO.get(name, 0))
    # All ids are copied at once; so is what the head should attend to, for each batch.
    assert many.uploads.total() == 1 + MANY * guided


def test_an_update_has_few_kernels_and_casts_for_each_parameter(config, tiny_data):
    config = of_gpu(config)
    _, many = counted(config, tiny_data)
    parameters = len(list(Transformer(config.model, 10, PAD_ID).parameters()))
    # A weight is converted once, and so is its gradient; and some activations.
    assert many.casts.total() <= 2.2 * parameters
    # In the forward pass, in the backward pass, and of the optimizer.
    assert besides_attention(many.kernels) <= 8 * parameters


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.cpu(),
        lambda x: x.tolist(),
        lambda x: torch.empty(3).copy_(x),
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).all()),
        lambda x: x.nonzero(),
        lambda x: x[x > 1],
        lambda x: x.masked_select(x > 1),
        lambda x: x.unique(),
        lambda x: torch.equal(x, x),
        lambda x: x.repeat_interleave(x.long()),
    ],
)
def test_every_way_to_wait_is_counted(wait):
    with pretended_gpu() as counts:
        x = torch.tensor([0.0, 1.0, 2.0]).pin_memory().to(GPU, non_blocking=True)
        assert not counts.waits
        wait(x)
        assert counts.waits


def test_a_copy_of_ordinary_memory_is_counted():
    with pretended_gpu() as counts:
        torch.tensor([1.0], device=GPU)
        assert counts.pageable


def test_batch_by_batch_is_found(config, tiny_data):
    counts = counted(of_gpu(config, gpu_path="plain"), tiny_data)
    assert faults(*counts).keys() == {"casts for each batch", "kernels for each batch"}


def test_a_tensor_that_was_left_on_the_host_is_an_error(config, tiny_data, monkeypatch):
    monkeypatch.setattr(batches, "copied_to", lambda _, ids: ids)
    with pytest.raises(RuntimeError, match="of tensors on the CPU and on the GPU"):
        counted(of_gpu(config), tiny_data)
