"""The tree of a parser: drawn, and shown above its attention."""

from __future__ import annotations

import json
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from support.browsed import well_formed
from support.command_line import Place

from mtkit.base.errors import MtkitError
from mtkit.inspect import inspect_pair, inspection_page
from mtkit.inspect.figures import tree_figure
from mtkit.parsing.trees import Tree, parse_trees
from mtkit.run_folder import Run
from mtkit.translate import Translator

SVG = "{http://www.w3.org/2000/svg}"
GIVEN = "(S (NP (DT the) (NN dog)) (VP (VBZ sleeps)) (. .))"


def tree(text: str) -> Tree:
    (one,) = parse_trees([text], name="some")
    return one


@pytest.fixture(scope="module")
def translator(parser: Run) -> Iterator[Translator]:
    with Translator.load(parser, device="cpu") as loaded:
        yield loaded


def test_a_tree_has_its_words_in_a_row_and_each_phrase_above_its_parts():
    figure = ElementTree.fromstring(tree_figure(tree(GIVEN)))
    places = {
        text.text: (float(text.attrib["x"]), float(text.attrib["y"]))
        for text in figure.iter(f"{SVG}text")
    }
    assert set(places) == {"S", "NP", "VP", "the", "dog", "sleeps", "."}
    words = [places[word] for word in ("the", "dog", "sleeps", ".")]
    assert words == sorted(words)
    assert len({y for _, y in words}) == 1
    assert places["S"][1] < places["NP"][1] == places["VP"][1] < words[0][1]
    # A phrase is in the middle of its parts.
    assert places["NP"][0] == pytest.approx((places["the"][0] + places["dog"][0]) / 2, abs=0.1)
    assert places["VP"][0] == places["sleeps"][0]
    lines = {
        (float(line.attrib["x1"]), float(line.attrib["x2"])) for line in figure.iter(f"{SVG}line")
    }
    parents = {"NP": "S", "VP": "S", ".": "S", "the": "NP", "dog": "NP", "sleeps": "VP"}
    assert lines == {(places[above][0], places[part][0]) for part, above in parents.items()}


def test_labels_and_words_are_escaped_and_a_single_word_is_a_tree():
    figure = tree_figure(Tree(("<b>", "&"), ("X", "X"), tree("(S (X a) (X b))").phrases))
    assert "&lt;b&gt;" in figure
    ElementTree.fromstring(figure)
    assert "word" in tree_figure(tree("(NN word)"))


def test_the_page_of_a_parser_shows_the_tree_above_the_attention(translator: Translator):
    found = inspect_pair(translator, "the dog sleeps.", GIVEN)
    assert found.source == "the dog sleeps ."
    assert found.translation == "S NP xDT xNN zNP VP xVBZ zVP xucov zS"
    assert [one.subword for one in found.predictions][:3] == ["▁S", "▁NP", "▁xDT"]
    page = inspection_page(found, run="runs/x", checkpoint="step 1")
    well_formed(page)
    assert page.index(">Tree<") < page.index(">Attention</h2>")
    own = inspect_pair(translator, "the dog sleeps.")
    assert own.tree is not None
    assert own.tree.words == ("the", "dog", "sleeps", ".")


def test_a_given_tree_of_other_words_is_refused(translator: Translator):
    for wrong, message in (
        ("(S (NN cat))", "must have exactly these words: 'the dog sleeps .'"),
        ("", "the tree '': expected one tree, not 0"),
        ("(NN the) (NN dog)", "expected one tree, not 2"),
        ("(S (NN cat)", "the tree, line 1: unbalanced"),
        ("the dog", "the tree, line 1: 'the' has no part-of-speech tag"),
    ):
        with pytest.raises(MtkitError, match=message):
            inspect_pair(translator, "the dog sleeps.", wrong)


def test_the_command_prints_the_tree_with_all_numbers(place: Place, parser: Run):
    outcome = place.mtkit(
        "inspect", "the dog sleeps.", "--target", GIVEN, "--json", "--run", parser.path
    )
    assert json.loads(outcome.out)["tree"] == GIVEN
