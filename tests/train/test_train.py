"""Updates, validation and metrics: the paper's numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import changed, number_pairs, write_pairs
from support.training import assert_same_state, before_update, gradients_of, kill, rows_of
from torch import Tensor

from mtkit.batches import TokenBatches, split
from mtkit.config import Config, load_config
from mtkit.data import PreparedData
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.train import assembly as train
from mtkit.train import dry_run
from mtkit.train.flops import training_flops
from mtkit.train.gradients import Losses
from mtkit.train.progress import clock
from mtkit.train.schedule import learning_rate
from mtkit.train.trainer import Trainer
from mtkit.translate import Translation, Translator

CPU = torch.device("cpu")


@pytest.fixture
def config(training_config: Config) -> Config:
    return training_config


# ---------------------------------------------------------------------------------------------
# The update


@pytest.mark.usefixtures("in_float64")
def test_micro_batches_give_the_gradient_of_one_big_batch(config: Config, tiny_data: PreparedData):
    trainer = Trainer(changed(config, "model", dropout=0.0), tiny_data, device=CPU)
    pairs = np.arange(30)
    big = gradients_of(trainer, [pairs])
    # Of very different sizes, so that a mean of means would show.
    small = gradients_of(trainer, [pairs[:3], pairs[3:5], pairs[5:]])
    for name, gradient in big.items():
        assert gradient.abs().max() > 0
        assert torch.allclose(small[name], gradient, rtol=0, atol=1e-12), name


@pytest.mark.usefixtures("in_float64")
def test_the_gradient_is_that_of_the_mean_loss_per_target_token(
    config: Config, tiny_data: PreparedData
):
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
    found = gradients_of(trainer, [np.arange(5), np.arange(5, 12)])
    for (name, gradient), wanted in zip(found.items(), expected, strict=True):
        assert torch.allclose(gradient, wanted, rtol=0, atol=1e-12), name


@pytest.mark.usefixtures("in_float64")
def test_an_update_is_adams_as_the_formula_gives_it(config: Config, tiny_data: PreparedData):
    trainer = Trainer(config, tiny_data, device=CPU)
    parameter = trainer.model.embedding.weight
    beta1, beta2, epsilon = 0.9, 0.98, 1e-9
    expected = parameter.detach().clone()
    m, v = torch.zeros_like(expected), torch.zeros_like(expected)
    original = trainer.optimizer.step
    for step in (1, 2, 3):
        gradients = []

        def take_and_step(*arguments: Any, gradients: list[Tensor] = gradients) -> Any:
            assert parameter.grad is not None
            gradients.append(parameter.grad.clone())
            return original(*arguments)

        trainer.optimizer.step = take_and_step  # type: ignore[method-assign]
        trainer.update([np.arange(step, step + 9)])
        (g,) = gradients
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        rate = 16**-0.5 * min(step**-0.5, step * 4**-1.5)
        m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
        expected = expected - rate * m_hat / (v_hat.sqrt() + epsilon)
        assert torch.allclose(parameter, expected, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def more_data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Enough pairs for full batches: 600, each different from the others."""
    from mtkit.prepare import prepare_files

    folder = tmp_path_factory.mktemp("more")
    prepare_files(
        "more",
        folder / "more",
        src_lang="en",
        tgt_lang="de",
        train=[write_pairs(folder, "train", number_pairs(600, seed=1))],
        valid=write_pairs(folder, "valid", number_pairs(20, seed=2)),
        vocab_size=300,
    )
    return PreparedData.open(folder / "more")


