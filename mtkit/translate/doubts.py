"""Warnings about lines without a translation, incomplete ones and missing terms; counts copies."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mtkit.base.invisible import visible
from mtkit.base.sentences import LONG_ENOUGH, LineFacts
from mtkit.translate.requests import Sentence, Translation

log = logging.getLogger(__name__)

# Lines that are named.
_MAX_NAMED = 10
# What may be wrong with a line, in the order of the warning.
_MISSING, _TOO_LONG, _TOO_SHORT = _FAULTS = (
    "without a translation",
    "longer than every training line",
    "much shorter in translation than usual",
)


class IncompleteTranslations:
    """The lines whose translation is probably incomplete, for one warning at the end.

    Args:
        places: names a line by its number, if it is not a line of the input.

    Attributes:
        copied: how many texts were not translated, because they have no letters of a language.
    """

    def __init__(self, facts: LineFacts, places: Callable[[int], str] | None = None) -> None:
        self._facts, self.places = facts, places
        self._begin()

    def _begin(self) -> None:
        self.copied = 0
        # Line numbers by fault, in order, each once.
        self._lines: dict[str, dict[int, None]] = {fault: {} for fault in _FAULTS}

    def add_missing(self, number: int) -> None:
        """Name a line that has a sentence without a translation."""
        self._lines[_MISSING][number] = None

    def check(self, number: int, source: str, translation: str) -> None:
        """Check a sentence in a line with this number, and its best translation."""
        size = len(visible(source).encode("utf-8", "surrogatepass"))
        if size < LONG_ENOUGH:
            return
        if 0 < self._facts.longest < size:
            self._lines[_TOO_LONG][number] = None
        elif len(translation.encode("utf-8", "surrogatepass")) < self._facts.shortest * size:
            self._lines[_TOO_SHORT][number] = None

    def report(self) -> None:
        """Warn in one line of all that was found, and count copies; then begin again."""
        parts = []
        for fault, numbers in self._lines.items():
            noun, verb = ("line", "is") if len(numbers) == 1 else ("lines", "are")
            name = self.places or "{:,}".format
            named = list(map(name, list(numbers)[:_MAX_NAMED]))
            if len(numbers) > _MAX_NAMED:
                named.append("…")
            if numbers:
                where = ", ".join(named) if self.places else f"{noun} {', '.join(named)}"
                noun = noun.replace("line", "segment") if self.places else noun
                parts.append(f"{len(numbers):,} {noun} {verb} {fault} ({where})")
        if parts:
            log.warning("check the translations: %s", "; ".join(parts))
        if self.copied:
            log.info(
                "copied %s text%s without letters, or with addresses and placeholders only; "
                "--no-copy translates them",
                f"{self.copied:,}",
                "" if self.copied == 1 else "s",
            )
        self._begin()


def place_of(number: int, doubts: IncompleteTranslations | None) -> str:
    """The name of a line for a message."""
    places = None if doubts is None else doubts.places
    return f"line {number}" if places is None else places(number)


def check_sentence(
    sentence: Sentence, best: Translation, doubts: IncompleteTranslations | None
) -> None:
    """Warn if a translation lacks terms, and collect it if it is probably incomplete."""
    # The search had no hypothesis, or the model ended at once or wrote nothing that is seen.
    is_empty = not (best.finished or best.pieces) or not visible(best.text).strip()
    if doubts is not None and sentence.ids and is_empty:
        doubts.add_missing(sentence.line)
    # Lengths of trees say nothing.
    elif doubts is not None and best.repaired is None:
        doubts.check(sentence.line, sentence.text, best.text)
        doubts.copied += not sentence.ids and bool(visible(sentence.text).strip())
    if best.missing:
        log.warning(
            "%s: the translation is without %s, which the glossary demands",
            place_of(sentence.line, doubts),
            ", ".join(map(repr, best.missing)),
        )
