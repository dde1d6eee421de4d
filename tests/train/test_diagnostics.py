"""Findings: what is said of sick runs, and that nothing is said of healthy ones."""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.demo_grammar import sentences

from mtkit.config import Config, load_config, presets
from mtkit.train.diagnostics import (
    LearningCurve,
    findings,
    frequency_loss,
    is_flat,
    rate_in_words,
    unusual_rate,
)

Texts = tuple[Sequence[str], Sequence[str], Sequence[str]]

# What a run on Multi30k logged.
CURVE = LearningCurve(
    steps=2400,
    epochs=8.9,
    frequency_loss=6.184,
    losses=(2.79, 2.74, 2.70, 2.66, 2.63, 2.59),
    valid_losses=(4.428, 3.251, 2.857, 2.485, 2.228, 2.111, 1.991, 1.913),
)
SMALL = load_config("small")
# A thousand different English sentences with their German.
PAIRS = list(dict(pair for pair, _ in islice(sentences(7), 1500)).items())[:1000]


def by_formula(*settings: str) -> Config:
    """A configuration with the learning rate of the paper's formula, and other training settings.

    It is 256 wide, warms up for 400 updates, and has half the rate of the formula.
    """
    formula = ["schedule=paper", "learning_rate=null", "warmup_steps=400"]
    given = [f"train.{setting}" for setting in (*formula, "learning_rate_scale=0.5", *settings)]
    return load_config("small", ["model.d_model=256", *given])


def mistaken(text: str, rng: random.Random, rate: float) -> str:
    """The text with some of its words replaced by others of it, or left out."""
    words = text.split()
    said = [rng.choice(words) if rng.random() < rate else word for word in words]
    return " ".join(said[:-1] if rng.random() < rate else said)


def healthy(pairs: Sequence[tuple[str, str]] = PAIRS, *, seed: int = 0, rate: float = 0.3) -> Texts:
    """Sources, references, and translations by a model that gets most words right."""
    rng = random.Random(seed)
    src, tgt = zip(*pairs, strict=True)
    return src, tgt, [mistaken(text, rng, rate) for text in tgt]


def only(sentences: list[str]) -> str:
    assert len(sentences) == 1, sentences
    return sentences[0]


def test_the_runs_that_this_package_documents_give_no_finding() -> None:
    texts = healthy()
    assert findings(SMALL, CURVE, *texts) == []
    demo = LearningCurve(1000, 4.8, 4.0, (1.50, 1.47, 1.44, 1.42), (0.975, 0.361, 0.202))
    assert findings(load_config("demo"), demo, *texts) == []
    # Reversed digits.
    digits = LearningCurve(700, 10.0, 2.283, (1.3, 1.2, 1.1, 1.0), (0.509, 0.393))
    assert findings(SMALL, digits, *texts) == []


@pytest.mark.parametrize("preset", presets())
def test_every_preset_passes(preset: str) -> None:
    config = load_config(preset)
    # A mediocre model, for which its learning rate is looked at.
    curve = replace(CURVE, valid_losses=(6.0, 4.0, 3.1, 3.0), frequency_loss=6.9)
    curve = replace(curve, steps=config.train.max_steps)
    assert findings(config, curve, *healthy()) == []


@given(st.integers(0, 2**32), st.integers(1, 400), st.floats(0.0, 0.5), st.floats(0.05, 4.0))
def test_a_run_that_learns_gives_no_finding(seed: int, size: int, rate: float, loss: float) -> None:
    some = random.Random(seed).sample(PAIRS, size)
    curve = replace(CURVE, valid_losses=(loss + 1.5, loss + 0.4, loss - 0.05, loss))
    assert findings(SMALL, curve, *healthy(some, seed=seed, rate=rate)) == []


texts = st.lists(
    st.tuples(*[st.text(st.sampled_from("ab .2的\u2028é"), max_size=40) for _ in range(3)]),
    max_size=40,
)
numbers = st.one_of(st.sampled_from([math.nan, math.inf, 1e9]), st.floats(0, 12))


