"""Runs and prepared folders of earlier commits: `tests/kept/README.md`."""

import json
from pathlib import Path

import pytest
from support.command_line import Place
from support.kept import unpack

KEPT = Path(__file__).parent / "kept"
# Of each archive, by its folder, the scores that it had.
SCORES = {
    ".": [["BLEU", "94.85"], ["chrF2", "97.39"]],
    "0.1.0": [["BLEU", "97.98"], ["chrF2", "98.79"]],
    "xxh3": [["BLEU", "97.56"], ["chrF2", "98.47"]],
}


@pytest.fixture(params=SCORES)
def archive(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def translations(archive: str) -> str:
    return (KEPT / archive / "translations.txt").read_text(encoding="utf-8")


@pytest.fixture
def kept(place: Place, archive: str) -> Place:
    unpack(KEPT / archive / "folders.tar.xz", place.folder)
    return place


def rows(place: Place) -> list[dict[str, float]]:
    text = (place.folder / "runs/kept/metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_kept_run_gives_the_translations_that_it_gave(kept: Place, translations: str):
    source = (kept.folder / "data/kept/test.src.txt").read_bytes()
    assert kept.mtkit("translate", stdin=source).out == translations


def test_a_kept_run_has_the_scores_that_it_had(kept: Place, archive: str):
    out = kept.mtkit("score", "--metric", "bleu", "--metric", "chrf").out
    assert [line.split()[:2] for line in out.splitlines()] == SCORES[archive]


def test_a_kept_run_is_resumed_with_its_data(kept: Place):
    before = rows(kept)
    kept.done("train", "--run", "runs/kept", "--set", "train.max_steps=2001")
    (added,) = (row for row in rows(kept)[len(before) :] if "valid_loss" in row)
    # One more update changes little.
    assert added["step"] == 2001
    assert added["valid_loss"] == pytest.approx(before[-1]["valid_loss"], abs=0.02)


def test_the_keys_of_metrics_and_states_stay(kept: Place):
    """Other people's scripts read them."""
    before = rows(kept)
    state = "runs/kept/checkpoints/step-0000{}/state.json"
    old = json.loads((kept.folder / state.format(2000)).read_text())
    arguments = ("train.max_steps=2010", "train.log_every=10", "train.valid_every=10")
    kept.mtkit("train", "--run", "runs/kept", *(x for a in arguments for x in ("--set", a)))
    assert [row.keys() for row in rows(kept)[-2:]] == [row.keys() for row in before[-2:]]
    new = json.loads((kept.folder / state.format(2010)).read_text())
    assert new.keys() - {"format", "xxh3"} == old.keys() - {"format", "xxh3", "sha256"}
    assert new["state"].keys() == old["state"].keys()
    assert new["state"]["cost"].keys() == old["state"]["cost"].keys()
    assert new["state"]["validations"][0] == old["state"]["validations"][0]


def test_damage_of_a_kept_checkpoint_is_found(kept: Place):
    name = "step-00002000/model.safetensors"
    file = kept.folder / "runs/kept/checkpoints" / name
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert f"{name}: damaged (its checksum" in kept.refused("translate")


def test_a_kept_run_is_exported_and_translates_as_before(kept: Place, translations: str):
    kept.done("export", "runs/kept", "out", "--format", "safetensors")
    source = (kept.folder / "data/kept/test.src.txt").read_bytes()
    assert kept.mtkit("translate", "--run", "out", stdin=source).out == translations


def test_a_kept_run_can_be_fine_tuned(kept: Place):
    kept.done(
        *("train", "--config", "fine-tune", "--data", "data/kept", "--init-from", "runs/kept"),
        *("--run", "runs/tuned", "--set", "train.max_steps=1", "--set", "train.precision=fp32"),
    )
