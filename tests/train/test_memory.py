"""The memory of a training, by the shapes of its tensors, against the tensors of a training."""

import pytest
from conftest import CPU, changed

from mtkit.base import devices
from mtkit.base.errors import MtkitError
from mtkit.config import Config, load_config
from mtkit.run_folder import Run
from mtkit.run_manifest import DataOrigin, RunManifest
from mtkit.train import dry_run, start
from mtkit.train.memory import memory_forecast, sizes_of
from mtkit.train.trainer import Trainer


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"freeze": ("embedding",)},
        {"freeze": ("embedding",), "lora_rank": 2},
        {"lora_rank": 2},
        {"freeze": ("encoder",), "ema": 0.9},
    ],
)
def test_the_forecast_has_the_sizes_of_the_tensors_of_a_training(settings, config, tiny_data):
    config = changed(config, "train", precision="fp32", **settings)
    trainer = Trainer(config, tiny_data, device=CPU)
    memory = memory_forecast(config, sizes_of(tiny_data), "cpu")
    sizes: dict[str, int] = {}
    step = trainer.optimizer.step

    def measured(*given):
        # When gradients are there; LoRA's own are small, and do not count.
        grads = [p.grad for p in trainer.model.parameters() if p.grad is not None]
        sizes["gradients"] = sum(grad.nbytes for grad in grads)
        return step(*given)

    trainer.optimizer.step = measured  # type: ignore[method-assign]
    trainer.update(next(iter(trainer.batches)))
    weights, saved = trainer.trained.training_state(trainer.optimizer)
    moments = [t for name, t in saved.items() if not name.endswith(".step")]
    assert memory.weights == sum(tensor.nbytes for tensor in weights.values())
    assert memory.gradients == sizes["gradients"]
    assert memory.optimizer == sum(tensor.nbytes for tensor in moments)
    assert memory.copies == memory.weights + memory.optimizer


def test_a_dry_run_says_the_memory_of_large_models_first(tiny_data, tmp_path, monkeypatch, caplog):
    run = Run.create(
        tmp_path / "run",
        Config(),
        tiny_data.tokenizers(),
        manifest=RunManifest(data=DataOrigin(name="x", src_lang="", tgt_lang="")),
    )
    monkeypatch.setattr(start, "initial_weights", lambda *_: pytest.fail("loaded"))
    monkeypatch.setattr(devices, "total_memory", lambda _: 10**6)
    caplog.set_level("INFO", logger="mtkit")
    tuning = load_config("fine-tune-large")
    with pytest.raises(MtkitError, match=r"needs [\d.]+ GiB .* \(train\.freeze\)$"):
        dry_run.forecast(tuning, tiny_data, device="cpu", init_from=str(run.path))
    assert "memory: about" in caplog.text
    assert "GiB on a GPU" in caplog.text


@pytest.mark.parametrize(
    ("layers", "d_model", "d_ff", "millions"),
    [(12, 1024, 4096, 615), (24, 1024, 8192, 1370), (24, 2048, 8192, 3345)],
)
def test_the_sizes_of_nllb_200_are_known_from_their_shapes(layers, d_model, d_ff, millions):
    """Of 600 million, 1.3 and 3.3 billion weights (Costa-jussà et al. 2022)."""
    tree = {"encoder_layers": layers, "decoder_layers": layers, "d_model": d_model, "d_ff": d_ff}
    tree |= {"n_heads": 16, "norm": "pre"}
    config = changed(load_config("fine-tune-large"), "model", **tree)
    memory = memory_forecast(config, (256_206, None), "cuda")
    assert memory.parameters == pytest.approx(millions * 1e6, rel=1e-3)
    # Weights in float32; gradients and two moments of all but the embedding.
    trained = memory.parameters - 256_206 * d_model
    assert memory.state == 4 * memory.parameters + 12 * trained
    assert memory.peak("cuda") > memory.state
