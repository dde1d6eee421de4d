"""What a model does: translation, or the parsing of Section 6.3 (sentences in, trees out).

A task says how a line becomes what the model reads, and what it writes the result. `Task` is
translation; what differs for parsing is in `parser`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mtkit.search_settings import TokenMask


class Task:
    """Translation: the model reads a line, and writes its translation."""

    name: Literal["translation", "parsing"] = "translation"
    tokenized = False

    def words(self, line: str) -> list[str]:
        """The words that the result is about; none for a translation."""
        return []

    def source_text(self, line: str) -> str:
        """What the model reads for a line."""
        return line

    def target_text(self, line: str, number: int) -> str:
        """What the model should write for a given result, which is on the line with this number."""
        return line

    def result(self, words: Sequence[str], text: str) -> tuple[str, bool | None]:
        """The result for what the model wrote, and whether that was repaired; None for text."""
        return text, None

    def metrics(
        self, results: Sequence[str], references: Sequence[str], *, best_metric: str = "bleu"
    ) -> dict[str, tuple[float, float | None]]:
        """The scores of validation, in points, each with half its 95 % interval if it has one."""
        from mtkit.score import Metric, score

        names: list[Metric] = ["bleu", "chrf"]
        if best_metric == "chrf++":
            names.append("chrf++")
        scores = {name: score(results, [references], metric=name, interval=True) for name in names}
        return {name: (value.value, value.interval) for name, value in scores.items()}

    def token_masks(
        self, words: Sequence[int], limits: Sequence[int]
    ) -> Sequence[TokenMask] | None:
        """Masks that keep the search to well-formed results; None if there is no such rule.

        They are for the numbers of words of the sentences, and the most tokens of each output, with
        EOS.
        """
        return None
