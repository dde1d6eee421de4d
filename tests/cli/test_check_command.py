import gzip
import itertools
import json
import shlex

import pytest
from support.command_line import Place
from support.demo_grammar import sentences

PAIRS = [pair for pair, _ in itertools.islice(sentences(seed=1), 600)]
# A copied source, a number that was added, and a placeholder that was lost.
FAULTS = {
    100: (PAIRS[99][0], PAIRS[99][0]),
    200: ("Peter has 5 books.", "Peter hat 6 Bücher."),
    300: ("Hello {name}.", "Hallo."),
}
KINDS = {100: "copied", 200: "numbers", 300: "placeholders"}
LANGUAGES = ("--src-lang", "en", "--tgt-lang", "de")


@pytest.fixture
def texts(place: Place) -> Place:
    pairs = [FAULTS.get(number, pair) for number, pair in enumerate(PAIRS, start=1)]
    for name, side in zip(("test.en", "output.de"), zip(*pairs, strict=True), strict=True):
        place.write(name, "".join(f"{line}\n" for line in side))
    return place


def test_the_kinds_of_findings_are_counted(texts: Place):
    outcome = texts.done("check", "test.en", "output.de")
    rows = [line.split() for line in outcome.out.splitlines()]
    assert rows[0] == ["FINDING", "LINES", "SHARE", "MEANING"]
    assert [row[:3] for row in rows[1:5]] == [
        ["copied", "1", "0.17%"],
        ["numbers", "1", "0.17%"],
        ["placeholders", "1", "0.17%"],
        ["marked", "3", "0.50%"],
    ]
    assert rows[5] == ["all", "lines", "600"]
    note = "source language: en, target language: de; --src-lang and --tgt-lang set them"
    assert outcome.err == f"mtkit: {note}\n"
    assert texts.mtkit("check", "test.en", "output.de", *LANGUAGES).err == ""


