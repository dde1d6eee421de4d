"""What `mtkit inspect` shows: numbers, figures and pages."""

import base64
import dataclasses
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import UNTRAINED, changed, random_run
from support.browsed import HOSTILE, Page, assert_runs_its_own_script_alone, well_formed
from support.browser import Browser
from support.treebank import tree

from mtkit.align.links import Alignment
from mtkit.base.errors import MtkitError
from mtkit.inspect import Inspection, PageEntry, index_page, inspect_pair, inspection_page
from mtkit.inspect.inspection import Prediction, Stack, StackName
from mtkit.inspect.page import COLORS, MAX_SUBWORDS
from mtkit.translate import Translator

SVG = "{http://www.w3.org/2000/svg}"
SOURCE, TARGET = "one two three nine", "eins zwei drei"


def test_an_inspection_has_every_layer_and_head(translator):
    inspection = inspect_pair(translator, SOURCE, TARGET)
    config = translator.model.config
    S = len(translator.vocabularies.src.encode(SOURCE)) + 1
    T = len(translator.vocabularies.tgt.encode(TARGET)) + 1
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    shapes = {"encoder": (S, S), "decoder": (T, T), "cross": (T, S)}
    for name in get_args(StackName):
        stack = inspection.stacks[name]
        count = layers.get(name, config.decoder_layers)
        assert stack.weights.shape == (count, config.n_heads, *shapes[name])
        assert (len(stack.queries), len(stack.keys)) == shapes[name]
        assert np.allclose(stack.weights.sum(-1), 1, rtol=0, atol=1e-5)
        assert stack.sizes.shape == (count, config.n_heads)
        assert (stack.sizes > 0).all()
    # A position of the decoder does not see those behind it.
    assert not np.triu(inspection.stacks["decoder"].weights, 1).any()
    assert inspection.stacks["encoder"].queries[-1] == "</s>"
    assert inspection.stacks["cross"].queries[0] == "<s>"


def test_probabilities_are_those_of_the_score_of_given_translations(translator):
    predictions = inspect_pair(translator, SOURCE, TARGET).predictions
    (scored,) = translator.score_given([SOURCE], [TARGET])
    assert [prediction.subword for prediction in predictions] == list(scored.pieces)
    for prediction, log_prob in zip(predictions, scored.log_probs, strict=True):
        assert math.log(prediction.probability) == pytest.approx(log_prob, abs=1e-4)
        values = [value for _, value in prediction.alternatives]
        assert values == sorted(values, reverse=True)
        assert prediction.probability <= values[0]
        if prediction.probability == values[0]:
            assert prediction.alternatives[0][0] == prediction.subword


def test_without_a_translation_the_model_translates(translator):
    inspection = inspect_pair(translator, "one two")
    (text,) = translator.translate(["one two"])
    assert inspection.translation == text
    assert [inspection.alignment] == list(translator.align(["one two"], [text]))


def test_the_aligned_head_agrees_most_with_those_that_align(translator):
    inspection = inspect_pair(translator, SOURCE, TARGET)
    layers = sorted({head.layer for head in translator.aligner().heads})
    weights = inspection.stacks["cross"].weights[[layer - 1 for layer in layers], :, :, :-1]
    products = (weights * weights.mean((0, 1))).sum((2, 3))
    layer, head = inspection.aligned
    assert products[layers.index(layer), head - 1] == pytest.approx(products.max())


def test_entropy_is_in_bits():
    weights = np.array([[[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0]], [[0.25] * 4, [0.25] * 4]]])
    stack = Stack(["a", "b"], ["a", "b", "c", "d"], weights, np.ones((1, 2)))
    assert stack.entropies.tolist() == [[0.5, 2.0]]


def test_a_blank_sentence_cannot_be_inspected(translator):
    with pytest.raises(MtkitError, match="the source is blank"):
        inspect_pair(translator, " \t")


def test_an_ensemble_cannot_be_inspected(untrained):
    with (
        Translator.load([untrained, untrained], device="cpu") as two,
        pytest.raises(ValueError, match="several models"),
    ):
        inspect_pair(two, "one")


