"""The confidence and the findings of a text, as `mtkit translate --check` finds them in lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from mtkit.check import Checker, Finding, decoded_of
from mtkit.serve.texts import TranslatedText


class CheckedText(NamedTuple):
    """What was found in the translation of a text.

    The confidence is the lowest of its lines; None if no line was translated. The characters of a
    finding are those of the whole text.
    """

    confidence: float | None
    findings: list[Finding]


def check_texts(checker: Checker, texts: Sequence[TranslatedText]) -> list[CheckedText]:
    """Check the translation of each text, line by line."""
    return [_check_text(checker, text) for text in texts]


def _check_text(checker: Checker, text: TranslatedText) -> CheckedText:
    confidences, findings = [], []
    for line in text.lines:
        translation = line.translation
        checked = checker.check(line.source, translation.text, decoded_of(translation))
        if checked.confidence is not None:
            confidences.append(checked.confidence)
        findings += [
            replace(
                one,
                src=_moved(one.src, line.source_start),
                tgt=_moved(one.tgt, line.target_start),
            )
            for one in checked.findings
        ]
    return CheckedText(min(confidences, default=None), findings)


def _moved(span: range | None, by: int) -> range | None:
    return None if span is None else range(span.start + by, span.stop + by)
