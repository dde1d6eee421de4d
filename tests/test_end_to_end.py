"""From text to a score: the four commands, on a task that a tiny model learns and as printed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import GREEK, number_pairs, write_pairs
from support.hub import Hub, client_environment, synthetic_splits, wmt14_repository

from mtkit.prepare import prepare_files

TRAINING = """
model:
  encoder_layers: 2
  decoder_layers: 2
  d_model: 64
  d_ff: 256
  n_heads: 4
  dropout: 0.0
train:
  max_steps: 220
  batch_tokens: 1000
  batches_per_update: 2
  warmup_steps: 100
  learning_rate_scale: 0.3
  valid_every: 220
  checkpoint_every: 25
decode:
  max_extra_length: 3
"""


@pytest.mark.slow
def test_two_scripts_with_a_vocabulary_each_are_learned_over_a_stop(place):
    # The same words in the same order, but no letter in common.
    def numbers(count: int, seed: int) -> list[tuple[str, str]]:
        pairs = number_pairs(count, seed=seed, words=GREEK)
        return [(src, " ".join(reversed(tgt.split()))) for src, tgt in pairs]

    counts = {"train": 4000, "valid": 20, "test": 60}
    texts = {split: numbers(count, seed) for seed, (split, count) in enumerate(counts.items())}
    files = {split: write_pairs(place.folder, split, text) for split, text in texts.items()}
    prepare_files(
        "numbers",
        place.folder / "data" / "numbers",
        src_lang="en",
        tgt_lang="el",
        train=[files["train"]],
        valid=files["valid"],
        test=files["test"],
        vocab_size=330,
        shared_vocab=False,
    )
    (place.folder / "numbers.yaml").write_text(TRAINING)
    train = ["train", "--config", "numbers.yaml", "--device", "cpu"]
    place.done(*train, "--set", "train.max_steps=80")
    place.done(*train)
    lines, references = zip(*texts["test"], strict=True)
    (place.folder / "input").write_text("".join(f"{line}\n" for line in lines))
    # `score` works in float32; without the option, `translate` takes bf16 where the CPU has AMX.
    translate = ["translate", "--precision", "fp32", "--input", "input"]
    assert place.done(*translate, "--output", "output").out == ""
    translations = (place.folder / "output").read_text(encoding="utf-8").splitlines()
    right = sum(map(str.__eq__, translations, references))
    assert right >= 0.9 * len(references)
    name, value, *signature = place.done("score").out.split()
    assert name == "BLEU"
    assert float(value) >= 90
    assert "tok:13a" in " ".join(signature)

    # The file that translate writes has the score that score found by itself.
    alone = place.done("score", "output", "--reference", files["test"][1]).out
    assert alone.split()[1] == value

    # The model gives its own translations the scores that it found them with.
    reported = place.done(*translate, "--nbest", "1").out.splitlines()
    scored = place.done("force-decode", "input", "output").out.splitlines()
    pairs = list(zip(reported, (line.split("\t") for line in scored), strict=True))
    assert len(pairs) == counts["test"]
    for best, (number, log_prob, score) in pairs:
        assert best.split("\t")[0] == number
        assert float(score) == pytest.approx(float(best.split("\t")[1]), abs=1e-5)
        assert float(log_prob) <= float(score) <= 0.0


TINY_BIG = """
model:
  encoder_layers: 1
  decoder_layers: 1
  d_model: 16
  d_ff: 16
  n_heads: 2
train:
  max_steps: 2
  batch_tokens: 300
decode:
  max_extra_length: 0
  beam_size: 2
"""


@pytest.mark.slow
def test_the_four_commands_work_as_printed_with_wmt14_from_the_hub(tmp_path):
    splits = synthetic_splits(lexicon=30_000, train=20_000, validation=8, test=12)
    german, english = zip(*splits["test"], strict=True)
    (tmp_path / "input.txt").write_text("".join(f"{line}\n" for line in english[:3]))
    # A file of that name goes before the preset; everything else of the command is as printed.
    (tmp_path / "big.yaml").write_text(TINY_BIG)

    with Hub({"wmt/wmt14": wmt14_repository({"de-en": splits})}) as hub:
        environment = client_environment(hub.endpoint, tmp_path / "cache", OMP_NUM_THREADS="2")
        # Where the program of this Python is.
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"

        def shell(command: str) -> str:
            done = subprocess.run(
                command,
                shell=True,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
            )
            assert done.returncode == 0, done.stderr
            assert "Traceback" not in done.stderr
            return done.stdout

        assert shell("mtkit prepare wmt14-en-de") == ""
        assert shell("mtkit train --config big.yaml") == ""
        translations = shell("mtkit translate < input.txt")
        score = shell("mtkit score")

    data = tmp_path / "data" / "wmt14-en-de"
    manifest = json.loads((data / "manifest.json").read_text())
    assert manifest["counts"]["pairs"] == {"train": 20_000, "valid": 8, "test": 12}
    kept, dropped = manifest["counts"]["kept"], manifest["counts"]["dropped"]
    assert kept + sum(dropped.values()) == 20_000
    assert kept > 19_000
    assert (manifest["src_lang"], manifest["tgt_lang"]) == ("en", "de")
    assert manifest["settings"]["vocab_size"] == 37_000
    from mtkit.tokenizer import Tokenizer

    assert len(Tokenizer.load(data / "tokenizer.model")) == 37_000
    # English to German, though the hub calls the corpus de-en.
    assert (data / "test.src.txt").read_text() == "".join(f"{line}\n" for line in english)
    assert (data / "test.tgt.txt").read_text() == "".join(f"{line}\n" for line in german)
    assert (tmp_path / "runs" / "wmt14-en-de-big" / "manifest.json").exists()
    assert translations.count("\n") == 3
    assert score.startswith("BLEU ")
    assert "version:" in score
