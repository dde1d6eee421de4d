import json
import re
from pathlib import Path

import pytest
from support.command_line import Outcome, Place

TERMS = "one\tBein\nnine\tfünf\n"
LINES = ["one two", "", "three nine", "four"]


@pytest.fixture
def desk(place, untrained) -> Place:
    """With a glossary, and text."""
    place.write("terms.tsv", TERMS)
    place.write("in.txt", "".join(f"{line}\n" for line in LINES))
    return place


@pytest.fixture
def run(untrained) -> list[str]:
    return ["translate", "--run", str(untrained.path), "--device", "cpu"]


def given(desk: Place, run: list[str], *options: str, terms: str = "terms.tsv") -> Outcome:
    return desk.done("-q", *run, "--input", "in.txt", "--glossary", terms, *options)


@pytest.mark.usefixtures("searched_terms")
def test_terms_are_in_the_output_and_other_lines_are_as_they_were(desk, run):
    plain = desk.mtkit("-q", *run, "--input", "in.txt").out.split("\n")
    outcome = given(desk, run)
    assert outcome.err == ""
    lines = outcome.out.split("\n")
    assert len(lines) == len(plain) == 5
    assert (lines[1], lines[3]) == (plain[1], plain[3])
    assert re.search(r"\bBein\b", lines[0])
    assert re.search(r"\bfünf\b", lines[2])


@pytest.mark.usefixtures("searched_terms")
def test_json_has_the_missing_terms_only_with_a_glossary(desk, run):
    desk.write("long.tsv", f"one\tBein\none two\t{'Bein ' * 90}\n")
    outcome = given(desk, run, "--json", "--nbest=2", terms="long.tsv")
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    missing = [[best["missing"] for best in row["translations"]] for row in rows]
    assert missing == [[[("Bein " * 90).strip()]] * 2, [[]], [[]] * 2, [[]] * 2]
    (line,) = outcome.err.splitlines()
    assert line.startswith("mtkit: warning: line 1: the translation is without 'Bein Bein ")
    assert "missing" not in desk.mtkit("-q", *run, "--input", "in.txt", "--json").out


@pytest.mark.usefixtures("searched_terms")
def test_terms_go_with_html_and_a_warning_names_the_line(desk, run):
    desk.write("in.txt", "<p>four</p><p>five</p>\n<p>a <b>one</b></p><p>two nine</p>\n")
    desk.write("long.tsv", f"one\tBein\nnine\t{'Bein ' * 90}\n")
    outcome = given(desk, run, "--format", "html", terms="long.tsv")
    assert re.search(r"\bBein\b", re.sub("<[^>]*>", "", outcome.out.split("\n")[1]))
    (line,) = outcome.err.splitlines()
    assert line.startswith("mtkit: warning: line 2: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sample"], "--glossary cannot be combined with --sample"),
        (["--mbr-samples", "4"], "--glossary cannot be combined with --mbr-samples"),
        (["--output", "terms.tsv"], "--output would replace the --glossary"),
        (["--glossary", "none.tsv"], "none.tsv: No such file"),
        (["--glossary", "bad.tsv"], "bad.tsv, line 2: has 1 column"),
    ],
)
def test_what_cannot_be_is_refused(options, message, desk, run):
    desk.write("bad.tsv", "one\teins\ntwo zwei\n")
    assert message in desk.refused(*run, "--input", "in.txt", "--glossary", "terms.tsv", *options)


@pytest.mark.parametrize(
    ("setting", "off"), [("sample: true", "--no-sample"), ("mbr_samples: 2", "--mbr-samples 0")]
)
def test_sampling_that_the_run_sets_must_be_turned_off(setting, off, trained):
    trained.write("terms.tsv", TERMS)
    config = trained.folder / "runs" / "tiny" / "config.yaml"
    name, value = setting.split(": ")
    text, changes = re.subn(rf"(  {name}:) \w+", rf"\1 {value}", config.read_text("utf-8"))
    assert changes == 1
    config.write_text(text, encoding="utf-8")
    assert f"add {off}" in trained.refused("translate", "--glossary", "terms.tsv", stdin=b"one\n")
    options = ["--glossary", "terms.tsv", *off.split()]
    assert trained.mtkit("-q", "translate", *options, stdin=b"one\n").status == 0


def test_a_translation_with_another_glossary_is_not_resumed(desk, run, monkeypatch):
    monkeypatch.setattr("mtkit.translate.reading.WINDOW_LINES", 1)
    desk.write("in.txt", b"one two\n\xff\n")
    options = ["--input", "in.txt", "--output", "out.txt"]
    # The second line is an error, after the first was saved.
    assert "line 2" in desk.mtkit("-q", *run, *options, "--glossary", "terms.tsv").error
    desk.write("in.txt", "one two\nthree\n")
    Path(desk.folder / "terms.tsv").write_text("one\tFuß\n", encoding="utf-8")
    outcome = desk.mtkit("-q", *run, *options, "--glossary", "terms.tsv")
    assert "was started with --glossary" in outcome.error
    desk.write("terms.tsv", f"# the same\n{TERMS}")
    assert desk.mtkit("-q", *run, *options, "--glossary", "terms.tsv").status == 0
