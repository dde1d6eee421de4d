"""Asks the language identifier whether a text is in another language than it should be.

Few translations are suspect, and the identifier takes half a second to load, so it is imported when
it is asked.
"""

from __future__ import annotations

import re

from mtkit.base.text import base_language
from mtkit.check.rules import limits

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff9d"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff"
_EAST_ASIAN = re.compile(f"[{_HAN}{_KANA}{_HANGUL}]")
# So many of them in a row are more than a name.
EAST_ASIAN_TEXT = re.compile(f"[{_HAN}{_KANA}{_HANGUL}]{{6,}}")
# What most letters are in these languages, if there are as many, and the least share of them: a
# Japanese name has no kana, and a Chinese text may name something Japanese. The numbers are
# estimates from names and titles.
_CHINESE = "Chinese characters", re.compile(f"[{_HAN}]"), 6, 0.65
_OWN = {
    "ja": ("kana", re.compile(f"[{_KANA}]"), 20, 0.01),
    "ko": ("Hangul", re.compile(f"[{_HANGUL}]"), 6, 0.25),
    **dict.fromkeys(("zh", "yue"), _CHINESE),
}


def other_east_asian(text: str, language: str) -> str:
    """Why a text in the letters of East Asia is not in this language of it; or nothing."""
    name, own, least, share = _OWN.get(base_language(language), ("", _EAST_ASIAN, 1, 0.0))
    letters, count = len(_EAST_ASIAN.findall(text)) if name else 0, len(own.findall(text))
    is_other = letters >= least and count < share * letters
    return f"{count} of {letters} letters of East Asia are {name}" if is_other else ""


def other_language(text: str, language: str) -> str:
    """The English name of the language that a text is in, if it is not in this one; else nothing.

    Languages that are hard to tell apart count as one. Nothing is said of a language that the
    identifier does not know.
    """
    from mtkit.base import language_id

    try:
        known = language_id.labels_of(language)
        best = language_id.likeliest(text) if known else ""
    except OSError:  # its model cannot be loaded
        return ""
    if not best or language_id.looks_like(best, language):
        return ""
    # All probabilities take as long again.
    probabilities = language_id.probabilities(text)
    own = sum(probabilities.get(label, 0.0) for label in known)
    return "" if own > limits.MAX_PROBABILITY else language_id.language_name(best)
