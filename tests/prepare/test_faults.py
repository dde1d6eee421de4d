"""A corpus with every fault: each is found and named, and nothing else is lost."""

import functools
import gzip
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.demo_grammar import SEED, sentences

from mtkit.data import PreparedData
from mtkit.prepare import passes, prepare_files
from mtkit.prepare.readers import memory, parallel_files
from mtkit.prepare.results import Report

Pair = tuple[bytes, bytes]

# The misaligned segment: in these lines the target is that of the line before.
SHIFTED = range(2001, 2401)
# Right pairs that may be lost at each of its ends, because lengths alone do not show them.
ENDS = 15


@functools.cache
def sound_pairs() -> list[tuple[str, str]]:
    """3,200 different pairs of the built-in grammar."""
    pairs: dict[str, str] = {}
    targets: set[str] = set()
    for (english, german), _ in sentences(SEED):
        if english not in pairs and german not in targets:
            pairs[english] = german
            targets.add(german)
        if len(pairs) == 3200:
            break
    return list(pairs.items())


@dataclass
class Faulty:
    """A corpus with faults.

    Attributes:
        lines: the bytes of its training pairs.
        faults: why a line must be dropped, but for those misaligned.
        overlaps: lines that have a side of the test set.
    """

    lines: list[Pair]
    faults: dict[int, str]
    overlaps: dict[int, str]


@pytest.fixture(scope="module")
def faulty():
    sound = sound_pairs()
    train, test = sound[:3000], sound[3100:]
    lines = [(src.encode(), tgt.encode()) for src, tgt in train]
    faults: dict[int, str] = {}

    def plant(line: int, reason: str, src: str | bytes | None, tgt: str | bytes | None) -> None:
        sides = [
            old if new is None else new.encode() if isinstance(new, str) else new
            for old, new in zip(lines[line - 1], (src, tgt), strict=True)
        ]
        lines[line - 1] = sides[0], sides[1]
        if reason:
            assert line not in faults
            faults[line] = reason

    plant(10, "not UTF-8", None, "Die T\xfcr ist zu.".encode("latin-1"))
    plant(11, "not UTF-8", b"The door is \xff\xfe open.", None)
    for line, sign in enumerate("\0\u0085\u2028\u2029\ufeff\ufffd\x1b", start=20):
        plant(line, "control characters", f"The door{sign}is open.", None)
    plant(40, "empty", "", None)
    plant(41, "empty", None, " \u3000\u200b\t")
    plant(42, "empty", "", "")
    plant(43, "empty", None, "\0")
    plant(50, "too long", "one " * 250_000, None)
    plant(51, "too long", None, b"\xff" * 1_000_000)
    plant(52, "too long", "so " * 300, "so " * 299)  # in subwords
    plant(60, "wrong script", None, "Дверь закрыта, и окно открыто.")
    plant(61, "wrong script", "门已经关上了。", None)
    plant(62, "few letters", "==== 12 ==== 34 ====", None)
    plant(70, "identical sides", "Berlin", "Berlin")
    plant(71, "identical sides", train[700][0], f" {train[700][0]} ")
    for line in range(80, 90):
        plant(line, "wrong language", train[line - 1][1], train[line - 1][0])
    for line in range(90, 100):
        # Not translated, but changed a little.
        plant(line, "wrong language", None, train[line - 1][0][:-1] + " !")
    plant(100, "length ratio", "Yes.", " ".join(pair[1] for pair in train[200:204]))
    plant(1500, "duplicate", *train[150])
    plant(1501, "duplicate", f"  {train[150][0]}".replace(" ", "\t "), f"{train[150][1]}\u00a0")
    plant(1502, "duplicate", wide(train[151][0]), wide(train[151][1]))
    for line in range(1510, 1520):
        # Other translations of one sentence; ten of them may stay.
        plant(line, "", "Everything is fine here.", None)
    plant(1520, "repeated side", "Everything is fine here.", None)
    plant(1521, "repeated side", "Everything  is ﬁne here.", None)
    # Between two of these lines a target got in, and later one was lost.
    targets = [lines[line - 1][1] for line in SHIFTED]
    for line, tgt in zip(SHIFTED, [sound[3050][1].encode(), *targets], strict=False):
        plant(line, "", None, tgt)
    overlaps = {2500: "src", 2501: "tgt", 2502: "both", 2503: "both"}
    plant(2500, "", test[0][0], None)
    plant(2501, "", None, test[1][1])
    plant(2502, "", *test[2])
    plant(2503, "", wide(test[3][0]), f" {test[3][1]}")
    return Faulty(lines, faults, overlaps)


