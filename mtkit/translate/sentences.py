"""Where the sentences of a line end, by the rules of sentencex, which need not be installed.

`split` cuts a line, and `join` makes one of the translations of its sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from mtkit.errors import MtkitError

# Languages that are written without spaces between sentences.
UNSPACED = {"ja", "yue", "zh"}


def split(text: str, language: str) -> list[str]:
    """The sentences of a text, each with the space behind it: together they are the text.

    Args:
        text: one line of it, or several.
        language: a code such as `de` or `pt-BR`, for its abbreviations; what is no language that
            sentencex knows is cut by the rules for English.

    Raises:
        MtkitError: if sentencex is not installed.
    """
    pieces = _segment()(_without_region(language), text)
    # Nothing is translated twice and nothing is lost, whatever the library makes of it.
    return pieces if "".join(pieces) == text and pieces else [text]


def join(texts: Iterable[str], language: str) -> str:
    """One line of sentences of a language, with a space between two where it is written so."""
    space = "" if _without_region(language) in UNSPACED else " "
    return space.join(text for text in texts if text)


def _without_region(language: str) -> str:
    """`pt` of `pt-BR`: how sentences are written is a matter of the language."""
    return language.replace("_", "-").partition("-")[0].lower()


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
