"""A parser: sentences in, trees out, one per line, over exactly the words of the sentence."""

import json
import re
from pathlib import Path

import pytest
from conftest import changed
from support.training import Trainings, assert_same_state, interrupt

from mtkit.base.errors import MtkitError
from mtkit.convert.export_run import export
from mtkit.parsing.trees import linearise, model_source, parse_trees, restore, treebank_words
from mtkit.run_folder import Run
from mtkit.tokenizer import EOS_ID
from mtkit.train import assembly as train
from mtkit.translate import Translator


def leaves(tree: str) -> list[str]:
    """The words of a bracketed tree, found without its structure."""
    return re.findall(r" ([^() ]+)\)", tree)


@pytest.fixture(scope="module")
def at(parser) -> list[str]:
    return ["--run", str(parser.path)]


def test_each_line_gives_one_tree_over_exactly_its_words(place, at, tree_data):
    lines = [*tree_data.text("test")[0], "", "  ", "unseen (words) \u2028here", "\x01", "cat"]
    given = "\n".join(lines).encode()
    outcome = place.mtkit("translate", *at, "--tokenized", stdin=given)
    assert outcome.status == 0
    trees = outcome.out.split("\n")[:-1]
    assert len(trees) == len(lines)
    for line, tree in zip(lines, trees, strict=True):
        escaped = line.replace("(", "-LRB-").replace(")", "-RRB-")
        assert leaves(tree) == escaped.split(" ") if line.strip() else tree == ""
        assert len(list(parse_trees([tree], name="found"))) == bool(line.strip())
    assert re.search(r"repaired \d+ of 23 trees", outcome.err)


@pytest.mark.parametrize("more", [[], ["--beam-size", "1"], ["--sample"], ["--nbest", "3"]])
def test_a_search_among_well_formed_trees_needs_no_repair(place, at, tree_data, more):
    given = "\n".join(tree_data.text("test")[0]).encode()
    command = ["translate", *at, "--json", "--tokenized", *more]
    plain = place.mtkit(*command, stdin=given)
    masked = place.mtkit(*command, "--well-formed", stdin=given)
    for outcome, is_any in ((plain, True), (masked, False)):
        rows = map(json.loads, outcome.out.splitlines())
        assert any(tree["repaired"] for row in rows for tree in row["translations"]) == is_any


def test_a_tree_does_not_depend_on_its_batch(parser, tree_data):
    lines = tree_data.text("test")[0]
    config = parser.config.decode.model_copy(update={"well_formed_trees": True, "beam_size": 5})
    with Translator.load(parser, config=config, device="cpu", tokenized=True) as translator:
        together = list(translator.translate(lines))
        assert [next(translator.translate([line])) for line in lines] == together


def test_plain_text_is_split_into_words_as_in_the_treebank(place, at):
    # The examples of the Penn Treebank's own description of its tokeniser, and of its manual.
    expected = {
        "Good muffins cost $3.88 in New York.": "Good muffins cost $ 3.88 in New York .",
        "They'll save and invest more.": "They 'll save and invest more .",
        "children's, parents' and we don't": "children 's , parents ' and we do n't",
        'He said, "hi, my name is (A. B.)."': (
            "He said , `` hi , my name is -LRB- A. B. -RRB- . ''"
        ),
        "I cannot cannot--gonna 1,000 at 5:30?": "I can not can not -- gon na 1,000 at 5:30 ?",
        "the so-called IL-2 {x}": "the so-called IL-2 -LCB- x -RCB-",
        "\u201cHello\u201d, it\u2019s Mr. Smith\u2026": "`` Hello '' , it 's Mr. Smith ...",
    }
    for line, words in expected.items():
        assert treebank_words(line) == words.split(" ")
    outcome = place.mtkit("translate", *at, stdin=b"They'll go.\n")
    assert leaves(outcome.out) == ["They", "'ll", "go", "."]


def test_options_of_translations_are_refused_for_parsers_and_the_reverse(place, at, untrained):
    for options in (["--alignments"], ["--split-sentences"], ["--format", "html"]):
        assert "is for translations" in place.refused("translate", *at, *options)
    plain = ["translate", "--run", untrained.path]
    for option in ("--tokenized", "--well-formed", "--no-well-formed"):
        assert "requires a parser" in place.refused(*plain, option)
    files = place.write("a", "a\n"), place.write("b", "b\n")
    assert "is a parser" in place.refused("align", *at, *files)


def test_a_given_tree_has_the_log_probability_that_the_search_gave_it(parser, tree_data):
    lines = tree_data.text("test")[0][:5]
    config = parser.config.decode.model_copy(update={"well_formed_trees": True})
    with Translator.load(parser, config=config, device="cpu", tokenized=True) as translator:
        trees = [best for (best,) in translator.translate_nbest(lines, n_best=1)]
        scored = list(translator.score_given(lines, [best.text for best in trees]))
        with pytest.raises(MtkitError, match="trees, line 1: unbalanced"):
            list(translator.score_given(["a"], ["(S (XX a)"]))
    for best, again in zip(trees, scored, strict=True):
        assert best.log_prob == pytest.approx(again.log_prob, abs=1e-4)


