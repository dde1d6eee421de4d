"""From trees to a prepared folder: sentences as they are, and one subword for each bracket."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import Place
from support.prepared import prepare_trees
from support.treebank import read_trees, small_trees

from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.parsing.trees import linearise
from mtkit.prepare import Treebank
from mtkit.prepare.treebank import Linearisation

WITH_TAGS = Linearisation(tags=True)


def brackets(trees: list[str]) -> int:
    """Openings, closings and words of linearised trees."""
    return sum(len(WITH_TAGS.text(tree).split()) for tree in trees)


def test_a_pair_is_the_words_of_a_sentence_and_its_linearised_tree(tree_data, tree_files):
    trees = tree_files["train"].read_text().splitlines()
    src, tgt = tree_data.tokenizers()
    pairs = tree_data.pairs("train")
    assert len(pairs) == len(trees) == 200
    for place, tree in enumerate(trees):
        words = " ".join(re.findall(r" ([^() ]+)\)", tree))
        assert src.decode(pairs.src[place]) == words
        assert tgt.decode(pairs.tgt[place]) == WITH_TAGS.text(tree)


def test_the_folder_says_that_its_task_is_parsing_and_has_the_trees_as_text(
    tree_data, tree_files, tiny_data
):
    assert (tree_data.task, tree_data.src_lang, tree_data.tgt_lang) == ("parsing", "en", "trees")
    assert tiny_data.task == "translation"
    sentences, trees = tree_data.text("test")
    assert trees == tree_files["test"].read_text().splitlines()
    assert [re.sub(r"\S*\(\S+ |\)", "", tree) for tree in trees] == sentences


def test_each_part_of_a_tree_is_linked_with_the_word_that_follows_the_words_read_so_far():
    # S NP xDT xNN zNP VP xVB zVP zS: nothing is read after S and NP, the first word after xDT.
    places = [0, 0, 1, 2, 2, 2]
    links = WITH_TAGS.links(WITH_TAGS.text("(S (NP (DT the) (NN dog)) (VP (VB barks)))"))
    assert links == {(word, part) for part, word in enumerate(places)}


@pytest.mark.parametrize("tags", [True, False])
def test_a_prepared_tree_has_the_links_of_its_parts(tree_files, tmp_path, tags):
    prepare_trees(
        "some",
        tmp_path / "out",
        train=[Treebank(tree_files["train"])],
        valid=Treebank(tree_files["valid"]),
        vocab_size=300,
        tree_tags=tags,
    )
    pairs = PreparedData.open(tmp_path / "out").pairs("train")
    assert pairs.links is not None
    for place, tree in enumerate(read_trees(tree_files["train"])):
        numbers = np.reshape(pairs.links[place], (-1, 2)).tolist()
        parts = linearise(tree, tags=tags).split()
        # The number of words before each part, counted from the openings and closings.
        words = [part == "XX" if not tags else part.startswith("x") for part in parts]
        read = [sum(words[: part + 1]) for part in range(len(parts))]
        unread = [[word, part] for part, word in enumerate(read) if word < len(tree.words)]
        assert numbers == sorted(unread)


def test_words_with_spaces_of_unicode_are_linked_as_one_word(tree_files, tmp_path):
    train = tmp_path / "train.trees"
    train.write_text("(NP (CD 1\u00a01/2) (NN cat) (NNS dogs))\n" + tree_files["train"].read_text())
    valid = Treebank(tree_files["valid"])
    prepare_trees("odd", tmp_path / "out", train=[Treebank(train)], valid=valid, vocab_size=300)
    data = PreparedData.open(tmp_path / "out")
    pairs = data.pairs("train")
    assert pairs.links is not None
    # The words that links are about, as the model counts them.
    assert int(data.tokenizers().src.begins_word[pairs.src[0]].sum()) == 3
    # NP xCD xNN xNNS zNP: before each of the first three parts as many words were read.
    assert np.reshape(pairs.links[0], (-1, 2)).tolist() == [[0, 0], [1, 1], [2, 2]]


def test_each_bracket_is_one_subword_and_the_sizes_of_the_sides_differ(tree_data):
    src, tgt = tree_data.tokenizers()
    assert len(src) == 300
    assert len(tgt) != len(src)
    trees = tree_data.text("valid")[1]
    # And an EOS for each.
    assert int(tree_data.pairs("valid").tgt.lengths.sum()) == brackets(trees) + len(trees)


def test_no_rule_for_translations_drops_trees_but_the_limit_of_length_does(tmp_path):
    # Repeated, of one word, with few letters, of the same words on both sides, and in the
    # validation set.
    odd = ["(S (NN a))", "(S (NN a))", "(X (: -))", "(NN XX)", "(X (SYM \x01a))"]
    long = f"(S {'(NN a) ' * 300})"
    train, valid = tmp_path / "train.trees", tmp_path / "valid.trees"
    train.write_text("\n".join([*odd, long, *small_trees(100, seed=1)]))
    valid.write_text("(S (NN a))\n")
    report = prepare_trees(
        "some",
        tmp_path / "out",
        train=[Treebank(train)],
        valid=Treebank(valid),
        vocab_size=290,
        max_tokens=100,
    )
    assert report.dropped == {"too long": 1}
    rows = gzip.decompress((tmp_path / "out" / "dropped.tsv.gz").read_bytes()).decode()
    assert rows.splitlines()[1:] == ["train.trees\t6\ttoo long"]


def treebank(place: Place, valid: Path, *train: Any, **more: Any) -> list[str]:
    """The command that prepares treebanks, with its corpus file."""
    content = {"task": "parsing", "train": train, "valid": valid, **more}
    place.write("own.yaml", json.dumps(content, default=str))
    return ["prepare", "own.yaml"]


def test_each_treebank_has_a_weight_of_its_own(place, tree_files):
    more = place.write("more.trees", "".join(f"{tree}\n" for tree in small_trees(50, seed=9)))
    train = [{"source": tree_files["train"], "weight": 3}, {"source": more, "weight": 0.5}]
    arguments = treebank(place, tree_files["valid"], *train)
    assert place.mtkit(*arguments, "--vocab-size", "300").status == 0
    data = PreparedData.open(place.folder / "data" / "own")
    assert [(s.kept, s.weight) for s in data.pairs("train").sources] == [(200, 3.0), (50, 0.5)]
    with pytest.raises(MtkitError, match="test"):
        data.text("test")


def test_both_vocabularies_may_have_a_size_of_their_own(place, tree_files):
    settings = {"src_vocab_size": 290, "tgt_vocab_size": 285}
    arguments = treebank(place, tree_files["valid"], tree_files["train"], settings=settings)
    assert place.mtkit(*arguments).status == 0
    assert PreparedData.open(place.folder / "data" / "own").tokenizers().sizes == (290, 285)
    # Some of the trees are in both sets, of which a warning comes first.
    outcome = place.mtkit(*arguments, "--force", "--set", "src_vocab_size=9000")
    assert outcome.status == 1
    *_, error = outcome.err.splitlines()
    sizes = re.search(r"source side: .* possible is (\d+), .* --set src_vocab_size=(\d+)$", error)
    # Between the bytes and special subwords alone, and a subword for each word.
    assert 260 < int(sizes[2]) < int(sizes[1])
    error = place.refused(*arguments, "--force", "--set", "shared_vocab=true")
    assert "src_vocab_size: requires one vocabulary for each side" in error
    error = place.refused(*arguments, "--force", "--no-cleaning")
    assert "--no-cleaning is not needed for a treebank" in error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"(S (NN a))\n(S (NN b)\n(S (NN c))\n", "line 2: unbalanced brackets"),
        (b"(S (NN a))\n(S (NN b)))\n", "line 2: unbalanced brackets"),
        (b"(S (NN a))\n(S (-NONE- *))\n", "line 2: an empty tree"),
        ("(S (NN a))\n(S (NN \xe4))\n".encode("latin-1"), "line 2: not UTF-8"),
        (b"a plain sentence\n", "line 1: 'a' has no part-of-speech tag"),
        (b"", "has no trees"),
    ],
)
def test_malformed_trees_are_refused_by_line_and_nothing_is_written(
    place, tree_files, content, message
):
    bad = place.write("bad.trees", content)
    good = tree_files["train"]
    for files in ((bad, good), (good, bad)):
        error = place.refused(*treebank(place, *files))
        assert "bad.trees" in error
        assert message in error


@pytest.mark.parametrize("name", [["demo-en-de"], ["x", "--src-lang", "en", "--tgt-lang", "de"]])
def test_a_setting_of_treebanks_is_refused_for_sentence_pairs(place, name):
    file = place.write("text", "a line\n")
    files = ["--train", file, file, "--valid", file, file] if len(name) > 1 else []
    error = place.refused("prepare", *name, *files, "--set", "tree_tags=false")
    assert "tree_tags: is a setting for treebanks" in error
