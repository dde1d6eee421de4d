"""The checks of `mtkit translate`: findings and confidence for each line, and rejected lines."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.errors import MtkitError
from mtkit.cli import options as shared

if TYPE_CHECKING:
    from mtkit.check import Checked, Checker, Counts, FindingTable
    from mtkit.run_folder import Run
    from mtkit.translate import Translation, Translator

log = logging.getLogger(__name__)

checks_option = shared.option_group("Checks")


def _refuse_nan(_: object, __: object, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number between 0 and 100")
    return value


# Of a command that translates.
check_options = shared.together(
    checks_option(
        "--check",
        "is_checked",
        help="Check each translation, and report at the end how many are probably wrong. With"
        " --json, each line also has its confidence and findings.",
    ),
    checks_option(
        "--findings FILE",
        "findings_path",
        help="Write a table of what is probably wrong, worst first: line, kind, severity,"
        " reason, source and translation, tab-separated.",
    ),
    checks_option(
        "--reject BELOW",
        type=click.FloatRange(0, 100),
        callback=_refuse_nan,
        help="Leave the lines empty whose confidence is below this, 0 to 100, and report how"
        " many these are. In HTML and documents, keep the text of the source there.",
    ),
    checks_option(
        "--below N",
        type=click.FloatRange(0, 100),
        callback=_refuse_nan,
        default=50.0,
        help="Mark what has a confidence below this in a document. Default: 50.",
    ),
)


@dataclass
class LineChecks:
    """Checks the lines that are translated.

    Attributes:
        reject: lines with a lower confidence are left empty; None for none.
        places: of a document, where the segments are that have the line with a number.
        table: of the findings, if it is wanted.
        rejected: how many lines were left empty.
        rejected_and_marked: how many of these have a finding.
    """

    checker: Checker
    counts: Counts
    reject: float | None
    table: FindingTable | None
    places: Callable[[int], list[str]] | None = None
    rejected: int = 0
    rejected_and_marked: int = 0
    _checked: list[Checked] = field(default_factory=list)

    def apply(
        self, first_line: int, lines: Sequence[str], hypotheses: list[list[Translation]]
    ) -> list[list[Translation]]:
        """Check the best translation of each line of a window; returns what is left of all."""
        from mtkit.check import decoded_of, sortable_rows

        self._checked, left = [], []
        for number, (line, translations) in enumerate(
            zip(lines, hypotheses, strict=True), first_line
        ):
            best = translations[0]
            checked = self.checker.check(line, best.text, decoded_of(best))
            self._checked.append(checked)
            names = [number] if self.places is None else self.places(number)
            for name in names:
                self.counts.add_pair(checked.findings)
                pair = line, best.text
                if self.table is not None:
                    rows = sortable_rows(checked.findings, pair, number=name, order=number)
                    self.table.add(rows)
            if self._is_rejected(checked):
                self.rejected += len(names)
                self.rejected_and_marked += len(names) * bool(checked.findings)
                translations = [replace(t, text="", parts=()) for t in translations]
            left.append(translations)
        return left

    def as_dict(self, index: int) -> dict[str, Any]:
        """The confidence and the findings of a line of the last window, for JSON."""
        checked = self._checked[index]
        return {**checked.as_dict(), **({"rejected": True} if self._is_rejected(checked) else {})}

    def _is_rejected(self, checked: Checked) -> bool:
        confidence = checked.confidence
        return self.reject is not None and confidence is not None and confidence < self.reject


@contextmanager
def line_checks(
    runs: Sequence[Run],
    translator: Translator,
    *,
    reject: float | None,
    findings_path: Path | None,
    unit: str = "lines",
    places: Callable[[int], list[str]] | None = None,
) -> Iterator[LineChecks]:
    """The checks of a translator; at the end they are reported, and the table is written.

    Args:
        unit: what is checked: lines, or segments, which keep their source if they are rejected.
        places: see `LineChecks`.

    Raises:
        MtkitError: if the run has no facts for it, or no confidence and `reject` is given.
    """
    from mtkit.check import Counts, FindingTable, load_checker, warn_of_checkpoint

    run, is_ensemble = runs[0], len(runs) > 1
    checker = load_checker(run, src_lang=translator.src_lang, tgt_lang=translator.tgt_lang)
    if is_ensemble:
        # The forecast is for the log-probabilities of one run.
        checker.forecast = None
    if checker.forecast is not None:
        warn_of_checkpoint(run, fitted_to=checker.fitted_to, used=translator.checkpoint)
        if translator.config.sample or translator.config.mbr_samples:
            log.warning("the confidence was not fitted to samples, so it may be wrong for these")
    if reject is not None and checker.forecast is None:
        raise MtkitError(
            "an ensemble has no confidence, which --reject needs"
            if is_ensemble
            else f"{run.path}: has no confidence, because it was fitted to too few pairs; --reject "
            f"needs it: mtkit check SRC TGT --fit --run {run.in_command}"
        )
    if findings_path is None:
        checks = LineChecks(checker, Counts(), reject, None, places)
        yield checks
    else:
        with FindingTable(findings_path, line="place" if places else "line") as table:
            checks = LineChecks(checker, Counts(), reject, table, places)
            yield checks
            table.write()
            log.info("wrote %s", findings_path)
    log.info("%s", checks.counts.sentence(unit))
    done, none = "left {} empty", "line"
    if unit != "lines":
        done, none = "kept the source of {}", "segment"
    if reject is not None and not checks.rejected:
        log.info("%s: no confidence is below %g", done.format(f"no {none}"), reject)
    elif reject is not None:
        log.info(
            "%s: confidence below %g; %s of these are marked",
            done.format(f"{checks.rejected:,} of {checks.counts.pairs:,} {unit}"),
            reject,
            f"{checks.rejected_and_marked:,}",
        )
