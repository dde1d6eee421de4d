import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.browsed import Page, well_formed
from support.command_line import Place

from mtkit.base.html import printable
from mtkit.base.language_id import MIN_LINES
from mtkit.translate import Translator

REFERENCE = "ein Mann sitzt auf der Bank\nzwei Hunde rennen\nam 15. Mai 2020\n"
FIRST = "ein Mann sitzt auf einer Bank\nzwei Hunde rennen\nam 15. Mai 2020\n"
SECOND = "ein Mann sitzt\nzwei Hunde rennen\nam 18. Mai 2020\n"
SOURCE = "a man sits on the bank\ntwo dogs run\non 15 May 2020\n"
FILES = ["--src", "test.en", "--reference", "test.de", "--src-lang", "en", "--tgt-lang", "de"]
OUTPUT = ["--output", "page.html"]
QUICK = ["--metric", "chrf"]


@pytest.fixture
def files(place) -> Place:
    for name, text in {
        "test.en": SOURCE,
        "test.de": REFERENCE,
        "first.de": FIRST,
        "second.de": SECOND,
    }.items():
        place.write(name, text)
    return place


def page_of(place: Place, name: str = "page.html") -> tuple[Page, Any]:
    """A page, and the data of its script."""
    page = well_formed((place.folder / name).read_text(encoding="utf-8"))
    (element,) = page.all("script", type="application/json")
    return page, json.loads(element["text"])


def test_files_are_compared_and_checked(files):
    outcome = files.mtkit("compare", "first.de", "second.de", *FILES, *OUTPUT)
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.err.endswith("mtkit: wrote page.html\n")
    page, data = page_of(files)
    assert "first.de and second.de" in page.texts("h1")
    texts = [system["texts"] for system in data["systems"]]
    assert texts == [FIRST.splitlines(), SECOND.splitlines()]
    assert data["sources"] == SOURCE.splitlines()
    assert data["languages"] == {"src": "en", "tgt": "de"}
    first, second = (system["found"] for system in data["systems"])
    assert "2" not in first
    assert [finding["kind"] for finding in second["2"]] == ["numbers"]
    assert {"BLEU", "chrF", "p, bootstrap"} <= set(page.texts("th"))
    assert not list(files.folder.glob(".page*"))


def test_without_a_source_files_are_compared_and_not_checked(files):
    command = ("-q", "compare", "second.de", "--reference", "test.de", *OUTPUT)
    assert files.mtkit(*command).status == 0
    page, data = page_of(files)
    assert data["sources"] is None
    assert data["systems"][0]["found"] is None
    assert "Worst lines" in page.texts("p")
    note = "mtkit: the lines were not checked, because there is no --src\n"
    assert note in files.mtkit(*command[1:]).err


def test_the_languages_of_files_are_identified(files):
    english = "the weather is nice today and we go for a long walk\n"
    german = "das Wetter ist heute schön und wir machen einen langen Spaziergang\n"
    files.write("test.en", english * MIN_LINES)
    files.write("test.de", german * MIN_LINES)
    for options in (FILES[:4], FILES[:2]):
        files.mtkit("-q", "compare", "test.de", *options, *OUTPUT)
        assert page_of(files)[1]["languages"] == {"src": "en", "tgt": "de"}
    files.mtkit("-q", "compare", "test.de", *FILES[2:4], *OUTPUT)
    assert page_of(files)[1]["languages"] == {"src": "", "tgt": "de"}


def test_outside_scores_are_in_the_page(files):
    files.write("comet.txt", "0.5\n0.7\n0.9\n")
    outside = ["--segment-scores", "COMET=comet.txt"]
    files.mtkit("-q", "compare", "first.de", *FILES, *outside, *OUTPUT)
    page, data = page_of(files)
    assert data["systems"][0]["scores"][1] == [0.5, 0.7, 0.9]
    assert "0.7000" in page.texts("td")


