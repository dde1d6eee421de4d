"""Which pairs are dropped, and why: each rule at its border, and against plain implementations."""

import itertools
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from mtkit.prepare import filters, misalignment
from mtkit.prepare.misalignment import Misalignment, find_misaligned, find_unrelated
from mtkit.prepare_config import PrepareConfig

IntArray = npt.NDArray[np.int64]


def checks_of(
    pairs: Sequence[tuple[str | bytes, str | bytes]],
    *,
    languages: tuple[str, str] = ("en", "de"),
    held_out: tuple[Sequence[str], Sequence[str]] = ((), ()),
    **rules: Any,
) -> filters.PairChecks:
    """What a cleaner finds; the defaults, but for some rules."""
    sides = [
        [side if isinstance(side, bytes) else side.encode() for side in of_side]
        for of_side in zip(*pairs, strict=True)
    ]
    keys = [np.unique(filters.keys_of([text.encode() for text in texts])) for texts in held_out]
    cleaner = filters.Cleaner(PrepareConfig(**rules), *languages, (keys[0], keys[1]))
    return cleaner((sides[0], sides[1]))


def reason_of(
    src: str | bytes,
    tgt: str | bytes = "ein Satz",
    *,
    languages: tuple[str, str] = ("en", "de"),
    held_out: tuple[Sequence[str], Sequence[str]] = ((), ()),
    **rules: Any,
) -> str:
    """What becomes of one pair; the same the other way round."""
    there = checks_of([(src, tgt)], languages=languages, held_out=held_out, **rules)
    other = checks_of([(tgt, src)], languages=languages[::-1], held_out=held_out[::-1], **rules)
    assert there.codes[0] == other.codes[0]
    return filters.REASONS[there.codes[0]]


@pytest.mark.parametrize(
    "nothing",
    ["", " ", "\t\t", "\u3000\u00a0", "\u200b\u200d\u2060", "\u00ad", "\r", "\0", "\u2028\u2029"],
)
def test_invisible_characters_are_empty(nothing):
    assert reason_of(nothing) == "empty"
    assert reason_of(nothing, nothing) == "empty"
    assert reason_of(f"a{nothing}", drop_control_characters=False) == "kept"


def test_a_side_may_have_as_many_characters_as_allowed():
    for letter in ("a", "ä", "я", "漢", "𝕒"):
        assert reason_of(letter * 20, max_chars=20, min_script=0.0) == "kept"
        assert reason_of(letter * 21, max_chars=20, min_script=0.0) == "too long"


CONTROLS = [*map(chr, [0, 1, 0xB, 0xC, 0xD, 0x1B, 0x1C, 0x7F, 0x85, 0x9F])]


@pytest.mark.parametrize("sign", [*CONTROLS, "\u2028", "\u2029", "\ufeff", "\ufffd"])
def test_controls_line_separators_inner_marks_and_replaced_characters_tell_of_damage(sign):
    assert reason_of(f"one{sign}two") == "control characters"
    assert reason_of(f"one two{sign}") == "control characters"
    assert reason_of(f"one{sign}two", drop_control_characters=False) == "kept"


def test_a_tab_and_joining_characters_are_not_damage():
    # The joiners are part of how Persian and Hindi are written.
    for sign in ("\t", "\u200c", "\u200d", "\u00ad", "\u200f"):
        assert reason_of(f"one{sign}two") == "kept"


def test_letters_and_digits_must_be_a_share_of_what_can_be_seen():
    assert reason_of("abc12 -----") == "kept"
    assert reason_of("abc1 \t -----") == "few letters"
    assert reason_of("ab ........", min_letters=0.2) == "kept"
    assert reason_of("--------", min_letters=0.0) == "kept"
    # Vowel signs are marks, and parts of letters.
    assert reason_of("कि .....", languages=("hi", "de"), min_letters=0.28) == "kept"


# Chinese is written with some of the signs of the other two.
def test_half_of_the_letters_may_be_in_another_script():
    assert reason_of("дом HAUS 12", languages=("ru", "de")) == "wrong script"
    assert reason_of("дома HAUS 12", languages=("ru", "de")) == "kept"
    assert reason_of("дом HAUS 12", languages=("ru", "de"), min_script=0.4) == "kept"


