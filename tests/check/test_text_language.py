"""Whether the lines that are translated are in the language that a run translates from."""

import itertools
import random
import re

import pytest
from conftest import copied_run
from support.demo_grammar import sentences

from mtkit.base import language_id
from mtkit.check import InputLanguage, PairFacts, note_wrong_files
from mtkit.check.model.run_quality import DirectionChecks, save_checks

PAIRS = [pair for pair, _ in itertools.islice(sentences(seed=3), 800)]
ENGLISH, GERMAN = map(list, zip(*PAIRS, strict=True))
OTHER = "look like German, and the run translates from English"


@pytest.fixture
def run(tmp_path):
    """A folder with what a run knows of pairs, and nothing else."""
    facts = PairFacts.learn(PAIRS, src_lang="en", tgt_lang="de")
    direction = DirectionChecks(facts=facts, coverage=None, forecast=None)
    save_checks(tmp_path, {}, {}, checkpoint="x", directions=[direction])
    return tmp_path


def said(run, lines, source="en"):
    language = InputLanguage(run, source, "de")
    assert list(language.read(lines)) == lines
    return language.sentence()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (ENGLISH, ""),
        (GERMAN[:300], f"300 of 300 lines {OTHER}"),
        (GERMAN[:20] + ["", "42", "* * *"] * 50, f"20 of 20 lines {OTHER}"),
        (ENGLISH[:200] + GERMAN[200:300], f"100 of 300 lines {OTHER}"),
        ([f"<1>{line}</1>" for line in GERMAN[:20]], f"20 of 20 lines {OTHER}"),
        (GERMAN[:800] * 5, f"about 4,000 of 4,000 lines {OTHER}"),
        # Too few to be sure of, not identified, and columns, which have a note of their own.
        (GERMAN[:9], ""),
        (ENGLISH[:291] + GERMAN[:9], ""),
        (["42", "", "X1"] * 50, ""),
        ([f"{a}\t{b}" for a, b in PAIRS], ""),
    ],
)
def test_lines_in_another_language_are_counted(run, lines, expected):
    assert said(run, lines) == expected


def test_a_check_says_where_languages_cannot_be_identified(place, monkeypatch):
    def full() -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(language_id, "_loaded", full)
    for name, lines in (("one.en", ENGLISH), ("one.de", GERMAN)):
        place.write(name, "\n".join(lines[:20]))
    outcome = place.mtkit("-q", "check", "one.en", "one.de")
    assert outcome.status == 0
    assert outcome.err.endswith("languages of the text are not checked: No space left on device\n")


@pytest.mark.parametrize("source", ["", "und", "x-mine"])
def test_nothing_is_said_of_a_language_that_is_not_known(run, source):
    assert said(run, GERMAN[:300], source) == ""


def test_nothing_is_said_by_a_run_without_usual_words(tmp_path):
    assert said(tmp_path, GERMAN * 3) == ""


def test_a_text_with_usual_words_needs_no_identifier(run, monkeypatch):
    monkeypatch.setattr(language_id, "labels_of", lambda _: pytest.fail("it was asked"))
    assert said(run, ENGLISH) == ""


def test_the_command_says_it_once_and_writes_every_line(untrained, run, place):
    copy = copied_run(untrained, place.folder / "copy")
    for name in ("confidence.json", "lexicon.tsv"):
        (copy / name).write_bytes((run / name).read_bytes())
    text = "".join(f"{line}\n" for line in GERMAN[:12]).encode()
    outcome = place.mtkit("translate", "--run", copy, "--max-length", 3, stdin=text)
    assert (outcome.status, outcome.out.count("\n")) == (0, 12)
    assert outcome.err.count(f"warning: 12 of 12 lines {OTHER}") == 1


