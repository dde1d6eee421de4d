"""`mtkit score-trees`: of a parser and of files; what does not match is refused by line."""

import json
import re

import pytest
from support.command_line import Place

from mtkit.cli.tables import tree_scores
from mtkit.parsing import parse_trees, score_trees

GOLD = "(S (NP (NN a)) (VP (VB b)))\n(NP (NN c) (NN d))\n"
# The first has three of three brackets, the second none of one.
FOUND = "(S (NP (XX a)) (VP (XX b)))\n(VP (XX c) (XX d))\n"
FILES = ("score-trees", "found.trees", "--reference", "gold.trees")


@pytest.fixture
def files(place: Place) -> Place:
    place.write("gold.trees", GOLD)
    place.write("found.trees", FOUND)
    return place


def cells(out: str, name: str) -> list[str]:
    """The numbers of a row of the table."""
    (row,) = re.findall(rf"^.*\b{name}  .*$", out, re.M)
    return row.partition(name)[2].split()


def test_files_of_trees_are_scored_for_all_short_and_s_sentences(files: Place):
    outcome = files.done(*FILES)
    # Three of four brackets on both sides, and one of two sentences is exact.
    assert cells(outcome.out, "all") == ["2", "75.00", "75.00", "75.00", "50.00", "0"]
    assert cells(outcome.out, "40 words or less") == ["2", "75.00", "75.00", "75.00", "50.00"]
    assert cells(outcome.out, "S roots") == ["1", "100.00", "100.00", "100.00", "100.00"]
    assert "#:2|rules:evalb-COLLINS|" in outcome.out
    assert outcome.err == ""


def test_no_number_of_the_table_is_cut_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch):
    gold = list(parse_trees(GOLD.splitlines(), name="gold"))
    parsed = list(parse_trees(FOUND.splitlines(), name="found"))
    systems = [("a-parser", score_trees(gold, gold), None)]
    systems += [("another-parser", score_trees(parsed, gold), 3)]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    table = tree_scores(systems)
    assert max(map(len, table.splitlines()[:-1])) <= 80
    # Of three rows, and of the first two of the other system and its S roots.
    assert table.count("100.00") == 3 * 4 + 4
    assert table.count("75.00") == 2 * 3


def test_gold_trees_may_be_spread_over_lines_and_come_from_standard_input(files: Place):
    gold = b"( (S\n    (NP (NN a))\n    (VP (VB b))) )\n( (NP (NN c) (NN d)))\n"
    arguments = ["score-trees", "found.trees", "--reference", "-", "--json"]
    (system,) = json.loads(files.mtkit(*arguments, stdin=gold).out)["systems"]
    assert system["all"]["f1"] == 75.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(S (NP (XX a)) (VP (XX b)))\n", ["found.trees has 1 line", "gold.trees has 2 trees"]),
        (FOUND + "(X (XX x))\n", ["found.trees has 3 lines"]),
        (FOUND.replace("\n(VP", " (VP"), ["found.trees has 1 line"]),
        # No line is right: probably it is another file.
        ("plain\ntext\n", ["found.trees, line 1: 'plain' has no part-of-speech tag", "2 of 2"]),
        ("\n(S (XX a))\n", ["found.trees, line 1: 0 trees; 2 of 2 lines have no tree of their "]),
        ("(S (XX c) (XX d))\n(S (XX a) (XX b))\n", ["line 1: word 1 is 'c', and 'a' in the "]),
    ],
)
def test_trees_that_do_not_match_are_refused_by_file_and_line(files, text, words):
    files.write("found.trees", text)
    error = files.refused(*FILES)
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        # The parts of a forest have the right words, and evalb scores them; we do not.
        ("(NP (XX c)) (VP (XX d))", "2 trees"),
        ("", "0 trees"),
        ("(NP (XX c) (XX e))", "word 2 is 'e', and 'd' in the gold tree"),
        ("(NP (XX c) (XX d) (XX d))", "3 words, and 2 in the gold tree"),
        ("(NP (XX c) (XX d)", "unbalanced brackets: the tree that begins here is not closed"),
        ("no parse", "'no' has no part-of-speech tag, as in (NN no)"),
        ("(NP c d)", "'d' in the bracket of the word 'c'"),
        ("\x00\ufffd", "'\\x00\ufffd' has no part-of-speech tag"),
    ],
)
def test_a_line_that_is_not_the_tree_of_its_sentence_counts_as_a_flat_tree_and_is_named(
    files, line, reason
):
    files.write("found.trees", f"{FOUND.splitlines()[0]}\n{line}\n")
    outcome = files.done(*FILES, "--json")
    (warning,) = outcome.err.splitlines()
    assert warning.startswith(f"mtkit: warning: found.trees, line 2: {reason}")
    assert warning.endswith(
        "; 1 of 2 lines have no tree of their sentence, and count as flat trees"
    )
    (system,) = json.loads(outcome.out)["systems"]
    assert system["failures"] == 1
    # All three of the first sentence, and S instead of NP over "c d".
    assert (system["all"]["matched"], system["all"]["gold"], system["all"]["found"]) == (3, 4, 4)


def test_another_encoding_and_malformed_gold_trees_are_refused_by_line(files: Place):
    files.write("gold.trees", GOLD.replace("c", "\xe9").encode("latin-1"))
    assert "gold.trees, line 2: not UTF-8" in files.refused(*FILES)
    files.write("gold.trees", GOLD.replace("(NN d))", "(NN d)"))
    assert "gold.trees, line 2: unbalanced" in files.refused(*FILES)
    files.write("gold.trees", "")
    assert "gold.trees has no trees: nothing to score" in files.refused(*FILES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([*FILES[1:], "--reference", "found.trees"], "--reference: give one reference, not 2"),
        (["found.trees"], "TREES requires --reference"),
        (["--reference", "gold.trees"], "--reference requires TREES"),
        ([*FILES[1:], "--well-formed"], "--well-formed cannot be combined with TREES"),
    ],
)
def test_options_that_do_not_go_with_trees_are_refused(files, options, message):
    assert message in files.refused("score-trees", *options)


def test_a_parser_is_scored_on_its_test_or_validation_trees(place, parser, untrained, tiny_data):
    score = ("score-trees", "--run", parser.path)
    assert cells(place.done(*score).out, "all")[0] == "20"
    (system,) = json.loads(place.mtkit(*score, "--split", "valid", "--json").out)["systems"]
    assert system["repaired"] > 0
    (system,) = json.loads(place.mtkit(*score, "--well-formed", "--json").out)["systems"]
    assert (system["repaired"], system["failures"]) == (0, 0)
    assert "is data for translation" in place.refused(*score, "--data", tiny_data.path)
    error = place.refused(*score, "--run", untrained.path)
    assert f"{untrained.path}: translates, and mtkit score-trees takes parsers" in error
    assert "which mtkit score-trees scores" in place.refused("score", "--run", parser.path)
