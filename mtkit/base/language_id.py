"""Which language a text is in, by py3langid, without a network.

Its model knows 140 languages. It is loaded when it is first needed, once in a process: that
takes half a second, 85 MB of memory, and for a moment 70 MB in the folder of temporary files.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import re
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import langcodes
from langcodes.language_lists import CLDR_LANGUAGES

from mtkit.base.errors import MtkitError
from mtkit.base.text import base_language, check_language

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# Lines are identified together, so many at a time. Of 8,400 samples of 10 lines or more, from 28
# files in German, English and French, each was identified correctly; of single lines 98 to 100 %.
SAMPLE_LINES = 50
MIN_LINES = 10
# Letters of a sample; those from India to Japan are syllables, and count three times. With 100, 12
# of 16,000 samples of ten labels of Django in 50 languages are wrong, as for Swedish.
_MIN_LETTERS = 250
# The samples of a text in which other languages are looked for, and the share of wrong ones above
# which a message says so. A text without wrong lines has none.
MAX_SAMPLES, MAX_WRONG = 20, 0.1
# The number of samples of each side, `src` and `tgt`, by the language that they look like.
LanguageCounts = dict[str, dict[str, int]]
# Languages at this distance by CLDR (0 to 134) or nearer are hard to tell apart, such as Croatian
# and Bosnian (9), Norwegian and Danish (12), Indonesian and Malay (14). Czech and Slovak have 24.
_SIMILAR = 14
# The distance of languages that are not related in CLDR; and the `ratio` of difflib up to which
# codes are not alike. Codes of two letters that share one have this ratio.
_UNRELATED, _MIN_LIKENESS = 80, 0.5
# Languages that are all named in a message; of more, the five nearest.
_MAX_LISTED, _NEAREST = 20, 5
# Codes that LibreTranslate and Argos Translate use internally, and the codes that clients get.
LIBRETRANSLATE = {"pb": "pt-BR", "zh": "zh-Hans", "zt": "zh-Hant"}
# A language, a script and a region, as in `zh-Hant-HK` and `es-419`.
_TAG = re.compile("([a-z]{2,3})(?:-([a-z]{4}))?(?:-(?:[a-z]{2}|[0-9]{3}))?")
# Codes of languages that are mostly given for a country, such as Northern Sami for Sweden.
_COUNTRIES = {"br", "ee", "kr", "se", "tw"}
# Tags whose parts are kept.
_MAX_KEPT = 4096
# What the model calls a text that is in no language.
_NO_LANGUAGE = "zxx"

_lock = threading.Lock()
# langcodes loads the names of languages without a lock: two threads that are first raise an error.
# Tags and distances need none: their data is loaded with the module, their caches are dictionaries.
_langcodes_lock = threading.RLock()


class Parts(NamedTuple):
    """A language, its script, which is the usual one if none is given, and the region if given."""

    language: str
    script: str
    region: str


def load() -> None:
    """Load the model, in a thread for example; an error is raised by later calls."""
    with contextlib.suppress(OSError):
        _identifier()


def is_language_tag(code: str) -> bool:
    """Whether a code is a valid language tag of BCP 47; `x-…` is one for private use."""
    return langcodes.tag_is_valid(code.replace("_", "-"))


def check_languages(src_lang: str | None, tgt_lang: str | None) -> None:
    """Refuse what is given and not the code of a language; the error says what is meant."""
    for option, code in (("--src-lang", src_lang), ("--tgt-lang", tgt_lang)):
        if code is None:
            continue
        check_language(option, code)
        if not is_language_tag(code):
            raise MtkitError(f"{option}: {code} is not a language code{hint(code, CLDR_LANGUAGES)}")


def hint(code: str, codes: Iterable[str]) -> str:
    """After an error about a code: what it probably means, the nearest of others, or nothing."""
    if meant := meant_instead(code):
        return f"; did you mean {meant}?"
    nearest = ", ".join(nearest_codes(code, sorted(codes), _NEAREST))
    return nearest and f"; the nearest are {nearest}"


def listed_languages(codes: Iterable[str], wanted: str | None = None) -> str:
    """Languages for a message; if one was wanted, with a `hint` about it."""
    codes = sorted(codes)
    if len(codes) <= _MAX_LISTED:
        return ", ".join(codes) + (hint(wanted, ()) if wanted else "")
    advice = hint(wanted, codes) if wanted else ""
    return f"{len(codes)} languages" + (advice or f", such as {', '.join(codes[:_NEAREST])}")


def is_same_tag(code: str, other: str) -> bool:
    """Whether two codes have the same meaning, as `en` and `eng` have."""
    return code == other or (
        is_language_tag(code)
        and is_language_tag(other)
        and langcodes.standardize_tag(code, macro=True)
        == langcodes.standardize_tag(other, macro=True)
    )


def find_code(given: str, codes: Iterable[str]) -> str | None:
    """Which of some codes is meant: in any case, an alias, or of the same language.

    Two codes of a language must have the same script, which is the usual one if none is given:
    `zh-TW` is `zh-Hant`. A region may be missing on one side, but no other region is taken. Of
    several codes the same region comes first, then one without a region.
    """
    known = {code.lower(): code for code in codes}
    wanted = given.replace("_", "-").lower()
    wanted = LIBRETRANSLATE.get(wanted, wanted).lower()
    if wanted in known or not (parts := _TAG.fullmatch(wanted)):
        return known.get(wanted)
    # langcodes keeps all that it was asked for. So it is asked for a few letters, and for a script
    # and a region only of what the server has.
    language, script = parts_of(parts[1]).language, parts[2]
    tags = {code: parts_of(code) for code in known.values()}
    same = {code: tag for code, tag in tags.items() if tag.language == language}
    if not same or (script and script.title() not in {tag.script for tag in same.values()}):
        return None
    of_wanted = parts_of(wanted)
    script, region = of_wanted.script, of_wanted.region
    able = [
        (tag.region != region, tag.region, code)
        for code, tag in same.items()
        if tag.script == script and (region in ("", tag.region) or not tag.region)
    ]
    return min(able)[-1] if able else None


def nearest_codes(given: str, codes: Iterable[str], count: int) -> list[str]:
    """The codes most like a wrong one, or whose languages are nearest to its language, if any."""

    def distance(code: str) -> tuple[float, float]:
        likeness = difflib.SequenceMatcher(None, given.lower(), code.lower()).ratio()
        far = _UNRELATED if likeness <= _MIN_LIKENESS else _UNRELATED - 1
        if is_language_tag(given) and is_language_tag(code):
            far = langcodes.tag_distance(given.replace("_", "-"), code.replace("_", "-"))
        return far, -likeness

    distances = {code: distance(code) for code in codes}
    near = [code for code, (far, _) in distances.items() if far < _UNRELATED]
    return sorted(near, key=distances.__getitem__)[:count]


def is_same_language(code: str, other: str) -> bool:
    """Whether two codes are of one language; those of two countries are, unless both are given."""
    first, second = parts_of(code), parts_of(other)
    has_other_region = first.region and second.region and first.region != second.region
    return first.language == second.language and not has_other_region


def language_code(name: str) -> str:
    """The code of a language that is given by its code, or by its name in any language; or ""."""
    from language_data import names

    if is_language_tag(name) or len(name.encode()) < 4:
        return name if is_language_tag(name) else ""
    try:
        with _langcodes_lock:
            code = str(langcodes.find(name))
    except LookupError:
        return ""
    # It also finds languages whose names are only the beginning of the text.
    return code if names.normalize_name(name) in names.TRIES["und/name_to_language"] else ""


def meant_instead(code: str) -> str:
    """The language that a wrong code probably means, as `cs (Czech)` for `cz`; or nothing.

    It is the first language of a country of that code, by CLDR, or a language of that name.
    """
    if is_language_tag(code) and code.lower() not in _COUNTRIES:
        return ""
    # Some write `sp` for Spanish; it is neither a language nor a country.
    parts = re.sub("^sp(?![a-z])", "es", code, flags=re.I).replace("_", "-").split("-")
    with _langcodes_lock:
        country = langcodes.Language.make(territory=parts[0].upper())
        # AA, QM to QZ, XA to XZ and ZZ are for private use.
        if re.fullmatch("(?!aa|q[m-z]|x|zz)[a-z]{2}", parts[0], re.I) and country.is_valid():
            tag = country.maximize()
            # Where the language alone is not enough, its script or country belongs to it.
            meant = str(tag.language)
            meant += {"zh": f"-{tag.script}", "pt": f"-{tag.territory}"}.get(meant, "")
        else:
            name = language_code(" ".join(parts)) or language_code(parts[0])
            meant = parts[0] if is_language_tag(parts[0]) else name
    return f"{meant} ({language_name(meant)})" if meant else ""


def language_name(code: str) -> str:
    """The English name of a language, by the data of CLDR; the code, if it has none."""
    if not is_language_tag(code):
        return code
    with _langcodes_lock:
        name = langcodes.get(code.replace("_", "-")).display_name()
    return code if name.startswith("Unknown") else name


def languages(lines: Sequence[str]) -> list[str]:
    """The languages of a text, for each `SAMPLE_LINES` of its lines the code of one.

    Too few lines or letters, and lines that are in no language, have none.
    """
    identify = _identifier().classify
    lines = [line for line in lines if any(map(str.isalpha, line))]
    parts = [lines[at : at + SAMPLE_LINES] for at in range(0, len(lines), SAMPLE_LINES)]
    texts = ["\n".join(part) for part in parts if len(part) >= MIN_LINES]
    codes = [identify(text)[0] for text in texts if _letters(text) >= _MIN_LETTERS]
    return [language for language in codes if language != _NO_LANGUAGE]


def _letters(text: str) -> int:
    return sum(3 if letter >= "\u0900" else 1 for letter in filter(str.isalpha, text))


def counted_languages(sides: Iterable[Sequence[str]], codes: tuple[str, str]) -> LanguageCounts:
    """The languages of both sides, where they can be identified; `OSError` without the model."""
    return {
        side: dict(Counter(languages(lines)).most_common())
        for side, code, lines in zip(("src", "tgt"), codes, sides, strict=True)
        if labels_of(code)
    }


def likeliest(text: str) -> str:
    """What the model calls the language that a text is most probably in; empty if in none."""
    return str(_identifier().classify(text)[0]).replace(_NO_LANGUAGE, "")


def probabilities(text: str) -> dict[str, float]:
    """The probability of each language that the model knows to be that of a text."""
    return {code: float(score) for code, score in _identifier().rank(text)}


@functools.lru_cache(_MAX_KEPT)
def labels_of(code: str) -> tuple[str, ...]:
    """What the model calls the language of a code, if it knows it; `OSError` without the model."""
    if not is_language_tag(code):
        return ()
    labels = _identifier().labels
    with _langcodes_lock:
        return tuple(label for label in labels if _has_distance(code, label, at_most=1))


def standard_tag(code: str) -> str:
    """A code as BCP 47 writes it, `de` for `deu_Latn`; another one as it is."""
    return langcodes.standardize_tag(code.replace("_", "-")) if is_language_tag(code) else code


@functools.lru_cache(_MAX_KEPT)
def parts_of(code: str) -> Parts:
    """The parts of a code; one that is not a language tag is a language without a script.

    `nb` and `no` are one language, and so are two codes such as `zsm` and `ms`.
    """
    if not is_language_tag(code):
        return Parts(code, "", "")
    with _langcodes_lock:
        tag = langcodes.get(langcodes.standardize_tag(code.replace("_", "-"), macro=True))
        script = tag.script or tag.maximize().script
    language = "no" if tag.language == "nb" else tag.language
    return Parts(language or code, script or "", tag.territory or "")


def libretranslate_code(code: str) -> str:
    """What LibreTranslate and Argos Translate call a language inside: `zt` for `zho_Hant`.

    A code that is not a language tag is cut at its first `-` or `_`.
    """
    language, script, region = parts_of(code)
    if language == "zh":
        return "zt" if script == "Hant" else "zh"
    if (language, region) == ("pt", "BR"):
        return "pb"
    return "nb" if language == "no" else base_language(language)


def looks_like(language: str, code: str) -> bool:
    """Whether a language that `languages` has found can be that of a code."""
    return _has_distance(code, language, at_most=_SIMILAR)


def other_languages(counts: LanguageCounts, src_lang: str, tgt_lang: str) -> str:
    """What is wrong with the languages of both sides of a text; empty if nothing is."""
    instead: dict[str, str] = {}
    parts = []
    for side, name, given in (("src", "source", src_lang), ("tgt", "target", tgt_lang)):
        of_side = counts.get(side, {})
        wrong = {c: n for c, n in of_side.items() if not looks_like(c, given)}
        if sum(wrong.values()) > MAX_WRONG * sum(of_side.values()):
            instead[side] = max(wrong, key=lambda code: wrong[code])
            parts.append(
                f"{sum(wrong.values())} of {sum(of_side.values())} samples of the {name} look like "
                f"{' or '.join(wrong)}, not {given}"
            )
    if not parts:
        return ""
    is_swapped = (
        len(parts) == 2
        and looks_like(instead["src"], tgt_lang)
        and looks_like(instead["tgt"], src_lang)
    )
    advice = "are the languages swapped?" if is_swapped else "correct the language code or the file"
    return f"{', and '.join(parts)}; {advice}"


def _has_distance(code: str, other: str, *, at_most: int) -> bool:
    if not is_language_tag(code):
        return False
    # The same script for both, because only the languages are compared.
    first, second = f"{langcodes.get(code.replace('_', '-')).language}-Latn", f"{other}-Latn"
    there, back = (langcodes.tag_distance(*pair) for pair in ((first, second), (second, first)))
    return min(there, back) <= at_most


def _identifier() -> LanguageIdentifier:
    # One thread loads it, and others wait.
    with _lock:
        return _loaded()


@functools.cache
def _loaded() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    try:
        return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    except LookupError as error:  # an encoding of Python cannot be read
        raise OSError(str(error)) from error
