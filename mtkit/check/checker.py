"""Checks pairs of lines: the rules, and what a model knows of its own translation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mtkit.base.errors import MtkitError
from mtkit.check import rules
from mtkit.check.facts import PairFacts
from mtkit.check.findings import KINDS, Finding

if TYPE_CHECKING:
    from mtkit.run_folder import Run

_ORDER = {kind: number for number, kind in enumerate(KINDS)}


@dataclass(frozen=True)
class Decoded:
    """What the decoder knows of a translation.

    Attributes:
        log_probs: of each target subword, natural logarithm.
        finished: False if it ended at the limit of its length.
        truncated: whether the end of the source was not translated.
        missing: terms of the glossary that it lacks.
        unknown: pieces of the source that the vocabulary lacks.
    """

    log_probs: Sequence[float] = ()
    finished: bool = True
    truncated: bool = False
    missing: Sequence[str] = ()
    unknown: Sequence[str] = ()


@dataclass(frozen=True)
class Checked:
    """What was found in a pair.

    Attributes:
        findings: in the order of `KINDS`.
        confidence: a forecast of the chrF of the translation, 0 to 100; None if there is none.
    """

    findings: tuple[Finding, ...]
    confidence: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the findings, and the confidence if there is one."""
        found: dict[str, Any] = {"findings": [one.as_dict() for one in self.findings]}
        if self.confidence is not None:
            found["confidence"] = round(self.confidence, 1)
        return found


class Checker:
    """Checks pairs of two languages; can be sent to other processes.

    Args:
        facts: of the languages and the corpus.
    """

    def __init__(self, facts: PairFacts) -> None:
        self.facts = facts

    def check(self, source: str, translation: str, decoded: Decoded | None = None) -> Checked:
        """The findings for a pair, and its confidence."""
        found = rules.findings(source, translation, self.facts)
        if decoded is not None:
            found += _of_decoder(decoded)
            found.sort(key=lambda one: _ORDER[one.kind])
        return Checked(tuple(found))


def _of_decoder(decoded: Decoded) -> Iterator[Finding]:
    if not decoded.finished:
        yield Finding("cut", "the translation ended at the limit of its length", 0.95)
    if decoded.truncated:
        yield Finding("cut", "the end of the source was not translated", 0.95)
    if decoded.unknown:
        pieces = " ".join(decoded.unknown)
        yield Finding("unknown", f"the vocabulary lacks {pieces}", 0.5)
    if decoded.missing:
        terms = ", ".join(map(repr, decoded.missing))
        yield Finding("glossary", f"the translation is without {terms}", 0.7)


def load_checker(run: Run) -> Checker:
    """The checker of a run.

    Raises:
        MtkitError: if the run has none.
    """
    raise MtkitError(f"{run.path}: has no facts about its corpus; check without --run")
