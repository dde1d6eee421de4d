"""Noise in training pairs: what it changes, how often, and what it leaves alone."""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TinyText
from hypothesis import given
from hypothesis import strategies as st
from support.errors import message_of
from support.prepared import prepare_trees
from support.runs import contents

from mtkit.base.errors import MtkitError
from mtkit.cli import tables
from mtkit.data import PreparedData
from mtkit.prepare import Treebank, prepare_files
from mtkit.prepare.noise import LETTERS_PER_TYPO, Noise
from mtkit.prepare.results import Report
from mtkit.prepare.statistics import write_page
from mtkit.prepare_config import NoiseConfig, prepare_config

KINDS = ["case", "title", "typos", "punctuation"]
SENTENCE = "the quick brown fox jumps over it"


def noisy(
    kind: str, src: str, tgt: str, *, symbols: Sequence[str] = (), line: int = 1
) -> tuple[str, str] | None:
    """A pair with noise of a kind; None if it cannot have it."""
    changed = Noise(NoiseConfig(**{kind: 1.0}), symbols)([[src], [tgt]], source=0, lines=at(line))
    assert [pair.kind for pair in changed] == [kind] * len(changed)
    return (changed[0].src, changed[0].tgt) if changed else None


def at(*lines: int) -> Any:
    return np.array(lines)


@pytest.mark.parametrize(
    ("kind", "src", "tgt", "expected"),
    [
        ("case", "Is it big?", "Ist die Straße groß?", ("IS IT BIG?", "IST DIE STRASSE GROSS?")),
        # A side whose letters have no case stays; so does a pair with such a source.
        ("case", "my iPhone", "我的iPhone很好", ("MY IPHONE", "我的iPhone很好")),
        ("case", "我的iPhone很好", "my iPhone", None),
        ("case", "123 !?", "hello", None),
        ("case", "NASA", "nasa", None),
        (
            "title",
            "NATO said “it isn't” (not yet), 5th of e-mail",
            "die «alte» straße",
            ("NATO Said “It Isn't” (Not Yet), 5th Of E-mail", "Die «Alte» Straße"),
        ),
        ("title", "l'homme  est là", "¿qué es?", ("L'homme  Est Là", "¿Qué Es?")),
        ("title", "Hello You", "hallo du", None),
        ("title", "你好", "hello", None),
        ("punctuation", "Who?!", "Wer?", ("Who", "Wer")),
        ("punctuation", "Wait...", "Warte…", ("Wait", "Warte")),
        # Marks that are words of their own, and spaces around them.
        ("punctuation", "Quoi ? ! ", "你好。", ("Quoi", "你好")),
        ("punctuation", "नमस्ते।", "مرحبا؟", ("नमस्ते", "مرحبا")),
        # A side has none at its end, or nothing else.
        ("punctuation", "He came:", "Er kam.", None),
        ("punctuation", 'He said "yes."', "Er sagte ja.", None),
        ("punctuation", "He came ", "Er kam.", None),
        ("punctuation", "...", "Na ja.", None),
    ],
)
def test_each_kind_changes_what_it_says(kind, src, tgt, expected):
    assert noisy(kind, src, tgt) == expected


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_there_is_one_typing_error_for_every_forty_letters_in_the_source_alone(repeats):
    text = " ".join([SENTENCE] * repeats)
    pairs = [noisy("typos", text, "ein Satz", line=line) for line in range(30)]
    for pair in pairs:
        assert pair is not None
        assert pair[1] == "ein Satz"
        changed = [a != b for a, b in zip(text.split(), pair[0].split(), strict=True)]
        assert sum(changed) == math.ceil(sum(map(len, text.split())) / LETTERS_PER_TYPO)
    assert len(set(pairs)) > 20


def test_an_error_swaps_drops_doubles_or_replaces_a_letter():
    # Of two letters, each of these gives another text.
    swapped, dropped, doubled, replaced = {"ba"}, {"a", "b"}, {"aab", "abb"}, {"aa", "bb"}
    sources = {pair[0] for n in range(200) if (pair := noisy("typos", "ab", "x", line=n))}
    assert sources == swapped | dropped | doubled | replaced


