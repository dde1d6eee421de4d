"""Noise in training pairs: upper case, title case, typing errors, no punctuation at the end.

A model that has only seen clean text may translate a line in capitals, or with a typing error,
badly. Some training pairs with noise show it such lines.

Whether a pair gets noise, and which, is a pure function of the seed, the number of its training
source and its line, so it is the same in any process, and in the pass that learns the subwords as
in the one that encodes. Words keep their number and order, except that last words which are only
punctuation may be missing, so word alignments stay right.
"""

from __future__ import annotations

import functools
import random
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import regex

from mtkit.base.arrays import IntArray, hash64
from mtkit.base.text import base_language
from mtkit.prepare_config import NoiseConfig

# Letters for each typing error, about as many as of a fast typist who corrects nothing.
LETTERS_PER_TYPO = 40
# The least distance of two errors, in letters: each error changes letters of its own, and a word
# of two letters keeps one.
_APART = 3

# Words whose letters are not typed as language: numbers, addresses, placeholders, program code.
_CODE = re.compile(r"[\d@/\\_<>{}\[\]$%#&*=+|~^`]")
# A word, or in scripts that have no spaces between words only what is not of them.
_SPACED_WORD = regex.compile(
    r"[^\s\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+"
)
_WORD = re.compile(r"\S+")
# The first letter or digit of a word, and the punctuation before it.
_BEGINNING = re.compile(r"[^\w\s]*\w")
# A letter with the marks that belong to it, or any other character.
_CLUSTER = regex.compile(r"\X")
_VISIBLE = regex.compile(r"[\p{L}\p{N}]")

# Languages that have an i with a dot and one without.
_DOTTED = {"az", "aze", "crh", "tr", "tur"}
# Greek capitals have no accent; the dieresis stays.
_GREEK = {"el", "ell", "gre"}
_ACCENTS = str.maketrans("άέήίόύώΐΰΆΈΉΊΌΎΏ", "αεηιουωϊϋΑΕΗΙΟΥΩ")
# An accent says that the vowel after it is one of its own; without it, a dieresis says so.
_AFTER_ACCENT = re.compile(r"(?<=[άέήίόύώΆΈΉΊΌΎΏ])[ιυΙΥ]")
_DIERESIS = str.maketrans("ιυΙΥ", "ϊϋΪΫ")
# The word "or" keeps its accent, which distinguishes it from an article.
_GREEK_OR = re.compile(r"(?<!\w)[ήΉ](?!\w)")
# Georgian letters have capitals in Unicode, but texts are not written with them.
_GEORGIAN_SMALL = {0x1C90 + place: 0x10D0 + place for place in range(0x30)}


def _end_marks(more: str = "") -> regex.Pattern[str]:
    """Matches all marks at the end of a text, and the spaces between them."""
    marks = rf"[\s\p{{Sentence_Terminal}}…{more}]"
    # Only from the first mark on: to try each would take long for a line of spaces.
    return regex.compile(rf"(?<!{marks}){marks}+\Z")


_END_MARKS = _end_marks()
# The question mark of Greek, which is a semicolon for Unicode.
_GREEK_END_MARKS = _end_marks(";\u037e")


class NoisyPairs(NamedTuple):
    """Those of some pairs that get noise.

    Attributes:
        places: their indices, in order.
        kinds: the kind of noise of each, as `NoiseConfig` names it.
        texts: their sources and their targets, with noise.
    """

    places: list[int]
    kinds: list[str]
    texts: tuple[list[str], list[str]]