def wide(text: str) -> str:
    """In letters as wide as Chinese ones, which are the same letters to a reader."""
    return "".join(chr(ord(c) + 0xFEE0) if "a" <= c <= "z" else c for c in text)


def prepared(faulty: Faulty, folder: Path, **changes: Any) -> tuple[PreparedData, Report]:
    """The faulty corpus, with a mark at its start and Windows line ends at the end of one side."""
    sound, src, tgt = sound_pairs(), folder / "train.en", folder / "train.de"
    src.write_bytes(b"\xef\xbb\xbf" + b"".join(pair[0] + b"\n" for pair in faulty.lines))
    tgt.write_bytes(
        b"".join(
            pair[1] + (b"\r\n" if line > 2900 else b"\n")
            for line, pair in enumerate(faulty.lines, start=1)
        )
    )
    report = prepare_files(
        "faulty",
        folder / changes.pop("name", "out"),
        src_lang="en",
        tgt_lang="de",
        train=[parallel_files(src, tgt)],
        valid=memory("valid", sound[3000:3050]),
        test=memory("test", sound[3100:]),
        vocab_size=600,
        **{"workers": 1, **changes},
    )
    return PreparedData.open(report.path), report


def dropped(data: PreparedData) -> dict[int, str]:
    text = gzip.decompress((data.path / "dropped.tsv.gz").read_bytes()).decode()
    rows = [row.split("\t") for row in text.split("\n")[1:-1]]
    reasons = {int(line): reason for _, line, reason in rows}
    # In order, each once.
    assert list(reasons) == sorted(reasons)
    assert len(reasons) == len(rows)
    return reasons


@pytest.mark.parametrize("drop_overlap", [False, True])
def test_every_fault_is_named_with_its_line_and_all_other_pairs_stay(
    drop_overlap, faulty, tmp_path
):
    data, report = prepared(faulty, tmp_path, drop_overlap=drop_overlap)
    reasons = dropped(data)
    misaligned = {line for line, reason in reasons.items() if reason == "misaligned"}
    # Every line of the segment; of those beside it only the next.
    assert set(SHIFTED) <= misaligned
    assert min(misaligned) >= SHIFTED.start - ENDS
    assert max(misaligned) < SHIFTED.stop + ENDS
    wanted = dict(faulty.faults)
    if drop_overlap:
        wanted |= dict.fromkeys(faulty.overlaps, "overlap")
    assert {line: reason for line, reason in reasons.items() if line not in misaligned} == wanted
    # What was kept is every other pair, in order, nothing but the form of its text changed.
    (tokenizer, _), pairs = data.tokenizers(), data.pairs("train")
    kept = [line for line in range(1, 3001) if line not in reasons]
    assert len(pairs) == len(kept)
    for index, line in enumerate(kept):
        for side, ids in enumerate((pairs.src[index], pairs.tgt[index])):
            assert ids == [*tokenizer.encode(faulty.lines[line - 1][side].decode()), 2]
    for index in range(300, 400):
        assert tokenizer.decode(pairs.tgt[index]) == faulty.lines[kept[index] - 1][1].decode()
    # The same in numbers.
    counts = data.manifest.counts
    assert counts["pairs"]["train"] == 3000 == counts["kept"] + len(reasons)
    assert sum(counts["dropped"].values()) == len(reasons)
    assert counts["overlap"] == {"src": 3, "tgt": 3, "both": 2}
    (source,) = data.manifest.sources["train"]
    # Line 24 has U+FEFF, and line 41 U+200B.
    invisible = {"pair with invisible characters (they are dropped)": 2}
    assert source["fixed"] == {"byte-order mark": 1, "CRLF line end": 100} | invisible
    ((_, first, last, by),) = report.misaligned
    assert set(range(first, last + 1)) >= set(SHIFTED)
    assert by == 1
    assert {sample.reason for sample in report.samples} == set(reasons.values())
    assert all(reasons[sample.line] == sample.reason for sample in report.samples)