@given(texts, st.lists(numbers), st.lists(numbers, min_size=1))
def test_each_finding_of_any_run_is_a_sentence_on_one_line(triples, losses, valid_losses):
    src, tgt, hyp = zip(*triples, strict=True) if triples else ((), (), ())
    curve = LearningCurve(1, 0.0, 2.3, losses, valid_losses)
    for sentence in findings(Config(), curve, src, tgt, hyp):
        assert sentence.endswith(".")
        assert len(sentence.splitlines()) == 1


def test_translations_that_are_their_source_are_reported_by_their_share() -> None:
    src, tgt, hyp = healthy()
    finding = only(findings(SMALL, CURVE, src, tgt, [*src[:340], *hyp[340:]]))
    assert finding.startswith("34 % of the translations are their source unchanged:")
    assert findings(SMALL, CURVE, src, tgt, [*src[:40], *hyp[40:]]) == []


def test_one_translation_for_many_sources_is_reported_with_its_text() -> None:
    src, tgt, hyp = healthy()
    finding = only(findings(SMALL, CURVE, src, tgt, ["Ein Mann ."] * len(PAIRS)))
    assert finding.startswith('1,000 different sources have "Ein Mann .":')
    finding = only(findings(SMALL, CURVE, src, tgt, ["Ein Mann ."] * 500 + ["Ja ."] * 500))
    assert "1,000 different sources have only 2 translations, 50 % of them" in finding
    assert findings(SMALL, CURVE, src, tgt, ["Ein Mann ."] * 50 + list(hyp[50:])) == []


NAMES = [f"Name{i} {i}" for i in range(40)]


@pytest.mark.parametrize(
    ("src", "tgt"),
    [
        # References that are the source.
        (
            NAMES + [f"word{i} is {i}" for i in range(60)],
            NAMES + [f"Wort{i} ist {i}" for i in range(60)],
        ),
        # A source that occurs often.
        (
            ["Yes."] * 300 + [f"This is {i}." for i in range(200)],
            ["Ja."] * 300 + [f"Das ist {i}." for i in range(200)],
        ),
        # References that are the same.
        ([f"report {i}" for i in range(100)], ["gut", "schlecht"] * 50),
        # References with loops.
        ([f"row {i}" for i in range(100)], [f"{i} {'7 ' * 9}" for i in range(100)]),
    ],
)
def test_what_the_references_have_too_is_not_reported(src: list[str], tgt: list[str]) -> None:
    assert findings(SMALL, CURVE, src, tgt, tgt) == []


@pytest.mark.parametrize(
    "loop", [" nein nein nein nein", " ein Hund" + " auf dem roten Sofa" * 4, "的" * 30]
)
def test_translations_that_loop_are_reported(loop: str) -> None:
    src, tgt, hyp = healthy()
    looping = [f"{text[:2]}{loop}" for text in hyp[:60]] + list(hyp[60:])
    finding = only(findings(SMALL, CURVE, src, tgt, looping))
    assert finding.startswith(
        "6.0 % of the translations repeat the same few words again and again:"
    )


def test_three_times_the_same_word_is_not_a_loop() -> None:
    src, tgt, hyp = healthy()
    assert findings(SMALL, CURVE, src, tgt, [f"{text} sehr sehr sehr" for text in hyp]) == []


def test_in_a_handful_of_sentences_nothing_is_reported() -> None:
    src, tgt = ["a b", "c d", "e f", "g h"], ["u v", "w x", "y z", "s t"]
    for hyp in (src, ["u v"] * 4):
        assert findings(SMALL, CURVE, src, tgt, hyp) == []


