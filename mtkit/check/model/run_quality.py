"""What a run knows about its languages and its own translations: `confidence.json`.

It is written when training ends, and by `mtkit check --fit`. Beside it lie the lexicon and
training pairs.
"""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from mtkit.base.errors import MtkitError
from mtkit.base.files import Record, read_record, sha256_of, write_record
from mtkit.check.checker import Checker
from mtkit.check.model.confidence import Forecast
from mtkit.check.model.coverage import Coverage, CoverageSettings
from mtkit.check.model.examples import Examples
from mtkit.check.model.lexicon import Lexicon, load_rows, save_rows
from mtkit.check.rules import limits
from mtkit.check.rules.facts import PairFacts
from mtkit.run_folder import CONFIDENCE, EXAMPLES, LEXICON, Run
from mtkit.translate import known_code

log = logging.getLogger(__name__)

_ADVICE = "run mtkit check --fit again, or delete it"


class DirectionChecks(Record):
    """What is known of a direction; coverage and forecast are None if there were too few pairs.

    `thorough` forecasts translations with samples beside them, and `with_examples` with training
    pairs too; both are None in older files.
    """

    facts: PairFacts
    coverage: CoverageSettings | None
    forecast: Forecast | None
    thorough: Forecast | None = None
    with_examples: Forecast | None = None

    @property
    def languages(self) -> tuple[str, str]:
        """The source language and the target language."""
        return self.facts.src_lang, self.facts.tgt_lang


class RunChecks(Record):
    """The content of `confidence.json`.

    It names the checkpoint that it was fitted to, and has the checksums of the files beside it.
    """

    checkpoint: str
    lexicon: str
    examples: str = ""
    directions: list[DirectionChecks]

    @classmethod
    def load(cls, run: Path) -> RunChecks | None:
        """That of a run folder; None if it has none.

        Raises:
            MtkitError: if it is damaged.
        """
        path = run / CONFIDENCE
        return read_record(path, cls, advice=_ADVICE) if path.exists() else None

    def copy_files(self, source: Path, target: Path, *, checkpoint: str) -> None:
        """Write them into another run folder, with a checkpoint of the same weights.

        The training pairs stay where they are, because a copy may be given to others.

        Raises:
            MtkitError: if the lexicon is missing or was changed.
        """
        self.check_lexicon(source)
        shutil.copyfile(source / LEXICON, target / LEXICON)
        write_record(target / CONFIDENCE, self.model_copy(update={"checkpoint": checkpoint}))

    def direction(self, src_lang: str, tgt_lang: str) -> DirectionChecks | None:
        """What is known of a direction; the target language decides if it is the only one."""
        for direction in self.directions:
            if direction.languages == (src_lang, tgt_lang):
                return direction
        same = [direction for direction in self.directions if direction.facts.tgt_lang == tgt_lang]
        return same[0] if len(same) == 1 else None

    def check_lexicon(self, run: Path) -> None:
        """See whether a run folder has the lexicon that belongs to this.

        Raises:
            MtkitError: if it is missing or was changed.
        """
        _check_file(run / LEXICON, self.lexicon)

    def checker(self, run: Run, direction: DirectionChecks, *, thorough: bool = False) -> Checker:
        """The checker of one of the directions.

        Raises:
            MtkitError: if the lexicon is missing, or if it or the training pairs were changed.
        """
        alphabet = run.tokenizers().src.characters
        coverage = None
        if direction.coverage is not None:
            self.check_lexicon(run.path)
            rows = load_rows(run.path / LEXICON, direction.facts.tgt_lang)
            coverage = Coverage(Lexicon.of_rows(rows), direction.coverage)
        examples, forecast = run.path / EXAMPLES, direction.thorough
        has_examples = thorough and direction.with_examples is not None and examples.exists()
        if has_examples:
            _check_file(examples, self.examples, more=", or delete it")
            forecast = direction.with_examples
        elif thorough:
            log.info("no training pairs are compared with: %s is missing", examples)
        return Checker(
            direction.facts,
            coverage=coverage,
            forecast=direction.forecast,
            thorough=forecast,
            alphabet=alphabet,
            fitted_to=self.checkpoint,
            examples=examples if has_examples else None,
        )


