"""A GPU computes what a CPU does. Every comparison runs with a CPU in the GPU's place too.

What it is compared with is the CPU in float64, or another way of computing on the same device.
`pytest -m gpu` runs the comparisons of the GPU.
"""

from collections.abc import Iterable, Sequence
from functools import partialmethod

import numpy as np
import pytest
import torch
from conftest import CPU, changed, slow
from support.nearness import EXACT, ROUGH, assert_near, error_of, float64, in_tf32
from support.training import gradients_of
from torch import Tensor, nn

from mtkit.base.devices import arithmetic
from mtkit.batches import make_batch
from mtkit.config import Config, DecodeConfig
from mtkit.data import IntArray, PreparedData
from mtkit.model import Transformer
from mtkit.train.trainer import Trainer
from mtkit.translate import Translation, Translator

# Of very different lengths and sizes.
GROUPS = [np.arange(60), np.arange(60, 64), np.arange(64, 100)]
VARIANTS = [
    {},
    {"norm": "pre", "activation": "silu", "positions": "learned", "output_bias": True},
    {"attention_window": 2, "d_k": 24, "d_v": 8, "shared_embedding": False},
]
# A pass for each batch of an update, and all of them in one.
PATHS = ["plain", "packed"]
# What tests of one device prove of a CPU too: this file has the comparison only to check it.
DEVICES = pytest.mark.parametrize(
    "device", [slow("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True
)
LINES = ["one two three", "", "nine", "four five four five one two six zero", "zero", "seven eight"]


@pytest.fixture
def config(config: Config) -> Config:
    """Without dropout, whose random numbers differ; and learning in steps that stay small."""
    config = changed(config, "model", d_model=64, d_ff=128, n_heads=4, dropout=0.0)
    rate = {"schedule": "constant", "learning_rate": 1e-3, "warmup_steps": 2}
    three = {"device_batch_tokens": None, "batches_per_update": 3, "compile": False}
    return changed(config, "train", **three, **rate)


def trainer_in_float64(trainer: Trainer, data: PreparedData) -> Trainer:
    """Another one on the CPU, with the same weights. To be used within `float64`."""
    config = changed(trainer.config, "train", precision="fp32", gpu_path="plain")
    other = Trainer(config, data, device=CPU)
    other.model.load_state_dict(trainer.model.state_dict())
    return other


def logits_of(trainer: Trainer, indices: IntArray) -> Tensor:
    """(N, V), of the tokens that are not padding."""
    batch = make_batch(trainer.pairs, indices).to(trainer.device)
    with torch.no_grad(), arithmetic(trainer.precision, trainer.device):
        logits: Tensor = trainer.model.eval()(batch.src, batch.tgt_in)
    return logits[batch.tgt_out != trainer.tokenizer.pad_id]


def losses_of(trainer: Trainer, updates: Sequence[Sequence[IntArray]]) -> Tensor:
    """The summed loss of each update, while it learns."""
    return torch.stack([trainer.update(update).translation.cpu().double() for update in updates])


@pytest.mark.parametrize("shape", VARIANTS)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("precision", "within"), [("fp32", EXACT), ("bf16", ROUGH)])
def test_logits_and_gradients_are_exact(shape, path, precision, within, device, config, tiny_data):
    config = changed(config, "model", **shape)
    config = changed(config, "train", precision=precision, gpu_path=path)
    trainer = Trainer(config, tiny_data, device=device)
    logits, gradients = logits_of(trainer, GROUPS[2]), gradients_of(trainer, GROUPS)
    with float64():
        wanted = trainer_in_float64(trainer, tiny_data)
        assert error_of(logits, logits_of(wanted, GROUPS[2])) <= within
        # In bf16, a small tensor alone may be further away.
        rough = precision == "bf16"
        assert_near(gradients, gradients_of(wanted, GROUPS), within, whole=rough)


@DEVICES
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("precision", "within"), [("fp32", 1e-4), ("bf16", 1e-2)])
def test_twenty_losses_are_those_of_float64(path, precision, within, device, config, tiny_data):
    config = changed(config, "train", precision=precision, gpu_path=path)
    trainer = Trainer(config, tiny_data, device=device)
    updates = [next(trainer.batches) for _ in range(20)]
    with float64():
        wanted = losses_of(trainer_in_float64(trainer, tiny_data), updates)
    assert losses_of(trainer, updates).tolist() == pytest.approx(wanted.tolist(), rel=within)
    # They learn, or the later losses would say no more than the first.
    assert wanted[-5:].mean() < 0.9 * wanted[:5].mean()


@pytest.mark.parametrize("shape", VARIANTS)
@pytest.mark.parametrize("guided", [0.0, 0.1])
@pytest.mark.usefixtures("in_float64")
def test_one_pass_has_the_gradients_of_batch_after_batch(shape, guided, device, config, linked):
    config = changed(config, "model", **shape)
    config = changed(config, "train", guided_alignment=guided)
    packed, plain = (
        gradients_of(
            Trainer(changed(config, "train", gpu_path=path), linked, device=device), GROUPS
        )
        for path in ("packed", "plain")
    )
    assert_near(packed, plain, 1e-12)


@pytest.mark.parametrize("path", PATHS)
@DEVICES
@pytest.mark.filterwarnings("ignore")  # what PyTorch's compiler says about itself
def test_compiled_layers_have_the_gradients_of_others(path, device, config, tiny_data, monkeypatch):
    if device.type == "cpu":
        # The graphs are those of a GPU. To make code of them would take a minute.
        original = nn.Module.compile
        monkeypatch.setattr(nn.Module, "compile", partialmethod(original, backend="eager"))
    config = changed(config, "train", gpu_path=path)
    both = [changed(config, "train", compile=is_compiled) for is_compiled in (True, False)]
    compiled, eager = (
        gradients_of(Trainer(settings, tiny_data, device=device), GROUPS) for settings in both
    )
    assert_near(compiled, eager, EXACT)


