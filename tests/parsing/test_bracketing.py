"""The scores of trees: evalb's, worked by hand, and by another program."""

import random
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from support.treebank import TREEBANK, needs_treebank, read_trees, small_trees, tree

from mtkit.parsing.bracketing import count_brackets, score_trees
from mtkit.parsing.trees import Tree, linearise, restore

GOLD = (
    "(S (NP (DT the) (NN dog)) (, ,) (VP (VBD saw) (NP (DT a) (NN cat)) (PP (IN with) (NP (NNS "
    "eyes)))) (. .))"
)


# By hand

TWICE, ONCE = "(S (NP (NP (NN a))) (VB b))", "(S (NP (NN a)) (VB b))"
PARTS = "(NP (NN a)) (VP (VB b))"


@pytest.mark.parametrize(
    ("tried", "expected", "gold"),
    [
        # S, NP, VP, NP, PP and NP.
        (GOLD, (6, 6, 6), GOLD),
        # A label is wrong.
        (GOLD.replace("(PP", "(ADVP"), (5, 6, 6), GOLD),
        # The PP belongs to the noun: one more NP, over "a cat with eyes".
        (
            GOLD.replace("(NP (DT a)", "(NP (NP (DT a)").replace("eyes))))", "eyes)))))"),
            (6, 6, 7),
            GOLD,
        ),
        # Punctuation does not count: the comma in the VP, the full stop in the NP.
        (
            GOLD.replace("(, ,) (VP", "(VP (, ,)").replace("eyes)))) (. .))", "eyes) (. .)))))"),
            (6, 6, 6),
            GOLD,
        ),
        # A phrase of punctuation is none.
        (GOLD.replace("(, ,)", "(PRN (, ,))"), (6, 6, 6), GOLD),
        # Nor is one with a label of punctuation, which evalb's DELETE_LABEL takes out as well.
        (GOLD.replace("(NP (DT the) (NN dog))", "(: (NP (DT the) (NN dog)))"), (6, 6, 6), GOLD),
        # Nor is TOP.
        (f"(TOP {GOLD} (. .))".replace(" (. .)) (. .))", ") (. .))"), (6, 6, 6), GOLD),
        # A multiset: NP over NP is two brackets.
        (ONCE, (2, 3, 2), TWICE),
        (TWICE, (2, 2, 3), ONCE),
        (TWICE, (3, 3, 3), TWICE),
        # PRT is ADVP.
        ("(S (VB go) (ADVP (RB on)))", (2, 2, 2), "(S (VB go) (PRT (RP on)))"),
        # A bracket around all parts of a tree.
        *(
            (f"({label} {PARTS})", (2, 2, 2), f"(TOP {PARTS})")
            for label in ("", "TOP", "ROOT", "S1")
        ),
    ],
)
def test_brackets_are_counted_by_the_rules_of_evalb(tried, expected, gold):
    assert count_brackets(tree(gold), tree(tried)) == expected


def test_the_gold_tags_say_what_is_punctuation_because_a_parser_has_no_tags():
    untagged = restore(linearise(tree(GOLD), tags=False), tree(GOLD).words).tree
    assert set(untagged.tags) == {"XX"}
    assert count_brackets(tree(GOLD), untagged) == (6, 6, 6)


def test_scores_are_those_of_the_brackets_of_all_sentences_together():
    golds = [tree(GOLD), tree("(S (NP (NN a)) (VP (VB b)))"), tree("(NP (NN a))")]
    tried = [tree(GOLD.replace("(PP", "(ADVP")), tree("(S (NN a) (VP (VB b)))"), golds[2]]
    scores = score_trees(tried, golds)
    # Matched 5 + 2 + 1; gold 6 + 3 + 1; found 6 + 2 + 1.
    assert (scores.all.matched, scores.all.gold, scores.all.found) == (8, 10, 9)
    assert scores.all.precision == pytest.approx(100 * 8 / 9)
    assert scores.all.recall == pytest.approx(100 * 8 / 10)
    assert scores.all.f1 == pytest.approx(2 * 8 / 9 * 8 / 10 / (8 / 9 + 8 / 10) * 100)
    assert scores.all.exact == pytest.approx(100 / 3)
    # Those whose gold tree is an S.
    assert (scores.s_roots.sentences, scores.s_roots.matched, scores.s_roots.exact) == (2, 7, 0)
    assert "rules:evalb-COLLINS" in scores.signature


