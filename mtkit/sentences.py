"""Where the sentences of a line end, by the rules of sentencex, which need not be installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from mtkit.errors import MtkitError


def split(text: str, language: str) -> list[str]:
    """The sentences of a text, each with the space behind it: together they are the text.

    Args:
        text: one line of it, or several.
        language: a code such as `de` or `pt-BR`, for its abbreviations; what is no language that
            sentencex knows is cut by the rules for English.

    Raises:
        MtkitError: if sentencex is not installed.
    """
    # The rules are by language, not by region.
    code = language.replace("_", "-").partition("-")[0].lower()
    pieces = _segment()(code, text)
    # Nothing is translated twice and nothing is lost, whatever the library makes of it.
    return pieces if "".join(pieces) == text and pieces else [text]


@cache
def _segment() -> Callable[[str, str], list[str]]:
    """How the library cuts a text of a language."""
    try:
        import sentencex
    except ImportError as error:
        raise MtkitError(
            "decode.split_sentences: needs sentencex; pip install 'mtkit[split]'"
        ) from error
    return lambda language, text: list(sentencex.segment(language, text))