def test_several_references_are_compared_with(files):
    files.write("other.de", "ein Mann sitzt\nzwei Hunde rennen\nam 18. Mai 2020\n")
    files.done("-q", "compare", "second.de", *FILES, "--reference", "other.de", *OUTPUT)
    page, data = page_of(files)
    assert data["systems"][0]["scores"] == [[100, 100, 100]]
    assert "test.de and other.de" in page.texts("dd")
    assert any("nrefs:2" in signature for signature in page.texts("code"))
    files.write("short.de", "1\n")
    error = files.refused("compare", "second.de", *FILES, "--reference", "short.de", *OUTPUT)
    assert "short.de has 1 line and test.de has 3" in error


@pytest.mark.parametrize(
    ("systems", "options"),
    [(["blank.de"], FILES), (["first.de"], ["--reference", "blank.de"])],
)
def test_a_blank_file_is_said_and_compared(files, systems, options):
    files.write("blank.de", "\n\n\n")
    outcome = files.done("compare", *systems, *options, *QUICK, *OUTPUT)
    assert "mtkit: warning: blank.de: all lines are blank\n" in outcome.err
    page_of(files)


def test_the_page_can_go_to_standard_output(files):
    command = ("-q", "compare", "-", "--reference", "test.de", "--output", "-")
    assert well_formed(files.mtkit(*command, stdin=FIRST.encode()).out).texts("h1") == ["-"]


def test_files_of_the_same_name_are_told_apart(files):
    for folder in ("old", "new"):
        files.write(f"{folder}/out.de", FIRST)
    files.mtkit("-q", "compare", "old/out.de", "new/out.de", *FILES, *QUICK, *OUTPUT)
    page, data = page_of(files)
    assert [system["name"] for system in data["systems"]] == ["old/out.de", "new/out.de"]
    assert "identical" in page.texts("td")


def test_runs_and_a_file_are_compared_on_the_test_set(
    prepared, untrained, also_untrained, tiny_data
):
    for run in (untrained, also_untrained):
        shutil.copytree(run.path, prepared.folder / "runs" / run.path.name)
    sources, references = tiny_data.text("test")
    prepared.write("given.de", "".join(f"{line}\n" for line in references))
    runs = [f"runs/{run.path.name}" for run in (untrained, also_untrained)]
    data = ["--data", "data/tiny"]
    outcome = prepared.done("compare", *runs, "given.de", *data, *QUICK, *OUTPUT)
    assert outcome.err.count("mtkit: engine: ") == len(runs)
    page, packed = page_of(prepared)
    assert (packed["sources"], packed["references"]) == (sources, references)
    for run, system in zip((untrained, also_untrained), packed["systems"], strict=False):
        with Translator.load(run, device="cpu") as translator:
            assert system["texts"] == list(map(printable, translator.translate(sources)))
    assert packed["systems"][2]["scores"][0] == [100] * len(references)
    assert "test set of the data" in page.texts("dd")


def test_a_run_translates_the_source_of_a_reference(trained):
    trained.write("test.en", "one two\nnine\n")
    trained.write("test.de", "eins zwei\nneun\n")
    outcome = trained.mtkit("-q", "compare", "runs/tiny", *FILES, *QUICK, *OUTPUT)
    assert (outcome.status, outcome.err) == (0, "")
    _, data = page_of(trained)
    assert data["sources"] == ["one two", "nine"]
    translations = data["systems"][0]["texts"]
    outcome = trained.mtkit("-q", "compare", "runs/tiny", *FILES[:2], *OUTPUT)
    assert (outcome.status, outcome.err) == (0, "")
    _, data = page_of(trained)
    assert (data["references"], data["systems"][0]["texts"]) == (None, translations)
    assert data["languages"] == {"src": "en", "tgt": "de"}