@pytest.mark.parametrize("groups", [1, 3, 8])
@pytest.mark.parametrize("fits", [None, 199, 80])
def test_an_update_has_the_same_pairs_for_any_micro_batch_size(
    groups: int, fits: int | None, config: Config, more_data: PreparedData
):
    settings = {"batch_tokens": 200, "batches_per_update": groups}
    plain = Trainer(
        changed(config, "train", **settings, device_batch_tokens=None), more_data, device=CPU
    )
    trainer = Trainer(
        changed(config, "train", **settings, device_batch_tokens=fits), more_data, device=CPU
    )
    pairs = more_data.pairs("train")
    longest = np.maximum(pairs.src.lengths, pairs.tgt.lengths)
    # As many groups as asked for, but each must hold the longest pair.
    assert trainer.batches.per_update == min(groups, 200 // longest.max())
    tokens = filled = 0
    for _ in range(50):
        update = next(trainer.batches)
        assert len(update) == trainer.batches.per_update
        assert [b.tolist() for b in update] == [b.tolist() for b in next(plain.batches)]
        slots = [len(batch) * longest[batch].max() for batch in update]
        assert sum(slots) <= 200
        for part in split(update, trainer.micro_batches.per_batch):
            assert len(part) * longest[part].max(initial=0) <= (fits or 200)
        filled += sum(slots)
        tokens += sum(longest[batch].sum() for batch in update)
    # Hardly any padding. Five batches of 40 slots and pairs of up to 35 tokens leave a quarter of
    # the budget empty; realistic sizes are tested with the batches.
    assert tokens >= 0.97 * filled
    assert filled >= 0.7 * 50 * 200


def test_batches_are_of_the_kind_that_the_configuration_names(
    config: Config, tiny_data: PreparedData
):
    pairs = tiny_data.pairs("train")
    longest = np.maximum(pairs.src.lengths, pairs.tgt.lengths)
    approximate = changed(config, "train", batching="approximate", batches_per_update=2)
    trainer = Trainer(approximate, tiny_data, device=CPU)
    expected = TokenBatches(
        pairs, budget=100, per_update=2, seed=config.train.seed, batching="approximate"
    )
    for _ in range(20):
        update = next(trainer.batches)
        assert [b.tolist() for b in update] == [b.tolist() for b in next(expected)]
        for batch in update:
            # From 8 to 20 a range is one length, and above it two or three.
            assert longest[batch].max() - longest[batch].min() <= (
                7 if longest[batch].max() < 8 else 3
            )
    assert math.isfinite(trainer.update(next(trainer.batches)).translation)


# ---------------------------------------------------------------------------------------------
# Metrics and validation


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    # Sums in float32, in another order; bfloat16 has eight bits.
    [("fp32", 1e-5), ("bf16", 5e-3)],
)
def test_validation_is_the_unsmoothed_loss_of_the_pairs_one_by_one(
    precision: str,
    tolerance: float,
    tiny_config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
):
    config = changed(tiny_config, "train", precision=precision)
    train.run(config, tiny_data, tmp_path / "run", device="cpu")
    run = Run.open(tmp_path / "run")
    (row,) = [row for row in run.metrics() if "valid_loss" in row]
    tokenizer, _ = run.tokenizers()
    model = Transformer(config.model, len(tokenizer), PAD_ID).eval()
    model.load_state_dict(run.checkpoints()[-1].load_weights())
    src, tgt = tiny_data.text("valid")
    total, tokens = 0.0, 0
    for source, target in zip(src, tgt, strict=True):
        truth = [*tokenizer.encode(target), EOS_ID]
        with torch.no_grad():
            logits = model(
                torch.tensor([[*tokenizer.encode(source), EOS_ID]]),
                torch.tensor([[BOS_ID, *truth[:-1]]]),
            )
        log_probs = logits[0].log_softmax(-1)
        total -= sum(log_probs[place, token].item() for place, token in enumerate(truth))
        tokens += len(truth)
    assert row["valid_loss"] == pytest.approx(total / tokens, rel=tolerance)
    perplexity = math.exp(total / tokens)
    assert row["valid_perplexity"] == pytest.approx(perplexity, rel=10 * tolerance)


