"""Whether the text of each training source is in the languages that were given for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import numpy as np

from mtkit.base import language_id
from mtkit.base.errors import one_line
from mtkit.base.language_id import LanguageCounts
from mtkit.prepare.blocks import PairBlock, decoded
from mtkit.prepare.corpus import Corpus
from mtkit.prepare.filters import KEPT, PairChecks
from mtkit.prepare.held_out import HeldOut
from mtkit.prepare.text_faults import MAX_DROPPED_SHARE, FaultCounts
from mtkit.prepare_config import PrepareConfig

log = logging.getLogger(__name__)

# Pairs of a held-out set that are identified, which takes 0.08 s.
_MAX_HELD_OUT = 200


def warn_of_codes(directions: Sequence[tuple[str, str]]) -> None:
    """Warn of language codes that are probably mistakes, in pairs of source and target language."""
    for code in dict.fromkeys(code for pair in directions for code in pair):
        advice = language_id.hint(code, ())
        if not language_id.is_language_tag(code):
            log.warning(
                "%s is not a valid language tag, such as en, pt-BR or x-mine, so the language and "
                "the script of its text are not checked%s",
                code,
                advice,
            )
        elif advice:
            log.warning("%s is %s%s", code, language_id.language_name(code), advice)
    for src_lang, tgt_lang in directions:
        if language_id.is_same_tag(src_lang, tgt_lang):
            log.warning(
                "%s and %s are the same language; give the codes of both files, unless the model "
                "is to rewrite text in its own language",
                src_lang,
                tgt_lang,
            )


class LanguageCheck:
    """Samples pairs of each training source of text, and identifies the languages of both sides.

    Of the pairs that pass the filters of the first stage, those with the smallest hashes are taken,
    so the sample is even, has no source twice, and does not depend on blocks or processes.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        # Of each source the pairs by their hashes, which are below a limit.
        self._pairs: list[dict[int, tuple[int, bytes, bytes]]] = [{} for _ in corpus.train]
        self._below = [2**64 - 1 for _ in corpus.train]
        if not corpus.is_parsing:
            # While the pairs are read.
            threading.Thread(target=language_id.load, name="load py3langid").start()

    def add(self, block: PairBlock, checks: PairChecks) -> None:
        """Consider the pairs of a block."""
        if self._corpus.is_parsing:
            return
        number, (src, tgt) = block.source, block.pairs
        pairs, most = self._pairs[number], language_id.MAX_SAMPLES * language_id.SAMPLE_LINES
        is_small = (checks.codes == KEPT) & (checks.src_keys < self._below[number])
        for index in np.flatnonzero(is_small).tolist():
            pair = int(block.lines[index]), src[index], tgt[index]
            pairs.setdefault(int(checks.src_keys[index]), pair)
        if len(pairs) > most:
            smallest = sorted(pairs)[:most]
            self._pairs[number] = {key: pairs[key] for key in smallest}
            self._below[number] = smallest[-1]

    def found(self) -> list[LanguageCounts]:
        """The languages of each source, where they can be identified."""
        try:
            if not self._corpus.is_parsing:
                return list(map(self._languages, self._pairs, _given(self._corpus)))
        except OSError as error:
            log.warning("the languages of the text are not checked: %s", error)
        return [{} for _ in self._pairs]

    def faults(self) -> list[FaultCounts]:
        """The faults of the pairs of each source, which are looked at in the order of hashes."""
        samples = (
            [(src.decode(), tgt.decode()) for _, (_, src, tgt) in sorted(sampled.items())]
            for sampled in self._pairs
        )
        return list(map(FaultCounts.of, samples, _given(self._corpus)))

    @staticmethod
    def _languages(
        sampled: dict[int, tuple[int, bytes, bytes]], codes: tuple[str, str]
    ) -> LanguageCounts:
        # In the order of the file, so that a part in another language has samples of its own.
        _, *sides = zip(*sorted(sampled.values()), strict=True) if sampled else ((), (), ())
        return language_id.counted_languages([[*map(bytes.decode, side)] for side in sides], codes)


def findings(
    corpus: Corpus,
    languages: Sequence[LanguageCounts],
    faults: Sequence[FaultCounts],
    held_out: Sequence[HeldOut],
    config: PrepareConfig,
) -> list[str]:
    """A sentence for each source, of training or held out, and each kind of fault of its text.

    `languages` and `faults` are those of the training sources, from `LanguageCheck`.
    """
    of_sources = zip(languages, faults, corpus.labels, _given(corpus), strict=True)
    checked = [(*of_source, of_source[1].dropped(config)) for of_source in of_sources]
    # Where no training text can be checked, `LanguageCheck.found` says so.
    sets_of = held_out if any(languages) else ()
    for direction, sets in zip(corpus.directions, sets_of, strict=False):
        given = direction.src_lang, direction.tgt_lang
        for split, source in direction.held_out.items():
            sides = [side[:: len(side) // _MAX_HELD_OUT + 1] for side in decoded(sets[split])]
            of_set = FaultCounts.of(list(zip(*sides, strict=True)), given)
            counts = language_id.counted_languages(sides, given)
            checked.append((counts, of_set, source.label, given, []))
    sentences = []
    for counts, seen, label, given, dropped in checked:
        wrong = {kind: seen.sentence(kind, is_dropped=kind in dropped) for kind in seen.seen}
        samples = language_id.other_languages(counts, *given)
        # A sample that is half swapped looks like one language, so there the pairs are counted.
        if samples and not 0 < seen.share("language") <= 1 - MAX_DROPPED_SHARE:
            wrong["language"] = samples
        sentences += [f"{one_line(label)}: {sentence}" for sentence in wrong.values()]
    return sentences


def _given(corpus: Corpus) -> list[tuple[str, str]]:
    """The language codes of each training source."""
    return [corpus.language_pairs[number] for number in corpus.direction_of]
