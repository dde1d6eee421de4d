"""Whether a text as a whole is in the language that it should be in."""

from __future__ import annotations

import functools
import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtkit.base.errors import in_words
from mtkit.check.rules import limits
from mtkit.run_folder import CONFIDENCE

if TYPE_CHECKING:
    from mtkit.check.rules.marks import Text

log = logging.getLogger(__name__)

# As in `language_id`, which is only loaded for a text that is unusual.
_SAMPLE_LINES, _MIN_LINES = 50, 10
# Lines of a long text that are kept (up to twice as many while it is read), and of each as many
# characters.
_MAX_LINES, _MAX_CHARACTERS = 1000, 500
# The share of the words of a text that another one has, if both are certainly in one language: of
# Multi30k, Europarl, newstest and Tatoeba, sources have at most 29 % of the words of their targets.
_MIN_COMMON = 0.4
# Lines are looked at up to the first number, in blocks of the second. They are shifted if, in a
# block, they share at least the third number of rare words (in 2 % of the lines or fewer) with
# neighbouring lines of the reference, and more than the fourth times as many as with their own. In
# translations of Multi30k, Tatoeba and newstest by a small model, also with 9 of 10 words left out,
# they shared at most half as many with neighbouring lines.
_MAX_SHIFTED, _BLOCK, _MIN_SHIFTED, _MIN_TIMES = 10_000, 100, 20, 5
# Or they are in another order if, of at least so many rare words, a smaller share than this is in
# their own line: it is 33 % for an English source, and at most 6 % for shuffled or other lines.
_MIN_RARE, _MIN_OWN = 50, 0.1
# The share of lines that only a translation has blank, above which it is cut, or not all was done.
_MAX_BLANK = 0.05
# Directions whose usual words are kept.
_MAX_DIRECTIONS = 64

Pair = tuple[str, str]
File = tuple[str, Sequence[str]]