def test_a_linearised_parser_returns_what_the_trees_are_restored_from(parser, tree_data):
    lines = tree_data.text("test")[0]
    trees = Translator.load(parser, device="cpu", tokenized=True).translate(lines)
    texts = Translator.load(parser, device="cpu", linearised=True).translate(lines)
    for tree, text, line in zip(trees, texts, lines, strict=True):
        assert str(restore(text, line.split()).tree) == tree


def test_an_exported_parser_finds_the_same_trees(parser, tree_data, tmp_path):
    export(parser, tmp_path / "out", format="safetensors")
    lines = tree_data.text("test")[0]
    own, exported = (
        list(Translator.load(run, device="cpu", tokenized=True).translate(lines))
        for run in (parser, tmp_path / "out")
    )
    assert exported == own


def test_a_run_on_trees_reports_f1_and_selects_by_it(tiny_config, tree_data, tmp_path, caplog):
    config = changed(tiny_config, "train", best_metric="f1", valid_every=2)
    with caplog.at_level("INFO", logger="mtkit"):
        train.run(config, tree_data, tmp_path / "run", device="cpu")
    assert re.search(r"validation loss .*, F1 [\d.]+, repaired [\d.]+%", caplog.text)
    run = Run.open(tmp_path / "run")
    rows = [row for row in run.metrics() if "valid_loss" in row]
    assert all(0 <= row["valid_f1"] <= 100 and "valid_bleu" not in row for row in rows)
    best = max(rows, key=lambda row: (row["valid_f1"], row["step"]))
    assert run.select("best")[1].startswith(f"step {best['step']}")
    assert run.manifest.data.task == "parsing"


def test_a_metric_of_another_task_is_refused(trainings, tree_data):
    with pytest.raises(MtkitError, match=r"best_metric: bleu is not a metric of parsing.* f1 or"):
        trainings.run("run", data=tree_data)
    with pytest.raises(MtkitError, match="best_metric: f1 is not a metric of translation"):
        trainings.run("run", best_metric="f1")


@pytest.fixture(scope="module")
def counting(tree_data, tiny_config, tmp_path_factory) -> Path:
    """A parser of two layers that counts words, trained for a few updates with guided attention."""
    place = tmp_path_factory.mktemp("counting") / "counting"
    settings = {"best_metric": "f1", "guided_alignment": 0.5, "max_steps": 6}
    config = changed(changed(tiny_config, "train", **settings), "model", positions="words")
    train.run(config, tree_data, place, device="cpu")
    return place


def test_a_parser_that_counts_words_parses_in_threads_and_in_an_ensemble(counting, tree_data):
    lines = tree_data.text("test")[0]
    alone = Translator.load(counting, tokenized=True)
    expected = list(alone.translate_nbest(lines, n_best=2))
    for runs, workers in ((counting, 2), ([counting, counting], None)):
        with Translator.load(runs, tokenized=True, workers=workers) as other:
            nbests = list(other.translate_nbest(lines, n_best=2))
        for (ours, *_), (theirs, *_) in zip(nbests, expected, strict=True):
            assert ours.text == theirs.text
            assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)


def test_words_are_counted_by_the_parts_of_a_tree_that_are_words(counting, tree_data):
    weights = Run.open(counting).checkpoints()[-1].load_weights()
    src, tgt = tree_data.tokenizers()
    for tree in parse_trees(tree_data.text("test")[1], name="test"):
        ids = tgt.encode(linearise(tree, tags=True))
        parts = linearise(tree, tags=True).split()
        assert weights["tgt_words"][ids].tolist() == [part.startswith("x") for part in parts]
        assert int(weights["src_words"][src.encode(tree.sentence)].sum()) == len(tree.words)
    assert weights["src_words"][EOS_ID]


def test_a_model_reads_one_word_for_each_word_of_a_sentence(tree_data):
    # Spaces of Unicode, invisible characters, U+00B4 and U+00A8 that are a space and a mark, and
    # the signs that SentencePiece has for a space and for damage.
    odd = ["1\u00a01/2", "a\u2028b\u3000", "\u00a0", "\u200b", "a\u200bb", "\x01"]
    odd += ["\u00b4", "a\u00a8", "a\u2581b", "\ufffd"]
    words = [*odd, "dog", "\u00bd", "\u4e2d\u6587", "na\u00efve", "\u2026"]
    src = tree_data.tokenizers().src
    for some in (words, words[::-1], *([word] for word in words)):
        assert int(src.begins_word[src.encode(model_source(some))].sum()) == len(some)
    # Other words are as they were.
    assert model_source(words[len(odd) :]) == " ".join(words[len(odd) :])


def test_a_parser_that_counts_words_resumes_to_the_last_bit(counting, tree_data, tmp_path):
    trainings = Trainings(Run.open(counting).config, tree_data, tmp_path)
    trainings.stopped("run", 3, interrupt)
    trainings.run("run")
    assert_same_state(counting, tmp_path / "run")


def test_a_translation_model_cannot_count_words(trainings):
    trainings.change("model", positions="words")
    with pytest.raises(MtkitError, match=r"model.positions: the vocabulary of the target has no"):
        trainings.run("run")
    assert not (trainings.folder / "run").exists()
