"""Training: the paper's numbers, and that stopping changes nothing."""

from __future__ import annotations

import io
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import changed, number_pairs, reseal, write_pairs
from torch import Tensor

from mtkit import checkpoint
from mtkit.batches import TokenBatches, split
from mtkit.config import Config, dump_config, load_config
from mtkit.data import PreparedData
from mtkit.errors import MtkitError
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.train import assembly as train
from mtkit.train import meter, observer, progress
from mtkit.train.flops import training_flops
from mtkit.train.loss import learning_rate
from mtkit.train.metrics import MetricsLogger
from mtkit.train.observer import count_subwords
from mtkit.train.trainer import Trainer
from mtkit.translate import Translator

CPU = torch.device("cpu")


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Everything that resuming must get right: dropout, micro-batches, a row at each step."""
    return changed(
        tiny_config,
        "train",
        max_steps=6,
        batch_tokens=200,
        device_batch_tokens=80,
        log_every=1,
        valid_every=3,
        checkpoint_every=3,
    )


@pytest.fixture
def in_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def rows_of(run: Path, key: str) -> list[tuple[int, float]]:
    return [(row["step"], row[key]) for row in Run.open(run).metrics() if key in row]


def assert_same_state(one: Path, other: Path) -> None:
    """The newest checkpoints of two runs are equal to the last bit."""
    first, second = (Run.open(path).checkpoints()[-1] for path in (one, other))
    assert first.step == second.step
    states = first.load_state(), second.load_state()
    assert states[0]["batches"] == states[1]["batches"]
    for counter in ("tokens", "flops"):
        assert states[0]["cost"][counter] == states[1]["cost"][counter]
    for mine, theirs in (
        (first.load_weights(), second.load_weights()),
        (first.load_optimizer(), second.load_optimizer()),
    ):
        assert mine.keys() == theirs.keys()
        assert mine
        for name, tensor in mine.items():
            assert torch.equal(tensor, theirs[name]), name


# ---------------------------------------------------------------------------------------------
# The update


def gradients_of(trainer: Trainer, groups: list[np.ndarray]) -> dict[str, Tensor]:
    """What one update on these micro-batches hands to the optimizer."""
    found: dict[str, Tensor] = {}

    def take(*_: object) -> None:
        for name, parameter in trainer.model.named_parameters():
            assert parameter.grad is not None
            found[name] = parameter.grad.clone()

    trainer.optimizer.step = take  # type: ignore[method-assign]
    trainer.micro_batches.per_batch = 1
    trainer.update(groups)
    return found


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
    assert math.isfinite(trainer.update(next(trainer.batches)))


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


def test_validating_changes_nothing(config: Config, tiny_data: PreparedData, tmp_path: Path):
    often = changed(config, "train", valid_every=1)
    train.run(config, tiny_data, tmp_path / "seldom", device="cpu")
    train.run(often, tiny_data, tmp_path / "often", device="cpu")
    assert_same_state(tmp_path / "seldom", tmp_path / "often")


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

    def update(self: Trainer, batches: Any) -> Tensor:
        summed = original(self, batches)
        tokens = self.pairs.tgt.lengths[np.concatenate(batches)].sum()
        seen.append((summed.item(), int(tokens)))
        return summed

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
    assert "as the paper estimates it" not in train.forecast(config, tiny_data, device="cpu")
    known = changed(config, "train", sustained_flops=9.5e12)
    text = train.forecast(known, tiny_data, device="cpu")
    assert "as the paper estimates it, time times 9.5e+12 a second" in text


def test_a_shape_can_be_looked_at_before_there_is_data():
    text = train.forecast_without_data(load_config("base"))
    assert "# parameters: 63,082,496 (" in text
    assert "# cost: 9.52e+17" in text


def test_a_forecast_says_how_high_the_rate_will_be_and_warns_if_that_is_too_high(
    config: Config, tiny_data: PreparedData, caplog: pytest.LogCaptureFixture
):
    # 512^-½ · 4000^-½ = 6.99e-4, the paper's.
    text = train.forecast_without_data(load_config("base"))
    assert (
        "# learning rate: peak 7.0e-04 at update 4,000, 1 times the paper's for d_model 512\n"
    ) in text
    falling = load_config("base", ["train.decay_steps=20000"])
    assert "; linear decay to zero over the last 20,000 updates\n" in train.forecast_without_data(
        falling
    )
    assert not caplog.records
    # 16^-½ · 4^-½ = 0.125, √1000 = 32 times 16^-½ · 4000^-½.
    text = train.forecast(config, tiny_data, device="cpu")
    assert "# learning rate: peak 1.2e-01 at update 4, 32 times the paper's" in text
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the learning rate will rise to 1.2e-01 at update 4, 32 times" in record.message
    assert "lower train.learning_rate_scale or raise train.warmup_steps" in record.message
    # Six updates of such a warm-up never come near the paper's peak.
    slow = changed(config, "train", warmup_steps=4000, decay_steps=3)
    caplog.clear()
    train.forecast(slow, tiny_data, device="cpu")
    assert not caplog.records


def test_a_rate_that_is_too_high_is_reported_before_the_first_update(
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    def update(*_: object) -> Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "update", update)
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
    text = train.forecast(config, tiny_data, device="cpu")
    file = tmp_path / "resolved.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_config(str(file)) == config
    comments = "".join(line for line in text.splitlines() if line.startswith("#"))
    for word in ("parameters", "memory", "target tokens/s", "micro-batches"):
        assert word in comments


# ---------------------------------------------------------------------------------------------
# The same, stopped or not


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        train.run(changed(config, "train", seed=seed), tiny_data, tmp_path / name, device="cpu")
    assert_same_state(tmp_path / "one", tmp_path / "two")
    assert rows_of(tmp_path / "one", "loss") == rows_of(tmp_path / "two", "loss")
    with pytest.raises(AssertionError):
        assert_same_state(tmp_path / "one", tmp_path / "three")


@pytest.mark.parametrize(
    ("stops", "precision"), [([3], "fp32"), ([1, 2, 5], "fp32"), ([17], "fp32"), ([1, 5], "bf16")]
)
def test_stopped_and_resumed_is_never_stopped_to_the_last_bit(
    stops: list[int], precision: str, config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "train", precision=precision)
    # 17 is in the second epoch.
    end = max(*stops, 5) + 3
    train.run(changed(config, "train", max_steps=end), tiny_data, tmp_path / "whole", device="cpu")
    for stop in (*stops, end):
        torch.manual_seed(stop)  # another process has another random state
        part = changed(config, "train", max_steps=stop)
        assert train.run(part, tiny_data, tmp_path / "parts", device="cpu")
    assert_same_state(tmp_path / "whole", tmp_path / "parts")
    assert rows_of(tmp_path / "whole", "loss") == rows_of(tmp_path / "parts", "loss")
    whole = dict(rows_of(tmp_path / "whole", "valid_loss"))
    parts = dict(rows_of(tmp_path / "parts", "valid_loss"))
    assert whole.items() <= parts.items()


def test_a_run_with_a_vocabulary_for_each_side_is_resumed_to_the_last_bit(
    config: Config, greek_data: PreparedData, tmp_path: Path
):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train.run(changed(config, "train", max_steps=5), greek_data, whole, device="cpu")
    for stop in (3, 5):
        torch.manual_seed(stop)  # another process has another random state
        assert train.run(changed(config, "train", max_steps=stop), greek_data, parts, device="cpu")
    assert_same_state(whole, parts)
    assert rows_of(whole, "valid_loss")[-1] == rows_of(parts, "valid_loss")[-1]
    assert rows_of(whole, "valid_bleu")[-1] == rows_of(parts, "valid_bleu")[-1]
    # What a validation translates is what the run translates.
    run, (src, _) = Run.open(whole), greek_data.text("valid")
    greedy = run.config.decode.greedy()
    translator = Translator.load(run, checkpoint="last", config=greedy, device="cpu")
    said = {sample["src"]: sample["hyp"] for sample in run.samples()[-1]["samples"]}
    assert said
    assert said.items() <= dict(zip(src, translator.translate(src), strict=True)).items()
    weights = run.checkpoints()[-1].load_weights()
    sizes = [len(tokenizer) for tokenizer in greek_data.tokenizers()]
    assert [len(weights[f"{name}.weight"]) for name in ("src_embedding", "embedding")] == sizes


def test_a_forecast_counts_both_vocabularies(config: Config, greek_data: PreparedData):
    text = train.forecast(config, greek_data, device="cpu")
    assert "# vocabulary: 300 source and 300 target subwords\n" in text
    (total, parts) = re.findall(r"# parameters: ([\d,]+) \((.*)\)", text)[0]
    counts = {part: int(n.replace(",", "")) for part, n in re.findall(r"(\w+) ([\d,]+)", parts)}
    assert counts["embedding"] == counts["src_embedding"] == 300 * config.model.d_model
    assert sum(counts.values()) == int(total.replace(",", ""))


@pytest.mark.parametrize("joint", [True, False])
def test_pieces_that_never_occur_are_counted_in_every_vocabulary(
    joint: bool, tiny_data: PreparedData, greek_data: PreparedData
):
    data = tiny_data if joint else greek_data
    pairs = data.pairs("train")
    seen = [{i for row in range(len(side)) for i in side[row]} for side in (pairs.src, pairs.tgt)]
    if joint:
        seen = [seen[0] | seen[1]]
    # 300 pieces, of which the first 260 are special or bytes.
    expected = sum(len(set(range(260, 300)) - ids) for ids in seen)
    assert expected > 0
    unseen, _ = count_subwords(pairs, data.tokenizers())
    assert unseen == expected


def test_bpe_dropout_is_the_same_after_a_resume(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "train", bpe_dropout=0.3)
    train.run(config, tiny_data, tmp_path / "whole", device="cpu")
    for stop in (2, 6):
        part = changed(config, "train", max_steps=stop)
        assert train.run(part, tiny_data, tmp_path / "parts", device="cpu")
    assert_same_state(tmp_path / "whole", tmp_path / "parts")
    assert rows_of(tmp_path / "whole", "loss") == rows_of(tmp_path / "parts", "loss")


def test_subword_dropout_that_leaves_nothing_out_changes_no_bit(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    for name, probability in (("off", 0.0), ("never", 1e-30), ("often", 0.5)):
        settings = {"bpe_dropout": probability, "device_batch_tokens": None, "max_steps": 3}
        train.run(changed(config, "train", **settings), tiny_data, tmp_path / name, device="cpu")
    assert_same_state(tmp_path / "off", tmp_path / "never")
    assert rows_of(tmp_path / "off", "loss") == rows_of(tmp_path / "never", "loss")
    # More tokens, and training the same model of them.
    tokens = {name: rows_of(tmp_path / name, "tokens")[-1][1] for name in ("off", "often")}
    assert tokens["often"] > 1.1 * tokens["off"]


def test_a_micro_batch_fits_the_device_also_with_bpe_dropout(
    config: Config, tiny_data: PreparedData, monkeypatch: pytest.MonkeyPatch
):
    settings = {"bpe_dropout": 0.9, "device_batch_tokens": 80}
    trainer = Trainer(changed(config, "train", **settings), tiny_data, device=CPU)
    original = Trainer._loss
    seen, kept = [], []

    def look(self: Trainer, model: Any, pairs: Any, indices: Any, **rest: Any) -> Tensor:
        for side, plain in ((pairs.src, self.pairs.src), (pairs.tgt, self.pairs.tgt)):
            seen.append(len(indices) * side.lengths[indices].max())
            kept.append(side is plain)
        return original(self, model, pairs, indices, **rest)

    monkeypatch.setattr(Trainer, "_loss", look)
    trainer.check_memory()
    tried = max(seen)
    for _ in range(10):
        trainer.update(next(trainer.batches))
    assert not any(kept)
    assert max(seen) <= tried <= 80


def test_a_pair_that_could_outgrow_the_device_is_refused(config: Config, tiny_data: PreparedData):
    pairs = tiny_data.pairs("train")
    longest = int(max(pairs.src.lengths.max(), pairs.tgt.lengths.max()))
    settings = {"bpe_dropout": 0.1, "device_batch_tokens": longest + 1, "batch_tokens": 200}
    with pytest.raises(MtkitError, match=r"train\.device_batch_tokens.*train\.bpe_dropout"):
        Trainer(changed(config, "train", **settings), tiny_data, device=CPU)


def test_killed_without_warning_a_run_repeats_the_steps_since_the_last_checkpoint(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    train.run(config, tiny_data, tmp_path / "whole", device="cpu")
    original = Trainer.update

    def killed_at_5(self: Trainer, batches: Any) -> Tensor:
        if self.step == 4:
            raise KeyboardInterrupt
        return original(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", killed_at_5)
        with pytest.raises(KeyboardInterrupt):
            train.run(config, tiny_data, tmp_path / "killed", device="cpu")
    assert [step for step, _ in rows_of(tmp_path / "killed", "loss")] == [1, 2, 3, 4]
    assert train.run(config, tiny_data, tmp_path / "killed", device="cpu")
    assert_same_state(tmp_path / "whole", tmp_path / "killed")
    assert rows_of(tmp_path / "whole", "loss") == rows_of(tmp_path / "killed", "loss")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_step_saves_and_returns_false(
    number: signal.Signals,
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    train.run(config, tiny_data, tmp_path / "whole", device="cpu")
    before = signal.getsignal(number)
    original = Trainer.update

    def interrupted_at_4(self: Trainer, batches: Any) -> Tensor:
        if self.step == 3:
            os.kill(os.getpid(), number)
        return original(self, batches)

    with monkeypatch.context() as patch, caplog.at_level("INFO", logger="mtkit"):
        patch.setattr(Trainer, "update", interrupted_at_4)
        assert not train.run(config, tiny_data, tmp_path / "stopped", device="cpu")
    told = f"saved step 4 in {tmp_path / 'stopped'}; to continue, run the same command, without "
    told += "--restart"
    assert told in caplog.messages
    assert signal.getsignal(number) is before
    assert Run.open(tmp_path / "stopped").checkpoints()[-1].step == 4
    assert train.run(config, tiny_data, tmp_path / "stopped", device="cpu")
    assert_same_state(tmp_path / "whole", tmp_path / "stopped")
    assert rows_of(tmp_path / "whole", "loss") == rows_of(tmp_path / "stopped", "loss")


def test_stopped_while_the_rate_falls_a_run_ends_with_the_weights_of_one_never_stopped(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    falling = changed(config, "train", max_steps=8, decay_steps=6)
    train.run(falling, tiny_data, tmp_path / "whole", device="cpu")
    original = Trainer.update

    def killed_at_6(self: Trainer, batches: Any) -> Tensor:
        if self.step == 5:
            raise KeyboardInterrupt
        return original(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", killed_at_6)
        with pytest.raises(KeyboardInterrupt):
            train.run(falling, tiny_data, tmp_path / "killed", device="cpu")
    assert train.run(falling, tiny_data, tmp_path / "killed", device="cpu")
    assert_same_state(tmp_path / "whole", tmp_path / "killed")
    # The formula is 16^-½ · s · 4^-1.5 up to update 4 and 16^-½ · s^-½ from there; updates 3 to 8
    # are the last six, with 6/6, 5/6, ..., 1/6 of it.
    formula = [s / 32 for s in (1, 2, 3, 4)] + [s**-0.5 / 4 for s in (5, 6, 7, 8)]
    factors = [1, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    expected = [rate * factor for rate, factor in zip(formula, factors, strict=True)]
    for name in ("whole", "killed"):
        rates = [rate for _, rate in rows_of(tmp_path / name, "lr")]
        assert rates == pytest.approx(expected, rel=1e-12)


def test_a_signal_while_a_row_is_logged_is_not_lost(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    original = Run.log

    def log(self: Run, row: dict[str, float | int]) -> None:
        original(self, row)
        if row["step"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Run, "log", log)
    assert not train.run(config, tiny_data, tmp_path / "run", device="cpu")
    assert Run.open(tmp_path / "run").checkpoints()[-1].step == 2


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (1, "stopped without saving; nothing was saved"),
        (
            5,
            "stopped without saving; the last good checkpoint is step 3; to continue, run the "
            "same command, without --restart",
        ),
    ],
)
def test_the_second_signal_stops_at_once_and_says_what_is_saved(
    at: int,
    told: str,
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    original = Trainer.update

    def twice(self: Trainer, batches: Any) -> Tensor:
        if self.step + 1 < at:
            return original(self, batches)
        # Not os.kill, whose two signals become one where another thread receives them.
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    monkeypatch.setattr(Trainer, "update", twice)
    with pytest.raises(KeyboardInterrupt):
        train.run(config, tiny_data, tmp_path / "run", device="cpu")
    assert caplog.messages[-1] == told


def test_ctrl_c_ends_the_program_with_130_and_the_next_start_resumes(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    endless = changed(config, "train", max_steps=100_000, valid_every=100_000)
    endless = changed(endless, "train", checkpoint_every=100_000)
    file = tmp_path / "tiny.yaml"
    file.write_text(dump_config(endless), encoding="utf-8")
    run = tmp_path / "run"
    command = [sys.executable, "-m", "mtkit", "train", "--config", file, "--run", run]
    command += ["--data", tiny_data.path, "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        metrics = run / "metrics.jsonl"
        deadline = time.monotonic() + 60
        while not (metrics.exists() and metrics.read_bytes().count(b"\n")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == b""
    assert b"Traceback" not in err
    stopped = Run.open(run).checkpoints()[-1].step
    assert stopped == rows_of(run, "loss")[-1][0]
    end = stopped + 2
    done = subprocess.run(
        [*command, "--set", f"train.max_steps={end}"],
        capture_output=True,
        env=environment,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert f"continuing from step {stopped}".encode() in done.stderr
    assert [step for step, _ in rows_of(run, "loss")] == list(range(1, end + 1))


# ---------------------------------------------------------------------------------------------
# The same run, or none


@pytest.fixture
def begun(tiny_run: Run, tmp_path: Path) -> Path:
    """A copy of the tiny run, at its last step, 4."""
    folder = tmp_path / "begun"
    shutil.copytree(tiny_run.path, folder)
    return folder


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("model", "d_ff", 48),
        ("model", "dropout", 0.2),
        ("train", "batch_tokens", 210),
        ("train", "warmup_steps", 5),
        ("train", "decay_steps", 5),
        ("train", "label_smoothing", 0.0),
        ("train", "adam_beta2", 0.99),
        ("train", "seed", 7),
    ],
)
def test_a_run_refuses_other_settings_by_name(
    section: str, key: str, value: Any, begun: Path, tiny_config: Config, tiny_data: PreparedData
):
    before = content(begun)
    other = changed(changed(tiny_config, "train", max_steps=8), section, **{key: value})
    with pytest.raises(MtkitError) as error:
        train.run(other, tiny_data, begun, device="cpu")
    assert f"{section}.{key}" in str(error.value)
    assert str(value) in str(error.value)
    assert "\n" not in str(error.value)
    assert content(begun) == before


@pytest.mark.parametrize(
    ("decay_steps", "stop", "end", "told"),
    [
        # Of 8 updates the last three have 3/3, 2/3 and 1/3 of the rate.
        (3, 7, 20, "began to decay at step 7"),
        (3, 8, 20, "began to decay at step 7"),
        # Of 6 updates the fifth would have had 2/3.
        (3, 5, 6, "would have begun to decay at step 5"),
        (3, 6, 20, None),
        (3, 4, 6, None),
        (0, 7, 20, None),
    ],
)
def test_the_end_of_a_run_cannot_be_moved_once_its_rate_falls(
    decay_steps: int,
    stop: int,
    end: int,
    told: str | None,
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    config = changed(config, "train", max_steps=8, decay_steps=decay_steps)
    original = Trainer.update

    def stopped(self: Trainer, batches: Any) -> Tensor:
        if self.step + 1 == stop:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", stopped)
        train.run(config, tiny_data, tmp_path / "run", device="cpu")
    before = content(tmp_path / "run")
    other = changed(config, "train", max_steps=end)
    if told is None:
        assert train.run(other, tiny_data, tmp_path / "run", device="cpu")
        assert Run.open(tmp_path / "run").checkpoints()[-1].step == end
        return
    with pytest.raises(MtkitError) as error:
        train.run(other, tiny_data, tmp_path / "run", device="cpu")
    assert f"train.max_steps: cannot become {end} at step {stop}" in str(error.value)
    assert told in str(error.value)
    assert "keep train.max_steps=8" in str(error.value)
    assert "\n" not in str(error.value)
    assert content(tmp_path / "run") == before


def test_a_run_allows_what_does_not_change_its_weights(
    begun: Path, tiny_config: Config, tiny_data: PreparedData
):
    settings = {"max_steps": 6, "log_every": 1, "valid_every": 3, "checkpoint_every": 5}
    other = changed(tiny_config, "train", keep_checkpoints=2, **settings)
    other = changed(other, "decode", beam_size=2, length_penalty=1.0)
    assert train.run(other, tiny_data, begun, device="cpu")
    run = Run.open(begun)
    assert run.config == other
    assert [saved.step for saved in run.checkpoints()][-2:] == [5, 6]


def test_a_run_refuses_other_data_by_checksum_and_takes_a_copy(
    begun: Path, tiny_config: Config, tiny_data: PreparedData, tmp_path: Path
):
    copy = tmp_path / "another-name"
    shutil.copytree(tiny_data.path, copy)
    longer = changed(tiny_config, "train", max_steps=5)
    assert train.run(longer, PreparedData.open(copy), begun, device="cpu")
    # The same folder with one sentence of the test set changed.
    reseal(
        copy / "manifest.json",
        lambda manifest: manifest["files"]["test.src.txt"].update(sha256="0" * 64),
    )
    with pytest.raises(MtkitError, match=r"test\.src\.txt: changed"):
        train.run(longer, PreparedData.open(copy), begun, device="cpu")
    other = tmp_path / "other"

    from mtkit.prepare import prepare_files

    files = {
        split: write_pairs(tmp_path, split, number_pairs(count, seed=seed))
        for seed, (split, count) in enumerate({"train": 200, "valid": 9}.items(), start=50)
    }
    prepare_files(
        "tiny",
        other,
        src_lang="en",
        tgt_lang="de",
        train=[files["train"]],
        valid=files["valid"],
        vocab_size=300,
    )
    before = content(begun)
    with pytest.raises(MtkitError, match="other data") as error:
        train.run(longer, PreparedData.open(other), begun, device="cpu")
    assert "\n" not in str(error.value)
    assert content(begun) == before


def test_a_finished_run_says_so_and_changes_nothing(
    begun: Path, tiny_config: Config, tiny_data: PreparedData, caplog: pytest.LogCaptureFixture
):
    before = content(begun / "checkpoints")
    with caplog.at_level("INFO", logger="mtkit"):
        assert train.run(tiny_config, tiny_data, begun, device="cpu")
    assert "has reached step 4 of 4 already" in caplog.text
    assert "train.max_steps" in caplog.text
    assert content(begun / "checkpoints") == before


@pytest.mark.parametrize(("decay_steps", "advice"), [(1, "train.max_steps"), (3, "a new run")])
def test_a_finished_run_says_how_to_train_further(
    decay_steps: int,
    advice: str,
    tiny_config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level("INFO", logger="mtkit")
    # With one step of decay the last update still has the full rate.
    config = changed(tiny_config, "train", decay_steps=decay_steps)
    for _ in range(2):
        assert train.run(config, tiny_data, tmp_path / "run", device="cpu")
    (line,) = [line for line in caplog.messages if "has reached step" in line]
    assert advice in line
    further = changed(config, "train", max_steps=6)
    if decay_steps == 1:
        assert train.run(further, tiny_data, tmp_path / "run", device="cpu")
    else:
        with pytest.raises(MtkitError, match="began to decay"):
            train.run(further, tiny_data, tmp_path / "run", device="cpu")


def test_restart_starts_over_with_any_settings(
    begun: Path, tiny_config: Config, tiny_data: PreparedData, tmp_path: Path
):
    other = changed(changed(tiny_config, "train", max_steps=2), "model", d_ff=48)
    assert train.run(other, tiny_data, begun, device="cpu", restart=True)
    assert [saved.step for saved in Run.open(begun).checkpoints()] == [2]
    assert train.run(other, tiny_data, tmp_path / "new", device="cpu")
    assert_same_state(begun, tmp_path / "new")
    assert rows_of(begun, "loss") == rows_of(tmp_path / "new", "loss")


def test_a_run_without_its_configuration_is_refused_and_can_be_restarted(
    begun: Path, tiny_config: Config, tiny_data: PreparedData
):
    (begun / "config.yaml").unlink()
    before = content(begun)
    with pytest.raises(
        MtkitError, match=r"config.yaml: missing or not a file; restore .* --restart"
    ):
        train.run(tiny_config, tiny_data, begun, device="cpu")
    assert content(begun) == before
    assert train.run(tiny_config, tiny_data, begun, device="cpu", restart=True)
    assert Run.open(begun).config == tiny_config


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "tokenizer.model"])
def test_a_restart_deletes_nothing_where_a_folder_has_the_name_of_a_file(
    name: str, begun: Path, tiny_config: Config, tiny_data: PreparedData
):
    (begun / name).unlink()
    (begun / name).mkdir()
    before = content(begun)
    with pytest.raises(MtkitError, match=f"{name}: is a folder; move it away"):
        train.run(tiny_config, tiny_data, begun, device="cpu", restart=True)
    assert content(begun) == before


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("instead", ["nothing", "a folder", "a link to nowhere"])
def test_a_run_without_its_manifest_says_so_and_is_left_alone(
    instead: str, restart: bool, begun: Path, tiny_config: Config, tiny_data: PreparedData
):
    (begun / "manifest.json").unlink()
    if instead == "a folder":
        (begun / "manifest.json").mkdir()
    elif instead == "a link to nowhere":
        (begun / "manifest.json").symlink_to(begun / "unmounted" / "manifest.json")
    before = content(begun)
    message = r"manifest.json: missing or not a file; restore .* another folder"
    with pytest.raises(MtkitError, match=message):
        Run.open(begun)
    with pytest.raises(MtkitError, match=message):
        train.run(tiny_config, tiny_data, begun, device="cpu", restart=restart)
    assert content(begun) == before


@pytest.mark.parametrize("restart", [False, True])
def test_a_folder_that_is_not_a_run_is_not_changed(
    restart: bool, tiny_config: Config, tiny_data: PreparedData, tmp_path: Path
):
    folder = tmp_path / "home"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "precious").write_text("of another program")
    (folder / "config.yaml").write_text("also: of another program")
    (folder / "notes.txt").write_text("mine")
    before = content(folder)
    with pytest.raises(MtkitError, match="not a run folder"):
        train.run(tiny_config, tiny_data, folder, device="cpu", restart=restart)
    assert content(folder) == before


@pytest.mark.parametrize("restart", [False, True])
def test_prepared_data_is_not_taken_for_a_run(
    restart: bool, tiny_config: Config, tiny_data: PreparedData, tmp_path: Path
):
    folder = tmp_path / "data"
    shutil.copytree(tiny_data.path, folder)
    before = content(folder)
    with pytest.raises(MtkitError, match="not a run folder"):
        train.run(tiny_config, tiny_data, folder, device="cpu", restart=restart)
    assert content(folder) == before


# ---------------------------------------------------------------------------------------------
# What goes wrong


def test_a_loss_of_nan_is_reported_in_one_line_with_step_and_learning_rate(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    wild = changed(config, "train", learning_rate_scale=1e30)
    with pytest.raises(MtkitError, match=r"step \d: the loss is (nan|inf)") as error:
        train.run(wild, tiny_data, tmp_path / "run", device="cpu")
    text = str(error.value)
    assert "\n" not in text
    assert "learning rate" in text
    assert "e+" in text  # of about 1e30
    assert "train.warmup_steps" in text


def test_weights_of_nan_are_never_saved(config: Config, tiny_data: PreparedData, tmp_path: Path):
    # Checkpoints between two rows of metrics: nobody has looked at the loss yet.
    wild = changed(
        config,
        "train",
        learning_rate_scale=1e30,
        log_every=6,
        valid_every=6,
        checkpoint_every=1,
        keep_checkpoints=9,
    )
    with pytest.raises(MtkitError, match=r"the loss is|the weights are not finite"):
        train.run(wild, tiny_data, tmp_path / "run", device="cpu")
    for saved in Run.open(tmp_path / "run").checkpoints():
        for name, tensor in saved.load_weights().items():
            assert tensor.isfinite().all(), f"{name} at step {saved.step}"


@pytest.mark.parametrize(
    "failure",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMany lines."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
@pytest.mark.parametrize(("batch_tokens", "at_a_time"), [(200, None), (200, 80), (9000, None)])
def test_a_batch_that_does_not_fit_is_one_line_with_a_setting_that_helps(
    failure: Exception,
    batch_tokens: int,
    at_a_time: int | None,
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    original = Transformer.forward

    def forward(self: Transformer, src: Tensor, tgt_in: Tensor, **options: Any) -> Tensor:
        if max(src.numel(), tgt_in.numel()) > 50:
            raise failure
        return original(self, src, tgt_in, **options)

    monkeypatch.setattr(Transformer, "forward", forward)
    settings = {"batch_tokens": batch_tokens, "device_batch_tokens": at_a_time}
    first = changed(config, "train", batches_per_update=1, **settings)
    with pytest.raises(MtkitError, match=r"--set train\.device_batch_tokens=\d+$") as error:
        train.run(first, tiny_data, tmp_path / "run", device="cpu")
    assert "\n" not in str(error.value)
    # Who does as the message says can train.
    advised = int(str(error.value).rpartition("=")[2])
    second = changed(first, "train", device_batch_tokens=advised, max_steps=2)
    assert train.run(second, tiny_data, tmp_path / "run", device="cpu")


def test_a_pair_that_does_not_fit_alone_is_one_line(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def forward(*_: object, **__: object) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Transformer, "forward", forward)
    with pytest.raises(MtkitError, match="not even the longest pair alone"):
        train.run(config, tiny_data, tmp_path / "run", device="cpu")


def slow_down_saving(patch: pytest.MonkeyPatch) -> None:
    """So that training is ahead of it."""
    original = checkpoint.save_file

    def save_file(tensors: Any, path: Any) -> None:
        time.sleep(0.2)
        original(tensors, path)

    patch.setattr(checkpoint, "save_file", save_file)


def test_a_loss_of_nan_is_reported_with_the_checkpoint_being_saved(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    original = Trainer.update

    def update(self: Trainer, batches: Any) -> Tensor:
        return original(self, batches) * (math.nan if self.step == 4 else 1.0)

    monkeypatch.setattr(Trainer, "update", update)
    slow_down_saving(monkeypatch)
    with pytest.raises(MtkitError, match=r"step 4: .*; the last good checkpoint is step 3;"):
        train.run(config, tiny_data, tmp_path / "run", device="cpu")


def test_memory_that_runs_out_later_is_one_line_with_the_last_good_checkpoint(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    original = Trainer.update

    def update(self: Trainer, batches: Any) -> Tensor:
        if self.step == 4:
            raise torch.OutOfMemoryError("CUDA out of memory.\nMany lines.")
        return original(self, batches)

    monkeypatch.setattr(Trainer, "update", update)
    slow_down_saving(monkeypatch)
    with pytest.raises(MtkitError, match=r"out of memory; the last good checkpoint is step 3") as e:
        train.run(config, tiny_data, tmp_path / "run", device="cpu")
    assert "train.device_batch_tokens (now 80)" in str(e.value)


def test_another_error_in_the_model_is_ours_and_keeps_its_traceback(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def forward(*_: object, **__: object) -> Tensor:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Transformer, "forward", forward)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        train.run(config, tiny_data, tmp_path / "run", device="cpu")


def test_a_pair_longer_than_what_fits_is_one_line_that_names_the_setting_to_raise(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    for settings in (
        {"batch_tokens": 200, "device_batch_tokens": 5},
        {"batch_tokens": 5, "device_batch_tokens": None},
    ):
        small = changed(config, "train", **settings)
        limiting = min((v, k) for k, v in settings.items() if v is not None)[1]
        with pytest.raises(MtkitError, match=rf"train\.{limiting}\b"):
            train.run(small, tiny_data, tmp_path / "run", device="cpu")


# ---------------------------------------------------------------------------------------------
# Killed, and out of room


@pytest.mark.slow
def test_killed_twenty_times_a_run_ends_with_the_weights_of_one_never_killed(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(config, "train", max_steps=60, checkpoint_every=2, valid_every=20)
    train.run(config, tiny_data, tmp_path / "whole", device="cpu")
    file = tmp_path / "config.yaml"
    file.write_text(dump_config(config), encoding="utf-8")
    facts = tmp_path / "facts.json"
    places = {"config": file, "data": tiny_data.path, "run": tmp_path / "killed"}
    facts.write_text(json.dumps({key: str(place) for key, place in places.items()}))
    done = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "killed.py", facts, "20", "1"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=True,
        timeout=200,
    )
    assert json.loads(done.stdout) == {"killed": 20, "status": 0}, done.stderr.decode()
    assert_same_state(tmp_path / "whole", tmp_path / "killed")
    assert rows_of(tmp_path / "whole", "loss") == rows_of(tmp_path / "killed", "loss")
    assert rows_of(tmp_path / "whole", "valid_bleu") == rows_of(tmp_path / "killed", "valid_bleu")


def test_a_checkpoint_that_cannot_be_written_is_reported_and_training_continues(
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    original, calls = checkpoint.save_file, 0

    def save_file(tensors: Any, path: Any) -> None:
        nonlocal calls
        calls += 1
        # The first checkpoint is good, the second is not.
        if calls == 3:
            raise OSError(28, "No space left on device", str(path))
        original(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", save_file)
    often = changed(config, "train", checkpoint_every=2, valid_every=6)
    assert train.run(often, tiny_data, tmp_path / "run", device="cpu")
    (warning,) = [r.getMessage() for r in caplog.records if "not saved" in r.getMessage()]
    assert "step 4 was not saved" in warning
    assert "No space left on device" in warning
    assert "the last good checkpoint is step 2" in warning
    assert [saved.step for saved in Run.open(tmp_path / "run").checkpoints()] == [2, 6]
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))


def test_a_last_checkpoint_that_cannot_be_written_is_an_error(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def save_file(_: Any, path: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", save_file)
        with pytest.raises(MtkitError, match="No space left on device") as error:
            train.run(config, tiny_data, tmp_path / "run", device="cpu")
    assert "\n" not in str(error.value)
    # With room again the same command succeeds.
    assert train.run(config, tiny_data, tmp_path / "run", device="cpu")


def test_a_full_disk_ends_in_one_line_and_nothing_is_lost(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o"]
    if subprocess.run([*mount, "size=480k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        bigger = changed(config, "train", checkpoint_every=1, max_steps=4, keep_checkpoints=9)
        file = tmp_path / "config.yaml"
        file.write_text(dump_config(bigger), encoding="utf-8")
        command = [sys.executable, "-m", "mtkit", "train", "--config", file, "--device", "cpu"]
        command += ["--data", tiny_data.path, "--run", small / "run"]
        how: dict[str, Any] = {"capture_output": True, "timeout": 100, "check": False}
        how["env"] = os.environ | {"OMP_NUM_THREADS": "1"}
        full = subprocess.run(command, **how)
        errors = [line for line in full.stderr.decode().splitlines() if "mtkit: error" in line]
        assert full.returncode == 1, full.stderr.decode()
        assert len(errors) == 1
        assert "No space left on device" in errors[0]
        assert "Traceback" not in full.stderr.decode()
        subprocess.run([*mount, "remount,size=9m", "tmpfs", small], check=True)
        again = subprocess.run(command, **how)
        assert again.returncode == 0, again.stderr.decode()
        train.run(bigger, tiny_data, tmp_path / "whole", device="cpu")
        assert_same_state(tmp_path / "whole", small / "run")
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


def test_the_newest_checkpoints_are_set_aside_if_they_are_damaged(
    begun: Path, tiny_config: Config, tiny_data: PreparedData, caplog: pytest.LogCaptureFixture
):
    (begun / "checkpoints" / "step-00000004" / "model.safetensors").write_bytes(b"cut")
    # At 3 a checkpoint is written; the damaged one at 4 must not count as a newer one.
    one = changed(tiny_config, "train", max_steps=3, keep_checkpoints=1)
    with caplog.at_level("INFO", logger="mtkit"):
        assert train.run(one, tiny_data, begun, device="cpu")
    assert "continuing from step 2" in caplog.text
    assert "damaged-step-00000004" in caplog.text
    assert [saved.step for saved in Run.open(begun).checkpoints()] == [3]


def test_a_model_larger_than_all_memory_is_refused_before_it_is_built(
    tiny_config: Config, tiny_data: PreparedData, tmp_path: Path
):
    config = changed(tiny_config, "model", d_model=1 << 20)
    for work in (
        lambda: train.forecast(config, tiny_data, device="cpu"),
        lambda: train.run(config, tiny_data, tmp_path / "run", device="cpu"),
    ):
        with pytest.raises(MtkitError, match=r"of [\d,]+ parameters needs [\d.]+ GiB") as error:
            work()
        assert "model.d_model" in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_model_that_outgrows_memory_is_one_line_before_the_first_step(
    precision: str, config: Config, tiny_data: PreparedData, tmp_path: Path
):
    huge = changed(config, "train", batch_tokens=200_000, device_batch_tokens=200_000)
    huge = changed(huge, "train", batches_per_update=1, precision=precision)
    huge = changed(huge, "model", d_model=256, d_ff=8192)
    file = tmp_path / "config.yaml"
    file.write_text(dump_config(huge), encoding="utf-8")
    # Room for the program and little more.
    program = (
        "import resource, sys; from mtkit.cli import main; import torch, mtkit.train;"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize();"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 250_000_000,) * 2); main()"
    )
    if not Path("/proc/self/statm").exists():
        pytest.skip("limits memory relative to /proc/self/statm")
    command = [sys.executable, "-c", program, "train", "--config", file, "--device", "cpu"]
    done = subprocess.run(
        [*command, "--data", tiny_data.path, "--run", tmp_path / "run"],
        capture_output=True,
        timeout=100,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    text = done.stderr.decode()
    assert done.returncode == 1, text
    fits = "does not fit in memory" in text and "--set train.device_batch_tokens=" in text
    # In bfloat16 the programs that oneDNN writes may leave no room for any batch.
    nothing_fits = "not even the longest pair alone" in text and "(model.d_model)" in text
    assert fits or (precision == "bf16" and nothing_fits), text
    assert "Traceback" not in text
    assert not Run(tmp_path / "run", Config(), {}).checkpoints()


# ---------------------------------------------------------------------------------------------
# Watching


def events_of(run: Run, tag: str) -> list[tuple[int, float]]:
    """Step and value of every event of a kind, in the order of their files."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    found = []
    for file in sorted(run.board_path.iterdir()):
        content = file.read_bytes()
        while content:
            # A record: its length, a checksum, the message, a checksum.
            end = 12 + int.from_bytes(content[:8], "little")
            assert int.from_bytes(content[8:12], "little") == masked_crc32c(content[:8])
            assert int.from_bytes(content[end : end + 4], "little") == masked_crc32c(
                content[12:end]
            )
            event = Event.FromString(content[12:end])
            found += [(event.step, v.simple_value) for v in event.summary.value if v.tag == tag]
            content = content[end + 4 :]
    return found