@pytest.mark.parametrize(
    "text",
    [
        "a 1 ! ?",
        "https://example.org/page me@example.org {name} %s <b> covid19 4th R&D and/or",
        "",
        "\u0301\u0301",
        "😀👩‍👩‍👧",
    ],
)
def test_a_source_without_words_of_letters_has_no_errors(text):
    assert noisy("typos", text, "ein Satz") is None


@pytest.mark.parametrize("kind", KINDS)
def test_words_with_a_user_defined_symbol_stay(kind):
    for line in range(20):
        pair = noisy(kind, "<2de> hello (<b>.)", "hallo <b>.", symbols=["<2de>", "<b>"], line=line)
        if kind == "punctuation":
            assert pair is None
            assert noisy(kind, "hello <b>. !", "hallo.", symbols=["<b>."], line=line) is None
            continue
        assert pair is not None
        assert pair[0].split()[::2] == ["<2de>", "(<b>.)"]
        assert pair[0].split()[1] != "hello"
        assert pair[1].split()[1] == "<b>."


@given(st.sampled_from(KINDS), st.text(max_size=90), st.text(max_size=90), st.integers(0, 2**63))
def test_no_text_is_emptied_and_words_keep_their_places(kind, src, tgt, line):
    pair = noisy(kind, src, tgt, line=line)
    if pair is None:
        return
    assert pair[0] != src
    for before, after in zip((src, tgt), pair, strict=True):
        assert after.strip() or not before.strip()
        if kind == "punctuation":
            # The end is missing, and nothing else.
            assert before.startswith(after)
        else:
            assert len(after.split()) == len(before.split())
            assert [len(word) > 0 for word in after.split(" ")] == [
                len(word) > 0 for word in before.split(" ")
            ]


def chosen(
    config: NoiseConfig, lines: Sequence[int], source: int = 0
) -> dict[int, tuple[str, str]]:
    """The kind and the source of the lines with noise."""
    texts = [[f"{SENTENCE}."] * len(lines), ["ein Satz."] * len(lines)]
    changed = Noise(config)(texts, source=source, lines=np.array(lines))
    return {lines[pair.place]: (pair.kind, pair.src) for pair in changed}


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_the_shares_are_the_probabilities_within_binomial_limits(seed):
    shares = {"case": 0.05, "title": 0.01, "typos": 0.2, "punctuation": 0.1}
    pairs = 20_000
    kinds = [kind for kind, _ in chosen(NoiseConfig(**shares, seed=seed), range(pairs)).values()]
    for kind, share in shares.items():
        # Four standard deviations: one in 16,000 seeds would miss it.
        limit = 4 * math.sqrt(pairs * share * (1 - share))
        assert abs(kinds.count(kind) - pairs * share) < limit


def test_noise_depends_on_the_seed_the_source_and_the_line_alone():
    config = NoiseConfig(case=0.1, typos=0.4)
    lines = list(range(1, 400))
    together = chosen(config, lines)
    some = random.Random(1).sample(lines, 150)
    assert chosen(config, some) == {line: together[line] for line in some if line in together}
    assert chosen(config.model_copy(update={"seed": 2}), lines) != together
    assert chosen(config, lines, source=1) != together


def prepare(text: TinyText, out: Path, *overrides: str, **changes: Any) -> Report:
    # Enough for the capitals too.
    arguments = {**text.prepare_arguments(), "vocab_size": 330, **changes}
    return prepare_files("noisy", out, **arguments, overrides=overrides)


def pairs_of(folder: Path, split: Any = "train") -> list[tuple[str, str]]:
    data = PreparedData.open(folder)
    pairs = data.pairs(split)
    src, tgt = data.tokenizers()
    return [
        (src.decode(pairs.src[place][:-1]), tgt.decode(pairs.tgt[place][:-1]))
        for place in range(len(pairs))
    ]


