"""What `prepare` says about the languages of the text, and about pairs that two sets share."""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import GREEK, number_pairs, write_pairs
from support.prepared import prepare_several, prepare_trees
from support.treebank import small_trees

from mtkit.base import language_id
from mtkit.data import PreparedData
from mtkit.prepare import Treebank, prepare_files
from mtkit.prepare.results import Report
from mtkit.prepare.source_languages import warn_of_codes
from mtkit.prepare.statistics import data_page

Pairs = list[tuple[str, str]]
Warned = Callable[[], list[str]]

ENGLISH_GERMAN = number_pairs(120, seed=1)
HELD_OUT = number_pairs(20, seed=9)
OTHERS = [pair for pair in number_pairs(140, seed=7) if pair not in ENGLISH_GERMAN][:99]


@pytest.fixture
def warned(caplog):
    return lambda: [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


def prepared(
    folder: Path,
    src_lang: str,
    tgt_lang: str,
    train: Sequence[Pairs] = (ENGLISH_GERMAN,),
    valid: Pairs | tuple[Path, Path] = HELD_OUT,
    **more: Any,
) -> Report:
    return prepare_files(
        "x",
        folder / "out",
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        train=[write_pairs(folder, f"train{n}", pairs) for n, pairs in enumerate(train)],
        valid=valid if isinstance(valid, tuple) else write_pairs(folder, "valid", valid),
        vocab_size=300,
        workers=1,
        **more,
    )


def recorded(report: Report) -> list[dict[str, dict[str, int]]]:
    return [src["languages"] for src in PreparedData.open(report.path).manifest.sources["train"]]


def test_swapped_languages_are_one_warning_for_each_set(tmp_path, warned):
    report = prepared(tmp_path, "de", "en")
    line, of_valid = warned()
    assert of_valid.startswith("valid.en and valid.de: 1 of 1 samples of the source look like en")
    assert line.startswith("train0.en and train0.de: ")
    assert "3 of 3 samples of the source look like en, not de" in line
    assert "3 of 3 samples of the target look like de, not en" in line
    assert line.endswith("are the languages swapped?")
    assert recorded(report) == [{"src": {"en": 3}, "tgt": {"de": 3}}]
    page = data_page(PreparedData.open(report.path), report)
    assert f"<li>{line}</li>" in page
    assert "3 × en →<br>3 × de" in page


SWAPPED = [(tgt, src) for src, tgt in number_pairs(100, seed=2)]
MIXED = number_pairs(250, seed=3)
MIXED[100:200] = [(tgt, src) for src, tgt in MIXED[100:200]]


@pytest.mark.parametrize(
    ("tgt_lang", "train", "expected"),
    [
        ("fr", [ENGLISH_GERMAN], "train0.de: 3 of 3 samples of the target look like de, not fr"),
        ("de", [ENGLISH_GERMAN, SWAPPED], "train1.de: 2 of 2 samples of the source look like de"),
        # A part is in another language.
        ("de", [MIXED], "have a source in German and a target in English"),
    ],
)
def test_only_the_source_and_the_side_with_another_language_are_named(
    tgt_lang, train, expected, tmp_path, warned
):
    prepared(tmp_path, "en", tgt_lang, train)
    line, *of_valid = warned()
    assert len(of_valid) == (tgt_lang == "fr")
    assert expected in line


def test_the_same_samples_are_taken_with_any_number_of_workers(tmp_path):
    pairs = number_pairs(2500, seed=4)
    pairs[:1000] = [(tgt, src) for src, tgt in pairs[:1000]]
    both = []
    for workers in (1, 2):
        (tmp_path / str(workers)).mkdir()
        both.append(recorded(prepared(tmp_path / str(workers), "en", "de", [pairs], overrides=[])))
    assert both[0] == both[1]
    # 1,000 of the pairs, evenly.
    (counts,) = both[0]
    assert sum(counts["src"].values()) == 20
    assert counts["src"]["de"] in range(6, 11)


@pytest.mark.parametrize("split", ["valid", "test", "other"])
@pytest.mark.parametrize("instead", ["en", "el"])
def test_a_held_out_set_in_other_languages_is_named(split, instead, tmp_path, warned):
    swapped, greek = [(tgt, src) for src, tgt in OTHERS], number_pairs(99, seed=8, words=GREEK)
    files = write_pairs(tmp_path, "held", swapped if instead == "en" else greek)
    given = {"other": {"valid_also": {"other": files}}}.get(split, {split: files})
    report = prepared(tmp_path, "en", "de", **given)
    (line,) = warned()
    assert line in report.warnings
    assert line.startswith("held.en and held.de: 2 of 2 samples of the ")
    assert f"2 of 2 samples of the target look like {instead}, not de" in line
    assert line.endswith("swapped?") == (instead == "en")


def test_languages_that_cannot_be_identified_are_not_checked(tmp_path):
    assert recorded(prepared(tmp_path, "en", "x-mine")) == [{"src": {"en": 3}}]


# By the countries' languages in CLDR.
MEANT = """cz cs (Czech)|cz-CZ cs (Czech)|jp ja (Japanese)|kr ko (Korean)|ua uk (Ukrainian)
gr el (Greek)|dk da (Danish)|se sv (Swedish)|cn zh-Hans (Chinese (Simplified))|us en (English)
tw zh-Hant (Chinese (Traditional))|vn vi (Vietnamese)|br pt-BR (Portuguese (Brazil))
sp es (Spanish)|SP-MX es (Spanish)|deutsch_AT de (German)|french_CA fr (French)
english en (English)|Deutsch de (German)|en-EN en (English)
uk|de|sv|pt-BR|zh-TW|x-mine|zz9|xx|a"""


@pytest.mark.parametrize("case", MEANT.replace("\n", "|").split("|"))
def test_the_code_of_a_country_leads_to_its_language(caplog, case):
    code, _, meant = case.partition(" ")
    warn_of_codes([("fr", code)])
    assert [message.partition("did you mean ")[2] for message in caplog.messages] == (
        [f"{meant}?"] if meant else [""] * (code in ("zz9", "xx", "a"))
    )


def test_one_language_for_both_sides_is_a_warning(tmp_path, warned):
    prepared(tmp_path, "en", "eng")
    first, *of_sets = warned()
    assert first.startswith("en and eng are the same language")
    assert ["look like de, not eng" in line for line in of_sets] == [True, True]


def test_each_direction_of_several_is_checked(tmp_path, warned):
    german = {
        "train": [write_pairs(tmp_path, "one", ENGLISH_GERMAN)],
        "valid": write_pairs(tmp_path, "valid", HELD_OUT),
    }
    greek = {
        "train": [write_pairs(tmp_path, "two", number_pairs(120, seed=5, words=GREEK))],
        "valid": write_pairs(tmp_path, "greek", number_pairs(20, seed=6, words=GREEK)),
    }
    directions = [
        {"src_lang": "en", "tgt_lang": "de"} | german,
        {"src_lang": "en", "tgt_lang": "el"} | greek,
        {"src_lang": "nl", "tgt_lang": "de"} | german,
    ]
    prepare_several("x", tmp_path / "out", directions=directions, vocab_size=400, workers=1)
    line, of_valid = warned()
    assert "3 of 3 samples of the source look like en, not nl" in line
    assert "1 of 1 samples of the source look like en, not nl" in of_valid


def test_trees_are_not_checked(tmp_path):
    for name, seed in (("train", 1), ("valid", 2)):
        trees = small_trees(60, seed)
        (tmp_path / name).write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")
    report = prepare_trees(
        "x",
        tmp_path / "out",
        src_lang="fr",
        train=[Treebank(tmp_path / "train")],
        valid=Treebank(tmp_path / "valid"),
        vocab_size=300,
        workers=1,
    )
    assert recorded(report) == [{}]


def test_without_room_for_temporary_files_nothing_is_checked(tmp_path, warned, monkeypatch):
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(language_id, "_loaded", full)
    assert recorded(prepared(tmp_path, "de", "en")) == [{}]
    (line,) = warned()
    assert line.endswith("not checked: [Errno 28] No space left on device")


def test_a_validation_set_from_the_training_pairs_is_a_warning(tmp_path, warned):
    report = prepared(tmp_path, "en", "de", valid=ENGLISH_GERMAN[40:80])
    (line,) = warned()
    assert line.startswith("40 of the 40 validation pairs (100.0%) are training pairs too")
    assert "--set drop_overlap=true" in line
    assert report.in_training == {"valid": 40, "test": 0}
    assert PreparedData.open(report.path).manifest.counts["in_training"] == {"valid": 40, "test": 0}
    assert f"<li>{line}.</li>" in data_page(PreparedData.open(report.path), report)


def test_each_set_has_its_own_share(tmp_path, warned):
    report = prepared(
        tmp_path,
        "en",
        "de",
        valid=[*HELD_OUT, ENGLISH_GERMAN[0]],
        test=write_pairs(tmp_path, "test", ENGLISH_GERMAN[:3]),
        valid_also={"other": write_pairs(tmp_path, "other", number_pairs(20, 8, words=GREEK))},
    )
    _, valid, test = warned()
    assert valid.startswith("1 of the 21 validation pairs (4.8%)")
    assert test.startswith("3 of the 3 test pairs (100.0%)")
    assert report.in_training == {"valid": 1, "test": 3, "valid@other": 0}


def test_a_pair_counts_as_often_as_it_is_in_the_set(tmp_path):
    # Case counts, white space does not.
    pair = "one  two ", "zwei eins"
    train = [*ENGLISH_GERMAN, ("one two", "zwei eins")]
    report = prepared(tmp_path, "en", "de", [train], valid=[pair, pair, ("One two", "zwei eins")])
    assert report.in_training["valid"] == 2


@pytest.mark.parametrize(
    ("valid", "overrides", "count"),
    [
        # One side is shared, and not the pair.
        ([(ENGLISH_GERMAN[0][0], "sieben sieben sieben"), *HELD_OUT], [], 0),
        # The pairs are kept out of training.
        (ENGLISH_GERMAN[40:80], ["drop_overlap=true"], 0),
        # One pair in a hundred.
        ([*OTHERS, ENGLISH_GERMAN[0]], [], 1),
    ],
)
def test_a_set_of_which_training_has_hardly_any_pair_gives_no_warning(
    valid, overrides, count, tmp_path, warned
):
    report = prepared(tmp_path, "en", "de", valid=valid, overrides=overrides)
    assert report.in_training["valid"] == count
    assert warned() == []