def test_neither_blocks_nor_processes_change_what_is_found(faulty, tmp_path, monkeypatch):
    whole, _ = prepared(faulty, tmp_path, name="whole")
    monkeypatch.setattr(passes, "BLOCK", 170)
    monkeypatch.setattr(passes, "PART", 4)
    alone, _ = prepared(faulty, tmp_path, name="one")
    two, _ = prepared(faulty, tmp_path, name="two", workers=2)
    names = {file.name for file in whole.path.iterdir()}
    for data in (alone, two):
        assert {file.name for file in data.path.iterdir()} == names
        assert dropped(data) == dropped(whole)
    for name in names:
        files = [(data.path / name).read_bytes() for data in (whole, alone, two)]
        assert files[1] == files[2], name
        # The list of what was dropped is compressed part by part.
        if name not in ("dropped.tsv.gz", "manifest.json"):
            assert files[0] == files[1], name


def test_rules_that_are_turned_off_drop_nothing(faulty, tmp_path):
    rules = ("control_characters", "identical", "duplicates", "misaligned", "wrong_language")
    off = [f"drop_{rule}=false" for rule in rules] + ["max_repeats=null"]
    most = {"max_ratio": 1e6, "max_tokens": 2000, "max_chars": 10_000_000}
    least = {"min_letters": 0.0, "min_script": 0.0}
    data, report = prepared(faulty, tmp_path, overrides=off, **least, **most)
    # What can be no pair at all; of a megabyte in subwords there are more than those.
    wanted = {line: r for line, r in faulty.faults.items() if r in ("not UTF-8", "empty")}
    assert dropped(data) == wanted | {50: "too long", 51: "not UTF-8"}
    assert report.misaligned == []


LINE = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n")
    | st.sampled_from(list(" \t\0\r\u0085\u2028\ufeff\ufffdaeäñ.1ﬁ")),
    max_size=8,
)
RULES = st.fixed_dictionaries(
    {
        "drop_control_characters": st.booleans(),
        "min_letters": st.sampled_from([0.0, 0.3]),
        "min_script": st.sampled_from([0.0, 0.5]),
        "shared_vocab": st.booleans(),
        "max_ratio": st.sampled_from([1.0, 4.0, 100.0]),
    }
)


@settings(max_examples=12, phases=[Phase.generate])
@given(st.lists(st.tuples(LINE, LINE), min_size=1, max_size=8), RULES, st.integers(20, 90))
def test_pairs_of_any_lines_stay_paired_and_none_is_lost(odd, rules, block):
    sound = sound_pairs()
    # Between sound pairs, so that there is something to learn from.
    pairs = [*sound[:150], *odd, *sound[150:200]]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "BLOCK", block)
        patch.setattr(passes, "PART", 2)
        files = [(Path(folder, f"{split}.en"), Path(folder, f"{split}.de")) for split in "tv"]
        for of_split, those in zip(files, (pairs, [sound[0], *odd]), strict=True):
            for side, file in enumerate(of_split):
                file.write_bytes("".join(f"{pair[side]}\n" for pair in those).encode())
        report = prepare_files(
            "odd",
            Path(folder, "out"),
            src_lang="en",
            tgt_lang="de",
            train=[parallel_files(*files[0])],
            valid=parallel_files(*files[1]),
            vocab_size=460,
            workers=1,
            **rules,
        )
        data = PreparedData.open(report.path)
        data.verify()
        reasons, tokenizers = dropped(data), data.tokenizers()
        kept = [line for line in range(1, len(pairs) + 1) if line not in reasons]
        arrays = data.pairs("train")
        assert len(arrays) == len(kept)
        for index, line in enumerate(kept):
            for tokenizer, ids, text in zip(
                tokenizers, (arrays.src[index], arrays.tgt[index]), pairs[line - 1], strict=True
            ):
                # That is part of the line's end.
                assert ids == [*tokenizer.encode(text.removesuffix("\r")), 2]
        # Nothing is dropped from the validation set, whose text is what it was.
        wanted = [(src.removesuffix("\r"), tgt.removesuffix("\r")) for src, tgt in odd]
        assert list(zip(*data.text("valid"), strict=True)) == [sound[0], *wanted]
        assert len(data.pairs("valid")) == 1 + len(odd)
    assert report.pairs["train"] == len(pairs) == len(kept) + len(reasons)
    assert sum(report.dropped.values()) == len(reasons)
    # The sound ones stay, unless they are as unequal as the rules forbid.
    lost = [line for line in reasons if line <= 150 or line > 150 + len(odd)]
    assert {reasons[line] for line in lost} <= {"length ratio"}
