"""The faults that `benchmarks/quality.py` plants, and how it counts."""

from types import ModuleType

import pytest
from support.benchmarks import benchmark

SOURCE = "When the rain stopped, we walked 12 miles (or 20) home: nobody said a word."
TARGET = "Als der Regen aufhörte, gingen wir 12 Meilen (oder 20) heim: keiner sagte ein Wort."
PAIRS = [
    (SOURCE, TARGET),
    ("Two dogs run.", "Zwei Hunde rennen."),
    ("The house is old, but it has a new roof.", "Das Haus ist alt, aber es hat ein neues Dach."),
]
THIRD = ["La maison est vieille, mais elle a un toit neuf.", "Deux chiens.", "Non"]


@pytest.fixture
def planting(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that plants faults."""
    return benchmark("faults", monkeypatch)


def test_the_same_seed_plants_the_same_faults_and_no_pair_twice(planting):
    for fault in planting.faults(PAIRS, THIRD):
        planted = planting.planted(fault, PAIRS, count=1000, seed=3)
        assert planted == planting.planted(fault, PAIRS, count=1000, seed=3)
        indices = [index for index, _ in planted]
        assert len(indices) == len(set(indices))
        assert len(planting.planted(fault, PAIRS, count=1, seed=3)) == min(1, len(planted))
        for index, pair in planted:
            assert pair != PAIRS[index]


def test_planted_faults_and_untouched_pairs_are_counted(monkeypatch, tmp_path):
    quality = benchmark("quality", monkeypatch)
    src, tgt, third = (tmp_path / name for name in ("src", "tgt", "third"))
    src.write_text("".join(f"{source}\n" for source, _ in PAIRS), encoding="utf-8")
    tgt.write_text("".join(f"{text}\n" for _, text in PAIRS), encoding="utf-8")
    third.write_text("".join(f"{line}\n" for line in THIRD), encoding="utf-8")
    options = ["planted", "--pairs", str(src), str(tgt), "--third", str(third)]
    options += ["--languages", "en", "de", "--examples", str(tmp_path / "examples")]
    planted, untouched, _ = quality.measure_planted(quality.parser().parse_args(options))
    assert "| phrase three times | 3 | 100.0 % | 100.0 % | loop |" in planted
    assert "| all kinds | 3 | 0 (0.00 %) |" in untouched
    examples = (tmp_path / "examples").read_text(encoding="utf-8").splitlines()
    assert all(len(row.split("\t")) == 4 for row in examples)