def test_tokenised_validation_text_is_pointed_out_once_in_a_run(
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
):
    src, tgt = tiny_data.text("valid")
    tokenised = [f"{line} ." for line in tgt] * (100 // len(tgt) + 1)
    text = [*src] * (100 // len(tgt) + 1), tokenised
    monkeypatch.setattr(PreparedData, "text", lambda *_: text)
    # Translations that sacreBLEU would warn of.
    ends = [Translation(line, 0.0, 0.0) for line in tokenised]
    monkeypatch.setattr("mtkit.train.validation.Validator._translate", lambda *_: ends)
    train.run(config, tiny_data, tmp_path / "run", device="cpu")
    assert len([row for row in Run.open(tmp_path / "run").metrics() if "valid_bleu" in row]) > 1
    (message,) = [line for line in caplog.messages if "tokenised" in line]
    assert message.startswith("the validation text looks tokenised: ")
    assert "tokenized" not in capfd.readouterr().err


def test_a_validation_translates_in_float32_on_a_cpu(config: Config, tiny_data: PreparedData):
    trainer = Trainer(changed(config, "train", precision="bf16"), tiny_data, device=CPU)
    trainer.update(next(trainer.batches))
    found = trainer.validate().translations
    src, tgt = tiny_data.tokenizers()
    translator = Translator(
        trainer.model.eval(), tgt, config.decode.greedy(), device=CPU, src_tokenizer=src
    )
    wanted = translator.translate_nbest(tiny_data.text("valid")[0], n_best=1)
    for mine, (theirs,) in zip(found, wanted, strict=True):
        assert mine.text == theirs.text
        # In bf16 the difference would be about 1e-3.
        assert mine.log_prob == pytest.approx(theirs.log_prob, rel=1e-6)


def test_validating_changes_nothing(config: Config, tiny_data: PreparedData, tmp_path: Path):
    often = changed(config, "train", valid_every=1)
    train.run(config, tiny_data, tmp_path / "seldom", device="cpu")
    train.run(often, tiny_data, tmp_path / "often", device="cpu")
    assert_same_state(tmp_path / "seldom", tmp_path / "often")


@pytest.mark.parametrize("error", [MemoryError(), ImportError("failed to map a segment")])
def test_a_page_that_cannot_be_drawn_does_not_end_training(
    error: Exception,
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    def fail(_: object) -> str:
        raise error

    monkeypatch.setattr("mtkit.train.metrics.run_page", fail)
    assert train.run(config, tiny_data, tmp_path / "run", device="cpu")
    assert Run.open(tmp_path / "run").checkpoints()[-1].step == config.train.max_steps
    (warning,) = [line for line in caplog.messages if "will have gaps" in line]
    assert warning.startswith(str(error) or "out of memory")


def test_metrics_have_the_keys_that_are_promised(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    train.run(config, tiny_data, tmp_path / "run", device="cpu")
    text = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    training = [row for row in rows if "loss" in row]
    validation = [row for row in rows if "valid_loss" in row]
    assert len(training) + len(validation) == len(rows)
    assert [row["step"] for row in training] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in validation] == [3, 6]
    for row in training:
        assert {"step", "loss", "lr", "tokens_per_second"} <= row.keys()
        assert row["lr"] == pytest.approx(learning_rate(row["step"], 16, 4), rel=1e-12)
        assert row["tokens_per_second"] > 0
        assert 0 < row["loss"] < 20
    for row in validation:
        assert {"step", "valid_loss", "valid_perplexity", "valid_bleu"} <= row.keys()
        assert row["valid_perplexity"] == pytest.approx(math.exp(row["valid_loss"]), rel=1e-9)


def test_a_logged_loss_is_the_mean_per_token_since_the_row_before(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen: list[tuple[float, int]] = []
    original = Trainer.update

    def update(self: Trainer, batches: Any, *rest: Any) -> Losses:
        losses = original(self, batches, *rest)
        tokens = self.pairs.tgt.lengths[np.concatenate(batches)].sum()
        seen.append((losses.translation.item(), int(tokens)))
        return losses

    monkeypatch.setattr(Trainer, "update", update)
    seldom = changed(config, "train", log_every=4)
    train.run(seldom, tiny_data, tmp_path / "run", device="cpu")
    expected = [
        (step, sum(loss for loss, _ in part) / sum(count for _, count in part))
        for step, part in ((4, seen[:4]), (6, seen[4:]))
    ]
    found = rows_of(tmp_path / "run", "loss")
    assert [step for step, _ in found] == [4, 6]
    for (_, value), (_, wanted) in zip(found, expected, strict=True):
        assert value == pytest.approx(wanted, rel=1e-6)


def test_a_run_counts_every_token_of_every_epoch_and_what_it_cost(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    pairs = tiny_data.pairs("train")
    settings = {"batch_tokens": 10_000, "device_batch_tokens": 10_000, "batches_per_update": 1}
    whole = changed(config, "train", **settings, max_steps=3)
    train.run(whole, tiny_data, tmp_path / "run", device="cpu")
    # One batch holds the corpus, so three updates are three epochs.
    tokens = dict(rows_of(tmp_path / "run", "tokens"))
    assert tokens[3] == 3 * pairs.tgt.lengths.sum()
    cost = training_flops(
        config.model, len(tiny_data.tokenizers()[1]), pairs.src.lengths, pairs.tgt.lengths
    )
    assert dict(rows_of(tmp_path / "run", "flops"))[3] == pytest.approx(3 * cost)


def test_the_papers_estimate_stands_beside_the_count_where_the_hardware_is_known(
    config: Config, tiny_data: PreparedData
):
    assert "as the paper estimates it" not in dry_run.forecast(config, tiny_data, device="cpu")
    known = changed(config, "train", sustained_flops=9.5e12)
    text = dry_run.forecast(known, tiny_data, device="cpu")
    assert "as the paper estimates it, time times 9.5e+12 a second" in text


def test_a_shape_can_be_looked_at_before_there_is_data():
    text = dry_run.forecast_without_data(load_config("base"))
    assert "# parameters: 63,082,496 (" in text
    assert "# cost: 9.52e+17" in text


def test_a_forecast_says_how_high_the_rate_will_be_and_warns_if_that_is_unusual(
    config: Config, tiny_data: PreparedData, caplog: pytest.LogCaptureFixture
):
    # 512^-½ · 4000^-½ = 6.99e-4, the paper's.
    text = dry_run.forecast_without_data(load_config("base"))
    assert "# learning rate: peak 7.0e-04 at update 4,000\n" in text
    falling = load_config("base", ["train.decay_steps=20000"])
    assert "; linear decay to zero over the last 20,000 updates\n" in dry_run.forecast_without_data(
        falling
    )
    assert not caplog.records
    # 16^-½ · 4^-½ = 0.125, √1000 = 32 times 16^-½ · 4000^-½.
    text = dry_run.forecast(config, tiny_data, device="cpu")
    assert "# learning rate: peak 1.2e-01 at update 4, 32 times the paper's" in text
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the learning rate will rise to 1.2e-01 at update 4, 32 times" in record.message
    assert "lower train.learning_rate_scale or raise train.warmup_steps" in record.message
    # Six updates of such a warm-up never come near the paper's peak.
    slow = changed(config, "train", warmup_steps=4000, decay_steps=3)
    caplog.clear()
    dry_run.forecast(slow, tiny_data, device="cpu")
    (record,) = caplog.records
    assert "training ends in the warm-up of the learning rate" in record.message


def test_a_rate_that_is_too_high_is_reported_before_the_first_update(
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    before_update(monkeypatch, 1, kill)
    with pytest.raises(KeyboardInterrupt):
        train.run(config, tiny_data, tmp_path / "high", device="cpu")
    assert "the learning rate will rise to 1.2e-01 at update 4, 32 times" in caplog.text
    caplog.clear()
    paper = changed(config, "train", warmup_steps=4000, max_steps=4000)
    with pytest.raises(KeyboardInterrupt):
        train.run(paper, tiny_data, tmp_path / "paper", device="cpu")
    assert "learning rate" not in caplog.text


def test_a_forecast_is_a_configuration_with_comments(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    text = dry_run.forecast(config, tiny_data, device="cpu")
    file = tmp_path / "resolved.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_config(str(file)) == config
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("#"))
    # The forecast is the end.
    assert all(line.startswith("# ") for line in lines[first:])
    comments = "".join(lines[first:])
    for word in ("parameters", "memory", "target tokens/s", "micro-batches"):
        assert word in comments


def test_a_forecast_says_how_far_its_timed_updates_differ(
    config: Config, tiny_data: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    # The first update is slower and does not count.
    monkeypatch.setattr(dry_run, "_measured_speeds", lambda _: ([10.0, 20.0, 20.0, 40.0], 2))
    text = dry_run.forecast(config, tiny_data, device="cpu")
    # The mean time of a token is (1/10 + 1/20 + 1/20 + 1/40) / 4 = 0.225 / 4.
    assert "# speed: 18 target tokens/s over 2 batches (10 to 40 in 4 updates)\n" in text
    epoch = tiny_data.pairs("train").epoch_tokens()
    updates = Trainer(config, tiny_data, device=torch.device("cpu")).batches.updates_in_epoch
    tokens = epoch * 6 / updates
    times = [clock(tokens / speed) for speed in (4 / 0.225, 40, 10)]
    assert f"# time: {times[0]} ({times[1]} to {times[2]} at these speeds) for" in text
    monkeypatch.setattr(dry_run, "_measured_speeds", lambda _: ([10.0], 1))
    text = dry_run.forecast(config, tiny_data, device="cpu")
    assert "over 1 batch (one update)" in text
    assert "(a rough guess)" in text


# ---------------------------------------------------------------------------------------------
# Precision and speed


def test_training_in_bf16_learns_as_in_fp32_and_keeps_float32_weights(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what PyTorch's compiler says about itself
def test_compiled_layers_train_what_plain_ones_train(config: Config, tiny_data: PreparedData):
    config = changed(changed(config, "model", dropout=0.0), "train", device_batch_tokens=None)
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
