"""What is said of translations: they lack terms, are probably incomplete, or are copies."""

from __future__ import annotations

import logging

from mtkit.base.invisible import visible
from mtkit.base.sentences import LONG_ENOUGH, LineFacts
from mtkit.translate.requests import Sentence, Translation

log = logging.getLogger(__name__)

# Lines that are named.
_NAMED = 10


class Doubts:
    """The lines whose translation is probably incomplete, for one warning at the end.

    Attributes:
        copied: how many texts were not translated, because they have no letters of a language.
    """

    def __init__(self, facts: LineFacts) -> None:
        self._facts = facts
        self.copied = 0
        # Line numbers, in order, each once.
        self._too_long: dict[int, None] = {}
        self._too_short: dict[int, None] = {}
        self.without: dict[int, None] = {}

    def check(self, number: int, source: str, translation: str) -> None:
        """Check a sentence in a line with this number, and its best translation."""
        size = len(visible(source).encode("utf-8", "surrogatepass"))
        if size < LONG_ENOUGH:
            return
        if 0 < self._facts.longest < size:
            self._too_long[number] = None
        elif len(translation.encode("utf-8", "surrogatepass")) < self._facts.shortest * size:
            self._too_short[number] = None

    def report(self) -> None:
        """Warn in one line of all that was found, and count copies; then begin again."""
        found = []
        for numbers, what in (
            (self.without, "without a translation"),
            (self._too_long, "longer than every training line"),
            (self._too_short, "much shorter in translation than usual"),
        ):
            noun, verb = ("line", "is") if len(numbers) == 1 else ("lines", "are")
            named = [f"{number:,}" for number in list(numbers)[:_NAMED]]
            if len(numbers) > _NAMED:
                named.append("…")
            if numbers:
                found.append(f"{len(numbers):,} {noun} {verb} {what} ({noun} {', '.join(named)})")
        if found:
            log.warning("check the translations: %s", "; ".join(found))
        if self.copied:
            log.info(
                "copied %s text%s without letters, or with addresses and placeholders only; "
                "--no-copy translates them",
                f"{self.copied:,}",
                "" if self.copied == 1 else "s",
            )
        self._too_long, self._too_short, self.without, self.copied = {}, {}, {}, 0


def check_sentence(sentence: Sentence, best: Translation, doubts: Doubts | None) -> None:
    """Warn if a translation lacks terms, and collect it if it is probably incomplete."""
    # A search without a hypothesis.
    if doubts is not None and not (best.finished or best.pieces):
        doubts.without[sentence.line] = None
    # Lengths of trees say nothing.
    elif doubts is not None and best.repaired is None:
        doubts.check(sentence.line, sentence.text, best.text)
        doubts.copied += not sentence.ids and bool(sentence.text.strip())
    if best.missing:
        log.warning(
            "line %d: the translation is without %s, which the glossary demands",
            sentence.line,
            ", ".join(map(repr, best.missing)),
        )
