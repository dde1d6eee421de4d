"""The confidence and the findings of a text, as `mtkit translate --check` finds them in lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from mtkit.check import Checked, Checker, Verdict, decoded_of
from mtkit.serve.scheduler import Scheduler
from mtkit.serve.texts import LinePair, TranslatedText, in_parts

# About how many characters are checked at a time. Then another request may have its turn, and the
# rest is dropped if the client has gone.
_CHARACTERS = 8000
# Each line costs as much time as this number of further characters.
_LINE = 160


async def check_texts(
    scheduler: Scheduler, checker: Checker, texts: Sequence[TranslatedText], *, below: float
) -> list[Checked]:
    """Check the translation of each text, line by line.

    The confidence is the lowest of its lines; None if no line was translated. The characters of a
    finding are those of the whole text. The verdict is of all texts, with the lines below a limit.
    """
    checked = list[Checked]()
    lines_of_all = [line for text in texts for line in text.lines]
    work = [_LINE + len(line.source) + len(line.translation.text) for line in lines_of_all]
    for lines in in_parts(lines_of_all, work, _CHARACTERS):
        checked += await scheduler.in_thread("check", _check_lines, checker, lines)
    verdict = Verdict(below, checker.forecast)
    for line in checked:
        verdict.add(line.confidence)
    # The mean of one line is its own.
    sentences = tuple(verdict.sentences()[verdict.lines == 1 :])
    left = iter(checked)
    return [_joined(list(islice(left, len(text.lines))), sentences) for text in texts]


def _check_lines(checker: Checker, lines: Sequence[LinePair]) -> list[Checked]:
    all_checked = []
    for source, source_start, translation, target_start in lines:
        checked = checker.check(source, translation.text, decoded_of(translation))
        findings = (
            replace(f, src=_moved(f.src, source_start), tgt=_moved(f.tgt, target_start))
            for f in checked.findings
        )
        all_checked.append(replace(checked, findings=tuple(findings)))
    return all_checked


def _joined(lines: Sequence[Checked], sentences: tuple[str, ...]) -> Checked:
    """What was found in a text, from what was found in its lines."""
    confidences = (line.confidence for line in lines if line.confidence is not None)
    findings = tuple(finding for line in lines for finding in line.findings)
    return Checked(findings, min(confidences, default=None), sentences)


def _moved(span: range | None, by: int) -> range | None:
    return None if span is None else range(span.start + by, span.stop + by)