SCRIPTS = (
    "en:a ru:я el:ω zh:漢 ar:ع hi:ह"
    " sr:яa sr-RS:я sr-ME:a sr-Cyrl:я az:aяع kk:яع sr-Latn:a sr_Latn:a"
    " zh-TW:漢 zh_Hant:漢 cmn:漢 ja:漢あカ ko:漢한 pes:ع azb_Arab:ع de-1901:a pt-BR:a"
)


@pytest.mark.parametrize("case", SCRIPTS.split())
def test_a_side_must_be_in_the_script_that_its_code_has_or_names(case):
    language, scripts = case.split(":")
    for letter in "aяω漢あカ한عह":
        reason = "kept" if letter in scripts else "wrong script"
        assert reason_of(letter, languages=(language, "de")) == reason, letter


# Spoken languages, too, of which it is not known how they are written.
@pytest.mark.parametrize("language", ["", "xx", "x", "und", "mul", "qaa", "a b", "123", "pbt"])
def test_an_unknown_language_may_be_in_any_script(language):
    for letter in "aяω漢あ한ع":
        assert reason_of(letter, languages=(language, "de")) == "kept"


def test_equal_sides_are_dropped_if_there_is_a_letter_in_them():
    assert reason_of("Berlin", "Berlin") == "identical sides"
    assert reason_of("  Berlin\t2 ", "Berlin 2") == "identical sides"
    assert reason_of("ﬁne", "fine") == "identical sides"
    assert reason_of("Berlin", "berlin") == "kept"
    assert reason_of("Berlin", "Berlin", drop_identical=False) == "kept"
    assert reason_of("1 + 1", "1 + 1", min_letters=0.0) == "kept"


def test_a_pair_is_dropped_for_the_first_reason_that_holds():
    rules = {"max_chars": 10, "drop_overlap": True, "held_out": (["1 a"], [])}
    assert reason_of(b"\xff" * 41, **rules) == "too long"
    assert reason_of(b"\xff" * 40, **rules) == "not UTF-8"
    assert reason_of(b"\xff", "", **rules) == "not UTF-8"
    assert reason_of(" " * 11, **rules) == "empty"
    assert reason_of("\0" + "1" * 11, **rules) == "too long"
    assert reason_of("\0" + "1" * 9, **rules) == "control characters"
    assert reason_of("я" + "-" * 9, **rules) == "few letters"
    assert reason_of("я", "я", **rules) == "wrong script"
    assert checks_of([("1 a", "1 a")], **rules).codes[0] == filters.reason_code("identical sides")


# What the generator of texts likes too seldom.
ODD = st.sampled_from(list("\t\0\r\u0085\u2028\ufeff\ufffd\u200b\u0301\u00adñπя漢ﬁ①१😀"))
LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n") | ODD)


OF_LANGUAGE = {
    "ru": r"[\p{Cyrillic}\p{Common}\p{Inherited}]",
    "ja": r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Common}\p{Inherited}]",
}


def plain_counts(line: str, language: str) -> list[int]:
    """Characters, visible ones, controls, letters, letters of the script: one by one."""
    visible = controls = letters = of_script = 0
    for char in line:
        # There are no letters so far out, only marks that choose a variant of one.
        category = unicodedata.category(char) if ord(char) < 0x40000 else "Cn"
        visible += category[0] != "Z" and category not in ("Cc", "Cf")
        controls += (category in ("Cc", "Zl", "Zp") and char != "\t") or char in "\ufeff\ufffd"
        is_letter = category[0] in "LM"
        letters += is_letter
        of_script += is_letter and regex.match(OF_LANGUAGE[language], char) is not None
    return [len(line), visible, controls, letters, of_script]


@given(st.lists(LINES, min_size=1, max_size=6), st.sampled_from(["ru", "ja"]))
def test_counting_all_lines_at_once_is_counting_each_character(lines, language):
    side = filters._Side([line.encode() for line in lines], language, PrepareConfig())
    assert side.of_script is not None
    counts = (side.chars, side.visible, side.controls, side.letters, side.of_script)
    assert np.stack(counts, axis=1).tolist() == [plain_counts(line, language) for line in lines]


def plain_words(text: str) -> list[str]:
    """The words of a text in NFKC, between the white space of ASCII."""
    words = regex.split(r"[ \t\r\n\v\f]+", unicodedata.normalize("NFKC", text))
    return [word for word in words if word]


