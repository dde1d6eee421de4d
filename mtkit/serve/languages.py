"""Languages as clients name them: codes, English names, and which language a text is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mtkit.base import language_id
from mtkit.base.copied import has_letters

# The characters of a text by which its language is found.
_ENOUGH = 5000
# What is answered if nothing is found, as LibreTranslate does.
_USUAL = "en"


class Detected(NamedTuple):
    """A language that a text may be in; the confidence is between 0 and 100."""

    language: str
    confidence: float


def public_code(code: str) -> str:
    """The code that clients get for a code of a run: `zh-Hans` for `zh`, `de` for `deu_Latn`."""
    names = language_id.LIBRETRANSLATE
    return names.get(code) or names.get(standard := language_id.standard_tag(code), standard)


def detect(texts: Sequence[str], codes: Sequence[str]) -> list[Detected]:
    """The languages of texts among these codes, the most probable first.

    The confidence is the probability among all languages that the model of py3langid knows. So it
    is low for a text in another language. A text without letters has the confidence 0. The first
    call takes half a second.
    """
    if not any(map(has_letters, texts)):
        return [Detected(_USUAL if _USUAL in codes or not codes else codes[0], 0.0)]
    probabilities = language_id.probabilities("\n".join(texts)[:_ENOUGH])
    ranked = [
        Detected(code, round(100 * sum(map(probabilities.__getitem__, labels)), 1))
        for code, labels in zip(codes, map(language_id.labels_of, codes), strict=True)
    ]
    return sorted(ranked, key=lambda detected: -detected.confidence)