def test_with_probability_1_every_training_pair_is_changed_and_no_other(
    tiny_text, tiny_data, tmp_path
):
    report = prepare(tiny_text, tmp_path / "out", "noise.case=1")
    clean = pairs_of(tiny_data.path)
    assert pairs_of(tmp_path / "out") == [(src.upper(), tgt.upper()) for src, tgt in clean]
    assert pairs_of(tmp_path / "out", "valid") == pairs_of(tiny_data.path, "valid")
    for split in ("valid", "test"):
        for side in ("src", "tgt"):
            name = f"{split}.{side}.txt"
            assert (tmp_path / "out" / name).read_bytes() == (tiny_data.path / name).read_bytes()
    assert report.noise == {"case": 200}


def test_the_report_the_manifest_and_the_page_count_the_pairs_with_each_noise(
    tiny_text, tiny_data, tmp_path
):
    report = prepare(tiny_text, tmp_path / "out", noise={"case": 0.3, "typos": 0.2})
    pairs = list(zip(pairs_of(tiny_data.path), pairs_of(tmp_path / "out"), strict=True))
    upper = sum(after == (before[0].upper(), before[1].upper()) for before, after in pairs)
    typos = sum(after[0] != before[0] and after[1] == before[1] for before, after in pairs)
    assert upper + typos + sum(before == after for before, after in pairs) == 200
    assert report.noise == {"case": upper, "typos": typos}
    assert min(upper, typos) > 10
    data = PreparedData.open(tmp_path / "out")
    assert data.manifest.counts["noise"] == report.noise
    assert data.manifest.settings["noise"] == NoiseConfig(case=0.3, typos=0.2).model_dump()
    printed = tables.preparation(report)
    assert f"with noise: case {upper} {upper / 2:.2f}%" in " ".join(printed.split())
    write_page(tmp_path / "page.html", data, report)
    assert f"case: {upper}" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_subwords_are_learned_from_the_noise_too(tiny_text, tiny_data, tmp_path):
    prepare(tiny_text, tmp_path / "out", "noise.case=0.5", vocab_size=380)
    (clean, _), (learned, _) = (
        data.tokenizers() for data in (tiny_data, PreparedData.open(tmp_path / "out"))
    )
    # No capital is in the clean text, so each of these is a byte.
    assert clean.is_fallback[clean.encode("SEVEN")].sum() == 5
    assert not learned.is_fallback[learned.encode("SEVEN")].any()
    assert len(learned.encode("SEVEN")) < 5


def test_the_filters_drop_the_same_pairs_with_noise(tiny_text, tiny_data, tmp_path):
    files = []
    for file in tiny_text.train:
        lines = file.read_text(encoding="utf-8").split("\n")
        # Repeated, much longer than the other side, and in the wrong language.
        lines[7] = lines[3]
        lines[11] = "one two" if file.suffix == ".en" else "null eins " * 20
        lines[20] = "fünf sechs vier" if file.suffix == ".en" else "four six five"
        files.append(tmp_path / file.name)
        files[-1].write_text("\n".join(lines), encoding="utf-8")
    dropped = []
    for name, case in (("clean", 0), ("noisy", 1)):
        # With the same subwords, because other ones have other lengths.
        changes = {"train": [tuple(files)], "vocab_size": None, "tokenizer_from": tiny_data.path}
        report = prepare(tiny_text, tmp_path / name, f"noise.case={case}", **changes)
        assert set(report.dropped) == {"duplicate", "length ratio", "wrong language"}
        dropped.append((tmp_path / name / "dropped.tsv.gz").read_bytes())
    assert dropped[0] == dropped[1]


def test_a_pair_whose_noise_would_be_too_long_stays_as_it_is(tiny_text, tiny_data, tmp_path):
    # Capitals are not in this vocabulary, so each is a byte or two.
    clean = tiny_data.pairs("train")
    most = int(max(clean.src.lengths.max(), clean.tgt.lengths.max()))
    changes = {"vocab_size": None, "tokenizer_from": tiny_data.path}
    report = prepare(tiny_text, tmp_path / "out", "noise.case=1", f"max_tokens={most}", **changes)
    pairs = PreparedData.open(tmp_path / "out").pairs("train")
    assert len(pairs) == 200
    assert max(pairs.src.lengths.max(), pairs.tgt.lengths.max()) <= most
    both = list(zip(pairs_of(tiny_data.path), pairs_of(tmp_path / "out"), strict=True))
    changed = sum(before != after for before, after in both)
    assert report.noise == {"case": changed}
    assert 0 < changed < 200
    for before, after in both:
        assert after in (before, (before[0].upper(), before[1].upper()))


