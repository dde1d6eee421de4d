"""The checks of `mtkit translate`: findings and confidence for each line, and rejected lines."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mtkit.base.errors import MtkitError, in_words
from mtkit.cli import options as shared

if TYPE_CHECKING:
    from mtkit.check import Checked, Checker, Counts, FindingTable, Prober, Verdict
    from mtkit.run_folder import Run
    from mtkit.translate import Translation, Translator

log = logging.getLogger(__name__)

checks_option = shared.option_group("Checks")


def _refuse_nan(_: object, __: object, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number between 0 and 100")
    return value


def _kinds(_: object, __: object, value: str | None) -> frozenset[str]:
    from mtkit.check import KINDS

    kinds = frozenset() if value is None else frozenset(value.replace(" ", "").split(","))
    if unknown := sorted(kinds - KINDS.keys()):
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(KINDS)}")
    return kinds


below_option = checks_option(
    "--below N",
    type=click.FloatRange(0, 100),
    callback=_refuse_nan,
    default=50.0,
    help="Count the lines with a confidence below this. Default: 50.",
)
thorough_option = checks_option(
    "--thorough",
    help="Compute the confidence also from four samples of each line, and from training"
    " pairs like it, so that it is more exact. Translating then takes almost three times as"
    " long.",
)
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
        " many these are. Above 50, --below is as high. In HTML and documents, these texts stay.",
    ),
    checks_option(
        "--reject-findings KIND,...",
        "reject_kinds",
        callback=_kinds,
        help="Leave the lines empty, too, that have a finding of these kinds, such as loop,copied.",
    ),
    below_option,
    thorough_option,
)


@dataclass(frozen=True)
class CheckOptions:
    """The values of `check_options`."""

    is_checked: bool
    findings_path: Path | None
    reject: float | None
    reject_kinds: frozenset[str]
    below: float
    thorough: bool

    def rejects(self, checked: Checked) -> bool:
        """Whether a line is left empty."""
        confidence = checked.confidence
        is_low = self.reject is not None and confidence is not None and confidence < self.reject
        return is_low or any(finding.kind in self.reject_kinds for finding in checked.findings)

    @property
    def in_words(self) -> str:
        """All that the output depends on; a resumed run must have the same."""
        kinds = f", {' '.join(sorted(self.reject_kinds))}" if self.reject_kinds else ""
        return f"below {self.reject}{kinds}{', thorough' if self.thorough else ''}"


@dataclass
class LineChecks:
    """Checks the lines that are translated.

    Of a document, `places` says where the segments are that have the line with a number. How many
    lines were left empty is in `rejected`, and how many of these have a finding.
    """

    options: CheckOptions
    checker: Checker
    counts: Counts
    verdict: Verdict
    prober: Prober
    table: FindingTable | None = None
    places: Callable[[int], list[str]] | None = None
    rejected: int = 0
    rejected_and_marked: int = 0
    _checked: list[Checked] = field(default_factory=list)

    def apply(
        self, first_line: int, lines: Sequence[str], hypotheses: list[list[Translation]]
    ) -> list[list[Translation]]:
        """Check the best translation of each line of a window; returns what is left of all."""
        from mtkit.check import sortable_rows

        self._checked, left = [], []
        decoded = self.prober.decoded(lines, [best for best, *_ in hypotheses])
        of_lines = zip(lines, hypotheses, decoded, strict=True)
        for number, (line, translations, of_line) in enumerate(of_lines, first_line):
            best = translations[0]
            checked = self.checker.check(line, best.text, of_line)
            self._checked.append(checked)
            names = [number] if self.places is None else self.places(number)
            for name in names:
                self.counts.add_pair(checked.findings)
                self.verdict.add(checked.confidence)
                pair = line, best.text
                if self.table is not None:
                    rows = sortable_rows(checked.findings, pair, number=name, order=number)
                    self.table.add(rows)
            if self.options.rejects(checked):
                self.rejected += len(names)
                self.rejected_and_marked += len(names) * bool(checked.findings)
                translations = [replace(t, text="", parts=()) for t in translations]
            left.append(translations)
        return left

    def as_dict(self, index: int) -> dict[str, Any]:
        """The confidence and the findings of a line of the last window, for JSON."""
        checked = self._checked[index]
        rejected = {"rejected": True} if self.options.rejects(checked) else {}
        return checked.as_dict() | rejected


@contextmanager
def line_checks(
    runs: Sequence[Run],
    translator: Translator,
    options: CheckOptions,
    *,
    unit: str = "lines",
    places: Callable[[int], list[str]] | None = None,
) -> Iterator[LineChecks]:
    """The checks of a translator; at the end they are reported, and the table is written.

    Raises:
        MtkitError: if the run has no facts for it, or no confidence that an option needs.
    """
    from mtkit.check import (
        Counts,
        FindingTable,
        Prober,
        Verdict,
        load_checker,
        no_forecast,
        warn_of_checkpoint,
    )

    run, is_ensemble, thorough = runs[0], len(runs) > 1, options.thorough
    languages = {"src_lang": translator.src_lang, "tgt_lang": translator.tgt_lang}
    checker = load_checker(run, **languages, thorough=thorough and not is_ensemble)
    if is_ensemble:
        # The forecast is for the log-probabilities of one run.
        checker.forecast = None
    if checker.forecast is not None:
        warn_of_checkpoint(run, fitted_to=checker.fitted_to, used=translator.checkpoint)
        if translator.config.sample or translator.config.mbr_samples:
            log.warning("the confidence was not fitted to samples, so it may be wrong for these")
    wanting = "--reject" if options.reject is not None else "--thorough" if thorough else None
    if wanting is not None and checker.forecast is None:
        if is_ensemble:
            raise MtkitError(f"an ensemble has no confidence, which {wanting} needs")
        raise no_forecast(run, checker.facts.src_lang, checker.facts.tgt_lang, wanting)
    verdict = Verdict(options.below, checker.thorough if thorough else checker.forecast)
    with ExitStack() as stack:
        prober = stack.enter_context(
            Prober(translator, checker, with_samples=thorough, of_own=True)
        )
        table = None
        if options.findings_path is not None:
            table = FindingTable(options.findings_path, line="place" if places else "line")
            stack.enter_context(table)
        checks = LineChecks(options, checker, Counts(), verdict, prober, table, places)
        yield checks
        if table is not None:
            table.write()
            log.info("wrote %s", options.findings_path)
    if checker.facts.silence:
        log.info("%s", checker.facts.silence)
    log.info("%s", checks.counts.sentence(unit))
    report_verdict(verdict, unit)
    conditions = []
    if options.reject is not None:
        conditions.append(f"confidence below {options.reject:g}")
    if options.reject_kinds:
        conditions.append(f"finding {', '.join(sorted(options.reject_kinds))}")
    if not conditions:
        return
    count = f"{checks.rejected:,} of {in_words(checks.counts.pairs, unit[:-1])}"
    log.info(
        "%s: %s; %s of these %s marked",
        f"left {count} empty" if unit == "lines" else f"rejected {count}",
        " or ".join(conditions),
        f"{checks.rejected_and_marked:,}",
        "is" if checks.rejected_and_marked == 1 else "are",
    )


def report_verdict(verdict: Verdict, unit: str = "lines") -> None:
    """Say what the forecasts of a text say of it; a warning if it is another kind of text."""
    from mtkit.check import FOREIGN

    for sentence in verdict.sentences(unit):
        log.log(logging.WARNING if sentence == FOREIGN else logging.INFO, "%s", sentence)
