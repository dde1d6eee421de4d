"""Languages as clients name them: codes, English names, and which language a text is in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from mtkit.base import language_id

# What LibreTranslate calls some languages inside, and what it calls them outside.
_ALIASES = {"pb": "pt-BR", "zh": "zh-Hans", "zt": "zh-Hant"}
# A region at the end of a code, as in `en-US` and `es-419`.
_REGION = re.compile(r"-(?:[a-z]{2}|[0-9]{3})\Z")
# A code with two or three letters.
_PLAIN = re.compile("[a-z]{2,3}")
# The characters of a text by which its language is found.
_ENOUGH = 5000
# What is answered if nothing is found, as LibreTranslate does.
_USUAL = "en"


class Detected(NamedTuple):
    """A language that a text may be in; the confidence is between 0 and 100."""

    language: str
    confidence: float


def public_code(code: str) -> str:
    """The code that clients are told for one of a run: `zh-Hans` for `zh`, `de` for `deu_Latn`."""
    return _ALIASES.get(code) or _ALIASES.get(standard := language_id.standard_tag(code), standard)


def find_code(given: str, codes: Iterable[str]) -> str | None:
    """The public code that a client means: in any case, an alias, or with an unknown region.

    Another region than that of a code is not taken for it.
    """
    known = {code.lower(): code for code in codes}
    wanted = given.replace("_", "-").lower()
    # langcodes keeps what it was asked for, so it is not asked for any text.
    plain = public_code(wanted).lower() if _PLAIN.fullmatch(wanted) else wanted
    tried = wanted, plain, _REGION.sub("", wanted)
    return next((known[one] for one in tried if one in known), None)


def has_letters(texts: Sequence[str]) -> bool:
    """Whether there is anything to translate; not in emoji, numbers and punctuation."""
    return any(character.isalpha() for text in texts for character in text)


def detect(texts: Sequence[str], codes: Sequence[str]) -> list[Detected]:
    """The languages of texts among these codes, the most probable first.

    The confidence is the probability among all languages that the model of py3langid knows. So it
    is low for a text in another language. A text without letters has the confidence 0. The first
    call takes half a second.
    """
    if not has_letters(texts):
        return [Detected(_USUAL if _USUAL in codes or not codes else codes[0], 0.0)]
    found = language_id.probabilities("\n".join(texts)[:_ENOUGH])
    ranked = [
        Detected(code, round(100 * sum(found[label] for label in _labels(code)), 1))
        for code in codes
    ]
    return sorted(ranked, key=lambda one: -one.confidence)


@cache
def _labels(code: str) -> tuple[str, ...]:
    return tuple(language_id.labels_of(code))
