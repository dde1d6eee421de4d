"""The tree of a parser: drawn, and shown above its attention."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator

import pytest
from support.browsed import well_formed
from support.command_line import Place

from mtkit.base.errors import MtkitError
from mtkit.inspect import inspect_pair, inspection_page
from mtkit.parsing.trees import Tree, parse_trees
from mtkit.run_folder import Run
from mtkit.translate import Translator

GIVEN = "(S (NP (DT the) (NN dog)) (VP (VBZ sleeps)) (. .))"


def tree(text: str) -> Tree:
    (one,) = parse_trees([text], name="some")
    return one


@pytest.fixture(scope="module")
def translator(parser: Run) -> Iterator[Translator]:
    with Translator.load(parser, device="cpu") as loaded:
        yield loaded


def drawn(page: str) -> dict[str, tuple[int, ...]]:
    """The texts of the tree on a page: row, first column, and the column behind the last."""
    boxes = [box for box in well_formed(page).all("bdi") if "style" in box["attrs"]]
    return {
        box["text"]: tuple(map(int, re.findall(r"\d+", box["attrs"]["style"]))) for box in boxes
    }


def test_a_tree_has_its_words_in_a_row_and_each_phrase_above_its_parts(translator: Translator):
    found = inspect_pair(translator, "the dog sleeps.", GIVEN)
    phrases = {"S": (1, 1, 5), "NP": (2, 1, 3), "VP": (2, 3, 4)}
    words = {"the": (3, 1, 2), "dog": (3, 2, 3), "sleeps": (3, 3, 4), ".": (3, 4, 5)}
    assert drawn(inspection_page(found, run="runs/x", checkpoint="step 1")) == phrases | words


@pytest.mark.parametrize(
    ("text", "shown"),
    [("(S (X <b>) (X &))", ["S", "<b>", "&"]), (f"(X {'w' * 25})", [f"{'w' * 23}…"])],
)
def test_words_are_escaped_and_cut_and_a_single_word_is_a_tree(translator, text, shown):
    found = dataclasses.replace(inspect_pair(translator, "the dog"), tree=tree(text))
    assert list(drawn(inspection_page(found, run="runs/x", checkpoint="step 1"))) == shown


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
