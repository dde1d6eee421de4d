"""Asks the language identifier whether a text is in another language than it should be.

Few translations are suspect, and the identifier takes half a second to load, so it is imported when
it is asked.
"""

from __future__ import annotations

from mtkit.check.rules import limits

# What the identifier calls a text that is in no language.
_NO_LANGUAGE = "zxx"


def other_language(text: str, language: str) -> str:
    """The English name of the language that a text is in, if it is not in this one; else nothing.

    Languages that are hard to tell apart count as one. Nothing is said of a language that the
    identifier does not know.
    """
    from mtkit.base import language_id

    try:
        known = language_id.labels_of(language)
        probabilities = language_id.probabilities(text) if known else {}
    except OSError:  # its model cannot be loaded
        return ""
    own = sum(probabilities.get(label, 0.0) for label in known)
    if not probabilities or own > limits.MAX_PROBABILITY:
        return ""
    best = max(probabilities, key=lambda code: probabilities[code])
    is_other = best != _NO_LANGUAGE and not language_id.looks_like(best, language)
    return language_id.language_name(best) if is_other else ""
