"""The programs that show what the paper says, beside those of Table 3."""

import math
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.benchmarks import benchmark

from mtkit import Translator
from mtkit.batches import pad_ids
from mtkit.config import DecodeConfig
from mtkit.data import PreparedData
from mtkit.prepare import prepare_files
from mtkit.run_folder import Run
from mtkit.tokenizer import BOS_ID, EOS_ID

FOLDER = Path(__file__).parent.parent / "examples" / "paper"
Table = list[list[str]]
# As small as the settings of the guides are in tests/test_docs.py.
SMALL = "model.encoder_layers=1 model.decoder_layers=1 model.d_model=32 model.d_ff=64 "
SMALL += "model.n_heads=2 train.max_steps=2 train.decay_steps=0 train.batch_tokens=500"


@pytest.fixture
def table(monkeypatch, capsys) -> Callable[..., Table]:
    """The rows of the table that a script prints, without its heading."""

    def printed(script: str, *arguments: object) -> Table:
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        runpy.run_path(str(FOLDER / script), run_name="__main__")
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
        return [line.strip("| ").split(" | ") for line in lines[2:]]

    return printed


def test_the_variance_of_products_is_the_width_and_their_softmax_saturates(table):
    rows = [list(map(float, row)) for row in table("scaled_scores.py")]
    assert [row[0] for row in rows] == [8, 16, 32, 64, 128, 256, 512]
    for width, variance, _, _, divided, entropy, gradient in rows:
        assert variance == pytest.approx(width, rel=0.05)
        assert divided == pytest.approx(1, rel=0.05)
        # At every width as at the first one.
        assert (entropy, gradient) == pytest.approx(rows[0][5:], rel=0.05)
    entropies, gradients = ([row[column] for row in rows] for column in (2, 3))
    assert entropies == sorted(entropies, reverse=True)
    assert gradients[-1] < 0.02 < 0.3 < gradients[0]


def test_narrow_wide_and_the_papers_attention_have_the_weights_of_the_formulas(table):
    rows = table("narrow_and_wide.py")
    # By hand, of D and h: 128 and 4, 256 and 4, 512 and 8.
    expected = {
        "narrow": [(12_288, 16_384), (49_152, 65_536), (98_304, 262_144)],
        "paper": [(49_152, 16_384), (196_608, 65_536), (786_432, 262_144)],
        "wide": [(196_608, 65_536), (786_432, 262_144), (6_291_456, 2_097_152)],
    }
    assert [row[0] for row in rows] == [form for form in expected for _ in range(3)]
    counts = [count for form in expected.values() for count in form]
    for (_, _, _, formula, counted, output_formula, output), both in zip(rows, counts, strict=True):
        assert (counted, output) == tuple(f"{count:,}" for count in both)
        assert (formula.split()[-1], output_formula.split()[-1]) == (counted, output)


@pytest.mark.slow
def test_lengths_are_scored_on_pairs_that_were_not_trained_on(tiny_data, tmp_path, table):
    sizes = ("--short", 10, "--longest", 20, "--step", 5, "--lines", 3)
    settings = [word for setting in SMALL.split() for word in ("--set", setting)]
    kinds = ("--positions", "sinusoidal", "learned", "none")
    rows = table("lengths.py", tiny_data.path, tmp_path, *sizes, *kinds, *settings)
    names = ["1 to 5", "6 to 10", "11 to 15", "16 to 20"]
    assert [row[0] for row in rows] == [name for name in names if name in {r[0] for r in rows}]
    assert {"6 to 10", "11 to 15"} <= {row[0] for row in rows}
    for _, count, *scores in rows:
        assert 1 <= int(count) <= 3
        assert all(0 <= float(score) <= 100 for score in scores)
        assert len(scores) == 3
    out = tmp_path / "10-20-5-3"
    pairs = PreparedData.open(out / "data").pairs("train")
    assert 0 < max(pairs.src.lengths) <= 10
    assert 0 < max(pairs.tgt.lengths) <= 10
    sources = (out / "train.src").read_text("utf-8").splitlines()
    assert not {*sources} & {*(out / "valid.src").read_text("utf-8").splitlines()}
    for kind in kinds[1:]:
        assert Run.open(out / "runs" / kind).config.model.positions == kind


