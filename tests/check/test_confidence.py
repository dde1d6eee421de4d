"""The confidence: a forecast of the chrF."""

import numpy as np
import pytest

from mtkit.check.model.confidence import FEATURES, Forecast, Tenth, features_of, spearman
from mtkit.check.model.coverage import PairCoverage, SideCoverage
from mtkit.check.model.prober import features_of_samples
from mtkit.check.rules.marks import Text
from mtkit.score import sentence_chrf
from mtkit.translate import Translation

SIDE = SideCoverage((-1.0, 2.0), (1, 2), 2.0, 0.5, -3.0, 0.8)
PAIR = PairCoverage(SIDE, SIDE, 0.1, 2, 0)


def test_spearman_is_worked_by_hand():
    # Ranks 1 2 3 4 5 and 1 3 2 4 5: 1 - 6 * 2 / (5 * 24).
    assert spearman([1, 2, 3, 4, 5], [10, 30, 20, 40, 50]) == pytest.approx(0.9)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    # Ranks 1.5 1.5 3 against 1 2 3: 1.5 / sqrt(1.5 * 2).
    assert spearman([7, 7, 9], [1, 2, 3]) == pytest.approx(1.5 / 3**0.5)
    assert spearman([1, 1, 1], [1, 2, 3]) == 0.0


def test_features_are_worked_by_hand():
    found = dict(zip(FEATURES, features_of([-4.0, -1.0], PAIR), strict=True))
    assert found["mean log-probability"] == -2.5
    assert found["lowest log-probability"] == found["lowest tenth"] == -4.0
    assert found["share below one in ten"] == 0.5
    assert found["uncovered source words"] == pytest.approx(2 / 3)
    assert found["new source words"] == 0.5
    # Of -4 and -1 around -2.5; two subwords with EOS, and two words.
    assert found["deviation"] == 1.5
    assert found["subwords of a translated word"] == pytest.approx(2 / 3)


def test_the_probability_of_subwords_in_a_row_is_worked_by_hand():
    half, quarter = np.log([0.5, 0.25])
    found = features_of([half, quarter, half, half], PAIR)[-2:]
    # Two in a row: 1/8, 1/8 and 1/4; three in a row: 1/16 and 1/16.
    assert found == pytest.approx([1 / 6, 1 / 16])
    # A shorter translation is taken as a whole.
    assert features_of([half, quarter], PAIR)[-2:] == pytest.approx([1 / 8, 1 / 8])


def test_a_forecast_of_an_older_file_ignores_the_newer_features():
    x, y = _data(300, 9)
    older = Forecast.fit(x[:, :-2], y)
    assert older.of(x[0, :-2].tolist()) == older.of(x[0].tolist())
    x, y = np.column_stack([x, x[:, :4]]), y
    older = Forecast.fit(np.delete(x, [22, 23], axis=1), y)
    assert older.of(np.delete(x[0], [22, 23]).tolist()) == older.of(x[0].tolist())
    type(older).model_validate(older.model_dump())


def _data(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, len(FEATURES)))
    return x, (50 + 8 * x[:, 0] - 5 * x[:, 9] + draw.normal(size=count)).clip(0, 100)


def test_a_linear_relation_is_found_again():
    forecast = Forecast.fit(*_data(2000, 1))
    x, y = _data(500, 2)
    errors = [abs(forecast.of(row) - value) for row, value in zip(x.tolist(), y, strict=True)]
    assert np.mean(errors) < 1.2
    assert forecast.quality.correlation > 0.95
    assert forecast.quality.correlation > forecast.quality.baseline


def test_the_tenths_of_unrelated_features_all_have_the_mean():
    x, _ = _data(3000, 3)
    quality = Forecast.fit(x, np.random.default_rng(4).uniform(0, 100, size=3000)).quality
    # Forecasts of held-out lines: a fit to the same lines would find a relation.
    assert abs(quality.correlation) < 0.1
    assert all(abs(tenth.chrf - 50) < 8 for tenth in quality.tenths)


def test_forecasts_are_between_0_and_100_for_any_features():
    forecast = Forecast.fit(*_data(300, 5))
    for value in (-1e9, 0.0, 1e9):
        assert 0 <= forecast.of([value] * len(FEATURES)) <= 100


def test_a_constant_feature_does_no_harm():
    x, y = _data(300, 6)
    x[:, 3] = 1.0
    assert np.isfinite(Forecast.fit(x, y).of(x[0].tolist()))


def test_the_features_of_samples_are_their_chrf_by_sacrebleu():
    text, samples = (
        "the cat sat",
        [
            Translation("the cat sat", log_probs=(-1.0,)),
            Translation("a dog", log_probs=(-2.0, -3.0)),
        ],
    )
    found = features_of_samples(text, samples, Text(""), None)
    same, other = sentence_chrf([text] * 2, [text, "a dog"])
    (back,) = sentence_chrf(["a dog"], [text])
    assert found[0] == pytest.approx((same + other) / 2)
    # Of the first sample with the translation and the second one; of the second one with both.
    assert found[1] == pytest.approx(((same + other) / 2 + back) / 2)
    assert found[2] == -2.0
    assert features_of_samples(text, [], Text(""), None) == []


def test_what_is_outside_of_the_range_never_raises_a_forecast():
    forecast = _with_tenths(Forecast.fit(*_data(300, 7)), [(0, 0), (100, 100)])
    low, high = list(forecast.low), list(forecast.high)
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    fell = 0
    for index in range(len(middle)):
        for edge, step in ((low[index], -1), (high[index], 1)):
            at_edge, *beyond = (
                forecast.of([*middle[:index], edge + step * size, *middle[index + 1 :]])
                for size in (0, 1, 50)
            )
            assert at_edge >= beyond[0] >= beyond[1]
            fell += at_edge > beyond[0]
    # Each feature has a good side and a bad one, unless its weight is 0.
    assert fell == sum(weight != 0 for weight in forecast.weights)


def _with_tenths(forecast: Forecast, tenths: list[tuple[float, float]]) -> Forecast:
    points = [Tenth(forecast=x, chrf=y) for x, y in tenths]
    quality = forecast.quality.model_copy(update={"tenths": points})
    return forecast.model_copy(update={"quality": quality})


@pytest.mark.parametrize(
    ("raw", "expected"),
    # Between two points, values are on the line that joins them. A point that is lower than the one
    # before it, such as (40, 38), gets that value. Outside, the correction is that of the end.
    # Then a tenth of the difference to the mean of the tenths, 44.5, is taken away.
    [
        (x, 44.5 + 0.9 * (y - 44.5))
        for x, y in [(20, 35), (25, 37.5), (30, 40), (40, 40), (50, 65), (10, 25), (60, 75)]
    ],
)
def test_forecasts_are_corrected_by_the_tenths_in_order(raw, expected):
    constant = {name: [0.0] * len(FEATURES) for name in ("means", "weights", "low", "high")}
    forecast = Forecast.fit(*_data(300, 8)).model_copy(update={**constant, "bias": raw})
    corrected = _with_tenths(forecast, [(20, 35), (30, 40), (40, 38), (50, 65)])
    assert corrected.of([0.0] * len(FEATURES)) == pytest.approx(expected)