@pytest.mark.parametrize(
    ("overrides", "steps", "expected"),
    [
        # 4 · 256^-0.5 · 500^-0.5 = 0.0112, and √(4000 / 500) · 4 = 11.3.
        (["learning_rate_scale=4.0", "warmup_steps=500"], 2400, "1.1e-02, 11 times"),
        # A tenth of 256^-0.5 · 4000^-0.5 = 9.9e-4.
        (["learning_rate_scale=0.1", "warmup_steps=4000"], 5000, "9.9e-05, 0.1 times"),
        (["warmup_steps=16000"], 2400, "has reached 15 % of its peak, after 2,400 of 16,000"),
        # Of 4,000 updates of warm-up, in which the rate falls all the way, the middle is highest:
        # a half of the peak, times a half of 256^-0.5 · 4000^-0.5 = 9.9e-4.
        (
            ["warmup_steps=4000", "max_steps=4000", "decay_steps=4000", "learning_rate_scale=0.5"],
            4000,
            "1.2e-04, 0.13 times",
        ),
    ],
)
def test_a_rate_far_from_the_formula_is_reported_with_its_value(overrides, steps, expected):
    config = by_formula(*overrides)
    finding = only(findings(config, replace(CURVE, steps=steps), *healthy()))
    assert expected in finding
    assert "train." in finding


@pytest.mark.parametrize("steps", [100, 2400])
def test_a_learning_rate_of_zero_is_reported(steps: int) -> None:
    config = by_formula("schedule=linear", "learning_rate=0")
    finding = only(findings(config, replace(CURVE, steps=steps), *healthy()))
    assert finding.startswith("The learning rate is 0, so the weights do not change: raise train.")


def test_the_learning_rate_of_a_model_that_has_learned_is_not_reported() -> None:
    high = by_formula("learning_rate_scale=4.0", "warmup_steps=500")
    # Perplexity 4: whatever its settings, they suited it.
    learned = replace(CURVE, valid_losses=(math.log(4.0),))
    assert findings(high, learned, *healthy()) == []
    # Perplexity 4 of ten digits has not been learned.
    digits = replace(learned, frequency_loss=math.log(10.0))
    assert only(findings(high, digits, *healthy())).startswith("The learning rate reached")


# 95 % of 6.18 is 5.87.
@pytest.mark.parametrize(
    ("loss", "learned"),
    [(5.9, "hardly more than that"), (7.5, "nothing"), (math.nan, "nothing")],
)
def test_a_loss_like_that_of_guessing_is_reported_beside_it(loss: float, learned: str) -> None:
    nothing = replace(CURVE, steps=1200, epochs=4.4, valid_losses=(loss,))
    finding = only(findings(SMALL, nothing, *healthy()))
    assert f"{loss:.2f} after 1,200 updates (4.4 epochs), and guessing by frequency" in finding
    assert f"would have 6.18: {learned} has been learned yet" in finding


@pytest.mark.parametrize(
    ("initial", "lora_rank", "expected"),
    [
        (7.13, 0, ("fell from 7.13 at step 0 to 6.36 after 60 updates", "lower")),
        (7.13, 8, ("fell from 7.13 at step 0 to 6.36 after 60 updates", "raise")),
        (6.36, 8, ("is 6.36 after 60 updates", "raise")),
        # With a loss that rises, the rate is too high.
        (5.13, 8, ("is 6.36 after 60 updates", "lower")),
    ],
)
def test_a_bad_loss_of_fine_tuning_is_compared_with_that_of_step_0(initial, lora_rank, expected):
    config = load_config("fine-tune", [f"train.lora_rank={lora_rank}"])
    tuned = replace(CURVE, steps=60, valid_losses=(6.36,), initial_valid_loss=initial)
    finding = only(findings(config, tuned, *healthy()))
    assert finding.startswith(f"The validation loss {expected[0]} (8.9 epochs), and guessing")
    assert f"or else {expected[1]} train.learning_rate and check" in finding
    assert ("nothing has been learned" in finding) == ("fell" not in finding)


def test_the_higher_rate_that_low_rank_changes_need_is_not_reported() -> None:
    # 8.8 times 512^-0.5 · 4000^-0.5 = 7.0e-4.
    override = ["train.learning_rate=6.2e-3"]
    config = load_config("fine-tune", override)
    assert "lower train.learning_rate" in (unusual_rate(config) or "")
    assert "8.9 times" in only(findings(config, CURVE, *healthy()))
    config = load_config("fine-tune", [*override, "train.lora_rank=8"])
    assert unusual_rate(config) is None
    assert findings(config, CURVE, *healthy()) == []


