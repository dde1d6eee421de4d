"""Findings: what is said of sick runs, and that nothing is said of healthy ones."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtkit.config import Config, load_config, presets
from mtkit.prepare.demo import sentences
from mtkit.train.diagnostics import (
    Trained,
    Validated,
    findings,
    frequency_loss,
    is_flat,
    rate_in_words,
    unusual_rate,
)

# What a run on Multi30k logged.
TRAINED = Trained(
    steps=2400,
    mean_tokens_per_update=1417.0,
    epochs=8.9,
    unseen_pieces=198,
    vocab_size=8000,
    losses=(2.79, 2.74, 2.70, 2.66, 2.63, 2.59),
    valid_loss=1.913,
    earlier_valid_losses=(4.428, 3.251, 2.857, 2.485, 2.228, 2.111, 1.991),
    frequency_loss=6.184,
)
SMALL = load_config("small")


def by_formula(*settings: str) -> Config:
    """A configuration with the learning rate of the paper's formula, and other training settings.

    It is 256 wide, warms up for 400 updates, and has half the rate of the formula.
    """
    formula = ["schedule=paper", "learning_rate=null", "warmup_steps=400"]
    given = [f"train.{one}" for one in (*formula, "learning_rate_scale=0.5", *settings)]
    return load_config("small", ["model.d_model=256", *given])


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    """A thousand different English sentences with their German."""
    different = dict(pair for pair, _ in islice(sentences(7), 1500))
    return list(different.items())[:1000]


def mistaken(text: str, rng: random.Random, rate: float) -> str:
    """The text with some of its words replaced by others of it, or left out."""
    words = text.split()
    said = [rng.choice(words) if rng.random() < rate else word for word in words]
    return " ".join(said[:-1] if rng.random() < rate else said)


def some(count: int, total: int) -> list[bool]:
    """True for the first ones."""
    return [place < count for place in range(total)]


def healthy(pairs: Sequence[tuple[str, str]], *, seed: int = 0, rate: float = 0.3) -> Validated:
    """The translations of a model that gets most words right."""
    rng = random.Random(seed)
    return Validated(
        src=[src for src, _ in pairs],
        tgt=[tgt for _, tgt in pairs],
        hyp=[mistaken(tgt, rng, rate) for _, tgt in pairs],
        cut=some(len(pairs) // 200, len(pairs)),
        cut_src=0,
    )


def only(found: list[str]) -> str:
    assert len(found) == 1, found
    return found[0]


def test_the_runs_that_this_package_documents_give_no_finding(pairs: list[tuple[str, str]]) -> None:
    validated = healthy(pairs)
    assert findings(SMALL, TRAINED, validated) == []
    # The demo: its grammar uses only 1,426 of the 2,000 pieces, but it learns.
    demo = Trained(1000, 1543.6, 4.8, 574, 2000, (1.50, 1.47, 1.44, 1.42), 0.202, (0.975, 0.361))
    assert findings(load_config("demo"), demo, validated) == []
    # Reversed digits: 587 tokens an update, of a vocabulary of 310.
    digits = Trained(700, 587.1, 10.0, 22, 310, (1.3, 1.2, 1.1, 1.0), 0.393, (0.509,), 2.283)
    assert findings(SMALL, digits, validated) == []


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("frequency", [None, 6.9])
def test_every_preset_passes(
    preset: str, frequency: float | None, pairs: list[tuple[str, str]]
) -> None:
    config = load_config(preset)
    trained = replace(
        TRAINED,
        steps=config.train.max_steps,
        # Batches of whole sentences do not fill up.
        mean_tokens_per_update=0.85 * config.train.batch_tokens,
        # A mediocre model, for which its settings are looked at.
        valid_loss=3.0,
        earlier_valid_losses=(6.0, 4.0, 3.1),
        frequency_loss=frequency,
    )
    assert findings(config, trained, healthy(pairs)) == []


@given(
    st.integers(0, 2**32),
    st.integers(1, 400),
    st.floats(0.0, 0.5),
    st.floats(0.05, 4.0),
    st.integers(1000, 100_000),
    st.floats(0.0, 0.15),
)
def test_a_run_that_learns_gives_no_finding(
    pairs: list[tuple[str, str]],
    seed: int,
    size: int,
    rate: float,
    loss: float,
    tokens: int,
    unseen: float,
) -> None:
    some = random.Random(seed).sample(pairs, size)
    trained = replace(
        TRAINED,
        mean_tokens_per_update=float(tokens),
        unseen_pieces=int(8000 * unseen),
        valid_loss=loss,
        earlier_valid_losses=(loss + 1.5, loss + 0.4, loss - 0.05),
    )
    assert findings(SMALL, trained, healthy(some, seed=seed, rate=rate)) == []


texts = st.lists(
    st.tuples(*[st.text(st.sampled_from("ab .2的\u2028é"), max_size=40) for _ in range(3)]),
    max_size=40,
)
numbers = st.one_of(st.sampled_from([math.nan, math.inf, 1e9]), st.floats(0, 12))


@given(texts, st.integers(0, 40), st.integers(0, 40), st.lists(numbers), numbers, st.lists(numbers))
def test_each_finding_of_any_run_is_a_sentence_on_one_line(
    triples: list[tuple[str, str, str]],
    cut: int,
    cut_src: int,
    losses: list[float],
    valid_loss: float,
    earlier: list[float],
) -> None:
    src, tgt, hyp = zip(*triples, strict=True) if triples else ((), (), ())
    size = len(src)
    validated = Validated(src, tgt, hyp, some(cut, size), min(cut_src, size))
    trained = Trained(1, 1.0, 0.0, 9, 10, losses, valid_loss, earlier)
    for sentence in findings(Config(), trained, validated):
        assert sentence.endswith(".")
        assert len(sentence.splitlines()) == 1


def test_translations_that_are_their_source_are_reported_by_their_share(
    pairs: list[tuple[str, str]],
) -> None:
    good = healthy(pairs)
    copied = replace(good, hyp=[*good.src[:340], *good.hyp[340:]])
    found = only(findings(SMALL, TRAINED, copied))
    assert found.startswith("34 % of the translations are their source unchanged:")
    copied = replace(good, hyp=[*good.src[:40], *good.hyp[40:]])
    assert findings(SMALL, TRAINED, copied) == []


def test_a_translation_with_all_but_one_word_of_its_source_counts_as_nearly_copied() -> None:
    src = [f"a{i} b{i} c{i} d{i} e{i} f{i}" for i in range(50)]
    tgt = [f"u{i} v{i} w{i} x{i} y{i} z{i}" for i in range(50)]
    near = [f"{text[:-2]} !" if i < 10 else tgt[i] for i, text in enumerate(src)]
    found = only(findings(SMALL, TRAINED, Validated(src, tgt, near, some(0, len(src)), 0)))
    assert found.startswith("20 % of the translations are their source unchanged, or nearly so (20")


def test_what_the_reference_copies_may_be_copied() -> None:
    names = [f"Name{i} {i}" for i in range(40)]
    words = [f"word{i} is {i}" for i in range(60)]
    translated = [f"Wort{i} ist {i}" for i in range(60)]
    src, tgt = names + words, names + translated
    assert findings(SMALL, TRAINED, Validated(src, tgt, tgt, some(0, len(src)), 0)) == []


def test_related_languages_may_share_most_words() -> None:
    src = [f"jeg har sett {i} hus i byen og det var fint" for i in range(60)]
    tgt = [f"jeg har set {i} hus i byen og det var fint" for i in range(60)]
    hyp = [f"jeg har set {i} hus i byen og det var smukt" for i in range(60)]
    assert findings(SMALL, TRAINED, Validated(src, tgt, hyp, some(0, len(src)), 0)) == []


def test_files_of_the_same_language_are_reported() -> None:
    text = [f"sentence number {i}" for i in range(30)]
    found = only(findings(SMALL, TRAINED, Validated(text, text, text, some(0, len(text)), 0)))
    assert found.startswith("100 % of the references are their source unchanged:")


def test_one_translation_for_all_sources_is_reported_with_its_text(
    pairs: list[tuple[str, str]],
) -> None:
    one = replace(healthy(pairs), hyp=["Ein Mann ."] * len(pairs))
    found = only(findings(SMALL, TRAINED, one))
    assert found.startswith('1,000 different sources have "Ein Mann .":')


def test_few_translations_for_many_sources_are_reported_by_their_number(
    pairs: list[tuple[str, str]],
) -> None:
    # None of the forty is frequent.
    few = replace(healthy(pairs), hyp=[f"Es sind {i % 40} Leute da ." for i in range(len(pairs))])
    found = only(findings(SMALL, TRAINED, few))
    assert "1,000 different sources have only 40 translations, 2.5 % of them" in found


def test_a_source_that_occurs_often_is_translated_alike_without_a_finding() -> None:
    src = ["Yes."] * 300 + [f"This is {i}." for i in range(200)]
    tgt = ["Ja."] * 300 + [f"Das ist {i}." for i in range(200)]
    assert findings(SMALL, TRAINED, Validated(src, tgt, tgt, some(0, len(src)), 0)) == []


def test_sources_whose_references_are_the_same_may_have_one_translation() -> None:
    src = [f"report {i}" for i in range(100)]
    tgt = ["gut" if i % 2 else "schlecht" for i in range(100)]
    assert findings(SMALL, TRAINED, Validated(src, tgt, tgt, some(0, len(src)), 0)) == []


def test_empty_translations_are_reported_unless_there_is_nothing_to_translate(
    pairs: list[tuple[str, str]],
) -> None:
    good = healthy(pairs)
    empty = replace(good, hyp=[""] * 50 + list(good.hyp[50:]))
    found = only(findings(SMALL, TRAINED, empty))
    assert found.startswith("5.0 % of the translations are empty:")
    assert findings(SMALL, TRAINED, replace(empty, src=[""] * 50 + list(good.src[50:]))) == []


@pytest.mark.parametrize(("cut", "expected"), [(60, "though most"), (20, "too short")])
def test_translations_that_are_empty_and_without_an_end_are_reported_once(
    cut: int, expected: str, pairs: list[tuple[str, str]]
) -> None:
    good = healthy(pairs)
    blank = [" "] * 60 + list(good.hyp[60:])
    found = only(findings(SMALL, TRAINED, replace(good, hyp=blank, cut=some(cut, len(pairs)))))
    assert found.startswith("6.0 % of the translations are empty")
    assert expected in found
    # Others beside them are reported as usual, with their own number.
    empty, endless = findings(SMALL, TRAINED, replace(good, hyp=blank, cut=some(180, len(pairs))))
    assert empty.startswith("6.0 % of the translations are empty, though most of them reached")
    assert endless.startswith("12 % of the translations reached the length limit")


@pytest.mark.parametrize(
    "loop", [" nein nein nein nein", " ein Hund" + " auf dem roten Sofa" * 4, "的" * 30]
)
def test_translations_that_loop_are_reported(loop: str, pairs: list[tuple[str, str]]) -> None:
    good = healthy(pairs)
    looping = [f"{text[:2]}{loop}" for text in good.hyp[:60]] + list(good.hyp[60:])
    found = only(findings(SMALL, TRAINED, replace(good, hyp=looping)))
    assert found.startswith("6.0 % of the translations repeat the same few words again and again:")


def test_three_times_the_same_word_is_not_a_loop_and_neither_is_one_in_the_reference(
    pairs: list[tuple[str, str]],
) -> None:
    good = healthy(pairs)
    thrice = [f"{text} sehr sehr sehr" for text in good.hyp]
    assert findings(SMALL, TRAINED, replace(good, hyp=thrice)) == []
    counted = [f"{i} {'7 ' * 9}" for i in range(len(pairs))]
    assert findings(SMALL, TRAINED, replace(good, tgt=counted, hyp=counted)) == []


def test_translations_without_an_end_are_reported_with_the_limit(
    pairs: list[tuple[str, str]],
) -> None:
    found = only(findings(SMALL, TRAINED, replace(healthy(pairs), cut=some(120, len(pairs)))))
    assert found.startswith("12 % of the translations reached the length limit, 50 subwords")


def test_sources_that_were_cut_are_reported_with_the_setting(pairs: list[tuple[str, str]]) -> None:
    found = only(findings(SMALL, TRAINED, replace(healthy(pairs), cut_src=30)))
    assert found.startswith("3.0 % of the validation sources were cut")
    assert "1,024 subwords" in found
    assert "decode.max_source_tokens" in found


def test_translations_of_other_lines_are_reported_as_unrelated(
    pairs: list[tuple[str, str]],
) -> None:
    good = healthy(pairs)
    slipped = replace(good, hyp=[*good.hyp[100:], *good.hyp[:100]])
    assert "not related to their sources" in only(findings(SMALL, TRAINED, slipped))


def test_in_a_handful_of_sentences_nothing_is_reported() -> None:
    src, tgt = ["a b", "c d", "e f", "g h"], ["u v", "w x", "y z", "s t"]
    for hyp in (src, ["u v"] * 4, [""] * 4):
        assert findings(SMALL, TRAINED, Validated(src, tgt, hyp, [True] * 4, 0)) == []


@pytest.mark.parametrize(
    ("overrides", "steps", "expected"),
    [
        # 4 · 256^-0.5 · 500^-0.5 = 0.0112, and √(4000 / 500) · 4 = 11.3.
        (["learning_rate_scale=4.0", "warmup_steps=500"], 2400, "1.1e-02, 11 times"),
        # A tenth of 256^-0.5 · 4000^-0.5 = 9.9e-4.
        (["learning_rate_scale=0.1", "warmup_steps=4000"], 5000, "9.9e-05, 0.1 times"),
        (["warmup_steps=16000"], 2400, "has reached 15 % of its peak, after 2,400 of 16,000"),
        # The peak is the paper's, but only for a moment.
        (["learning_rate_scale=0.1", "warmup_steps=40"], 2400, "0.1 times the paper's formula"),
        # Of 4,000 updates of warm-up, in which the rate falls all the way, the middle is highest:
        # a half of the peak, times a half of 256^-0.5 · 4000^-0.5 = 9.9e-4.
        (
            ["warmup_steps=4000", "max_steps=4000", "decay_steps=4000", "learning_rate_scale=0.5"],
            4000,
            "1.2e-04, 0.13 times",
        ),
    ],
)
def test_a_learning_rate_far_from_the_formula_is_reported_with_its_value(
    overrides: list[str], steps: int, expected: str, pairs: list[tuple[str, str]]
) -> None:
    config = by_formula(*overrides)
    found = only(findings(config, replace(TRAINED, steps=steps), healthy(pairs)))
    assert expected in found
    assert "train." in found


def test_the_share_of_the_peak_is_known_where_the_decay_begins_in_the_warm_up(
    pairs: list[tuple[str, str]],
) -> None:
    # The rate rises over 200 updates and falls over these 40, from the 1st on. Both lines together
    # are highest in the middle: a tenth of the warm-up, times 21 / 40 (update 20) of the decay.
    config = load_config("demo", ["train.max_steps=40"])
    found = only(findings(config, replace(TRAINED, steps=40), healthy(pairs)))
    assert found.startswith("The learning rate has reached 5.2 % of its peak, after 40 of 200")


@pytest.mark.parametrize("steps", [100, 2400])
def test_a_learning_rate_of_zero_is_reported(steps: int, pairs: list[tuple[str, str]]) -> None:
    config = by_formula("schedule=linear", "learning_rate=0")
    found = only(findings(config, replace(TRAINED, steps=steps), healthy(pairs)))
    assert (
        found == "The learning rate is 0, so the weights do not change: raise train.learning_rate."
    )


def test_too_few_tokens_and_unseen_pieces_are_reported_of_a_model_that_has_not_learned(
    pairs: list[tuple[str, str]],
) -> None:
    starved = replace(TRAINED, mean_tokens_per_update=410.4, unseen_pieces=2400)
    tokens, rows = findings(SMALL, starved, healthy(pairs))
    assert tokens.startswith("An update sees 410 target tokens, where the paper has 25,000")
    assert rows.startswith("2,400 of the 8,000 subwords (30 %) never occur in the training data")
    two = replace(starved, src_vocab_size=4000)
    assert findings(SMALL, two, healthy(pairs))[1].startswith("2,400 of the 12,000 subwords (20 %)")
    # Perplexity 4: whatever its settings, they suited it.
    learned = replace(starved, valid_loss=math.log(4.0))
    assert findings(SMALL, learned, healthy(pairs)) == []


def test_subwords_that_the_new_data_lacks_are_not_reported_of_fine_tuning(
    pairs: list[tuple[str, str]],
) -> None:
    # Their rows keep what the earlier run has learned, and the vocabulary cannot change.
    tuned = replace(TRAINED, unseen_pieces=2400, initial_valid_loss=2.5)
    assert findings(SMALL, tuned, healthy(pairs)) == []


def test_perplexity_four_of_ten_digits_has_not_been_learned(pairs: list[tuple[str, str]]) -> None:
    digits = replace(
        TRAINED,
        mean_tokens_per_update=100.0,
        valid_loss=math.log(4.0),
        earlier_valid_losses=(),
        frequency_loss=math.log(10.0),
    )
    assert only(findings(SMALL, digits, healthy(pairs))).startswith("An update sees 100 target")


# 95 % of 6.18 is 5.87.
@pytest.mark.parametrize(
    ("loss", "learned"),
    [
        (5.9, "hardly more than that"),
        (6.1, "hardly more than that"),
        (7.5, "nothing"),
        (math.nan, "nothing"),
    ],
)
def test_a_loss_like_that_of_guessing_is_reported_beside_it(
    loss: float, learned: str, pairs: list[tuple[str, str]]
) -> None:
    nothing = replace(TRAINED, steps=1200, epochs=4.4, valid_loss=loss, earlier_valid_losses=())
    found = only(findings(SMALL, nothing, healthy(pairs)))
    assert f"{loss:.2f} after 1,200 updates (4.4 epochs), and guessing by frequency" in found
    assert f"would have 6.18: {learned} has been learned yet" in found


@pytest.mark.parametrize(
    ("initial", "lora_rank", "expected"),
    [
        (
            7.13,
            0,
            ("fell from 7.13 at step 0 to 6.36 after 60 updates", "lower train.learning_rate"),
        ),
        (
            7.13,
            8,
            ("fell from 7.13 at step 0 to 6.36 after 60 updates", "raise train.learning_rate"),
        ),
        (6.36, 8, ("is 6.36 after 60 updates", "raise train.learning_rate")),
        # With a loss that rises, the rate is too high.
        (5.13, 8, ("is 6.36 after 60 updates", "lower train.learning_rate")),
    ],
)
def test_a_bad_loss_of_fine_tuning_is_compared_with_that_of_step_0(
    initial: float, lora_rank: int, expected: tuple[str, str], pairs: list[tuple[str, str]]
) -> None:
    config = load_config("fine-tune", [f"train.lora_rank={lora_rank}"])
    tuned = replace(
        TRAINED, steps=60, valid_loss=6.36, earlier_valid_losses=(), initial_valid_loss=initial
    )
    found = only(findings(config, tuned, healthy(pairs)))
    assert found.startswith(f"The validation loss {expected[0]} (8.9 epochs), and guessing")
    assert f"or else {expected[1]} and check" in found
    assert ("nothing has been learned" in found) == ("fell" not in found)


def test_the_higher_rate_that_low_rank_changes_need_is_not_reported(
    pairs: list[tuple[str, str]],
) -> None:
    # 8.8 times 512^-0.5 · 4000^-0.5 = 7.0e-4.
    override = ["train.learning_rate=6.2e-3"]
    config = load_config("fine-tune", override)
    assert "lower train.learning_rate" in (unusual_rate(config) or "")
    assert "8.9 times" in only(findings(config, TRAINED, healthy(pairs)))
    config = load_config("fine-tune", [*override, "train.lora_rank=8"])
    assert unusual_rate(config) is None
    assert findings(config, TRAINED, healthy(pairs)) == []


def test_the_rate_in_words_says_only_what_holds() -> None:
    # 192^-0.5 · 4000^-0.5 = 1.14e-3.
    own = ["train.learning_rate=1.14e-3", "train.warmup_steps=250", "train.max_steps=5000"]
    like_paper = load_config("small", own)
    assert rate_in_words(like_paper) == (
        "peak 1.1e-03 at update 250; linear to zero after update 5,000"
    )
    # If training ends in the warm-up, the rate never falls.
    short = load_config("small", [*own, "train.max_steps=100"])
    assert rate_in_words(short) == (
        "peak 4.6e-04 at update 100, 0.4 times the paper's for d_model 192"
    )
    # The rates of fine-tuning are not those of the paper.
    fine = load_config("fine-tune")
    assert "times the paper's" not in rate_in_words(fine, is_fine_tuning=True)
    by_paper = load_config("base", ["train.warmup_steps=1000"])
    assert "2 times the paper's" in rate_in_words(by_paper, is_fine_tuning=True)


def test_without_frequencies_guessing_is_the_logarithm_of_the_vocabulary(
    pairs: list[tuple[str, str]],
) -> None:
    nothing = replace(TRAINED, valid_loss=8.5, earlier_valid_losses=(), frequency_loss=None)
    # ln 8000 = 8.99.
    found = only(findings(SMALL, nothing, healthy(pairs)))
    assert "guessing blindly would have 8.99" in found


def test_a_training_loss_that_rises_is_reported(pairs: list[tuple[str, str]]) -> None:
    fell_apart = replace(TRAINED, losses=(5.0, 4.1, 4.3, 6.9, 7.0, 6.8))
    found = only(findings(SMALL, fell_apart, healthy(pairs)))
    assert found.startswith("The training loss rose from 4.10 to 6.80:")


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        (by_formula(), "train.learning_rate_scale"),
        (by_formula("schedule=linear", "learning_rate=0.001"), "train.learning_rate"),
    ],
)
def test_the_setting_to_lower_is_the_one_that_the_schedule_uses(
    config: Config, setting: str, pairs: list[tuple[str, str]]
) -> None:
    sick = replace(TRAINED, valid_loss=6.5, losses=(5.0, 4.1, 4.3, 6.9, 7.0, 6.8))
    good, size = healthy(pairs), len(pairs)
    looping = ["nein nein nein nein" for _ in pairs]
    empty = replace(good, hyp=[" "] * size, cut=some(size, size))
    found = [*findings(config, sick, replace(good, hyp=looping)), *findings(config, sick, empty)]
    named = [name for text in found for name in re.findall(r"lower (train\.learn\w+)", text)]
    assert set(named) == {setting}
    assert len(named) == 6


def test_learning_by_heart_is_reported_only_while_the_training_loss_falls(
    pairs: list[tuple[str, str]],
) -> None:
    by_heart = replace(TRAINED, valid_loss=2.45, earlier_valid_losses=(3.0, 2.1, 2.2), epochs=37.0)
    found = only(findings(SMALL, by_heart, healthy(pairs)))
    assert found.startswith("The validation loss rose from 2.10 to 2.45 while the training loss")
    assert "37.0 epochs" in found
    rising = replace(by_heart, losses=TRAINED.losses[::-1])
    assert findings(SMALL, rising, healthy(pairs)) == []


def test_guessing_by_frequency_costs_the_entropy_of_the_pieces() -> None:
    # Half, a quarter, a quarter, and one that never occurs: one and a half bits.
    assert frequency_loss([2, 1, 0, 1]) == pytest.approx(1.5 * math.log(2.0))


def test_scores_are_flat_when_the_last_five_gain_less_than_half_a_point() -> None:
    assert is_flat([0.0] * 6)
    assert is_flat([10.9, 20.7, 23.0, 22.8, 23.2, 23.1, 22.7, 23.4])
    assert not is_flat([10.9, 20.7, 23.0, 22.8, 23.2, 23.1, 22.7, 23.6])
    # A run on Multi30k.
    assert not is_flat([10.9, 20.7, 23.0, 28.1, 28.6, 29.5, 32.2, 34.0])
    assert is_flat([1.0, 1.2, 1.1], window=2)


@given(st.lists(st.floats(0, 100), max_size=5))
def test_a_run_that_has_only_begun_is_not_flat(scores: list[float]) -> None:
    assert not is_flat(scores)


@given(st.lists(st.floats(0, 100), min_size=6, max_size=30), st.integers(1, 5))
def test_one_bad_validation_changes_nothing(scores: list[float], place: int) -> None:
    spoilt = list(scores)
    spoilt[-place] = 0.0
    # Unless it took the place of the best.
    if max(spoilt[-5:]) == max(scores[-5:]):
        assert is_flat(spoilt) == is_flat(scores)


@given(st.lists(st.floats(0.11, 3.0), min_size=5, max_size=40))
def test_a_steady_rise_is_never_flat(gains: list[float]) -> None:
    scores = [sum(gains[:count]) for count in range(len(gains) + 1)]
    assert not is_flat(scores)


@given(st.floats(0, 60), st.lists(st.floats(-0.24, 0.24), min_size=6, max_size=40))
def test_wavering_by_a_quarter_point_is_flat(level: float, noise: list[float]) -> None:
    assert is_flat([level + off for off in noise])


def test_unusual_settings_come_before_what_they_cause(pairs: list[tuple[str, str]]) -> None:
    short = by_formula("max_steps=40")
    began = replace(TRAINED, steps=40, valid_loss=8.5, earlier_valid_losses=())
    rate, loss = findings(short, began, healthy(pairs))
    assert rate.startswith("The learning rate has reached 10 % of its peak, after 40 of 400")
    assert "nothing has been learned yet" in loss


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
def test_an_unusual_learning_rate_is_known_before_training(
    overrides: list[str], expected: str | None
) -> None:
    warning = unusual_rate(by_formula(*overrides))
    assert (warning is None) if expected is None else (warning and expected in warning)
