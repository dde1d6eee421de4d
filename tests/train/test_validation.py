"""Validation: its loss and its translations."""

import math
from typing import Any

import pytest
import torch
from conftest import CPU, changed

from mtkit import native
from mtkit.data import PreparedData
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.train import assembly as train
from mtkit.train.trainer import Trainer
from mtkit.train.validation import Validation, Validator
from mtkit.translate import LoadedRuns, Torch, Translation, Translator


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    # Sums in float32, in another order; bfloat16 has eight bits.
    [("fp32", 1e-5), ("bf16", 5e-3)],
)
def test_validation_is_the_unsmoothed_loss_of_the_pairs_one_by_one(
    precision, tolerance, tiny_config, tiny_data, tmp_path
):
    config = changed(tiny_config, "train", precision=precision)
    train.run(config, tiny_data, tmp_path / "run", device="cpu")
    run = Run.open(tmp_path / "run")
    (row,) = [row for row in run.metrics() if "valid_loss" in row]
    tokenizer, _ = run.tokenizers()
    model = Transformer(config.model, len(tokenizer), PAD_ID).eval()
    model.load_state_dict(run.checkpoints()[-1].load_weights())
    total, tokens = 0.0, 0
    for source, target in zip(*tiny_data.text("valid"), strict=True):
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
    assert row["valid_perplexity"] == pytest.approx(math.exp(total / tokens), rel=10 * tolerance)


def test_tokenised_text_is_named_once(config, tiny_data, tmp_path, monkeypatch, caplog, capfd):
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


def test_a_validation_translates_in_float32_on_a_cpu(config, tiny_data):
    trainer = Trainer(changed(config, "train", precision="bf16"), tiny_data, device=CPU)
    trainer.update(next(trainer.batches))
    translations = trainer.validate().translations
    runs = LoadedRuns(tiny_data.tokenizers(), config.decode.greedy())
    translator = Translator(runs, Torch([trainer.model.eval()], runs))
    wanted = translator.translate_nbest(tiny_data.text("valid")[0], n_best=1)
    for mine, (theirs,) in zip(translations, wanted, strict=True):
        assert mine.text == theirs.text
        # In bf16 the difference would be about 1e-3.
        assert mine.log_prob == pytest.approx(theirs.log_prob, rel=1e-6)


@pytest.mark.skipif(native.available() != "", reason=native.available())
@pytest.mark.parametrize(
    ("data", "metric"), [("tiny_data", "chrf++"), ("greek_data", "chrf"), ("tree_data", "f1")]
)
def test_the_native_engine_changes_no_number(data, metric, config, tmp_path, monkeypatch, request):
    validations: list[Validation] = []
    models: list[native.NativeModel] = []
    validate, new_model = Validator.run, native.NativeModel
    monkeypatch.setattr(Validator, "run", lambda *given: _kept(validations, validate(*given)))
    monkeypatch.setattr(
        native, "NativeModel", lambda *given, **more: _kept(models, new_model(*given, **more))
    )
    runs = []
    for engine in ("torch", "auto"):
        # A high rate: the outputs of the validations differ.
        settings = changed(config, "train", learning_rate_scale=3.0, best_metric=metric)
        settings = changed(settings, "decode", engine=engine)
        train.run(settings, request.getfixturevalue(data), tmp_path / engine, device="cpu")
        runs.append(Run.open(tmp_path / engine))
    # One for each validation, because the weights have changed.
    assert len(models) == 2
    for ours, theirs in zip(validations[2:], validations[:2], strict=True):
        assert ours.scores == theirs.scores
        for mine, other in zip(ours.translations, theirs.translations, strict=True):
            assert (mine.text, mine.repaired) == (other.text, other.repaired)
            assert mine.score == pytest.approx(other.score, abs=1e-5)
            assert mine.log_prob == pytest.approx(other.log_prob, abs=1e-5, rel=1e-5)
    rows = [
        [{name: row[name] for name in row if name.startswith("valid")} for row in run.metrics()]
        for run in runs
    ]
    assert rows[0] == rows[1]
    assert sum(map(bool, rows[0])) == 2
    # Scores of text have intervals.
    names = {"tiny_data": ["bleu", "chrf", "chrf++"], "greek_data": ["bleu", "chrf"]}.get(data, [])
    assert all([*row.get("intervals", {})] == names for run in runs for row in run.samples())
    state = runs[0].checkpoints()[-1].load_state()
    expected = {f"valid_{name}" for name in names or ["f1"]} | {"valid_loss", "valid_perplexity"}
    assert {name for name in state if name.startswith("valid_")} == expected
    first, second = (run.best() for run in runs)
    assert first.step == second.step


def _kept(kept: list[Any], made: Any) -> Any:
    kept.append(made)
    return made


def test_pytorch_validates_where_there_is_no_native_engine(config, tiny_data, monkeypatch):
    monkeypatch.setattr(native, "available", lambda: "no compiler")
    monkeypatch.delattr(native, "NativeModel")
    # Whoever demands the native engine still gets the training that was paid for.
    settings = changed(config, "decode", engine="native")
    assert len(Trainer(settings, tiny_data, device=CPU).validate().translations) == 20
