"""What the forecasts of a text say of it."""

import pytest

from mtkit.check.model import confidence


def _forecast() -> confidence.Forecast:
    """Of a validation set whose tenths have the mean 60 and the deviation 10."""
    tenths = [confidence.Tenth(forecast=50, chrf=60 + 10 * (-1) ** i) for i in range(10)]
    quality = confidence.Quality(lines=100, correlation=0.5, baseline=0.4, error=9, tenths=tenths)
    ones = [1.0] * len(confidence.FEATURES)
    return confidence.Forecast(
        means=ones, deviations=ones, weights=ones, bias=60, low=ones, high=ones, quality=quality
    )


def test_a_verdict_has_the_mean_and_the_lines_below_the_limit():
    verdict = confidence.Verdict(50, _forecast())
    assert verdict.sentences() == []
    for of_line in (40.0, None, 50.0, 75.0):
        verdict.add(of_line)
    (said,) = verdict.sentences("segments")
    assert said.startswith(
        "the mean confidence is 55 (of the validation set: 60), and 1 of 3 segments is below 50"
    )
    old = confidence.Verdict(50)
    old.add(10)
    first, of_others = old.sentences()
    assert first.startswith("the mean confidence is 10, and 1 of 1 line is below")
    assert of_others == confidence.OF_OTHERS
    assert not old.is_foreign


@pytest.mark.parametrize(
    ("lines", "mean", "expected"),
    # 1.5 deviations of 9 below 60, and of a text of n lines 2 / sqrt(n) more.
    [(1, 28.4, True), (1, 28.6, False), (4, 37.4, True), (4, 37.6, False), (10_000, 46.2, True)],
)
def test_a_text_far_below_the_validation_set_is_of_another_kind(lines, mean, expected):
    verdict = confidence.Verdict(50, _forecast(), lines=lines, total=lines * mean)
    assert verdict.is_foreign is expected
    assert (confidence.FOREIGN in verdict.sentences()) is expected