@given(LINES, LINES)
def test_keys_are_equal_where_normal_forms_are(x, y):
    texts = [x, y, x + " " + y, f" {x}\t {y} ", unicodedata.normalize("NFD", x)]
    keys = filters.keys_of([text.encode() for text in texts])
    for a, b in itertools.combinations(range(len(texts)), 2):
        are_equal = plain_words(texts[a]) == plain_words(texts[b])
        assert (keys[a] == keys[b]) == are_equal


def records_of(folder: Path, **arrays: Any) -> filters.PairRecords:
    """The records of pairs that are kept so far, with these arrays; 0 where one is not given."""
    count = len(next(iter(arrays.values())))
    types = {"codes": np.uint8, "src_keys": np.uint64, "tgt_keys": np.uint64}
    types |= {"src_chars": np.uint32, "tgt_chars": np.uint32}
    whole = {n: np.asarray(arrays.get(n, np.zeros(count)), t) for n, t in types.items()}
    # In blocks of different sizes, which must not matter.
    cuts = [0, count // 3, count // 2, count]
    return filters.PairRecords.write(
        folder,
        (
            filters.PairChecks(**{n: array[a:b] for n, array in whole.items()}, overlaps=(0, 0, 0))
            for a, b in itertools.pairwise(cuts)
        ),
    )


def plain_repeats(
    pairs: list[tuple[int, int]], codes: list[int], *, duplicates: bool, limit: int | None
) -> list[str]:
    """What becomes of pairs, with a dictionary."""
    reasons = [filters.REASONS[v] for v in codes]
    rules: list[tuple[str, Callable[[tuple[int, int]], Any], int]] = []
    if duplicates:
        rules.append(("duplicate", lambda pair: pair, 1))
    if limit is not None:
        rules += [("repeated side", lambda pair, s=s: pair[s], limit) for s in (0, 1)]
    for reason, key, allowed in rules:
        seen: Counter[Any] = Counter()
        for index, pair in enumerate(pairs):
            if reasons[index] == "kept":
                seen[key(pair)] += 1
                if seen[key(pair)] > allowed:
                    reasons[index] = reason
    return reasons


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([0, 0, 0, 4]))),
    st.booleans(),
    st.none() | st.integers(1, 3),
    st.sampled_from([3, 7, 1000]),
)
def test_repeats_are_those_that_a_dictionary_finds(rows, duplicates, limit, block):
    if not rows:
        return
    src, tgt, codes = (list(column) for column in zip(*rows, strict=True))
    # Keys of which only a few bits differ, as hashes never do, are the hardest to spread.
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters, "_BLOCK", block)
        records = records_of(Path(folder), src_keys=src, tgt_keys=tgt, codes=codes)
        filters.find_repeats(records, PrepareConfig(drop_duplicates=duplicates, max_repeats=limit))
        reasons = [filters.REASONS[v] for v in records.read("codes", 0, len(rows))]
        assert records.counts() == Counter(reasons)
    pairs = list(zip(src, tgt, strict=True))
    assert reasons == plain_repeats(pairs, codes, duplicates=duplicates, limit=limit)


def lengths(count: int, *, seed: int = 1, mean: float = 1.1) -> tuple[IntArray, IntArray]:
    """Characters of sentences and their translations, as those of news are spread.

    A sentence has some hundred characters, log-normal with a deviation of a half, and the ratio
    to its translation one of 0.2; a few translations are free.
    """
    rng = np.random.default_rng(seed)
    src = np.exp(rng.normal(np.log(100), 0.5, count)).clip(3)
    tgt = src * mean * np.exp(rng.normal(0, 0.2, count))
    is_free = rng.random(count) < 0.02
    tgt[is_free] = np.exp(rng.normal(np.log(100), 0.5, int(is_free.sum())))
    return src.astype(np.int64), tgt.clip(2).astype(np.int64)


