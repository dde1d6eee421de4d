"""Languages as clients name them: codes, English names, and which language a text is in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mtkit.base import language_id
from mtkit.base.copied import has_letters

# A language, a script and a region, as in `zh-Hant-HK` and `es-419`.
_TAG = re.compile("([a-z]{2,3})(?:-([a-z]{4}))?(?:-(?:[a-z]{2}|[0-9]{3}))?")
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


def find_code(given: str, codes: Iterable[str]) -> str | None:
    """The public code that a client means: in any case, an alias, or of the same language.

    Two codes of a language must have the same script, which is the usual one if none is given:
    `zh-TW` is `zh-Hant`. A region may be missing on one side, but no other region is taken. Of
    several codes the same region comes first, then one without a region.
    """
    known = {code.lower(): code for code in codes}
    wanted = given.replace("_", "-").lower()
    wanted = language_id.LIBRETRANSLATE.get(wanted, wanted).lower()
    if wanted in known or not (parts := _TAG.fullmatch(wanted)):
        return known.get(wanted)
    # langcodes keeps all that it was asked for. So it is asked for a few letters, and for a script
    # and a region only of what the server has.
    language, script = language_id.parts_of(parts[1]).language, parts[2]
    tags = {code: language_id.parts_of(code) for code in known.values()}
    same = {code: tag for code, tag in tags.items() if tag.language == language}
    if not same or (script and script.title() not in {tag.script for tag in same.values()}):
        return None
    of_wanted = language_id.parts_of(wanted)
    script, region = of_wanted.script, of_wanted.region
    able = [
        (tag.region != region, tag.region, code)
        for code, tag in same.items()
        if tag.script == script and (region in ("", tag.region) or not tag.region)
    ]
    return min(able)[-1] if able else None


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
