"""Scores of lines from outside: their files, and means and tests against sacreBLEU's."""

import contextlib
import random
import string
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.base import Score as Result
from sacrebleu.significance import PairedTest
from sacrebleu.utils import sum_of_lists

from mtkit.base.errors import MtkitError
from mtkit.score import SegmentMetric, parse_scores

WORDS = ["eine", "der", "Hund", "Katze", "Frau", "läuft", "sitzt", "auf", "im", "Park", "rot"]


class RandomScores(Metric):
    """A metric for sacreBLEU whose score of a text is the mean of those of its lines."""

    def __init__(self) -> None:
        super().__init__()
        self.num_refs = 1

    def of_line(self, hypothesis: str, references: Sequence[str]) -> float:
        return random.Random(hypothesis).gauss(0.8, 0.1)

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"refs": refs}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[float]:
        return [self.of_line(hypothesis, ref_kwargs["refs"]), 1.0]

    def _compute_score_from_stats(self, stats: list[float]) -> Result:
        return Result("mine", stats[0] / stats[1])

    def _aggregate_and_compute(self, stats: list[list[float]]) -> Result:
        return self._compute_score_from_stats(sum_of_lists(stats))


def texts(count: int, systems: int) -> tuple[list[str], list[list[str]]]:
    """References, and translations in which a few words were lost."""
    rng = random.Random(count)
    references = [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in range(count)]
    return references, [
        [
            " ".join(word for word in line.split() if rng.random() > 0.1 + 0.02 * system)
            for line in references
        ]
        for system in range(systems)
    ]


@pytest.mark.parametrize("lines", [7, 200])
def test_means_and_p_values_are_sacrebleus_for_a_mean_of_lines(lines, monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    references, systems = texts(lines, 3)
    metric = RandomScores()
    # As they come from a file.
    by_system = [
        parsed("".join(f"{metric.of_line(line, [])!r}\n" for line in system)) for system in systems
    ]
    ours = SegmentMetric("mine", by_system).compare()
    named = list(zip(("one", "two", "three"), systems, strict=True))
    for test, attribute in (("bs", "p_bootstrap"), ("ar", "p_randomisation")):
        _, theirs = PairedTest(named, {"mine": metric}, [references], test_type=test)()
        for mine, other in zip(ours, theirs["mine"], strict=True):
            assert mine.value == pytest.approx(other.score, rel=1e-12)
            assert getattr(mine, attribute) == other.p_value
            if test == "bs":
                expected = float(other.mean), float(other.ci)
                assert (mine.mean, mine.interval) == pytest.approx(expected, rel=1e-12)
        assert theirs["mine"][0].p_value is None
    means = SegmentMetric("mine", by_system).means()
    assert [mean.value for mean in means] == [mine.value for mine in ours]


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20))
def test_the_score_is_the_mean(scores: list[float]) -> None:
    (mean,) = SegmentMetric("mine", [scores]).means()
    exact = sum(map(Fraction, scores)) / len(scores)
    assert mean.value == pytest.approx(float(exact), abs=1e-14 * max(map(abs, scores)), rel=0)


def test_the_signature_says_how_many_lines_and_which_way_is_better() -> None:
    errors = SegmentMetric("errors", [[1, 2], [2, 4]], lower_is_better=True)
    (first, _) = errors.means()
    assert str(first) == "errors 1.5000 mean:lines|lines:2|better:lower"
    assert first.lower_is_better
    (first, _) = errors.compare()
    assert first.signature == ("mean:lines|lines:2|better:lower|seed:12345|bs:1000|ar:10000")
    assert first.lower_is_better
    assert [score.value for score in errors.of_lines()] == [1, 2]


def parsed(text: str, count: int | None = None) -> list[float]:
    lines = text.splitlines()
    count = len(lines) if count is None else count
    return parse_scores(lines, file="s.txt", name="COMET", text="hyp.txt", count=count)