@pytest.mark.parametrize(
    ("silence", "steps"),
    # Rows are at 3 and 6; a first sign of life comes at once, others if it is silent for long.
    [(math.inf, [1, 3, 6]), (0.0, [1, 2, 3, 4, 5, 6])],
)
def test_without_a_terminal_the_speed_is_reported_soon(
    silence: float,
    steps: list[int],
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(meter, "SILENCE", silence)
    seldom = changed(config, "train", log_every=3)
    with caplog.at_level("INFO", logger="mtkit"):
        train.run(seldom, tiny_data, tmp_path / "run", device="cpu")
    lines = [re.match(r"step (\d) of 6: .*tok/s, \S+ left$", line) for line in caplog.messages]
    assert [int(line[1]) for line in lines if line] == steps
    # Metrics have the rows they were asked for.
    assert [step for step, _ in rows_of(tmp_path / "run", "loss")] == [3, 6]


def test_on_a_terminal_the_bar_says_after_the_first_update_how_fast_it_is(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    texts: list[tuple[int, str]] = []

    class Bar(progress.tqdm):  # type: ignore[misc,type-arg]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options | {"disable": False, "file": io.StringIO()})

        def set_postfix_str(self, text: str = "", refresh: bool = True) -> None:
            texts.append((self.n, text))
            super().set_postfix_str(text, refresh)

    monkeypatch.setattr(progress, "tqdm", Bar)
    monkeypatch.setattr(meter, "SILENCE", 0.0)
    train.run(changed(config, "train", log_every=3), tiny_data, tmp_path / "run", device="cpu")
    assert [step for step, _ in texts] == [1, 3, 6]
    assert re.fullmatch(r"[\d,]+ tok/s", texts[0][1])
    assert all(text.startswith("loss ") for _, text in texts[1:])


def validate_as(patch: pytest.MonkeyPatch, **scores: Iterable[float]) -> None:
    """Have validations find these scores, one after the other."""
    original, told = Trainer.validate, {key: iter(values) for key, values in scores.items()}

    def validate(self: Trainer) -> Any:
        return replace(original(self), **{key: next(values) for key, values in told.items()})

    patch.setattr(Trainer, "validate", validate)


def test_training_stops_early_when_the_chosen_score_gets_no_better(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    validate_as(monkeypatch, loss=[5.0, 4.0, 4.5, 4.2, 4.1, 1.0])
    patient = {"valid_every": 1, "best_metric": "loss", "patience": 3, "checkpoint_every": 100}
    assert train.run(changed(config, "train", **patient), tiny_data, tmp_path / "run", device="cpu")
    # The second was the best, and three came after it.
    run = Run.open(tmp_path / "run")
    assert [saved.step for saved in run.checkpoints()] == [2, 5]
    # Started again, it stays stopped.
    assert train.run(changed(config, "train", **patient), tiny_data, tmp_path / "run", device="cpu")
    assert [saved.step for saved in run.checkpoints()] == [2, 5]


def test_the_best_validation_is_saved_though_no_checkpoint_is_due_and_is_not_averaged(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    #                                1     2     3     4     5     6     7     8     9
    validate_as(monkeypatch, bleu=[10.0, 20.0, 15.0, 30.0, 40.0, 25.0, 40.0, 12.0, 11.0])
    settings = {"valid_every": 1, "checkpoint_every": 3, "max_steps": 9, "keep_checkpoints": 2}
    train.run(changed(config, "train", **settings), tiny_data, tmp_path / "run", device="cpu")
    run = Run.open(tmp_path / "run")
    # Of 5 and 7, which are equal, the newer is the best; 1, 2, 4 and 5 were for a while.
    assert [saved.step for saved in run.checkpoints()] == [6, 7, 9]
    assert run.select("best")[1] == "step 7, the best"
    assert run.select(None)[1] == "the average of 2 checkpoints, steps 6 to 9"
    assert run.select("average:2")[1] == "the average of 2 checkpoints, steps 6 to 9"
    with pytest.raises(MtkitError, match="has 2 checkpoints to average"):
        run.select("average:3")
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'<span class="badge">best</span> (\d+)</th>', page) == ["7"]


@pytest.mark.slow
def test_a_run_resumes_from_the_best_validation_if_that_is_the_newest(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = {"valid_every": 1, "checkpoint_every": 3, "max_steps": 7}
    config = changed(config, "train", **settings)
    train.run(config, tiny_data, tmp_path / "whole", device="cpu")
    validate_as(monkeypatch, bleu=[1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0])
    original = Trainer.update

    def killed_at_6(self: Trainer, batches: Any) -> Tensor:
        if self.step == 5:
            raise KeyboardInterrupt
        return original(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", killed_at_6)
        with pytest.raises(KeyboardInterrupt):
            train.run(config, tiny_data, tmp_path / "run", device="cpu")
    assert Run.open(tmp_path / "run").checkpoints()[-1].step == 5
    train.run(config, tiny_data, tmp_path / "run", device="cpu")
    assert_same_state(tmp_path / "whole", tmp_path / "run")


def test_what_a_signal_has_saved_knows_its_validation(
    config: Config, tiny_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    validate_as(monkeypatch, bleu=[20.0, 10.0])
    original = Trainer.update

    def interrupted_at_2(self: Trainer, batches: Any) -> Tensor:
        if self.step == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, batches)

    monkeypatch.setattr(Trainer, "update", interrupted_at_2)
    config = changed(config, "train", valid_every=1)
    assert not train.run(config, tiny_data, tmp_path / "run", device="cpu")
    saved = Run.open(tmp_path / "run").checkpoints()
    assert [(one.step, one.load_state()["valid_bleu"]) for one in saved] == [(1, 20.0), (2, 10.0)]


@pytest.mark.parametrize("by", ["bleu", "loss"])
def test_a_run_whose_bleu_rises_is_not_taken_for_flat(
    by: str,
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    # Points of BLEU are tenths of the loss.
    bleu = [10.9, 20.7, 23.0, 28.1, 28.6, 29.5, 32.2, 34.0]
    loss = [2.9, 2.8, 2.7, 2.6, 2.5, 2.45, 2.4, 2.35]
    validate_as(monkeypatch, bleu=bleu, loss=loss)
    monkeypatch.setattr(observer, "findings", lambda *_: ["This is odd."])
    config = changed(config, "train", valid_every=1, max_steps=8, best_metric=by)
    train.run(config, tiny_data, tmp_path / "run", device="cpu")
    # At the end it is told in any case.
    assert len([r for r in caplog.records if "This is odd." in r.getMessage()]) == 1


def test_every_validation_keeps_translations_of_the_same_lines_and_the_page_is_there(
    tiny_run: Run, tiny_data: PreparedData
):
    (row,) = tiny_run.samples()
    src, tgt = tiny_data.text("valid")
    assert row["step"] == 4
    assert len(row["samples"]) == 6
    for sample in row["samples"]:
        assert tgt[src.index(sample["src"])] == sample["ref"]
        assert isinstance(sample["hyp"], str)
    page = (tiny_run.path / "report.html").read_text(encoding="utf-8")
    assert row["samples"][0]["src"] in page


def test_a_resumed_run_has_no_sample_and_no_event_twice(
    config: Config, tiny_data: PreparedData, tmp_path: Path
):
    for end in (4, 6):
        part = changed(config, "train", max_steps=end, valid_every=2, checkpoint_every=2)
        train.run(part, tiny_data, tmp_path / "run", device="cpu")
    run = Run.open(tmp_path / "run")
    assert [row["step"] for row in run.samples()] == [2, 4, 6]
    assert [step for step, _ in events_of(run, "train/loss")] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in events_of(run, "valid/bleu")] == [2, 4, 6]
    assert [value for _, value in events_of(run, "train/loss")] == pytest.approx(
        [value for _, value in rows_of(run.path, "loss")]
    )


def test_metrics_that_cannot_be_written_do_not_stop_a_run(
    config: Config,
    tiny_data: PreparedData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    def log(*_: Any) -> None:
        raise MtkitError("metrics.jsonl: No space left on device")

    monkeypatch.setattr(Run, "log", log)
    assert train.run(config, tiny_data, tmp_path / "run", device="cpu")
    told = [r for r in caplog.records if "No space left" in r.getMessage()]
    assert len(told) == 1


def test_events_that_cannot_be_written_neither_stop_nor_delay_a_run(
    begun: Path, caplog: pytest.LogCaptureFixture
):
    run = Run.open(begun)
    run.truncate_metrics(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Some twenty events, and all of the rows, which are shorter.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1200, hard))
    try:
        journal = MetricsLogger(run, 0)
        for step in range(1, 51):
            journal.log({"step": step, "lr": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [row["step"] for row in run.metrics()] == list(range(1, 51))
    (told,) = [record.getMessage() for record in caplog.records]
    assert "tfevents" in told
    assert "training continues" in told
    # With room again nothing is written behind the event that was cut.
    size = max(file.stat().st_size for file in run.board_path.iterdir())
    journal.log({"step": 51, "lr": 1})
    assert max(file.stat().st_size for file in run.board_path.iterdir()) == size <= 1200


def test_every_event_is_in_its_file_as_soon_as_it_is_logged(begun: Path):
    run = Run.open(begun)
    journal = MetricsLogger(run, 4)
    for step in (5, 6):
        journal.log({"step": step, "loss": 2.5})
        assert events_of(run, "train/loss")[-1] == (step, 2.5)


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
        assert compiled.update(update).item() == pytest.approx(
            plain.update(update).item(), rel=1e-4
        )
