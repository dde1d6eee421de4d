"""The learning rate of each update: the paper's formula by hand, and the other schedules."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtkit.config import TrainConfig
from mtkit.train.schedule import Schedule, learning_rate


def schedule(d_model: int = 4, **settings: Any) -> Schedule:
    """The schedule of a training with these settings."""
    return Schedule(TrainConfig(**settings), d_model)


def test_the_learning_rate_equals_values_worked_by_hand():
    # 4^-½ · min(s^-½, s · 16^-1.5) = ½ · min(s^-½, s/64)
    rates = {1: 1 / 128, 8: 1 / 16, 16: 1 / 8, 64: 1 / 16, 10_000: 1 / 200}
    assert {step: learning_rate(step, 4, 16) for step in rates} == pytest.approx(rates, rel=1e-12)


def test_with_a_decay_the_rate_falls_linearly_to_zero_over_the_last_updates():
    decayed = schedule(warmup_steps=16, max_steps=100, decay_steps=40)

    def factor(step: int) -> float:
        return decayed.rate(step) / learning_rate(step, 4, 16)

    # Updates 61 to 100 are the last forty: 40/40, 39/40, ..., 1/40, and 101 would have none.
    assert [factor(step) for step in (1, 16, 60, 61)] == [1.0] * 4
    falling = [factor(step) for step in range(61, 102)]
    assert falling == pytest.approx([n / 40 for n in range(40, -1, -1)], rel=1e-12)
    assert decayed.decay_start() == 62


def test_by_default_the_rate_is_the_formulas_to_the_last_bit_and_a_scale_is_a_factor_on_it():
    for scale in (1.0, 0.5):
        plain = schedule(512, learning_rate_scale=scale)
        for step in (1, 3999, 4000, 100_000):
            assert plain.rate(step) == scale * learning_rate(step, 512, 4000)
        assert plain.decay_start() is None


def test_a_decay_longer_than_the_run_takes_all_of_it():
    decayed = schedule(warmup_steps=1, max_steps=4, decay_steps=40)
    # 4^-½ · s^-½, times 4/4, 3/4, 2/4, 1/4 and nothing.
    expected = [0.5, 0.75 / 8**0.5, 0.5 / 12**0.5, 0.25 / 4, 0.0]
    assert [decayed.rate(step) for step in range(1, 6)] == pytest.approx(expected, rel=1e-12)
    assert decayed.decay_start() == 2


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("constant", [0.1, 0.2, 0.2, 0.2, 0.2, 0.2]),
        # Of the five steps from the warm-up to the update after the last one: 4/5, 3/5, ...
        ("linear", [0.1, 0.2, 0.16, 0.12, 0.08, 0.04]),
        ("cosine", [0.1, 0.2, *(0.1 + 0.1 * math.cos(math.pi * k / 5) for k in (1, 2, 3, 4))]),
    ],
)
def test_other_schedules_rise_to_the_given_rate_and_stay_or_fall_to_the_end(form, expected):
    given = schedule(schedule=form, learning_rate=0.2, warmup_steps=2, max_steps=6)
    assert [given.rate(step) for step in range(1, 7)] == pytest.approx(expected, rel=1e-12)
    assert given.rate(7) == pytest.approx(0.2 if form == "constant" else 0.0, abs=1e-17)
    assert given.decay_start() == (None if form == "constant" else 3)


def test_a_decay_is_a_factor_on_every_schedule():
    for form in ("constant", "linear", "cosine"):
        settings = {"schedule": form, "learning_rate": 0.2, "warmup_steps": 2, "max_steps": 6}
        plain, decayed = schedule(**settings), schedule(**settings, decay_steps=2)
        factors = [decayed.rate(step) / plain.rate(step) for step in range(1, 7)]
        assert factors == pytest.approx([1, 1, 1, 1, 1, 0.5], rel=1e-12)


@pytest.mark.parametrize("form", ["paper", "constant", "linear", "cosine"])
@pytest.mark.parametrize(("after", "steps"), [(2, 4), (3, 4), (9, 3)])
def test_a_finish_falls_linearly_from_the_planned_rate_to_zero(form: str, after: int, steps: int):
    settings = {"schedule": form, "warmup_steps": 3, "max_steps": 10}
    if form != "paper":
        settings["learning_rate"] = 0.2
    planned = schedule(**settings)
    finished = schedule(**settings, finish_after=after, finish_steps=steps)
    assert finished.settings.last_step == after + steps
    for step in range(1, after + 2):
        assert finished.rate(step) == planned.rate(step)
    # Of four updates: 4/4, 3/4, 2/4, 1/4, and nothing for the one after them.
    shares = [finished.rate(after + 1 + k) / planned.rate(after + 1) for k in range(steps + 1)]
    assert shares == pytest.approx([(steps - k) / steps for k in range(steps + 1)], abs=1e-12)
    assert planned.settings.last_step == 10


# After two updates of a warm-up of eight, or of none; the last update before the fall, by hand.
@pytest.mark.parametrize(
    ("settings", "steps", "first"),
    [
        ({}, 24, 8),
        ({}, 8, 8),
        ({}, 6, 6),  # three quarters of six are four
        ({}, 1, 3),
        ({"schedule": "linear", "learning_rate": 0.2}, 12, 8),
        ({"warmup_steps": 2}, 12, 3),
        ({"warmup_steps": 40, "max_steps": 10}, 16, 14),
        # A planned decay begins in the warm-up, after update 6.
        ({"decay_steps": 5, "max_steps": 10}, 12, 6),
    ],
)
def test_a_finish_in_the_warm_up_lets_it_go_on_for_at_most_three_quarters(settings, steps, first):
    settings = {"warmup_steps": 8, "max_steps": 100, **settings}
    planned = schedule(**settings)
    finished = schedule(**settings, finish_after=2, finish_steps=steps)
    assert finished.settings.last_step == 2 + steps
    for step in range(1, first + 1):
        assert finished.rate(step) == planned.rate(step)
    left = 2 + steps - first + 1
    shares = [finished.rate(first + k) / planned.rate(first) for k in range(left + 1)]
    assert shares == pytest.approx([(left - k) / left for k in range(left + 1)], abs=1e-12)
    assert finished.decay_start() == first + 1


@pytest.mark.parametrize(
    ("step", "settings", "count"),
    [
        (50, {}, 10),  # a fifth of those so far
        (52, {}, 11),
        (7, {}, 4),  # three quarters of them are the rest of the warm-up
        (83, {}, None),  # as many are left
        (82, {}, 17),
        (50, {"finish_after": 40, "finish_steps": 20}, None),
        (4, {"warmup_steps": 200}, None),
        (50, {"schedule": "constant", "learning_rate": 0.0}, None),
    ],
)
def test_a_fifth_of_the_updates_so_far_ends_a_run_well_if_fewer_are_not_left(step, settings, count):
    assert schedule(**{"warmup_steps": 10, "max_steps": 100, **settings}).finish_in(step) == count


STEPS = {"warmup_steps": st.integers(1, 80), "max_steps": st.integers(1, 60)}
STEPS |= {"decay_steps": st.integers(0, 80), "finish_steps": st.integers(0, 9)}


@given(
    st.sampled_from(["paper", "constant", "linear", "cosine"]),
    st.integers(1, 9),
    st.fixed_dictionaries(STEPS),
    st.integers(0, 59),
    st.integers(1, 60),
)
def test_the_highest_rate_is_that_of_every_update(form, d_model, settings, after, last):
    after, steps = min(after, settings["max_steps"] - 1), settings["finish_steps"]
    last = min(last, after + steps if steps else settings["max_steps"])
    rate = None if form == "paper" else 0.5
    how = schedule(d_model, schedule=form, learning_rate=rate, finish_after=after, **settings)
    rates = [how.rate(step) for step in range(1, last + 1)]
    step, rate = how.highest(last)
    assert rate == rates[step - 1] == pytest.approx(max(rates), rel=1e-12)


@given(st.sampled_from(["linear", "cosine"]), st.integers(1, 30), st.integers(0, 40))
def test_another_end_changes_no_rate_before_the_updates_tied_to_it(form, warmup_steps, decay_steps):
    settings = {"schedule": form, "learning_rate": 0.5, "warmup_steps": warmup_steps}
    short = schedule(**settings, decay_steps=decay_steps, max_steps=50)
    longer = schedule(**settings, decay_steps=decay_steps, max_steps=90)
    tied = short.decay_start()
    for step in range(1, tied):
        assert short.rate(step) == longer.rate(step)
    if tied <= 50:
        assert short.rate(tied) != longer.rate(tied)