def changed_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs whose translation differs from the source, which alone show the languages."""
    return [(source, translation) for source, translation in pairs if source != translation]


def wrong_languages(pairs: Sequence[Pair], codes: tuple[str, str]) -> str:
    """What is wrong with the languages of pairs, by samples of all parts; or nothing."""
    if len(pairs) < _MIN_LINES:
        return ""
    changed, wrong = changed_pairs(pairs), []
    from mtkit.base import language_id

    # Numbers stay, and blank lines.
    equal = sum(a == b and any(map(str.isalpha, a)) for a, b in pairs)
    if equal > language_id.MAX_WRONG * len(pairs):
        share = f"{equal:,} of {len(pairs):,}" if changed else f"all {len(pairs):,}"
        wrong.append(f"the translation equals the source in {share} lines: was it translated?")
    if len(changed) >= _MIN_LINES:
        sample = changed[:: len(changed) // _MAX_LINES + 1]
        sides = [[pair[side] for pair in sample] for side in (0, 1)]
        try:
            counts = language_id.counted_languages(sides, codes)
            wrong.append(language_id.other_languages(counts, *codes))
        except OSError as error:  # the model cannot be loaded
            wrong.append(f"the languages of the text are not checked: {error}")
    return " ".join(filter(None, wrong))


def with_languages_noted(pairs: Iterable[Pair], codes: tuple[str, str]) -> Iterator[Pair]:
    """The same pairs; warns after the first ones if they are in other languages than these."""
    rest, first = iter(pairs), list[Pair]()
    for pair in itertools.islice(rest, _MAX_LINES):
        first.append(pair)
        yield pair
    if wrong := wrong_languages(first, codes):
        log.warning("%s", wrong)
    yield from rest


def note_wrong_files(systems: Iterable[File], references: Sequence[File]) -> None:
    """Warn of files, by name and lines, that are blank or no translations as the references."""
    systems = list(systems)
    for name, lines in [*systems, *references]:
        if lines and not any(map(str.strip, lines)):
            log.warning("%s: all lines are blank", name)
    for name, lines in systems:
        for other, reference in references:
            if reason := _wrong_file(lines, reference):
                log.warning("%s and %s %s: are these the right files?", name, other, reason)
                break


def _wrong_file(lines: Sequence[str], reference: Sequence[str]) -> str:
    if len(lines) < _MIN_LINES or not any(map(str.strip, lines)):
        return ""
    if lines == reference:
        return "have the same lines"
    if shift := _shift(lines, reference):
        return shift
    blank = sum(not a.strip() and bool(b.strip()) for a, b in zip(lines, reference, strict=False))
    if blank > _MAX_BLANK * len(lines):
        return f"differ in {in_words(blank)}, blank in the first only"
    sides = [side[:: len(side) // _MAX_LINES + 1] for side in (lines, reference)]
    words, known = (" ".join(side).lower().split() for side in sides)
    # Others need not be identified, which takes half a second.
    if sum(map(set(known).__contains__, words)) >= _MIN_COMMON * len(words):
        return ""
    from mtkit.base.language_id import language_name, looks_like
    from mtkit.check.rules.facts import UNDETERMINED, language_of

    codes = list(map(language_of, sides))
    if UNDETERMINED in codes or looks_like(*codes):
        return ""
    return "look like {} and {}".format(*map(language_name, codes))


def _shift(lines: Sequence[str], reference: Sequence[str]) -> str:
    """Where lines have the rare words of other lines than their own; empty if they have theirs."""

    def shared(others: Sequence[str]) -> list[int]:
        pairs = zip(own, others, strict=False)
        counts = [len(words.intersection(other.lower().split())) for words, other in pairs]
        return [sum(counts[i : i + _BLOCK]) for i in range(0, len(counts), _BLOCK)]

    every = [set(line.lower().split()) for line in reference[:_MAX_SHIFTED]]
    frequency = Counter(itertools.chain.from_iterable(every))
    most = max(2, len(every) // 50)
    rare = {word for word, n in frequency.items() if n <= most and any(map(str.isalpha, word))}
    own = [rare.intersection(line.lower().split()) for line in lines[:_MAX_SHIFTED]]
    places = {"a line later": reference[1:], "a line earlier": ["", *reference]}
    places |= {"two lines later": reference[2:], "two lines earlier": ["", "", *reference]}
    here = shared(reference)
    for place, others in (places | {"in reverse order": reference[::-1]}).items():
        for block, (count, of_own) in enumerate(zip(shared(others), here, strict=False)):
            if count >= _MIN_SHIFTED and count > _MIN_TIMES * of_own:
                start = f"at the latest from line {block * _BLOCK + 1:,} on"
                return f"do not line up ({start}, lines of the first are {place} in the second)"
    total = sum(map(len, own))
    if total >= _MIN_RARE and sum(here) < _MIN_OWN * total:
        return f"do not line up (only {sum(here):,} of {total:,} rare words are in the same line)"
    return ""


class InputLanguage:
    """Sees whether the lines that are translated are in the source language of a run.

    Where the usual words of the run are, nothing needs to be identified, which takes half a second.
    Of a run without `confidence.json`, which knows none, nothing is said.
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
        """Which language many lines are in instead; empty if they are in the right one."""
        code = self._languages[0]
        if not code or self._total < _MIN_LINES:
            return ""
        # These take a while to load, which a short text need not wait for.
        from mtkit.check.rules.marks import Text

        size, count = _SAMPLE_LINES, len(self._lines)
        # Tags are in no language.
        texts = [Text(line, code) for line in self._lines]
        samples = [texts[at : at + size] for at in range(0, count, size)]
        unusual = [sample for sample in samples if not self._is_usual(sample)]
        if not unusual:
            return ""
        from mtkit.base import language_id

        try:
            if not language_id.labels_of(code):
                return ""
            other = [
                (len(sample), name)
                for sample in unusual
                for name in language_id.languages([text.plain for text in sample])
                if not language_id.looks_like(name, code)
            ]
        except OSError:  # the model cannot be loaded
            return ""
        wrong = sum(lines for lines, _ in other)
        if wrong <= language_id.MAX_WRONG * count:
            return ""
        names = dict.fromkeys(language_id.language_name(name) for _, name in other)
        return (
            f"{'' if self._every == 1 else 'about '}{wrong * self._total // count:,} of "
            f"{self._total:,} lines look like {' or '.join(names)}, and the run translates from "
            f"{language_id.language_name(code)}"
        )

    def _is_usual(self, sample: Sequence[Text]) -> bool:
        """Whether enough words are usual, or none are known."""
        known, share = _usual_words(self._run, self._languages)
        words = [word for text in sample for word in text.words]
        usual = sum(map(known.__contains__, words))
        return not known or usual >= limits.MIN_USUAL_SHARE * share * len(words)


@functools.lru_cache(_MAX_DIRECTIONS)
def _usual_words(run: Path, languages: Pair) -> tuple[frozenset[str], float]:
    """The words that are usual only in the source of a run, and their share; or no words.

    Read without all else that checks know, which would take ten times as long, and once for all
    documents of a server.
    """
    try:
        content = json.loads((run / CONFIDENCE).read_text(encoding="utf-8"))
        all_facts = [direction["facts"] for direction in content["directions"]]
        known = [(facts["src_lang"], facts["tgt_lang"]) for facts in all_facts]
        facts = all_facts[known.index(languages)]
        return frozenset(facts["src_words"]).difference(facts["tgt_words"]), facts["usual_share"]
    except (OSError, ValueError, LookupError, TypeError):
        return frozenset(), 0.0