def misaligned(
    tgt: IntArray, places: Sequence[tuple[int, int, int]]
) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Targets between lines `start` and `end` moved on by so many lines; which pairs are wrong.

    By 2: at the end of the segment two targets are lost and at its start two others got in. By
    -2: the other way round. So the number of lines is the same, as in files that are refused
    otherwise.
    """
    tgt, wrong = tgt.copy(), np.zeros(len(tgt), bool)
    rng = np.random.default_rng(9)
    for start, end, by in places:
        others = np.exp(rng.normal(np.log(100), 0.5, abs(by))).astype(np.int64)
        segment = tgt[start:end]
        if by > 0:
            tgt[start:end] = np.concatenate((others, segment[:-by]))
        else:
            tgt[start:end] = np.concatenate((segment[-by:], others))
        wrong[start:end] = True
    return tgt, wrong


def found_segments(
    folder: Path, src: IntArray, tgt: IntArray
) -> tuple[list[Misalignment], npt.NDArray[np.bool_]]:
    segments = find_misaligned(records_of(folder, src_chars=src, tgt_chars=tgt), 0, len(src))
    covered = np.zeros(len(src), bool)
    for segment in segments:
        covered[segment.start : segment.end] = True
    return segments, covered


# Right pairs that may be lost at each end of a segment.
ENDS = 15


@pytest.mark.parametrize("by", [-3, -2, -1, 1, 2, 3])
@pytest.mark.parametrize("size", [30, 100, 3000])
@pytest.mark.parametrize("start", [0, 4321, -1])
def test_a_misaligned_segment_is_found_whole(by, size, start, tmp_path):
    src, tgt = lengths(9000)
    start = start if start >= 0 else len(src) - size
    tgt, wrong = misaligned(tgt, [(start, start + size, by)])
    segments, covered = found_segments(tmp_path, src, tgt)
    assert [segment.offset for segment in segments] == [by]
    assert not np.any(wrong & ~covered)
    assert np.count_nonzero(covered & ~wrong) <= 2 * ENDS


PLACES = [(100, 140, 1), (700, 1000, -2), (1985, 2030, 3), (2300, 2330, -1), (2970, 3000, 2)]


@pytest.mark.parametrize("block", [500, 999, 2000, 1 << 20])
@pytest.mark.parametrize("places", [PLACES, [(0, 3000, 1)]], ids=["several", "all"])
def test_segments_are_found_wherever_the_corpus_is_cut(places, block, tmp_path, monkeypatch):
    monkeypatch.setattr(misalignment, "_SPAN", block)
    src, tgt = lengths(3000, seed=3)
    tgt, wrong = misaligned(tgt, places)
    segments, covered = found_segments(tmp_path, src, tgt)
    assert [segment.offset for segment in segments] == [by for _, _, by in places]
    assert not np.any(wrong & ~covered)
    assert np.count_nonzero(covered & ~wrong) <= 2 * ENDS * len(places)


@pytest.mark.parametrize("by", [0, 5, 10, 1000])
def test_blocks_of_pairs_that_are_none_are_found_by_their_lengths(by, tmp_path):
    src, tgt = lengths(3000, seed=5)
    tgt[600:1800] = np.roll(tgt[600:1800], by)
    tgt[2400:2700] = 40  # as in a list of codes
    records = records_of(tmp_path, src_chars=src, tgt_chars=tgt)
    assert find_unrelated(records, 0, 3000) == ([600, 900, 1200, 1500] if by else [])
    assert find_unrelated(records, 1800, 3000) == find_unrelated(records, 0, 299) == []
    records.drop("misaligned", np.arange(600, 1000))
    records.drop("wrong language", np.arange(1000, 1800))
    assert find_unrelated(records, 0, 3000) == []


def test_a_segment_is_found_in_its_source_and_in_no_other(tmp_path):
    src, tgt = lengths(1000)
    tgt, _ = misaligned(tgt, [(480, 520, 2)])
    records = records_of(tmp_path, src_chars=src, tgt_chars=tgt)
    (segment,) = find_misaligned(records, 300, 800)
    assert segment.offset == 2
    assert segment.start <= 480
    assert segment.end >= 520
    assert find_misaligned(records, 0, 400) == find_misaligned(records, 600, 1000) == []


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_where_nothing_is_misaligned(seed, tmp_path):
    src, tgt = lengths(20_000, seed=seed)
    assert found_segments(tmp_path, src, tgt)[0] == []
    # Pairs in random order, and targets in random order, too.
    order = np.random.default_rng(seed).permutation(len(src))
    assert found_segments(tmp_path, src[order], tgt[order])[0] == []
    assert found_segments(tmp_path, src, tgt[order])[0] == []


def test_nothing_is_found_where_lengths_tell_nothing(tmp_path):
    alike = np.full(1000, 50)
    assert found_segments(tmp_path, alike, alike)[0] == []
    assert found_segments(tmp_path, alike, 2 * alike)[0] == []
    assert found_segments(tmp_path, alike * 0, alike * 0)[0] == []
    # Few lines, even if they are misaligned: nothing can be said of them.
    src, tgt = lengths(60)
    for count in (1, 2, 3, 20, 59, 60):
        assert found_segments(tmp_path, src[:count], np.roll(tgt[:count], 1))[0] == []


# Verbs and nouns of user interfaces. In this order the lengths of a verb and of the translation of
# the verb before it are similar, or of the one behind it.
VERBS = {
    "Close": "schließen", "Cut": "ausschneiden", "Download": "laden", "Duplicate": "doppeln",
    "Hide": "ausblenden", "Log out of": "abmelden", "Minimize": "verkleinern", "Open": "öffnen",
    "Undo": "rückgängig machen", "Unsubscribe from": "abbestellen", "Save": "speichern",
}  # fmt: skip
NOUNS = {
    "file": "Datei", "folder": "Ordner", "window": "Fenster", "document": "Dokument",
    "image": "Bild", "page": "Seite", "project": "Projekt", "account": "Konto",
    "message": "Nachricht", "settings": "Einstellungen", "password": "Passwort", "list": "Liste",
}  # fmt: skip


def menu(verbs: str) -> list[tuple[bytes, bytes]]:
    return [
        (f"{verb} {noun}".encode(), f"{NOUNS[noun]} {VERBS[verb]}".encode())
        for noun in NOUNS
        for verb in verbs.split(", ")
    ]


@pytest.mark.parametrize(
    ("verbs", "offset"),
    [
        ("Hide, Duplicate", -1),
        ("Hide, Download", -1),
        ("Open, Close, Save", 1),
        ("Cut, Log out of, Close", -1),
        ("Log out of, Undo, Open", 1),
        ("Cut, Download, Unsubscribe from", 1),
        ("Close, Download, Minimize, Cut", -2),
    ],
)
def test_similar_texts_are_right_by_their_words_and_shifted_ones_are_not(verbs, offset):
    pairs = menu(verbs)
    assert misalignment.is_right(pairs, offset)
    src, tgt = zip(*pairs, strict=True)
    for by in (-3, -2, -1, 1, 2, 3):
        # The target of each source is `by` lines below it.
        assert not misalignment.is_right(list(zip(src, np.roll(tgt, by), strict=True)), by)


def test_nothing_is_known_of_words_that_are_not_repeated():
    assert not misalignment.is_right([(b"one", b"eins"), (b"two", b"zwei")] * 20, 2)
    assert not misalignment.is_right([(b"%d" % n, b"a%d" % n) for n in range(40)], 1)
    assert not misalignment.is_right([(b"", b"")] * 30, -1)
    assert not misalignment.is_right([(b"one", b"eins")] * 2, 3)


def test_a_piece_is_at_home_where_it_is_more_frequent():
    # Rare; on both sides; twice as often there; four times as often here.
    odds = filters.LanguageOdds.from_counts(
        np.array([4, 500, 300, 400]), np.array([0, 500, 600, 104])
    ).log_odds
    assert odds[:3].tolist() == [0, 0, 0]
    assert odds[3] == pytest.approx(np.log(400.5 / 104.5))
    # Here alone: no subword has more evidence than that.
    alone = filters.LanguageOdds.from_counts(np.array([10_000, 0]), np.array([0, 10_000]))
    assert alone.log_odds.tolist() == [4, -4]


def test_a_sentence_is_foreign_if_nearly_all_in_it_is():
    odds = filters.LanguageOdds(np.array([-4.0, 4.0, 0.0]))
    sentences = {
        (0, 0): False,  # a word or two may be a quotation
        (0, 0, 0): True,
        (0, 0, 0, 1): False,
        (1, 1, 1): False,
        (2,) * 50: False,
        # At least half a nat a piece.
        (0,) * 3 + (2,) * 21: False,
        (0,) * 3 + (2,) * 20: True,
        (2,): False,
    }
    ids = np.array([piece for sentence in sentences for piece in sentence], np.uint16)
    lengths = np.array([len(sentence) for sentence in sentences])
    assert odds.foreign(ids, lengths).tolist() == list(sentences.values())
    assert odds.foreign(ids[:0], lengths[:0]).tolist() == []