def test_a_run_is_checked_with_what_its_decoder_knows(trained):
    config = trained.folder / "runs/tiny/config.yaml"
    config.write_text(config.read_text().replace("max_length: null", "max_length: 1"))
    trained.write("test.en", "one two\n")
    assert trained.mtkit("compare", "runs/tiny", *FILES[:2], *OUTPUT).status == 0
    (system,) = page_of(trained)[1]["systems"]
    reasons = [finding["reason"] for finding in system["found"]["0"]]
    assert "the translation ended at the limit of its length" in reasons


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["first.de", *OUTPUT], "files of translations require --reference, --test-set or --src"),
        (["first.de", *FILES[:2], *QUICK, *OUTPUT], "--metric requires --reference"),
        (["short.de", *FILES[:2], *OUTPUT], "and the source has 3"),
        (["first.de", "--reference", "test.de"], "give --output"),
        (["first.de", "--reference", *OUTPUT], "--reference: --output: is an option, not a path"),
        (["nowhere", *OUTPUT], "nowhere: does not exist; give a run folder or a file"),
        (["first.de", "first.de", *FILES, *OUTPUT], "give each system once"),
        (["first.de", *FILES, "--split", "valid", *OUTPUT], "--split requires a RUN"),
        (["short.de", *FILES, *OUTPUT], "short.de has 1 line and the reference has 3"),
        (["first.de", *FILES, "--test-set", "x", *OUTPUT], "--reference cannot be combined with"),
        (["first.de", "--test-set", "wmt1", *OUTPUT], "there is no test set wmt1"),
        (["-", "--reference", "-", *OUTPUT], "standard input (-) can be read once"),
        (["first.de", *FILES, "--output", "test.de"], "would replace the --reference"),
        (["first.de", *FILES, "--output", "/proc/page"], "no file can be created in /proc"),
        (["empty", "--src", "empty", *OUTPUT], "no lines in empty: nothing to compare"),
        (["first.de", *FILES, "--output", "first.de"], "would replace the file first.de"),
        (
            ["first.de", "second.de", *FILES, "--segment-scores", "X=short.de", *OUTPUT],
            "--segment-scores X: give one FILE for each system",
        ),
    ],
    ids=str,
)
def test_compare_refuses_what_it_cannot_do(files, command, message):
    files.write("short.de", "1\n")
    files.write("empty", "")
    assert message in files.refused("compare", *command)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["--reference", "test.de"], "--reference requires --src, which RUN translates"),
        ([*FILES, "--data", "data/tiny"], "--data cannot be combined with --reference"),
        (["other.de"], "other.de has 1 line and the reference has 20"),
        (["--src", "test.en", "--split", "valid"], "--split cannot be combined with --src"),
    ],
    ids=str,
)
def test_a_run_is_refused_where_it_cannot_be_compared(trained, command, message):
    trained.write("other.de", "eins\n")
    assert message in trained.refused("compare", "runs/tiny", *command, *OUTPUT)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("runs", "runs: is not a run folder, but runs/tiny is one; give that"),
        ("runs/tiny/checkpoints", "is not a run folder, but runs/tiny is one; give that"),
        ("data", "data: is a folder of something else, not a run folder; mtkit train makes one"),
        ("data/tiny", "data/tiny: is a prepared folder, not a run folder"),
        ("hollow", "hollow: is an empty folder, not a run folder; mtkit train makes one"),
        ("export", "export: is an export for other software, not a run folder"),
    ],
)
def test_another_folder_than_a_run_is_named(trained, path, message):
    (trained.folder / "hollow").mkdir()
    trained.write("export/export.json", "{}")
    for command in (["compare", path, *OUTPUT], ["translate", "--run", path]):
        assert message in trained.refused(*command)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("data", "data: is not a prepared folder, but data/tiny is one; give that"),
        ("test.en", "test.en: is a file, not a prepared folder; mtkit prepare makes one"),
        ("runs/tiny", "runs/tiny: is a run folder, not a prepared folder"),
        ("nowhere", "nowhere: there is no such prepared folder; mtkit prepare makes one"),
    ],
)
def test_another_folder_than_data_is_named(trained, path, message):
    trained.write("test.en", "one\n")
    assert message in trained.refused("score", "--data", path)


def test_a_parser_is_refused(place, parser):
    error = place.refused("compare", parser.path, "--output", "page.html")
    assert "is a parser, and mtkit compare is for translations" in error


def test_a_run_without_its_data_is_refused_with_advice(trained):
    shutil.rmtree(trained.folder / "data")
    for path in Path(trained.folder / "runs").iterdir():
        error = trained.refused("compare", path, *OUTPUT)
        assert error.startswith(f"mtkit: error: {path}: its data, ")
        assert error.endswith(" is not there; give --data, or --src and --reference")