def test_an_update_in_halves_has_equal_gradients(device, config, tiny_data, monkeypatch, caplog):
    config = changed(config, "train", gpu_path="packed")
    whole = gradients_of(Trainer(config, tiny_data, device=device), GROUPS)
    original = Transformer.forward

    def forward(self, src, *given, **options):
        if src.numel() > 300:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, src, *given, **options)

    monkeypatch.setattr(Transformer, "forward", forward)
    assert_near(gradients_of(Trainer(config, tiny_data, device=device), GROUPS), whole, EXACT)
    assert caplog.messages
    assert all(line.startswith("step 1: out of memory; trying") for line in caplog.messages)


def test_products_in_tf32_are_noticed(config, tiny_data):
    trainer = Trainer(config, tiny_data, device=CPU)
    exact, exact_gradients = logits_of(trainer, GROUPS[2]), gradients_of(trainer, GROUPS)
    trainer.model.zero_grad()
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.copy_(in_tf32(parameter))
    assert error_of(logits_of(trainer, GROUPS[2]), exact) > EXACT
    with pytest.raises(AssertionError, match=r"relative errors above 2e-05: \{'embedding"):
        assert_near(gradients_of(trainer, GROUPS), exact_gradients, EXACT)
    with pytest.raises(AssertionError, match="relative errors"):
        assert_near({"x": torch.full((1,), torch.nan)}, {"x": torch.ones(1)}, ROUGH)


def test_dropout_is_decided_by_seed_and_step(device, config, tiny_data):
    dropping = changed(config, "model", dropout=0.3, attention_dropout=0.1)
    other_seed = changed(dropping, "train", seed=2)
    losses = []
    for settings in (dropping, dropping, other_seed, config):
        trainer = Trainer(settings, tiny_data, device=device)
        # The seed decides the initial weights too.
        torch.manual_seed(1)
        trainer.model.reset_parameters()
        losses.append(trainer.update(GROUPS).translation.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    for other in losses[2:]:
        assert other != pytest.approx(losses[0], rel=1e-4)


@DEVICES
def test_a_run_that_is_resumed_continues_as_one_that_was_not(device, trainings):
    trainings.change("model", dropout=0.1)
    trainings.run("whole", device=device.type)
    for steps in (3, 6):
        trainings.run("parts", device=device.type, max_steps=steps)
    assert trainings.steps("parts") == [3, 6]
    # On a GPU the order of sums is not fixed.
    for key in ("loss", "valid_loss"):
        whole, parts = (trainings.values(name, key) for name in ("whole", "parts"))
        assert parts == pytest.approx(whole, rel=1e-4)


@DEVICES
def test_a_run_of_a_device_is_continued_and_used_on_a_cpu(device, trainings):
    trainings.run("run", device=device.type, max_steps=3)
    trainings.run("run", device="cpu", max_steps=6)
    trainings.run("whole", device="cpu")
    whole, run = (trainings.values(name, "loss") for name in ("whole", "run"))
    assert run == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize("path", ["plain", "device"])
@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 4},
        {"beam_size": 4, "no_repeat_ngram": 2, "min_length": 4, "length_penalty": 1.0},
        {"sample": True, "top_k": 20, "seed": 3},
    ],
)
def test_translations_are_those_of_the_host_of_a_cpu(settings, path, device, untrained):
    gpu, cpu = (
        Translator.load(
            untrained,
            config=DecodeConfig(max_extra_length=4, gpu_path=searched, **settings),
            device=name,
        )
        for name, searched in ((device.type, path), ("cpu", "plain"))
    )
    for n_best, prefixes in ((1, None), (3, None), (1, ["drei"] * len(LINES))):
        given = {"n_best": n_best, "prefixes": prefixes}
        nbests = (translator.translate_nbest(LINES, **given) for translator in (gpu, cpu))
        for ours, theirs in zip(*nbests, strict=True):
            assert_same_translations(ours, theirs)


def assert_same_translations(ours: Iterable[Translation], theirs: Iterable[Translation]) -> None:
    """Texts are the same, and scores to the last digits of float32."""
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.text == other.text
        assert numbers_of(mine) == pytest.approx(numbers_of(other), rel=1e-5, abs=1e-5)


def numbers_of(translation: Translation) -> list[float]:
    return [translation.score, translation.log_prob, *translation.log_probs]


def test_the_best_scores_in_bf16_are_near_those_of_float32(device, untrained):
    # The texts may differ: many of random weights are about as probable.
    scores = []
    for precision, name in (("bf16", device.type), ("fp32", "cpu")):
        config = DecodeConfig(max_extra_length=4, precision=precision)
        translator = Translator.load(untrained, config=config, device=name)
        scores.append([best.score for (best,) in translator.translate_nbest(LINES, n_best=1)])
    assert scores[0] == pytest.approx(scores[1], rel=ROUGH)


def test_given_translations_and_their_alignments_are_those_of_a_cpu(device, untrained):
    sources = ["one two three", "nine", "zero one"]
    targets = ["drei zwei eins", "neun neun", "null"]
    gpu, cpu = (Translator.load(untrained, device=name) for name in (device.type, "cpu"))
    assert_same_translations(gpu.score_given(sources, targets), cpu.score_given(sources, targets))
    assert list(gpu.align(sources, targets)) == list(cpu.align(sources, targets))
