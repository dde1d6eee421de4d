"""Whether a text as a whole is in the language that it should be in."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mtkit.base import language_id
from mtkit.check.model.run_quality import RunChecks
from mtkit.check.rules import limits
from mtkit.check.rules.facts import PairFacts
from mtkit.check.rules.marks import Text

# Lines of a text that are looked at, at least, and characters of each.
_MAX_LINES, _MAX_CHARACTERS = language_id.MAX_SAMPLES * language_id.SAMPLE_LINES, 500
# Lines of a text that is identified whatever it is: so many take a hundred times as long.
_MIN_IDENTIFIED = 2000


def wrong_languages(pairs: Sequence[tuple[str, str]], facts: PairFacts) -> str:
    """What is wrong with the languages of pairs, by samples of all parts; or nothing."""
    some = pairs[:: -(-len(pairs) // _MAX_LINES) or 1]
    sides = [[pair[side] for pair in some] for side in (0, 1)]
    codes = facts.src_lang, facts.tgt_lang
    try:
        return language_id.other_languages(language_id.counted_languages(sides, codes), *codes)
    except OSError:  # the model cannot be loaded
        return ""


class InputLanguage:
    """Sees whether the lines that are translated are in the source language of a run.

    Where the usual words of the run are, nothing needs to be identified, which takes half a second.
    A run without `confidence.json` knows none: then only a long text is identified.
    """

    def __init__(self, run: Path, src_lang: str, tgt_lang: str) -> None:
        self._run, self._languages = run, (src_lang, tgt_lang)
        self._lines: list[str] = []
        self._total, self._every = 0, 1

    def read(self, lines: Iterable[str]) -> Iterator[str]:
        """The same lines; some of all parts of the text are kept."""
        for line in lines:
            # Columns may be in two languages.
            if "\t" not in line and any(map(str.isalpha, line)):
                if self._total % self._every == 0:
                    self._lines.append(line[:_MAX_CHARACTERS])
                self._total += 1
                if len(self._lines) == 2 * _MAX_LINES:
                    del self._lines[1::2]
                    self._every *= 2
            yield line

    def sentence(self) -> str:
        """Which language many lines are in instead; empty if they are in the right one.

        Raises:
            MtkitError: if the checks of the run are damaged.
        """
        code = self._languages[0]
        if not code or self._total < language_id.MIN_LINES:
            return ""
        size, count = language_id.SAMPLE_LINES, len(self._lines)
        # Tags are in no language.
        texts = [Text(line, code) for line in self._lines]
        samples = [texts[at : at + size] for at in range(0, count, size)]
        unusual = [sample for sample in samples if not self._is_usual(sample)]
        try:
            if not unusual or not language_id.can_identify(code):
                return ""
            named = [
                (len(sample), name)
                for sample in unusual
                for name in language_id.languages([text.plain for text in sample])
            ]
        except OSError:  # the model cannot be loaded
            return ""
        other = [(lines, name) for lines, name in named if not language_id.looks_like(name, code)]
        wrong = sum(lines for lines, _ in other)
        if wrong <= language_id.MAX_WRONG * count:
            return ""
        names = dict.fromkeys(language_id.language_name(name) for _, name in other)
        return (
            f"{'' if self._every == 1 else 'about '}{wrong * self._total // count:,} of "
            f"{self._total:,} lines look like {' or '.join(names)}, and the run translates from "
            f"{language_id.language_name(code)}"
        )

    @functools.cached_property
    def _facts(self) -> PairFacts | None:
        checks = RunChecks.load(self._run)
        direction = checks and checks.direction(*self._languages)
        return direction.facts if direction else None

    def _is_usual(self, sample: Sequence[Text]) -> bool:
        """Whether enough words are usual; without such words, whether the text is short."""
        facts = self._facts
        if facts is None or not facts.source_only:
            return self._total < _MIN_IDENTIFIED
        words = [word for text in sample for word in text.words]
        usual = sum(map(facts.source_only.__contains__, words))
        return usual >= limits.MIN_USUAL_SHARE * facts.usual_share * len(words)
