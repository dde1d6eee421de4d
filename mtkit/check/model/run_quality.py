"""What a run knows about its languages and its own translations: `confidence.json`.

It is written when training ends, and by `mtkit check --fit`. Beside it lies the lexicon.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from mtkit.base.errors import MtkitError
from mtkit.base.files import Record, read_record, sha256_of, write_record
from mtkit.check.checker import Checker
from mtkit.check.model.confidence import Forecast
from mtkit.check.model.coverage import Coverage, CoverageSettings
from mtkit.check.model.lexicon import Lexicon, load_lexicon, save_lexicons
from mtkit.check.rules.facts import PairFacts
from mtkit.run_folder import CONFIDENCE, LEXICON, Run
from mtkit.translate import known_code

log = logging.getLogger(__name__)

_ADVICE = "run mtkit check --fit again, or delete it"


class DirectionChecks(Record):
    """What is known of a direction; coverage and forecast are None if there were too few pairs.

    `thorough` forecasts translations with samples beside them; None in older files too.
    """

    facts: PairFacts
    coverage: CoverageSettings | None
    forecast: Forecast | None
    thorough: Forecast | None = None

    @property
    def languages(self) -> tuple[str, str]:
        """The source language and the target language."""
        return self.facts.src_lang, self.facts.tgt_lang


class RunChecks(Record):
    """The content of `confidence.json`.

    It names the checkpoint that it was fitted to, and has the checksum of the lexicon.
    """

    checkpoint: str
    lexicon: str
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
        path = run / LEXICON
        if not path.is_file() or sha256_of(path) != self.lexicon:
            raise MtkitError(
                f"{path}: is missing, or was changed since it was written; run mtkit check --fit"
            )

    def checker(self, run: Run, direction: DirectionChecks) -> Checker:
        """The checker of one of the directions.

        Raises:
            MtkitError: if the lexicon is missing or was changed.
        """
        alphabet = run.tokenizers().src.characters
        coverage = None
        if direction.coverage is not None:
            self.check_lexicon(run.path)
            lexicon = load_lexicon(run.path / LEXICON, direction.facts.tgt_lang)
            coverage = Coverage(lexicon, direction.coverage)
        return Checker(
            direction.facts,
            coverage=coverage,
            forecast=direction.forecast,
            thorough=direction.thorough,
            alphabet=alphabet,
            fitted_to=self.checkpoint,
        )


def save_checks(
    run: Path,
    lexicons: Mapping[str, Lexicon],
    *,
    checkpoint: str,
    directions: list[DirectionChecks],
) -> RunChecks:
    """Write both files into a run folder, first the lexicon of each target language."""
    # Files that do not belong together are refused, so this one goes first and is written last.
    (run / CONFIDENCE).unlink(missing_ok=True)
    save_lexicons(run / LEXICON, lexicons)
    checks = RunChecks(
        checkpoint=checkpoint, lexicon=sha256_of(run / LEXICON), directions=directions
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
    if thorough and direction.thorough is None:
        raise MtkitError(
            f"{run.path}: has no confidence fitted with samples, which --thorough needs; fit it "
            f"again: {fit_command(run, src_lang, tgt_lang)}"
        )
    return checks.checker(run, direction)
