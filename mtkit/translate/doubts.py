"""Warnings about lines without a translation, incomplete ones and missing terms; counts copies."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mtkit.base import files
from mtkit.base.errors import in_words
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


class Doubts(files.Record):
    """How many texts were copied, and line numbers by what may be wrong, of one window."""

    copied: int
    lines: dict[str, list[int]]


class IncompleteTranslations:
    """The lines whose translation is probably incomplete, for one warning at the end.

    Of a document, `places` says where the segments are that have the line with a number. Copied are
    texts that have no letters of a language.
    """

    def __init__(self, facts: LineFacts, places: Callable[[int], list[str]] | None = None) -> None:
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
            named = [f"{number:,}" for number in numbers]
            if self.places:
                named = [place for number in numbers for place in self.places(number)]
            unit = "segment" if self.places else "line"
            noun, verb = (unit, "is") if len(named) == 1 else (f"{unit}s", "are")
            where = ", ".join(named[:_MAX_NAMED] + ["…"] * (len(named) > _MAX_NAMED))
            if numbers:
                where = where if self.places else f"{noun} {where}"
                parts.append(f"{len(named):,} {noun} {verb} {fault} ({where})")
        if parts:
            log.warning("check the translations: %s", "; ".join(parts))
        if self.copied:
            log.info(
                "copied %s without letters, or with addresses and placeholders only; "
                "--no-copy translates them",
                in_words(self.copied, "text"),
            )
        self._begin()

    def take(self) -> Doubts:
        """What was found since the last call; then begin again."""
        lines = {fault: list(numbers) for fault, numbers in self._lines.items()}
        doubts = Doubts(copied=self.copied, lines=lines)
        self._begin()
        return doubts

    def add(self, doubts: Doubts) -> None:
        """Add what was taken, in this start or an earlier one."""
        self.copied += doubts.copied
        for fault, numbers in doubts.lines.items():
            self._lines.setdefault(fault, {}).update(dict.fromkeys(numbers))


def place_of(number: int, doubts: IncompleteTranslations | None) -> str:
    """The name of a line for a message."""
    if doubts is None or doubts.places is None:
        return f"line {number}"
    place, *others = doubts.places(number)
    return f"{place} and {len(others):,} more" if others else place


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