def test_short_sentences_have_at_most_forty_words_with_punctuation():
    golds = [tree(f"(S {'(NN a) ' * (count - 1)}(. .))") for count in (40, 41)]
    scores = score_trees(golds, golds)
    assert (scores.all.sentences, scores.short.sentences) == (2, 1)


def test_nothing_that_matches_is_zero_and_not_an_error():
    gold, tried = tree("(NP (NN a) (NN b))"), tree("(VP (NN a) (NN b))")
    assert score_trees([tried], [gold]).all.f1 == 0
    punctuation = [tree("(X (. .))")]
    scores = score_trees(punctuation, punctuation).all
    assert (scores.f1, scores.exact) == (0, 100)


def perturbed(golds: Sequence[Tree], seed: int) -> Iterator[Tree]:
    """Trees over the same words and tags, more or less wrong."""
    rng = random.Random(seed)
    labels = ["NP", "VP", "PP", "S", "ADVP", "PRT", "SBAR"]
    for gold in golds:
        tokens = linearise(gold, tags=False).split()
        for _ in range(rng.randint(0, 6)):
            place, label = rng.randrange(len(tokens)), rng.choice(labels)
            match rng.randrange(4):
                case 0:
                    tokens[place : place + 1] = []
                case 1:
                    tokens.insert(place, rng.choice([label, f"z{label}"]))
                case 2 if tokens[place] != "XX":
                    tokens[place] = f"z{label}" if tokens[place][0] == "z" else label
                case _:
                    other = rng.randrange(len(tokens))
                    tokens[place], tokens[other] = tokens[other], tokens[place]
        yield replace(restore(" ".join(tokens), gold.words).tree, tags=gold.tags)


def without_punctuation(text: str) -> str:
    """A tree as evalb sees it: without punctuation and what is empty then, PRT as ADVP."""
    text = re.sub(r"\((?:,|:|``|''|\.) [^\s()]+\)", "", text.replace("(PRT ", "(ADVP "))
    while (shorter := re.sub(r"\([^\s()]+\s*\)", "", text)) != text:
        text = shorter
    return text


def check_against_pyevalb(golds: Sequence[Tree], pairs: int) -> None:
    """Compare scores of pairs of gold and perturbed trees with those of PYEVALB."""
    golds = golds[:pairs]
    tried = list(perturbed(golds, seed=19))
    assert len(golds) == pairs
    equal = sum(a.phrases == b.phrases for a, b in zip(golds, tried, strict=True))
    assert 0.05 < equal / pairs < 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that it imports
        pytest.importorskip("PYEVALB")
        from PYEVALB import parser, scorer, summary
    # PYEVALB knows no punctuation, ADVP is not PRT, and its brackets are a set where evalb's are a
    # multiset: of two equal brackets in a tree it matches one. Such pairs are left out.
    alike, results = [], []
    for gold, other in zip(golds, tried, strict=True):
        texts = [without_punctuation(str(of_pair)) for of_pair in (gold, other)]
        if all(is_set(text) for text in texts):
            alike.append((other, gold))
            trees = map(parser.create_from_bracket_string, texts)
            results.append(scorer.Scorer().score_trees(*trees))
    assert len(alike) > pairs / 2
    theirs = summary.summary(results)
    ours = score_trees(*zip(*alike, strict=True)).all
    for value, expected in (
        (ours.recall, theirs.bracket_recall),
        (ours.precision, theirs.bracket_prec),
        (ours.f1, theirs.bracker_fmeasure),
        (ours.exact, theirs.complete_match),
    ):
        assert f"{value:.2f}" == f"{expected:.2f}"


def is_set(text: str) -> bool:
    """Whether PYEVALB can score a tree: there are brackets, and no two are equal."""
    if not text.strip() or not re.search(r"\([^\s()]+ \(", text):
        return False
    phrases = tree(text).phrases
    return len(set(phrases)) == len(phrases)


def test_the_scores_of_2000_pairs_equal_those_of_pyevalb():
    check_against_pyevalb(list(map(tree, small_trees(2000, seed=4))), 2000)


@needs_treebank
def test_the_scores_of_2000_pairs_of_a_treebank_equal_those_of_pyevalb():
    check_against_pyevalb(list(read_trees(TREEBANK / "dev.clean.trees.gz")), 2000)