def test_each_pair_has_a_line_of_json(texts: Place):
    outcome = texts.done("check", "test.en", "output.de", *LANGUAGES, "--json")
    objects = [json.loads(line) for line in outcome.out.splitlines()]
    assert [row["line"] for row in objects] == list(range(1, 601))
    kinds_of = {row["line"]: [f["kind"] for f in row["findings"]] for row in objects}
    assert {number: kinds for number, kinds in kinds_of.items() if kinds} == {
        number: [kind] for number, kind in KINDS.items()
    }
    assert outcome.err == (
        "mtkit: 3 of 600 lines are marked (0.5%); lines by kind: copied 1, numbers 1,"
        " placeholders 1\n"
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_table_is_the_same_with_any_number_of_workers(texts, workers, monkeypatch):
    monkeypatch.setattr("mtkit.cli.check.BLOCK", 50)
    arguments = ["check", "test.en", "output.de", *LANGUAGES, "--findings", "found.tsv"]
    assert texts.done(*arguments, "--workers", workers).err == "mtkit: wrote found.tsv\n"
    rows = [line.split("\t") for line in (texts.folder / "found.tsv").read_text().splitlines()]
    assert rows[0] == ["line", "kind", "severity", "reason", "source", "translation"]
    assert [(int(row[0]), row[1]) for row in rows[1:]] == [
        (100, "copied"),
        (300, "placeholders"),
        (200, "numbers"),
    ]
    assert rows[2][3:] == ["missing: {name}", *FAULTS[300]]


def test_the_files_may_be_compressed_or_standard_input_and_so_may_the_output(texts: Place):
    expected = texts.mtkit("check", "test.en", "output.de", *LANGUAGES, "--json").out
    source = (texts.folder / "test.en").read_bytes()
    texts.write("test.en.gz", gzip.compress(source))
    arguments = ["check", "-", "output.de", *LANGUAGES, "--json", "--output", "found.json.gz"]
    outcome = texts.mtkit(*arguments, stdin=source)
    assert (outcome.status, outcome.out) == (0, "")
    assert gzip.decompress((texts.folder / "found.json.gz").read_bytes()).decode() == expected
    assert texts.mtkit("check", "test.en.gz", "output.de", *LANGUAGES, "--json").out == expected
    # The table for people goes to a file too.
    assert texts.mtkit("check", "test.en", "output.de", "--output", "table.txt").out == ""
    assert "placeholders" in (texts.folder / "table.txt").read_text()


def test_three_lines_can_be_checked(place: Place):
    place.write("a.en", "One {x}.\nTwo.\nThree.\n")
    place.write("a.de", "Eins.\nZwei.\nDrei.\n")
    outcome = place.done("check", "a.en", "a.de")
    assert "source language: not identified" in outcome.err
    assert outcome.out.splitlines()[1].split()[:3] == ["placeholders", "1", "33.33%"]


def test_files_without_lines_are_one_warning_and_no_error(place: Place):
    place.write("a.en", "")
    place.write("a.de", "")
    for options in ([], ["--json"]):
        outcome = place.mtkit("check", "a.en", "a.de", *options)
        assert (outcome.status, outcome.out) == (0, "")
        assert outcome.err == "mtkit: warning: there is nothing to check: 0 lines\n"
    place.mtkit("check", "a.en", "a.de", "--findings", "found.tsv")
    assert (place.folder / "found.tsv").read_text().splitlines() == [
        "line\tkind\tseverity\treason\tsource\ttranslation"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("test.en short.de", "short.de: has no line 2, but test.en has one"),
        ("test.en latin.de", "latin.de, line 1: not UTF-8"),
        ("test.en missing.de", "missing.de: No such file or directory"),
        ("test.en", "give two files: mtkit check SRC TGT"),
        ("test.en output.de --fit", "--fit requires --run"),
        ("--run mine --fit --workers 2", "--workers has no effect with --fit"),
        ("- -", "standard input (-) can be read once"),
        ("test.en output.de --findings test.en", "--findings would replace the SRC"),
        ("test.en output.de --findings x --output x", "would replace the file of --output"),
        ("test.en output.de --output output.de", "--output would replace the TGT"),
        ("test.en output.de --findings nowhere/x", "the folder nowhere does not exist"),
        ("test.en output.de --findings folder", "folder: is a folder; give --findings FILE"),
        ("test.en output.de --src-lang 'e n'", "--src-lang: 'e n' is not a language code"),
        ("test.en output.de --run runs/x", "runs/x: there is no such run folder"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_everything_as_it_was(arguments, message, texts):
    texts.write("short.de", "eins\n")
    texts.write("latin.de", b"Gr\xfc\xdfe\n")
    texts.write("folder/x", "")
    assert message in texts.refused("check", *shlex.split(arguments))


def test_two_files_of_one_language_are_a_warning(texts: Place):
    err = texts.mtkit("check", "test.en", "test.en", "--src-lang", "en", "--tgt-lang", "en").err
    assert "both sides are in en: is TGT the translation?" in err


@pytest.mark.parametrize(
    ("files", "given", "message"),
    [
        ("a.en a.de", "en fr", "6 of 6 samples of the target look like de, not fr; correct the"),
        ("a.en a.de", "ru de", "6 of 6 samples of the source look like en, not ru; correct the"),
        ("a.de a.en", "en de", "look like en, not de; are the languages swapped?"),
        ("a.en a.en", "en de", "the translation equals the source in all 300 lines: was it"),
        ("a.en half.de", "en de", "the translation equals the source in 100 of 300 lines: was it"),
        ("a.en a.de", "en de", ""),
        ("a.en blank", "en de", "lines are marked: does each line of TGT"),
        ("a.en nine.de", "en de", ""),
        ("name name", "en de", ""),
    ],
)
def test_a_text_in_another_language_is_one_warning(place: Place, files, given, message):
    english, german = map(list, zip(*PAIRS[:300], strict=True))
    texts = {"a.en": english, "a.de": german, "half.de": german[:200] + english[200:]}
    # Nine lines in another language are too few, and may be names.
    texts |= {"blank": [""] * 300, "nine.de": german[:291] + english[:9], "name": ["Berlin"] * 9}
    for name, lines in texts.items():
        place.write(name, "".join(f"{line}\n" for line in lines))
    source, target = given.split()
    err = place.mtkit("check", *files.split(), "--src-lang", source, "--tgt-lang", target).err
    warnings = [line for line in err.splitlines() if "warning" in line]
    assert len(warnings) == bool(message)
    assert message in "".join(warnings)


@pytest.mark.parametrize(
    ("copied", "languages", "is_warned"),
    [(300, "", True), (270, "en de", True), (150, "en de", True), (30, "en de", False)],
)
def test_lines_that_are_not_translated_say_nothing_of_the_languages(
    place: Place, copied, languages, is_warned
):
    place.write("a.en", "".join(f"{english}\n" for english, _ in PAIRS[:300]))
    mixed = [english if line < copied else german for line, (english, german) in enumerate(PAIRS)]
    place.write("mixed.de", "".join(f"{line}\n" for line in mixed[:300]))
    result = place.mtkit("check", "a.en", "mixed.de", "--json")
    marked = {
        line
        for line, row in enumerate(map(json.loads, result.out.splitlines()))
        if "copied" in [finding["kind"] for finding in row["findings"]]
    }
    # Where no usual words are known, three words may be a name.
    long = {line for line in range(copied) if len(mixed[line].split()) > 3}
    assert long <= marked <= set(range(copied))
    named = f"source language: {languages.replace(' ', ', target language: ')};"
    assert (named in result.err) == bool(languages)
    share = "all 300" if copied == 300 else f"{copied} of 300"
    assert (f"equals the source in {share} lines" in result.err) == is_warned
    assert "look like" not in result.err
    assert "both sides" not in result.err


def test_without_a_finding_there_is_one_line(place: Place):
    place.write("a.en", "One.\nTwo.\n")
    place.write("a.de", "Eins.\nZwei.\n")
    assert place.mtkit("check", "a.en", "a.de", *LANGUAGES).out == "no findings in 2 lines\n"


def test_what_is_not_reported_is_one_line(place: Place):
    for language in ("en", "de"):
        place.write(f"a.{language}", "".join(f"{language} {n}\n" for n in range(120)))
    place.write("a.de", "".join(f"de {n if n < 60 else 'X'}\n" for n in range(120)))
    (note,) = place.mtkit("check", "a.en", "a.de", *LANGUAGES).err.splitlines()
    assert note == "mtkit: not reported: usual words and habits (120 of 200 pairs)"


def test_files_whose_lines_do_not_belong_together_are_a_warning(place: Place):
    place.write("a.en", "".join(f"There are {number} birds.\n" for number in range(20, 40)))
    good = [f"Es sind {number} Vögel.\n" for number in range(20, 40)]
    for lines, expected in (
        ([*good[1:], good[0]], "20 of 20 lines are marked: does each line of TGT translate"),
        (good, ""),
    ):
        place.write("a.de", "".join(lines))
        err = place.mtkit("-q", "check", "a.en", "a.de", *LANGUAGES).err
        assert expected in err
        assert bool(expected) == bool(err)
