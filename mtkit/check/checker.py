"""Checks pairs of lines: the rules, and what a model knows of its own translation."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from mtkit.base.invisible import bounds_in
from mtkit.check.model.confidence import Forecast, features_of
from mtkit.check.model.coverage import Contrast, Coverage, PairCoverage
from mtkit.check.rules import limits, rules
from mtkit.check.rules.facts import PairFacts, missing_mark
from mtkit.check.rules.findings import KINDS, Finding
from mtkit.check.rules.marks import Text

_NO_TRANSLATION = {"copied", "language"}
# What lowers the confidence: the model itself may find a loop or a copy probable.
_SURE = {"loop", "copied", "language", "length", "cut"}
_ORDER = {kind: number for number, kind in enumerate(KINDS)}


class Covered(NamedTuple):
    """Both sides of a pair, and their coverage if there is a lexicon."""

    src: Text
    tgt: Text
    pair: PairCoverage | None


@dataclass(frozen=True)
class Decoded:
    """What the decoder knows of a translation.

    Attributes:
        log_probs: of each target subword, natural logarithm.
        finished: False if it ended at the limit of its length.
        truncated: whether the end of the source was not translated.
        missing: terms of the glossary that it lacks.
        of_samples: the features of samples and of training pairs, if samples were drawn.
        contrast: what the model says without a part of the source, if it was asked.
        covered: what `Checker.cover` gave for the pair, if it was asked before.
    """

    log_probs: Sequence[float] = ()
    finished: bool = True
    truncated: bool = False
    missing: Sequence[str] = ()
    of_samples: Sequence[float] = ()
    contrast: Contrast | None = None
    covered: Covered | None = None


@dataclass(frozen=True)
class Checked:
    """The findings for a pair by `KINDS`, its forecast of chrF, and sentences about a text."""

    findings: tuple[Finding, ...]
    confidence: float | None = None
    verdict: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the findings, and the confidence if there is one."""
        result: dict[str, Any] = {"findings": [finding.as_dict() for finding in self.findings]}
        if self.confidence is not None:
            result["confidence"] = round(self.confidence, 1)
        return result


@dataclass
class Checker:
    """Checks pairs of two languages; can be sent to other processes.

    A run adds the rest: the coverage finds omissions and additions; the forecasts are for
    translations, and for those with samples; `alphabet` has the characters of the vocabulary, or
    is empty if it has all; `fitted_to` names the checkpoint that the forecast was fitted to, and
    `examples` the file of training pairs that the thorough forecast needs, if it needs one.
    """

    facts: PairFacts
    _: KW_ONLY
    coverage: Coverage | None = None
    forecast: Forecast | None = None
    thorough: Forecast | None = None
    alphabet: frozenset[str] = frozenset()
    fitted_to: str = ""
    examples: Path | None = None

    def check(self, source: str, translation: str, decoded: Decoded | None = None) -> Checked:
        """The findings for a pair, about characters as they were given, and its confidence."""
        known = None if decoded is None else decoded.covered
        src, tgt, pair = known or self.cover(source, translation)
        # The lexicon of a run knows more words of the language than the facts do.
        is_known = pair is not None and pair.tgt.new < limits.MAX_NEW_IDENTIFIED
        findings = rules.findings(src, tgt, self.facts, knows_words=is_known)
        contrast = None if decoded is None else decoded.contrast
        if decoded is not None:
            is_probable = contrast is not None and contrast.last > limits.MIN_MARK_LOG_PROB
            if is_probable and missing_mark(src.raw, tgt.raw):
                # Where the model finds the missing mark probable, the rest is there.
                findings = [finding for finding in findings if finding.kind != "cut"]
            findings += _of_decoder(decoded)
        if self.alphabet and not self.alphabet.issuperset(src.raw.replace(" ", "")):
            findings += self._unknown(src, tgt)
        confidence = None
        if self.coverage is not None and pair is not None:
            # Of a text that is not a translation at all, more need not be said.
            if not any(finding.kind in _NO_TRANSLATION for finding in findings):
                findings += self.coverage.findings(src, tgt, pair, contrast)
            if self.forecast is not None and decoded is not None and decoded.log_probs:
                confidence = self._confidence(decoded, pair, findings)
        if (src.raw, tgt.raw) != (source, translation):
            bounds = bounds_in(source, src.raw), bounds_in(translation, tgt.raw)
            findings = [
                replace(f, src=_moved(f.src, bounds[0]), tgt=_moved(f.tgt, bounds[1]))
                for f in findings
            ]
        findings.sort(key=lambda finding: _ORDER[finding.kind])
        return Checked(tuple(findings), confidence)

    def cover(self, source: str, translation: str) -> Covered:
        """The texts of a pair without invisible characters, and their coverage."""
        src, tgt = self.facts.texts(source, translation)
        return Covered(src, tgt, None if self.coverage is None else self.coverage.of(src, tgt))

    def _confidence(
        self, decoded: Decoded, pair: PairCoverage, findings: Sequence[Finding]
    ) -> float | None:
        """The forecast. With a sure finding, it is at most what the worst tenth has."""
        of_samples = decoded.of_samples if self.thorough else ()
        forecast = self.thorough if of_samples else self.forecast
        if forecast is None:
            return None
        confidence = forecast.of([*features_of(decoded.log_probs, pair), *of_samples])
        if any(finding.kind in _SURE for finding in findings):
            confidence = min(confidence, forecast.quality.tenths[0].chrf)
        return confidence

    def _unknown(self, source: Text, translation: Text) -> Iterator[Finding]:
        """The characters that the vocabulary lacks in its normal form, but for those of tags.

        A character that is in the translation too is not lost, so it is left out.
        """
        copied = set(unicodedata.normalize("NFKC", translation.plain))
        lacking = [
            character
            for character in dict.fromkeys(unicodedata.normalize("NFKC", source.plain))
            if character not in self.alphabet
            and character not in copied
            and unicodedata.category(character)[0] in "LMNPS"
        ]
        if lacking:
            start = source.plain.find(lacking[0])
            more = " …" if len(lacking) > limits.MAX_SHOWN_SIGNS else ""
            shown = " ".join(lacking[: limits.MAX_SHOWN_SIGNS]) + more
            span = range(start, start + 1) if start >= 0 else None
            yield Finding("unknown", f"the vocabulary lacks {shown}", 0.5, src=span)


def _moved(span: range | None, bounds: Sequence[int]) -> range | None:
    return span and range(bounds[span.start], bounds[span.stop])


def _of_decoder(decoded: Decoded) -> Iterator[Finding]:
    if not decoded.finished:
        yield Finding("cut", "the translation ended at the limit of its length", 0.95)
    if decoded.truncated:
        yield Finding("cut", "the end of the source was not translated", 0.95)
    if decoded.missing:
        terms = ", ".join(map(repr, decoded.missing))
        yield Finding("glossary", f"the translation is without {terms}", 0.7)
