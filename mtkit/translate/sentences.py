"""Sentence splitting with sentencex, an optional dependency.

`split` divides a line into sentences, and `join` joins their translations to one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from mtkit.errors import MtkitError
from mtkit.text import base_language

# Languages that are written without spaces between sentences.
UNSPACED = {"ja", "yue", "zh"}


def split(text: str, language: str) -> list[str]:
    """The sentences of a text, each with the space after it: joined, they are the text.

    Args:
        text: one or several lines.
        language: a code such as `de` or `pt-BR`, for its abbreviations; a language unknown to
            sentencex is split by the rules for English.

    Raises:
        MtkitError: if sentencex is not installed.
    """
    pieces = _segment()(base_language(language), text)
    # No text may be translated twice or lost, even if the library makes a mistake.
    return pieces if "".join(pieces) == text and pieces else [text]


def join(texts: Iterable[str], language: str) -> str:
    """One line of sentences, with spaces between them if the language is written with spaces."""
    space = "" if base_language(language) in UNSPACED else " "
    return space.join(text for text in texts if text)


@cache
def _segment() -> Callable[[str, str], list[str]]:
    """The function of sentencex that splits a text of a language."""
    try:
        import sentencex
    except ImportError as error:
        raise MtkitError(
            "decode.split_sentences: needs sentencex; pip install 'mtkit[split]'"
        ) from error
    return lambda language, text: list(sentencex.segment(language, text))