def test_the_rate_in_words_says_only_what_holds() -> None:
    # 192^-0.5 · 4000^-0.5 = 1.14e-3.
    own = ["train.learning_rate=1.14e-3", "train.warmup_steps=250", "train.max_steps=5000"]
    like_paper = load_config("small", own)
    words = "peak 1.1e-03 at update 250; linear to zero after update 5,000"
    assert rate_in_words(like_paper) == words
    # If training ends in the warm-up, the rate never falls.
    short = load_config("small", [*own, "train.max_steps=100"])
    words = "peak 4.6e-04 at update 100, 0.4 times the paper's for d_model 192"
    assert rate_in_words(short) == words
    # The rates of fine-tuning are not those of the paper.
    assert "times the paper's" not in rate_in_words(load_config("fine-tune"), is_fine_tuning=True)
    by_paper = load_config("base", ["train.warmup_steps=1000"])
    assert "2 times the paper's" in rate_in_words(by_paper, is_fine_tuning=True)


def test_a_training_loss_that_rises_is_reported() -> None:
    fell_apart = replace(CURVE, losses=(5.0, 4.1, 4.3, 6.9, 7.0, 6.8))
    finding = only(findings(SMALL, fell_apart, *healthy()))
    assert finding.startswith("The training loss rose from 4.10 to 6.80:")


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        (by_formula(), "train.learning_rate_scale"),
        (by_formula("schedule=linear", "learning_rate=0.001"), "train.learning_rate"),
    ],
)
def test_the_setting_to_lower_is_the_one_that_the_schedule_uses(config, setting):
    sick = replace(CURVE, valid_losses=(6.5,), losses=(5.0, 4.1, 4.3, 6.9, 7.0, 6.8))
    src, tgt, _ = healthy()
    texts = findings(config, sick, src, tgt, ["nein nein nein nein"] * len(PAIRS))
    named = [name for text in texts for name in re.findall(r"lower (train\.learn\w+)", text)]
    assert named == [setting] * 3


def test_learning_by_heart_is_reported_only_while_the_training_loss_falls() -> None:
    by_heart = replace(CURVE, valid_losses=(3.0, 2.1, 2.2, 2.45), epochs=37.0)
    finding = only(findings(SMALL, by_heart, *healthy()))
    assert finding.startswith("The validation loss rose from 2.10 to 2.45 while the training loss")
    assert "37.0 epochs" in finding
    assert findings(SMALL, replace(by_heart, losses=CURVE.losses[::-1]), *healthy()) == []


def test_guessing_by_frequency_costs_the_entropy_of_the_pieces() -> None:
    # Half, a quarter, a quarter, and one that never occurs: one and a half bits.
    assert frequency_loss([2, 1, 0, 1]) == pytest.approx(1.5 * math.log(2.0))


def test_scores_are_flat_when_the_last_five_gain_less_than_half_a_point() -> None:
    assert is_flat([0.0] * 6)
    assert not is_flat([0.0] * 5)
    assert is_flat([10.9, 20.7, 23.0, 22.8, 23.2, 23.1, 22.7, 23.4])
    assert not is_flat([10.9, 20.7, 23.0, 22.8, 23.2, 23.1, 22.7, 23.6])


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["max_steps=400", "warmup_steps=400"], None),
        (
            ["max_steps=399", "warmup_steps=400"],
            "ends in the warm-up of the learning rate, after 399 of",
        ),
        # 5 times the paper's by the scale, and 3.2 times by the warm-up: the more serious of both.
        (["max_steps=399", "learning_rate_scale=5"], "if the loss does not fall, lower"),
    ],
)
def test_an_unusual_learning_rate_is_known_before_training(overrides, expected):
    warning = unusual_rate(by_formula(*overrides))
    assert (warning is None) if expected is None else (warning and expected in warning)