def test_a_long_line_is_cut_and_the_rest_counted(translator):
    limit = translator.config.max_source_tokens - 1
    source = "nine " * limit
    count = len(translator.vocabularies.src.encode(source))
    inspection = inspect_pair(translator, source, "eins")
    assert len(inspection.stacks["encoder"].keys) == limit + 1
    assert inspection.cut == (count - limit, 0)


def test_a_warning_names_the_number_of_the_line_and_its_limit(tiny_data, tmp_path, caplog):
    config = changed(UNTRAINED, "model", positions="learned", max_positions=16)
    run = random_run(tmp_path / "run", tiny_data, 1, config=config)
    source = "nine " * 40
    with Translator.load(run, device="cpu") as learned:
        assert len(inspect_pair(learned, source, number=7).stacks["encoder"].keys) == 16
        assert inspect_pair(learned, source, source, number=8).cut > (0, 0)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    places = [(text.split(":")[0], text.split()[-1]) for text in warnings]
    assert places == [(f"line {n}", "(model.max_positions)") for n in (7, 7, 8, 8)]


def test_all_numbers_are_json(translator):
    inspection = inspect_pair(translator, "one two", "eins")
    stacks, read = inspection.stacks, json.loads(json.dumps(inspection.as_dict()))
    for name in get_args(StackName):
        numbers = read["attention"][name]
        assert np.allclose(numbers["weights"], stacks[name].weights, rtol=0, atol=1e-6)
        assert numbers["queries"] == stacks[name].queries
    longest = max(len(stacks[name].keys) for name in ("encoder", "decoder"))
    assert len(read["positions"]["encoding"]) == longest


def made_up(tokens: int, *, layers: int = 2, heads: int = 2, text: str = "w") -> Inspection:
    """An inspection of so many subwords, with weights of a seed."""
    random = np.random.default_rng(1)
    words = [f"▁{text}{i}" for i in range(tokens - 1)] + ["</s>"]

    def stack() -> Stack:
        weights = random.dirichlet(np.full(tokens, 0.3), size=(layers, heads, tokens))
        return Stack(words, words, weights, np.ones((layers, heads)))

    line = " ".join(f"{text}{i}" for i in range(tokens))
    spans = [match.span() for match in re.finditer(r"\S+", line)]
    count = len(spans)
    return Inspection(
        line,
        line,
        {name: stack() for name in get_args(StackName)},
        [Prediction(word, 0.5, [(word, 0.5), ("▁other", 0.25)]) for word in words],
        Alignment({(i, i): 0.9 for i in range(count)}, spans, spans),
        random.uniform(-1, 1, (tokens, 512)),
        "sinusoidal",
        (0, 0),
        aligned=(2, 1),
    )


def page_of(inspection: Inspection) -> str:
    return inspection_page(inspection, run="runs/x", checkpoint="step 1")


def data_of(page: Page) -> dict[str, dict[str, dict[str, str]]]:
    (element,) = page.all("script", type="application/json")
    return json.loads(element["text"])


def assert_has_weights(page: Page, inspection: Inspection, most: int = 10**9) -> None:
    """Those of all heads to a page's accuracy, and of the first `most` subwords."""
    for name in get_args(StackName):
        encoded = data_of(page)["stacks"][name]["weights"]
        levels = np.frombuffer(base64.b64decode(encoded), np.uint8)
        weights = inspection.stacks[name].weights[:, :, :most, :most]
        assert np.allclose(levels.reshape(weights.shape) / 255, weights, rtol=0, atol=0.5 / 255)


def test_a_page_has_the_weights_of_all_heads():
    inspection = made_up(9)
    assert_has_weights(well_formed(page_of(inspection)), inspection)


def test_a_page_may_run_its_own_script_alone_and_load_nothing():
    assert_runs_its_own_script_alone(well_formed(page_of(made_up(5))))


