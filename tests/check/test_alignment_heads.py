"""The heads that align words, chosen by the lexicon of a run."""

from dataclasses import replace

import pytest
from conftest import copied_run, number_pairs

from mtkit.align import AlignmentSettings, all_heads, choose_heads, default_heads
from mtkit.check.model.alignment_heads import gold_of, tune_to_lexicon
from mtkit.check.model.lexicon import Lexicon
from mtkit.run_folder import ALIGNMENT, Run
from mtkit.translate import Translator

# The translations of "house", "big" and "green"; articles have no entry.
LEXICON = Lexicon(
    {
        "house": {"haus": 0.9, "großes": 0.1},
        "big": {"großes": 0.8, "haus": 0.2},
        "green": {"grün": 1},
    },
    {"haus": {"house": 0.9, "big": 0.1}, "großes": {"big": 0.7, "house": 0.1}, "grün": {}},
    {},
    {},
)


@pytest.mark.parametrize(
    ("source", "target", "sure", "possible"),
    [
        # Each of the two words has its translation; the articles may be linked.
        ("a big house", "ein großes Haus", {(1, 1), (2, 2)}, {(0, 0)}),
        ("a house, big", "Haus, ein großes", {(1, 0), (2, 2)}, {(0, 1)}),
        # One direction without a probability makes no link.
        ("green", "grün", set(), {(0, 0)}),
        # "Haus" translates "house" better than "big".
        ("big house", "Haus", {(1, 0)}, set()),
        # The parts of a word belong to it.
        ("big-house", "Haus", {(0, 0)}, set()),
        ("", "Haus", set(), set()),
    ],
)
def test_words_that_translate_each_other_best_are_sure_links(source, target, sure, possible):
    gold = gold_of(LEXICON, source, target)
    assert (gold.sure, gold.possible) == (sure, sure | possible)


def lexicon_of_numbers() -> Lexicon:
    """One word of each language translates one of the other."""
    keys = {"one": "eins", "two": "zwei", "three": "drei"}
    return Lexicon(
        {src: {tgt: 1.0} for src, tgt in keys.items()},
        {tgt: {src: 1.0} for src, tgt in keys.items()},
        {},
        {},
    )


@pytest.fixture
def run(untrained, tmp_path):
    return Run.open(copied_run(untrained, tmp_path / "run"))


def test_the_choice_is_that_of_gold_alignments_and_is_stored_once(run):
    pairs, lexicon = number_pairs(120, 3), lexicon_of_numbers()
    with Translator.load(run, device="cpu") as translator:
        tune_to_lexicon(run, translator, lexicon, pairs)
        model = translator.model.config
        expected = choose_heads(
            translator.aligner(all_heads(model)),
            *map(list, zip(*pairs, strict=True)),
            [gold_of(lexicon, *pair) for pair in pairs],
            default=default_heads(model),
        )
        stored = AlignmentSettings.load(run.path)
        assert stored is not None
        assert (stored.heads, stored.reference) == (expected.heads, "lexicon")
        before = (run.path / ALIGNMENT).read_bytes()
        tune_to_lexicon(run, translator, lexicon, pairs[:100])
    assert (run.path / ALIGNMENT).read_bytes() == before


@pytest.mark.parametrize("reason", ["a trained head", "no known word", "words without spaces"])
def test_no_heads_are_chosen_without_a_use(run, reason, monkeypatch):
    lexicon = lexicon_of_numbers()
    with Translator.load(run, device="cpu") as translator:
        if reason == "a trained head":
            train = run.config.train.model_copy(update={"guided_alignment": 0.1})
            run = replace(run, config=run.config.model_copy(update={"train": train}))
        elif reason == "no known word":
            lexicon = Lexicon({}, {}, {}, {})
        else:
            monkeypatch.setattr(translator, "tgt_lang", "ja")
        tune_to_lexicon(run, translator, lexicon, number_pairs(100, 3))
    assert not (run.path / ALIGNMENT).exists()