def test_lines_that_do_not_line_up_are_a_warning(caplog):
    english = [f"the {word} of day {i} is at {word}{i} now" for i, word in enumerate("abc" * 50)]
    right = [" ".join(line.split()[3:8]) for line in english]
    for lines, place in {
        (*right[1:], ""): "line 1 on, lines of the first are a line later",
        ("", "", *right[:-2]): "line 1 on, lines of the first are two lines earlier",
        (*right[:100], *right[101:], ""): "line 101 on, lines of the first are a line later",
        tuple(right[::-1]): "line 1 on, lines of the first are in reverse order",
        tuple(right): "",
        tuple(line[:9] for line in right): "",
    }.items():
        caplog.clear()
        note_wrong_files([("out.de", lines)], [("test.de", english)])
        expected = f"(at the latest from {place}" if place else ""
        assert expected in caplog.text
        assert bool(expected) == bool(caplog.text)


@pytest.mark.parametrize("seed", range(3))
def test_lines_in_any_other_order_are_a_warning_and_poor_translations_are_not(caplog, seed):
    choose = random.Random(seed)
    moved, poor = choose.sample(GERMAN, len(GERMAN)), list(GERMAN)
    for index in choose.sample(range(len(poor)), len(poor) // 2):
        poor[index] = choose.choice(GERMAN)
    note_wrong_files([("poor", poor)], [("right", GERMAN)])
    assert caplog.messages == []
    note_wrong_files([("moved", moved)], [("right", GERMAN)])
    (message,) = caplog.messages
    assert message.startswith("moved and right do not line up (only ")


@pytest.mark.parametrize(("blank", "is_said"), [(3, False), (50, True), (400, True)])
def test_lines_that_only_one_file_has_blank_are_counted(caplog, blank, is_said):
    lines = [*GERMAN[blank:], *[""] * blank]
    right = [*GERMAN[blank:], *GERMAN[:blank]]
    note_wrong_files([("a", lines)], [("b", right)])
    counted = f"a and b differ in {blank} lines, blank in the first only"
    assert (counted in caplog.text) == is_said
    assert bool(caplog.messages) == is_said


def test_files_with_blank_lines_only_are_named(caplog):
    note_wrong_files([("a", ["", " "]), ("b", ["x", ""])], [("c", [""]), ("d", [])])
    assert caplog.messages == [f"{name}: all lines are blank" for name in "ac"]


FILES = "are these the right files?"
SAME, UNLIKE = f"a.de have the same lines: {FILES}", f"a.de look like English and German: {FILES}"
SWAPPED = "look like en, not de; are the languages swapped?"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("score b.de --reference a.de", ""),
        ("score a.de --reference a.de", f"a.de and {SAME}"),
        ("score a.en --reference b.de --reference a.de", "a.en and b.de look like English and"),
        ("score b.de a.en --reference a.de", f"a.en and {UNLIKE}"),
        ("score nine.en --reference nine.de", ""),
        ("compare b.de --src a.en --reference a.de", ""),
        ("compare b.de a.en --reference a.de", f"a.en and {UNLIKE}"),
        ("compare a.de --reference a.de", SAME),
        ("compare a.en --src a.en", f"are in en: {FILES}"),
        ("align a.en a.de", ""),
        ("align a.de a.en", SWAPPED),
        ("force-decode a.en a.de", ""),
        ("force-decode a.de a.en", SWAPPED),
    ],
)
def test_files_that_cannot_belong_together_are_one_warning(command, message, untrained, place):
    texts = {"a.en": ENGLISH[:60], "a.de": GERMAN[:60], "b.de": [f"{x} So." for x in GERMAN[:60]]}
    texts |= {"nine.en": ENGLISH[:9], "nine.de": GERMAN[:9]}
    for name, lines in texts.items():
        place.write(name, "".join(f"{line}\n" for line in lines))
    name, *arguments = command.split()
    more = {"compare": ["--output", "page.html"], "score": ["--no-interval"]}
    outcome = place.mtkit(name, *arguments, *more.get(name, ["--run", untrained.path]))
    assert outcome.status == 0
    # But for lines that are too long for the model.
    warnings = re.findall("warning: (?!line).*", outcome.err)
    assert len(warnings) == bool(message)
    assert message in "".join(warnings)
