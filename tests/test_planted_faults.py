"""The faults that `benchmarks/quality.py` plants, and how it counts."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
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


def test_a_deleted_clause_leaves_one_of_the_texts_without_a_clause(planting: ModuleType) -> None:
    # Only the first and the last clause have four words or more.
    expected = {
        "gingen wir 12 Meilen (oder 20) heim: keiner sagte ein Wort.",
        "Als der Regen aufhörte, gingen wir 12 Meilen (oder 20) heim.",
    }
    found = {
        planting.clause_deleted((SOURCE, TARGET), random.Random(seed))[1] for seed in range(40)
    }
    assert expected <= found
    assert {len(text.split()) for text in found - expected} <= {11}
    assert planting.clause_deleted(PAIRS[1], random.Random(1)) is None


def test_deleted_words_are_four_to_eight_in_a_row(planting: ModuleType) -> None:
    words = TARGET.split()
    for seed in range(40):
        source, text = planting.words_deleted((SOURCE, TARGET), random.Random(seed))
        left = text.split()
        removed = len(words) - len(left)
        assert source == SOURCE
        assert 4 <= removed <= min(8, len(words) // 2)
        assert any(words[:at] + words[at + removed :] == left for at in range(len(words)))
        assert left[-1] == words[-1]


def test_a_repeated_phrase_is_there_three_times_in_a_row(planting: ModuleType) -> None:
    words = TARGET.split()
    for seed in range(40):
        text = planting.phrase_repeated((SOURCE, TARGET), random.Random(seed))[1].split()
        size, rest = divmod(len(text) - len(words), 2)
        assert rest == 0
        assert any(
            text == words[:at] + 3 * words[at : at + size] + words[at + size :]
            for at in range(len(words))
        )


def test_a_changed_number_differs_in_one_digit_and_does_not_begin_with_zero(
    planting: ModuleType,
) -> None:
    for seed in range(60):
        text = planting.number_changed((SOURCE, TARGET), random.Random(seed))[1]
        different = [at for at in range(len(TARGET)) if text[at] != TARGET[at]]
        assert len(text) == len(TARGET)
        assert len(different) == 1
        assert text[different[0]].isdigit()
        assert " 0" not in text
        assert "(oder 0" not in text
    assert planting.number_changed(PAIRS[1], random.Random(1)) is None


def test_a_changed_number_word_is_another_of_the_same_language(planting: ModuleType) -> None:
    pair = "Four cats and a dog.", "Dort sind vier Katzen und ein Hund."
    found = {planting.number_word_changed(pair, random.Random(seed))[1] for seed in range(30)}
    others = ("zwei", "drei", "fünf")
    assert found == {f"Dort sind {word} Katzen und ein Hund." for word in others}
    assert planting.number_word_changed(PAIRS[0], random.Random(1)) is None


def test_an_inserted_number_is_on_both_sides_but_for_one_digit(planting: ModuleType) -> None:
    for seed in range(40):
        source, text = planting.inserted_number_changed(PAIRS[1], random.Random(seed))
        (number,) = set(source.split()) - set(PAIRS[1][0].split())
        (other,) = set(text.split()) - set(PAIRS[1][1].split())
        assert sum(a != b for a, b in zip(number, other, strict=True)) == 1


def test_a_dropped_placeholder_is_only_missing_in_the_translation(planting: ModuleType) -> None:
    for seed in range(60):
        whole, _ = planting.with_placeholder((SOURCE, TARGET), random.Random(seed))
        source, text = planting.placeholder_dropped((SOURCE, TARGET), random.Random(seed))
        assert source == whole[0] != SOURCE
        missing = Counter(whole[1].replace(" ", "")) - Counter(text.replace(" ", ""))
        assert len(text) < len(whole[1])
        # Nothing of the translation itself is missing.
        assert not Counter(TARGET.replace(" ", "")) - Counter(text.replace(" ", ""))
        assert missing


def test_a_cut_translation_is_the_beginning_of_it(planting: ModuleType) -> None:
    words = TARGET.split()
    lengths = set()
    for seed in range(60):
        text = planting.cut((SOURCE, TARGET), random.Random(seed))[1].split()
        assert text == words[: len(text)]
        lengths.add(len(text))
    assert lengths == set(range(5, 10 + 1))
    assert planting.cut(PAIRS[1], random.Random(1)) is None


def test_the_same_seed_plants_the_same_faults_and_no_pair_twice(planting: ModuleType) -> None:
    for fault in planting.faults(PAIRS, THIRD):
        found = planting.planted(fault, PAIRS, count=1000, seed=3)
        assert found == planting.planted(fault, PAIRS, count=1000, seed=3)
        indices = [index for index, _ in found]
        assert len(indices) == len(set(indices))
        assert len(planting.planted(fault, PAIRS, count=1, seed=3)) == min(1, len(found))
        for index, pair in found:
            assert pair != PAIRS[index]


def test_a_third_language_is_the_line_with_the_most_similar_length(planting: ModuleType) -> None:
    (fault,) = (one for one in planting.faults(PAIRS, THIRD) if one.name == "third language")
    assert fault.plant(PAIRS[2], random.Random(1)) == (PAIRS[2][0], THIRD[0])
    assert fault.plant(PAIRS[1], random.Random(1)) == (PAIRS[1][0], THIRD[1])


def test_equal_values_have_their_mean_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    quality = benchmark("quality", monkeypatch)
    assert quality.ranks([3.0, 1.0, 3.0, 2.0]) == [2.5, 0.0, 2.5, 1.0]
    # By hand: differences of the ranks 0, 1, 1, 0, so 1 - 6 * 2 / (4 * 15).
    assert quality.spearman([1, 2, 3, 4], [10, 30, 20, 40]) == pytest.approx(0.8)


def test_planted_faults_and_untouched_pairs_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
