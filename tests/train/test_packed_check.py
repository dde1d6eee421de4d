"""Before the first update, a packed pass is compared with its batches one by one."""

import pytest
import torch
from conftest import CPU, changed

from mtkit import packing
from mtkit.config import Config
from mtkit.data import PreparedData
from mtkit.train import gradients
from mtkit.train.distributed import Workers
from mtkit.train.gradients import Gradients
from mtkit.train.micro_batches import padded_tokens
from mtkit.train.packed_check import _some_batches, use_plain_if_packed_differs
from mtkit.train.trainer import Trainer


def on_pretended_gpu(config: Config, data: PreparedData) -> Trainer:
    """A trainer that chooses as on a GPU, and computes on the CPU."""
    trainer = Trainer(changed(config, "train", gpu_path="auto"), data, device=CPU)
    trainer.micro_batches.device_type = "cuda"
    return trainer


def test_equal_results_leave_passes_packed_and_weights_as_they_are(config, tiny_data, caplog):
    trainer = on_pretended_gpu(config, tiny_data)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    use_plain_if_packed_differs(trainer._gradients)
    assert trainer.micro_batches.packed
    assert not caplog.text
    assert all(p.grad is None for p in trainer.model.parameters())
    torch.testing.assert_close([*trainer.model.parameters()], before, rtol=0, atol=0)


def unmasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_mask", lambda visible, dtype: None)


def in_wrong_order(monkeypatch: pytest.MonkeyPatch) -> None:
    original = packing.each_batch

    def turned(mask, *qkv):
        return original(mask, *qkv)[::-1]

    monkeypatch.setattr(packing, "each_batch", turned)


def not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Gradients._loss

    def loss(self, model, batch, **how):
        right = original(self, model, batch, **how)
        return right * float("nan") if batch.packing.src else right

    monkeypatch.setattr(Gradients, "_loss", loss)


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_, **__):
        raise RuntimeError("no kernel image is available\nfor execution on the device")

    monkeypatch.setattr(gradients, "pack_batches", fail)


@pytest.mark.parametrize("fault", [unmasked, in_wrong_order, not_a_number, failing])
def test_other_results_warn_and_go_back_to_batches(fault, config, tiny_data, monkeypatch, caplog):
    trainer = on_pretended_gpu(config, tiny_data)
    fault(monkeypatch)
    trainer.check_memory()
    assert not trainer.micro_batches.packed
    (record,) = caplog.records
    assert record.getMessage().startswith("train.gpu_path: on this GPU a packed pass ")
    assert "\n" not in record.getMessage()
    trainer.update(next(trainer.batches))


def test_a_worker_whose_packed_pass_fails_leaves_no_other_waiting(config, tiny_data, monkeypatch):
    trainer = on_pretended_gpu(config, tiny_data)
    failing(monkeypatch)
    asked: list[object] = []

    class Others(Workers):
        """Counts what needs the other workers."""

        def any(self, flag):
            asked.append(flag)
            return flag

        def no_sync(self, parallel):
            raise AssertionError("gradients are not to be shared")

        waiting = no_sync  # type: ignore[assignment]

    trainer._gradients.workers = Others(1, 2)
    use_plain_if_packed_differs(trainer._gradients)
    # Once, also by a worker that fails.
    assert asked == [True]


def test_the_pairs_that_are_compared_fit_a_device(config: Config, tiny_data: PreparedData):
    trainer = on_pretended_gpu(changed(config, "train", device_batch_tokens=40), tiny_data)
    some = _some_batches(trainer._gradients)
    assert len(some) == 2
    assert sum(padded_tokens(*part) for part in some) <= 40