def _check_file(path: Path, checksum: str, *, more: str = "") -> None:
    if not path.is_file() or sha256_of(path) != checksum:
        raise MtkitError(
            f"{path}: is missing, or was changed since it was written; run mtkit check --fit "
            f"--run {shlex.quote(str(path.parent))}{more}"
        )


def save_checks(
    run: Path,
    lexicons: Mapping[str, Lexicon],
    examples: Mapping[str, Examples],
    *,
    checkpoint: str,
    directions: list[DirectionChecks],
) -> RunChecks:
    """Write the files into a run folder: first the words and pairs of each target language."""
    # Files that do not belong together are refused, so this one goes first and is written last.
    (run / CONFIDENCE).unlink(missing_ok=True)
    save_rows(run / LEXICON, {language: words.rows() for language, words in lexicons.items()})
    save_rows(run / EXAMPLES, {language: pairs.rows() for language, pairs in examples.items()})
    checks = RunChecks(
        checkpoint=checkpoint,
        lexicon=sha256_of(run / LEXICON),
        examples=sha256_of(run / EXAMPLES),
        directions=directions,
    )
    write_record(run / CONFIDENCE, checks)
    return checks


def warn_of_checkpoint(run: Run, *, fitted_to: str, used: str) -> None:
    """Warn if the confidence was fitted to another checkpoint than the one in use."""
    if fitted_to != used:
        log.warning(
            "%s: the confidence was fitted to %s, and %s is used; to fit it again: %s",
            *(run.path, fitted_to, used, fit_command(run)),
        )


def no_forecast(run: Run, src_lang: str, tgt_lang: str, option: str) -> MtkitError:
    """The error of an option that needs a forecast, where there were too few pairs to fit one."""
    checks = RunChecks.load(run.path)
    if checks is not None and len(checks.directions) > 1:
        # To fit to files would lose the other directions.
        advice = (
            f"leave it out, or train with {limits.MIN_FITTED} validation pairs or more of these"
        )
    else:
        advice = fit_command(run, src_lang, tgt_lang, with_files=True)
    return MtkitError(
        f"{run.path}: has no confidence for {src_lang} to {tgt_lang}, because it was fitted to too "
        f"few pairs; {option} needs it: {advice}"
    )


def fit_command(
    run: Run, src_lang: str = "", tgt_lang: str = "", *, with_files: bool = False
) -> str:
    """The command that fits the checks of a run to its data, or to files if it has none."""
    if run.manifest.imported is None and not with_files:
        return f"mtkit check --fit --run {run.in_command}"
    command = f"mtkit check SRC TGT --fit --run {run.in_command}"
    if run.tokenizers().src.language_tags:
        command += f" --src-lang {src_lang or 'L'} --tgt-lang {tgt_lang or 'L'}"
    return command


def load_checker(
    run: Run, *, src_lang: str = "", tgt_lang: str = "", thorough: bool = False
) -> Checker:
    """The checker of a run; the languages are needed if it has several directions.

    Raises:
        MtkitError: if the run has none, or none for a thorough check; or the files are damaged.
    """
    checks = RunChecks.load(run.path)
    if checks is None:
        raise MtkitError(
            f"{run.path}: has no {CONFIDENCE}, which training writes at its end; to make it now: "
            f"{fit_command(run, src_lang, tgt_lang)}"
        )
    data, pairs = run.manifest.data, [direction.languages for direction in checks.directions]
    source = known_code(src_lang or data.src_lang, {pair[0] for pair in pairs})
    target = known_code(tgt_lang or data.tgt_lang, {pair[1] for pair in pairs})
    direction = checks.direction(source, target)
    if direction is None and len(checks.directions) == 1 and not (src_lang or tgt_lang):
        direction = checks.directions[0]
    if direction is None:
        known = ", ".join(map(" to ".join, pairs))
        given = " to ".join(filter(None, (src_lang, tgt_lang)))
        what = f", and not for {given}; give another of" if given else "; choose one with"
        raise MtkitError(f"{run.path}: {CONFIDENCE} is for {known}{what} --src-lang and --tgt-lang")
    if thorough and direction.forecast is None:
        raise no_forecast(run, *direction.languages, "--thorough")
    if thorough and direction.thorough is None:
        raise MtkitError(
            f"{run.path}: has no confidence fitted with samples, which --thorough needs; fit it "
            f"again: {fit_command(run, src_lang, tgt_lang)}"
        )
    return checks.checker(run, direction, thorough=thorough)