def test_a_page_of_a_model_without_positions_says_so_and_has_no_picture_of_them():
    page = well_formed(page_of(made_up(5)))
    assert all(page.all("div", id=name) for name in ("encoding", "products"))
    without = dataclasses.replace(made_up(5), positions=np.zeros((5, 512)), positions_kind="none")
    page = well_formed(page_of(without))
    assert "The model has no positions." in page.texts("p")
    assert not any(page.all("div", id=name) for name in ("encoding", "products"))
    assert data_of(page)["positions"] is None


def test_hostile_text_is_text_on_a_page():
    page = well_formed(page_of(made_up(5, text=HOSTILE.replace(" ", "_"))))
    assert len(page.all("script")) == 2
    assert not page.all("b")
    entry = PageEntry("0001.html", HOSTILE, "</table>")
    assert HOSTILE in well_formed(index_page([entry], run="x")).texts("td")


def test_a_page_of_sixty_subwords_is_under_two_megabytes():
    text = page_of(made_up(60, layers=6, heads=16))
    assert len(text.encode()) < 2_000_000
    assert "first 60 subwords" not in text


def test_a_long_sentence_is_cut_with_a_note():
    inspection = made_up(MAX_SUBWORDS + 30)
    page = well_formed(page_of(inspection))
    assert len(data_of(page)["stacks"]["cross"]["keys"]) == MAX_SUBWORDS
    assert any(f"its first {MAX_SUBWORDS} subwords" in text for text in page.texts("p"))
    assert_has_weights(page, inspection, MAX_SUBWORDS)


def test_the_same_inspection_gives_the_same_page():
    assert page_of(made_up(7)) == page_of(made_up(7))


GIVEN = "(S (NP (DT the) (NN dog)) (VP (VBZ sleeps)) (. .))"


@pytest.fixture(scope="module")
def parsing(parser) -> Iterator[Translator]:
    with Translator.load(parser, device="cpu") as loaded:
        yield loaded


def drawn(page: str) -> dict[str, tuple[int, ...]]:
    """The texts of the tree on a page: row, first column, and the column behind the last."""
    boxes = [box for box in well_formed(page).all("bdi") if "style" in box["attrs"]]
    places = [re.findall(r"\d+", box["attrs"]["style"]) for box in boxes]
    return {box["text"]: tuple(map(int, place)) for box, place in zip(boxes, places, strict=True)}


def test_a_tree_has_its_words_in_a_row_and_each_phrase_above_its_parts(parsing):
    phrases = {"S": (1, 1, 5), "NP": (2, 1, 3), "VP": (2, 3, 4)}
    words = {"the": (3, 1, 2), "dog": (3, 2, 3), "sleeps": (3, 3, 4), ".": (3, 4, 5)}
    inspection = inspect_pair(parsing, "the dog sleeps.", GIVEN)
    assert drawn(page_of(inspection)) == phrases | words


@pytest.mark.parametrize(
    ("text", "shown"),
    [("(S (X <b>) (X &))", ["S", "<b>", "&"]), (f"(X {'w' * 25})", [f"{'w' * 23}…"])],
)
def test_words_are_escaped_and_cut_and_a_single_word_is_a_tree(parsing, text, shown):
    inspection = dataclasses.replace(inspect_pair(parsing, "the dog"), tree=tree(text))
    assert list(drawn(page_of(inspection))) == shown


def test_the_page_of_a_parser_shows_the_tree_above_the_attention(parsing):
    inspection = inspect_pair(parsing, "the dog sleeps.", GIVEN)
    assert inspection.source == "the dog sleeps ."
    assert inspection.translation == "S NP xDT xNN zNP VP xVBZ zVP xucov zS"
    subwords = [prediction.subword for prediction in inspection.predictions]
    assert subwords[:3] == ["▁S", "▁NP", "▁xDT"]
    page = page_of(inspection)
    well_formed(page)
    assert page.index(">Tree<") < page.index(">Attention</h2>")
    assert inspect_pair(parsing, "the dog sleeps.").tree.words == ("the", "dog", "sleeps", ".")