def test_lengths_end_with_the_status_of_a_training_that_failed(tiny_data, tmp_path, table):
    settings = [word for setting in SMALL.split() for word in ("--set", setting)]
    settings += ["--set", "train.learning_rate_scale=1e30"]
    with pytest.raises(SystemExit) as ended:
        table("lengths.py", tiny_data.path, tmp_path, "--lines", 3, *settings)
    assert ended.value.code == 1
    assert not list(tmp_path.glob("*/runs/learned"))


def test_the_loss_after_gold_beginnings_is_that_of_teacher_forcing(tiny_data, ending_run, table):
    (gold, loss, _), (own, _, _) = table("exposure.py", ending_run.path, tiny_data.path)
    assert (gold, own) == ("gold", "own")
    sources, targets = tiny_data.text("test")
    sums, count = 0.0, 0
    with Translator.load(ending_run.path) as translator, torch.inference_mode():
        encode = translator.vocabularies.tgt.encode
        for source, target in zip(sources, targets, strict=True):
            src = pad_ids([[*encode(source), EOS_ID]])
            words = target.split()
            known = len(encode(" ".join(words[: len(words) // 2])))
            ids = encode(target)
            log_probs = translator.model(src, pad_ids([[BOS_ID, *ids]]))[0].log_softmax(-1)
            right = log_probs.gather(1, torch.tensor([*ids, EOS_ID])[:, None])[known:]
            sums, count = sums - float(right.sum()), count + len(right)
    assert float(loss) == pytest.approx(sums / count, abs=6e-4)


def test_beginnings_are_the_same_where_the_reference_is_what_the_model_writes(
    tiny_text, ending_run, tmp_path, table
):
    config = DecodeConfig(beam_size=1, split_sentences=False, copy_numbers=False)
    sources = tiny_text.test[0].read_text("utf-8").splitlines()
    with Translator.load(ending_run.path, config=config) as translator:
        texts = list(translator.translate(sources))
    reference = tmp_path / "own.de"
    reference.write_text("".join(f"{text}\n" for text in texts), "utf-8")
    prepare_files(
        "own",
        tmp_path / "data",
        **tiny_text.prepare_arguments() | {"test": (tiny_text.test[0], reference)},
    )
    gold, own = table("exposure.py", ending_run.path, tmp_path / "data")
    assert gold[1:] == own[1:]


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("self-attention", range(12)),
        ("restricted", range(4, 7)),
        ("convolutional", range(4, 7)),
        ("dilated", (2, 5, 8)),
        ("separable", range(4, 7)),
        ("recurrent", range(5, 12)),
    ],
)
@torch.inference_mode()
def test_a_layer_of_table_1_reaches_the_positions_that_its_path_says(name, seen, monkeypatch):
    kinds = benchmark("layers", monkeypatch).kinds(window=1, kernel=3)
    (layer,) = (kind.build(8) for kind in kinds if kind.name.startswith(name))
    x = torch.randn(1, 12, 8, generator=torch.Generator().manual_seed(1))
    changed = x.clone()
    changed[0, 5] += 1
    before, after = (y if y.shape[1] == 12 else y.transpose(1, 2) for y in map(layer, (x, changed)))
    assert (before != after).any(-1)[0].nonzero().flatten().tolist() == list(seen)


def test_scores_of_additive_attention_are_bahdanaus_and_need_memory_for_each_width_of_keys(
    monkeypatch,
):
    layers = benchmark("layers", monkeypatch)
    q, k, v = torch.randn(3, 5), torch.randn(4, 5), torch.randn(5)
    for kind, score in (
        (layers.additive, lambda a, b: sum(v * torch.tanh(a + b))),
        (layers.dot_product, lambda a, b: sum(a * b) / math.sqrt(5)),
    ):
        expected = torch.tensor([[score(a, b) for b in k] for a in q])
        torch.testing.assert_close(kind(q, k, v), expected)
    table = layers.compare_scores([4, 8], 256, 1).splitlines()[2:]
    narrow, wide = ([float(cell) for cell in row.strip("| ").split(" | ")] for row in table)
    assert [row[0] for row in (narrow, wide)] == [4, 8]
    # Of each of the 256² pairs four more numbers in float32: 1 MiB.
    assert wide[4] - narrow[4] == pytest.approx(1, abs=0.02)
    assert wide[2] == pytest.approx(narrow[2], abs=0.02)
