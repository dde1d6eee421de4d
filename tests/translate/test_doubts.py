"""Translations that are probably incomplete are named in one line."""

import pytest

from mtkit.base.sentences import LineFacts
from mtkit.translate.doubts import IncompleteTranslations

LONG = "x" * 100


def warnings(doubts: IncompleteTranslations, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    doubts.report()
    return [record.getMessage() for record in caplog.records]


def test_usual_lines_give_no_warning(caplog: pytest.LogCaptureFixture):
    doubts = IncompleteTranslations(LineFacts(sampled=9, longest=100, shortest=0.5))
    doubts.check(1, LONG, "y" * 50)
    assert warnings(doubts, caplog) == []


def test_a_line_longer_than_every_training_line_is_named(caplog: pytest.LogCaptureFixture):
    doubts = IncompleteTranslations(LineFacts(sampled=9, longest=99, shortest=0.5))
    doubts.check(7, LONG, LONG)
    assert warnings(doubts, caplog) == [
        "check the translations: 1 line is longer than every training line (line 7)"
    ]


def test_a_translation_much_shorter_than_usual_is_named(caplog: pytest.LogCaptureFixture):
    doubts = IncompleteTranslations(LineFacts(sampled=9, longest=100, shortest=0.5))
    for number in (3, 3, 9):
        doubts.check(number, LONG, "y" * 49)
    assert warnings(doubts, caplog) == [
        "check the translations: 2 lines are much shorter in translation than usual (lines 3, 9)"
    ]
    # What was reported is not reported again.
    assert warnings(doubts, caplog) == []


def test_of_many_lines_ten_are_named(caplog: pytest.LogCaptureFixture):
    doubts = IncompleteTranslations(LineFacts(sampled=9, longest=10, shortest=0.5))
    for number in range(1, 1235):
        doubts.check(number, LONG, LONG)
    (warning,) = warnings(doubts, caplog)
    assert "1,234 lines are" in warning
    assert warning.endswith("(lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)")


def test_nothing_is_said_of_short_texts(caplog: pytest.LogCaptureFixture):
    doubts = IncompleteTranslations(LineFacts(sampled=9, longest=10, shortest=0.5))
    doubts.check(1, "x" * 29, "")
    assert warnings(doubts, caplog) == []


def test_without_a_record_only_translations_of_a_few_letters_are_named(caplog):
    doubts = IncompleteTranslations(LineFacts())
    doubts.check(1, "x" * 100_000, "y" * 20_000)
    assert warnings(doubts, caplog) == []
    doubts.check(2, LONG, "y" * 14)
    assert len(warnings(doubts, caplog)) == 1