@pytest.mark.parametrize(
    "text",
    [
        "0.5\n-2\n1e-3\n",
        " 0.5\n-2.\n+.001 \n",
        # Rows: the last column that has a number in the first row.
        "1\t0.5\tein Hund\n2\t-2\t7\n3\t0.001\t\n",
        "hyp.txt\tSegment 0\t0.5\nhyp.txt\tSegment 1\t-2\nhyp.txt\tSegment 2\t1e-3\n",
        # JSON lines.
        '{"score": 0.5, "id": 1}\n{"id": 2, "score": -2}\n{"score": 1e-3, "id": 3}\n',
        '{"COMET": 0.5, "score": 1}\n{"COMET": -2, "score": 1}\n{"COMET": 0.001, "score": 1}\n',
        '{"src": "1", "prediction": 0.5}\n{"prediction": -2}\n{"ok": true, "prediction": 0.001}\n',
        ' {"Comet": 0.5}\n-2\n0.001\n',
    ],
)
def test_a_score_is_read_from_numbers_rows_and_json_lines(text: str) -> None:
    assert parsed(text) == [0.5, -2, 0.001]


@pytest.mark.parametrize(
    "header",
    [
        "COMET",
        "comet",
        "model score",
        "id\tscore\tlength",
        "id\tComet\tscore",
        # A header whose names are numbers.
        "1\tCOMET\t2",
    ],
)
def test_a_header_names_the_column(header: str) -> None:
    columns = header.count("\t") + 1
    rows = [("7\t0.5\t9", "8\t-2\t9") if columns == 3 else ("0.5", "-2")][0]
    assert parsed("\n".join([header, *rows]), count=2) == [0.5, -2]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0.5\nnan\n", "s.txt, line 2: nan is not a number from -1e30 to 1e30"),
        ("1e31\n1\n", "s.txt, line 1: 1e+31 is not a number from -1e30 to 1e30"),
        ('{"score": NaN}\n', "s.txt, line 1: nan is not a number from -1e30 to 1e30"),
        ("0.5\n\n", "s.txt, line 2: '' is not a number"),
        ("0.5\n0,5\n", "s.txt, line 2: '0,5' is not a number"),
        ("1_0\n0.5\n0.5\n", "s.txt has 2 scores below its header and hyp.txt has 3 lines"),
        ("Ein Hund.\nEine Katze.\n", "s.txt, line 2: 'Eine Katze.' is not a number"),
        ("a\t1\nb\tc\n", "s.txt, line 2, column 2: 'c' is not a number"),
        ("a\t1\nb\n", "s.txt, line 2: has 1 of the columns, and the scores are in column 2"),
        ("score\tb\nx\ty\n", "s.txt, line 2, column 1: 'x' is not a number"),
        ('{"score": "0.5"}\n', 's.txt, line 1: "0.5" is not a number'),
        ('{"score": true}\n', "s.txt, line 1: true is not a number"),
        ('{"a": 1, "b": 2}\n', "s.txt, line 1: has neither the key COMET nor the key score"),
        ("{\n", "s.txt, line 1: is not JSON; write one whole object on each line"),
        ("[" * 100_000, "s.txt, line 1: is not JSON; write one whole object on each line"),
        ('{"score": 1}\nx\n', "s.txt, line 2: is not JSON; write one whole object on each line"),
    ],
)
def test_a_line_without_a_finite_number_is_named(text: str, error: str) -> None:
    header = "score" in text.split("\n")[0] and "\t" in text
    with pytest.raises(MtkitError) as caught:
        parsed(text, count=1 if header else None)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize(
    ("text", "scores"), [("", "0 scores"), ("1\n", "1 score"), ("1\n2\n3\n4\n", "4 scores")]
)
def test_another_number_of_scores_than_lines_is_refused(text: str, scores: str) -> None:
    with pytest.raises(MtkitError, match=f"s.txt has {scores} and hyp.txt has 3 lines; write one"):
        parsed(text, count=3)


def test_no_lines_have_no_mean() -> None:
    with pytest.raises(MtkitError, match="nothing to score"):
        parsed("")


CHARACTERS = string.digits + '.-+e_ \t"{}[]:,score'


@given(st.lists(st.text(CHARACTERS, max_size=12), min_size=1, max_size=4))
def test_any_file_gives_a_number_for_each_line_or_one_error(lines: list[str]) -> None:
    with contextlib.suppress(MtkitError):
        scores = parse_scores(lines, file="s.txt", name="COMET", text="hyp.txt", count=len(lines))
        assert len(scores) == len(lines)
        assert all(abs(value) <= 1e30 for value in scores)
