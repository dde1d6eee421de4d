"""Gradients of an update, however it is divided, and in each precision."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import CPU, changed
from support.training import gradients_of, rows_of

from mtkit import packing
from mtkit.base.compiling import compile_layers
from mtkit.model import EncoderLayer
from mtkit.run_folder import Run
from mtkit.tokenizer import BOS_ID, EOS_ID
from mtkit.train import assembly as train
from mtkit.train.trainer import Trainer


@pytest.mark.usefixtures("in_float64")
def test_the_gradient_is_that_of_the_mean_loss_per_target_token(config, tiny_data):
    trainer = Trainer(changed(config, "model", dropout=0.0), tiny_data, device=CPU)
    model, pairs = trainer.model, tiny_data.pairs("train")
    V = len(trainer.tokenizer)
    # The pairs one by one, unpadded, with PyTorch's own loss.
    total, tokens = torch.zeros(()), 0
    for index in range(12):
        src, tgt = pairs.src[index], pairs.tgt[index]
        logits = model(torch.tensor([src]), torch.tensor([[BOS_ID, *tgt[:-1]]]))[0]
        total = total + F.cross_entropy(
            logits, torch.tensor(tgt), reduction="sum", label_smoothing=0.1 * V / (V - 1)
        )
        tokens += len(tgt)
        assert tgt[-1] == EOS_ID
    expected = torch.autograd.grad(total / tokens, list(model.parameters()))
    gradients = gradients_of(trainer, [np.arange(5), np.arange(5, 12)])
    for (name, gradient), wanted in zip(gradients.items(), expected, strict=True):
        assert torch.allclose(gradient, wanted, rtol=0, atol=1e-12), name


def test_training_in_bf16_learns_as_in_fp32_and_keeps_float32_weights(config, tiny_data, tmp_path):
    config = changed(config, "train", max_steps=12, log_every=12, learning_rate_scale=0.1)
    for precision in ("fp32", "bf16"):
        part = changed(config, "train", precision=precision)
        train.run(part, tiny_data, tmp_path / precision, device="cpu")
    ((_, exact),) = rows_of(tmp_path / "fp32", "loss")
    ((_, rough),) = rows_of(tmp_path / "bf16", "loss")
    assert rough != exact
    # bfloat16 has eight bits; the loss is a mean over some thousand tokens.
    assert rough == pytest.approx(exact, rel=5e-3)
    saved = Run.open(tmp_path / "bf16").checkpoints()[-1]
    for tensors in (saved.load_weights(), saved.load_optimizer()):
        assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}


def compile_as_on_a_gpu(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mtkit.attention.is_fused_attention_slow", lambda q, k: False)
    patch.setattr("mtkit.packing._attend_each", packing._attend_each)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what PyTorch's compiler says about itself
@pytest.mark.parametrize("path", ["plain", "packed"])
def test_compiled_layers_train_what_plain_ones_train(path, config, tiny_data, monkeypatch):
    torch.compiler.reset()
    if path == "packed":
        compile_as_on_a_gpu(monkeypatch)
    config = changed(changed(config, "model", dropout=0.0), "train", device_batch_tokens=None)
    config = changed(config, "train", gpu_path=path)
    plain, compiled = (
        Trainer(changed(config, "train", compile=wanted), tiny_data, device=CPU)
        for wanted in (False, True)
    )
    for _ in range(2):
        # Of two shapes.
        update = next(plain.batches)
        assert compiled.update(update).translation.item() == pytest.approx(
            plain.update(update).translation.item(), rel=1e-4
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what PyTorch's compiler says about itself
def test_a_compiled_layer_needs_no_new_code_for_other_packed_batches(config, monkeypatch):
    torch.compiler.reset()
    compile_as_on_a_gpu(monkeypatch)
    packing.leave_uncompiled()
    layer, frames = EncoderLayer(config.model), []
    compile_layers([layer])
    for shapes in ([(2, 3), (3, 4)], [(2, 4), (4, 5), (2, 6)], [(3, 4)]):
        rows = sum(B * S for B, S in shapes)
        # Where S is odd there is no padding.
        masks = [None if S % 2 else torch.ones(B, 1, 1, S, dtype=torch.bool) for B, S in shapes]
        blocks = packing.Blocks(
            tuple(shapes), tuple(shapes), masks, torch.zeros(rows, dtype=torch.int64)
        )
        layer(torch.randn(1, rows, config.model.d_model), blocks).sum().backward()
        frames.append(torch._dynamo.utils.counters["frames"]["total"])
    assert frames == 3 * frames[:1]