@pytest.mark.parametrize("kind", KINDS)
def test_word_alignments_stay_with_their_words(kind, tiny_text, tmp_path):
    # Each source word is linked with its translation; the last words are marks of punctuation.
    files = []
    for side, file in enumerate(tiny_text.train):
        lines = file.read_text(encoding="utf-8").splitlines()
        files.append(tmp_path / file.name)
        mark = " ." if side else " !"
        files[-1].write_text("".join(f"{line}{mark}\n" for line in lines), encoding="utf-8")
    counts = [len(line.split()) for line in files[0].read_text(encoding="utf-8").splitlines()]
    links = [
        [*((word, count - 2 - word) for word in range(count - 1)), (count - 1, count - 1)]
        for count in counts
    ]
    (tmp_path / "links").write_text(
        "".join(" ".join(f"{i}-{j}" for i, j in line) + "\n" for line in links)
    )
    changes = {"train": [tuple(files)], "alignments": [tmp_path / "links"]}
    report = prepare(
        tiny_text, tmp_path / "out", f"noise.{kind}=1", "drop_overlap=false", **changes
    )
    assert report.noise == {kind: 200}
    stored = PreparedData.open(tmp_path / "out").pairs("train").links
    assert stored is not None
    for index, of_pair in enumerate(links):
        # Without their words, the links of the marks are gone.
        expected = sorted(of_pair[:-1] if kind == "punctuation" else of_pair)
        numbers = stored[index]
        assert list(zip(numbers[::2], numbers[1::2], strict=True)) == expected


def test_a_noise_that_no_pair_can_have_is_said(tiny_text, tmp_path, caplog):
    assert prepare(tiny_text, tmp_path / "out", "noise.punctuation=1").noise == {"punctuation": 0}
    assert "noise.punctuation: no training pair got it" in caplog.text


def test_noise_does_not_depend_on_the_number_of_processes(tiny_text, tmp_path, monkeypatch):
    monkeypatch.setattr("mtkit.prepare.passes.BLOCK", 30)
    noise = {"case": 0.2, "title": 0.2, "typos": 0.4}
    for workers in (1, 2):
        prepare(tiny_text, tmp_path / str(workers), workers=workers, noise=noise)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_trees_have_no_noise(tree_files, tmp_path):
    train, valid = (Treebank(tree_files[split]) for split in ("train", "valid"))
    arguments = {"train": [train], "valid": valid, "overrides": ["noise.typos=0.1"]}
    with pytest.raises(MtkitError, match=r"^noise: is for sentence pairs, "):
        prepare_trees("trees", tmp_path / "trees", **arguments)
    assert not (tmp_path / "trees").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("noise.cas=0.1", "unknown key noise.cas; did you mean noise.case?"),
        ("noise.case=1.1", "noise.case: expected less than or equal to 1, not 1.1"),
        ("noise.case", "--set noise.case: write key=value, as in max_ratio=3"),
        (
            "noise.title=0.7",
            "noise.case, title, typos, punctuation add up to 1.2, and must not exceed 1: a pair "
            "gets at most one of them",
        ),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(override, message):
    assert message_of(prepare_config, {"noise": {"case": 0.5}}, [override]) == message


def test_settings_of_noise_are_given_one_by_one_and_as_a_group():
    expected = NoiseConfig(case=0.25, typos=0.5, seed=3)
    assert (
        prepare_config({}, ["noise.case=0.25", "noise.typos=.5", "noise.seed=3"]).noise == expected
    )
    for given_noise in ({"case": 0.25, "typos": 0.1}, NoiseConfig(case=0.25, typos=0.1)):
        config = prepare_config({"noise": given_noise}, ["noise.typos=0.5", "noise.seed=3"])
        assert config.noise == expected
    # Ten times 0.1 is not exactly 1 in binary.
    assert prepare_config({}, [f"noise.{kind}=0.1" for kind in KINDS] + ["noise.case=0.7"]).noise