def test_a_given_tree_of_other_words_is_refused(parsing):
    for wrong, message in (
        ("(S (NN cat))", "must have exactly these words: 'the dog sleeps .'"),
        ("", "the tree '': expected one tree, not 0"),
        ("(NN the) (NN dog)", "expected one tree, not 2"),
        ("(S (NN cat)", "the tree, line 1: unbalanced"),
        ("the dog", "the tree, line 1: 'the' has no part-of-speech tag"),
    ):
        with pytest.raises(MtkitError, match=message):
            inspect_pair(parsing, "the dog sleeps.", wrong)


def test_the_command_prints_the_tree_with_all_numbers(place, parser):
    options = ("--target", GIVEN, "--json", "--run", parser.path)
    outcome = place.mtkit("inspect", "the dog sleeps.", *options)
    assert json.loads(outcome.out)["tree"] == GIVEN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "stack", "layer", "heads", "word"),
    [
        ("#stack=constructor&layer=1.5&heads=1.5&word=1.5", "cross", 1, (0,), None),
        ("", "cross", 1, (0,), None),
        ("#stack=encoder", "encoder", 1, (0, 1), None),
        ("#stack=cross&layer=1", "cross", 0, (0, 1), None),
        ("#stack=cross&layer=2&heads=2", "cross", 1, (1,), None),
        ("#stack=decoder&layer=1&heads=1,2&word=3", "decoder", 0, (0, 1), 2),
    ],
)
def test_a_browser_draws_the_lines_of_a_view(address, stack, layer, heads, word, browser, tmp_path):
    inspection = made_up(12, layers=3 if address == "#stack=encoder" else 2)
    attention, _ = browsed(browser, inspection, tmp_path, address=address)
    # The weights as the page has them: in steps of 1/255.
    levels = np.round(255 * inspection.stacks[stack].weights[layer])
    links = [
        (q, k, COLORS[head])
        for head in heads
        for q, k in np.argwhere(levels[head] >= 255 * 0.02).tolist()
        if word is None or q == word
    ]
    queries, keys = (sorted({link[side] for link in links}) for side in (0, 1))
    expected = sorted((queries.index(q), keys.index(k), color) for q, k, color in links)
    assert joined(attention) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "text", "width", "is_upright"),
    [(8, "word", 1200, False), (40, "word", 1200, True), (8, "Mammutwort", 700, True)],
)
def test_the_figures_fill_the_width_and_words_are_upright_only_where_they_must(
    tokens, text, width, is_upright, browser, tmp_path
):
    inspection = made_up(tokens, text=text)
    for drawing in browsed(browser, inspection, tmp_path, width=width):
        # The page leaves a margin.
        assert 0.85 * width < float(drawing.get("width", "")) <= width
        words = drawing.findall(f"{SVG}text")
        ways = [word.get("transform", "") for word in words]
        assert {"rotate" in way for way in ways} == {is_upright}
        places = [float(way.partition("(")[2].split()[0]) for way in ways]
        assert max(places) > 0.8 * float(drawing.get("width", ""))


def browsed(
    browser: Browser, inspection: Inspection, folder: Path, *, address: str = "", width: int = 1000
) -> tuple[ElementTree.Element, ElementTree.Element]:
    """The figures of attention and of alignment on a page, as a browser has drawn them."""
    page = folder / "page.html"
    page.write_text(page_of(inspection), encoding="utf-8")
    browser.open(f"{page.as_uri()}{address}", width=width)
    attention, alignment = (
        ElementTree.fromstring(
            browser.value(f"new XMLSerializer().serializeToString({name}.querySelector('svg'))")
        )
        for name in ("lines", "alignment")
    )
    return attention, alignment


def joined(drawing: ElementTree.Element) -> list[tuple[int, int, str]]:
    """The numbers of the words that each line joins, and its colour."""
    lines = [
        (float(line.get("x1", "")), float(line.get("x2", "")), line.get("stroke", ""))
        for line in drawing.iter(f"{SVG}line")
    ]
    above, below = (sorted({line[side] for line in lines}) for side in (0, 1))
    return sorted((above.index(x1), below.index(x2), color) for x1, x2, color in lines)
