"""Translations that are probably incomplete are named in one line."""

import pytest

from mtkit.base.sentences import LineFacts
from mtkit.translate.doubts import IncompleteTranslations

LONG = "x" * 100


SHORTER = "much shorter in translation than usual"
LONGER = "longer than every training line"


@pytest.mark.parametrize(
    ("longest", "numbers", "text", "translation", "warning"),
    [
        # As usual.
        (100, [1], LONG, "y" * 50, ""),
        (99, [7], LONG, LONG, f"1 line is {LONGER} (line 7)"),
        (100, [3, 3, 9], LONG, "y" * 49, f"2 lines are {SHORTER} (lines 3, 9)"),
        # Of many, ten are named.
        (
            *(10, range(1, 1235), LONG, LONG),
            f"1,234 lines are {LONGER} (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)",
        ),
        # Of short texts nothing is said.
        (10, [1], "x" * 29, "", ""),
        # Without a record of the training lines, only translations of a few letters are named.
        (None, [1], "x" * 100_000, "y" * 20_000, ""),
        (None, [2], LONG, "y" * 14, f"1 line is {SHORTER} (line 2)"),
    ],
)
def test_doubtful_translations_are_named_once(longest, numbers, text, translation, warning, caplog):
    facts = LineFacts(sampled=9, longest=longest, shortest=0.5) if longest else LineFacts()
    doubts = IncompleteTranslations(facts)
    for number in numbers:
        doubts.check(number, text, translation)
    for _ in range(2):
        doubts.report()
    assert caplog.messages == ([f"check the translations: {warning}"] if warning else [])
