"""The translators of a server, by their directions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial

from mtkit.base.errors import MtkitError
from mtkit.check import Checker, InputLanguage, RunChecks, warn_of_checkpoint
from mtkit.run_folder import Run
from mtkit.serve.languages import public_code
from mtkit.translate import Translator

log = logging.getLogger(__name__)

Direction = tuple[str, str]
# Of a run, the translator from one language to another.
Loader = Callable[[Run, str | None, str | None], Translator]


class Directions:
    """Translators by source and target language, in public codes (`languages.public_code`).

    `load` gives that of a run, for two languages if it has several. `checkers` has what
    `load_checker` has loaded. MtkitError if a run is a parser, does not say its languages, or has a
    direction that an earlier one has.
    """

    def __init__(self, runs: Sequence[Run], load: Loader) -> None:
        self._translators: dict[Direction, Translator] = {}
        # The same, but none splits lines into sentences.
        self._unsplit: dict[Direction, Translator] = {}
        self._runs: dict[Direction, Run] = {}
        self.checkers: dict[Direction, Checker] = {}
        self._loaders: dict[Direction, Callable[[], Checker]] = {}
        self.threads = 1
        self.engines: list[str] = []
        for run in runs:
            translators = _translators_of(run, load)
            checks = _checks_of(run, translators[0])
            for translator in translators:
                pair = public_code(translator.src_lang), public_code(translator.tgt_lang)
                if other := self._runs.get(pair):
                    what = f"both translate {' to '.join(pair)}; give one of them"
                    raise MtkitError(f"--run: {other.path} and {run.path} {what}")
                self._runs[pair] = run
                self._translators[pair] = translator
                whole = translator.config.model_copy(update={"split_sentences": False})
                self._unsplit[pair] = translator.variant(config=whole)
                languages = translator.src_lang, translator.tgt_lang
                if checks and (known := checks.direction(*languages)):
                    self._loaders[pair] = partial(checks.checker, run, known)
                self.threads = max(self.threads, translator.decoder.threads)
                if translator.engine not in self.engines:
                    self.engines.append(translator.engine)

    def __iter__(self) -> Iterator[Direction]:
        return iter(self._translators)

    def find(self, source: str, target: str, *, splits: bool = True) -> Translator | None:
        """The translator of a direction, if there is one."""
        return (self._translators if splits else self._unsplit).get((source, target))

    def wrong_language(self, pair: Direction, lines: Iterable[str]) -> str:
        """Which language many lines are in instead of the source of a direction, or nothing."""
        if (translator := self.find(*pair)) is None:
            return ""
        language = InputLanguage(self._runs[pair].path, translator.src_lang, translator.tgt_lang)
        for _ in language.read(lines):
            pass
        return language.sentence()

    @property
    def checked(self) -> list[Direction]:
        """The directions whose translations can be checked."""
        return list(self._loaders)

    def load_checker(self, pair: Direction) -> None:
        """Load what checks the translations of a direction, unless that was done or has failed.

        A failure is logged and remembered, because clients may ask again and again.
        """
        if pair in self._loaders and pair not in self.checkers:
            try:
                self.checkers[pair] = self._loaders[pair]()
            except MtkitError as error:
                log.warning("translations from %s to %s are not checked: %s", *pair, error)
                del self._loaders[pair]

    @cached_property
    def sources(self) -> list[str]:
        """The languages to translate from."""
        return list(self._targets)

    @property
    def beam_size(self) -> int:
        """The smallest beam: a request for more translations has another best one."""
        return min(translator.config.beam_size for translator in self._translators.values())

    @cached_property
    def languages(self) -> list[str]:
        """All languages, sorted."""
        return sorted({code for pair in self._translators for code in pair})

    def targets(self, source: str = "") -> list[str]:
        """The languages to translate one into, or any, sorted."""
        if source:
            return sorted(self._targets.get(source, ()))
        return sorted(set().union(*self._targets.values()))

    @cached_property
    def _targets(self) -> dict[str, set[str]]:
        """The targets of each source; a run may have thousands of directions."""
        targets: dict[str, set[str]] = {}
        for source, target in self._translators:
            targets.setdefault(source, set()).add(target)
        return targets


def _checks_of(run: Run, translator: Translator) -> RunChecks | None:
    """What a run knows of its translations; a server can do without it if files are damaged."""
    try:
        checks = RunChecks.load(run.path)
        if checks is not None and any(direction.coverage for direction in checks.directions):
            checks.check_lexicon(run.path)
    except MtkitError as error:
        log.warning("translations are not checked: %s", error)
        return None
    if checks is not None and any(direction.forecast for direction in checks.directions):
        warn_of_checkpoint(run, fitted_to=checks.checkpoint, used=translator.checkpoint)
    return checks


def _translators_of(run: Run, load: Loader) -> list[Translator]:
    """A translator for each direction of a run; they share the weights."""
    data = run.manifest.data
    if data.task == "parsing":
        raise MtkitError(f"{run.path}: is a parser; serve is for translations")
    vocabularies = run.tokenizers()
    tags = list(vocabularies.src.language_tags)
    has_both = vocabularies.has_tags_on_both_sides
    pairs = [(direction.src_lang, direction.tgt_lang) for direction in data.directions]
    if not pairs:
        # An imported model does not say which directions it was trained on.
        sources = tags if has_both else [data.src_lang]
        pairs = [(src, tag) for tag in tags for src in sources if src != tag]
    src_lang, tgt_lang = pairs[0] if has_both else (None, tags[0] if tags else None)
    first = load(run, src_lang, tgt_lang)
    first.decoder.try_weights()
    if not tags:
        pairs = [(first.src_lang, first.tgt_lang)]
    if not all(map(all, pairs)):
        advice = "import it again, with --src-lang and --tgt-lang"
        raise MtkitError(f"{run.path}: does not say its languages; {advice}")
    return [first.variant(src_lang=source, tgt_lang=target) for source, target in pairs]