class Noise:
    """The noise of the training pairs of a direction.

    A pair that was chosen for a kind of noise stays as it is if it cannot have it:

    - `case`, `title`: if more than one in ten letters of the source have no case, as in Chinese
      with some foreign names, or if the source is in capitals already. A target without case
      stays as it is.
    - `typos`: if the source has no word of two letters.
    - `punctuation`: if a side does not end with a mark, or has nothing else.

    Words with a user-defined symbol stay as they are.

    Args:
        config: the probabilities and the seed.
        src_lang, tgt_lang: language codes; they matter for the letter i and for Greek accents.
        symbols: user-defined symbols.
    """

    def __init__(
        self, config: NoiseConfig, src_lang: str, tgt_lang: str, symbols: Sequence[str] = ()
    ) -> None:
        self._kinds = list(config.probabilities)
        self._up_to = np.cumsum(list(config.probabilities.values()))
        self._seed = config.seed
        self._languages = src_lang, tgt_lang
        self._symbols = tuple(symbols)

    def __call__(
        self, texts: Sequence[Sequence[str]], *, source: int, lines: IntArray
    ) -> NoisyPairs:
        """The pairs that get noise.

        Args:
            texts: sources and targets, n each.
            source: the number of the training source.
            lines: (n,), the number of each pair there.
        """
        keys = self._keys(source, lines)
        # In 53 bits, which a float has.
        chances = (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53
        chosen = np.searchsorted(self._up_to, chances, side="right")
        found = NoisyPairs([], [], ([], []))
        for place in np.flatnonzero(chosen < len(self._kinds)).tolist():
            kind = self._kinds[chosen[place]]
            src, tgt = texts[0][place], texts[1][place]
            # Of this class only `random` gives the same numbers in every version of Python.
            noisy = self._changed(kind, src, tgt, random.Random(int(keys[place])).random)
            if noisy[0] != src:
                found.places.append(place)
                found.kinds.append(kind)
                for side, text in zip(found.texts, noisy, strict=True):
                    side.append(text)
        return found

    def _keys(self, source: int, lines: IntArray) -> npt.NDArray[np.uint64]:
        """(n,): a random number for each pair."""
        stream = np.array([self._seed, source], np.uint64)
        for mixer in (0, 1, 2):
            stream = hash64(stream, mixer)
        keys = lines.astype(np.uint64) + (stream[0] ^ (stream[1] << np.uint64(1)))
        for mixer in (0, 1, 2):
            keys = hash64(keys, mixer)
        found: npt.NDArray[np.uint64] = keys
        return found

    def _changed(self, kind: str, src: str, tgt: str, rand: Callable[[], float]) -> tuple[str, str]:
        """Both sides with noise of a kind; the source is unchanged if that is not possible."""
        if kind == "typos":
            return self._with_typos(src, rand), tgt
        if kind == "punctuation":
            short_src = self._without_end_marks(src, self._languages[0])
            short_tgt = self._without_end_marks(tgt, self._languages[1])
            return (short_src, short_tgt) if short_src and short_tgt else (src, tgt)
        if not _has_case(src):
            return src, tgt
        change = _upper if kind == "case" else _title
        return (
            self._with_words(src, functools.partial(change, language=self._languages[0])),
            self._with_words(tgt, functools.partial(change, language=self._languages[1])),
        )

    def _with_words(self, text: str, change: Callable[[str], str]) -> str:
        return _WORD.sub(lambda m: m[0] if self._is_fixed(m[0]) else change(m[0]), text)

    def _is_fixed(self, word: str) -> bool:
        return any(symbol in word for symbol in self._symbols)

    def _without_end_marks(self, text: str, language: str) -> str:
        """A text without the marks that end its sentence; empty if it has none or nothing else."""
        text = text.rstrip()
        is_greek = base_language(language) in _GREEK
        match = (_GREEK_END_MARKS if is_greek else _END_MARKS).search(text)
        if match is None:
            return ""
        changed = (word[0] for word in _WORD.finditer(text) if word.end() > match.start())
        if any(map(self._is_fixed, changed)):
            return ""
        rest = text[: match.start()].rstrip()
        return rest if _VISIBLE.search(rest) else ""

    def _with_typos(self, text: str, rand: Callable[[], float]) -> str:
        """A text in which some letters are swapped, dropped, doubled or replaced."""
        clusters = _CLUSTER.findall(text)
        places = self._letters_of_words(text, clusters)
        if not places:
            return text
        # Only letters of this text are surely in the vocabulary.
        letters = list(dict.fromkeys(clusters[place] for place in places))
        count = -(-len(places) // LETTERS_PER_TYPO)
        for number in range(count):
            start, end = (len(places) * n // count for n in (number, number + 1))
            if count > 1:
                end -= _APART - 1
            _add_typo(clusters, places, start + int(rand() * (end - start)), letters, rand)
        return "".join(clusters)

    def _letters_of_words(self, text: str, clusters: list[str]) -> list[int]:
        """The indices of the letters that may be changed: in words of two letters or more."""
        is_kept = np.zeros(len(text), bool)
        for word in _WORD.finditer(text):
            is_kept[word.start() : word.end()] = self._is_fixed(word[0])
        for word in _SPACED_WORD.finditer(text):
            if _CODE.search(word[0]):
                is_kept[word.start() : word.end()] = True
        found: list[int] = []
        run: list[int] = []
        start = 0
        for place, cluster in enumerate([*clusters, " "]):
            if cluster[0].isalpha() and not is_kept[start]:
                run.append(place)
            else:
                found += run if len(run) > 1 else []
                run = []
            start += len(cluster)
        return found


def _add_typo(
    clusters: list[str],
    places: list[int],
    index: int,
    letters: list[str],
    rand: Callable[[], float],
) -> None:
    """Change the letter at `places[index]`.

    Args:
        clusters: of the text; they keep their number, so that other places stay right.
        places: of all letters that may be changed.
        index: of the one to change.
        letters: that may replace it, each once.
        rand: gives random numbers from 0 to 1.
    """
    place = places[index]
    letter = clusters[place]
    choice = int(rand() * 4)
    if choice == 0:
        # A word of two letters or more has a letter beside this one.
        has_next = index + 1 < len(places) and places[index + 1] == place + 1
        other = place + 1 if has_next else place - 1
        if clusters[other] != letter:
            clusters[place], clusters[other] = clusters[other], letter
            return
        choice = 1
    if choice == 1:
        clusters[place] = ""
        return
    if choice == 2:
        kind = _kind(letter)
        candidates = [one for one in letters if one != letter and _kind(one) == kind]
        if candidates:
            clusters[place] = candidates[int(rand() * len(candidates))]
            return
    clusters[place] = 2 * letter


def _kind(letter: str) -> tuple[str, str]:
    """The script of a letter, and its category: capital, small or neither."""
    # The name of a letter begins with its script.
    script = unicodedata.name(letter[0], "").partition(" ")[0]
    return script, unicodedata.category(letter[0])


def _has_case(text: str) -> bool:
    """Whether at least nine in ten letters of a text have case."""
    letters = [one for one in text if one.isalpha()]
    # Not `upper`, which is different from the letter in Georgian.
    cased = sum(one.title() != one or one.lower() != one for one in letters)
    return bool(letters) and 10 * cased >= 9 * len(letters)


def _upper(word: str, language: str) -> str:
    """A word in upper case, as in its language."""
    if base_language(language) in _GREEK and not _GREEK_OR.search(word):
        word = unicodedata.normalize("NFC", word)
        word = _AFTER_ACCENT.sub(lambda m: m[0].translate(_DIERESIS), word).translate(_ACCENTS)
    if base_language(language) in _DOTTED:
        word = word.replace("i", "İ")
    return word.upper().translate(_GEORGIAN_SMALL)


def _title(word: str, language: str) -> str:
    """A word with a capital letter at its beginning, as in its language."""
    match = _BEGINNING.match(word)
    if match is None:
        return word
    last = match.end() - 1
    letter = "İ" if word[last] == "i" and base_language(language) in _DOTTED else word[last].title()
    return word[:last] + letter + word[last + 1 :]
