"""Sentences of a line: where they end, how they are joined, how many a training line has.

A model that saw single sentences in training translates only the first of several. `LineFacts`
records what the training lines were like.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import sentencex

from mtkit.base.files import Record
from mtkit.base.invisible import bounds_in, visible
from mtkit.base.text import base_language

# Languages that are written without spaces between sentences.
UNSPACED = {"ja", "yue", "zh"}

# Models whose training lines have several sentences at least this often translate whole lines.
SEVERAL_ARE_USUAL = 0.10

# A number, a letter or a Roman number with a point or a bracket: of a list, or of a name as in
# "M. Dupont". It belongs to the sentence behind it.
_ENUMERATOR = re.compile(r"[(\[]?(?:\d{1,3}|[^\W\d_]|[IVXLC]{1,5})[.)\]]{1,2}")
# In German an ordinal number has a point: "im 19. Jahrhundert".
_GERMAN_ORDINAL = re.compile(r"(?:^|\D)\d{1,2}\.$")

# Characters that the library is given at once.
_AT_ONCE = 10_000


class LineFacts(Record):
    """What the training lines of a model are like.

    Attributes:
        sampled: pairs that were sampled; 0 if nothing is known.
        several: sampled pairs whose source has several sentences.
        longest: bytes of the longest source of all pairs, in UTF-8; 0 if it is not known.
        shortest: only one in a thousand targets has fewer bytes than this times those of its
            source, of the pairs with a source of `LONG_ENOUGH` bytes.
    """

    sampled: int = 0
    several: int = 0
    longest: int = 0
    shortest: float = 0.15

    @property
    def has_single_sentences(self) -> bool:
        """Whether nearly all lines have one sentence, or nothing is known of them."""
        return self.several < SEVERAL_ARE_USUAL * max(1, self.sampled)


# The lengths of shorter texts say little about their translations.
LONG_ENOUGH = 30


def split(text: str, language: str) -> list[str]:
    """The sentences of a text, each with the space after it: joined, they are the text.

    A language that sentencex does not know is split by the rules for English.
    """
    if (shown := visible(text)) != text and shown:
        # A soft hyphen must not end a sentence after "Mr".
        bounds = bounds_in(text, shown)
        ends = itertools.accumulate(map(len, split(shown, language)), initial=0)
        return [text[bounds[start] : bounds[end]] for start, end in itertools.pairwise(ends)]
    code = base_language(language)
    pieces = list(_pieces(code, text))
    sentences: list[list[str]] = []
    is_beginning = False
    for number, piece in enumerate(pieces, start=1):
        is_enumerator = _ENUMERATOR.fullmatch(piece.strip()) is not None
        if is_beginning or (sentences and number == len(pieces) and is_enumerator):
            sentences[-1].append(piece)
        else:
            sentences.append([piece])
        ends_in_ordinal = code == "de" and _GERMAN_ORDINAL.search(piece.rstrip()[-4:])
        is_beginning = is_enumerator or bool(ends_in_ordinal)
    return ["".join(sentence) for sentence in sentences] or [text]


def _pieces(code: str, text: str) -> Iterator[str]:
    """The sentences of a text by the library, in parts: of a long one its time is quadratic.

    A sentence that is longer than a part is put together again.
    """
    start, begun = 0, list[str]()
    while start < len(text):
        part = text[start : start + _AT_ONCE]
        pieces = list(sentencex.segment(code, part))
        # No text may be translated twice or lost, even if the library makes a mistake.
        if "".join(pieces) != part:
            pieces = [part]
        # The last sentence of a part may go on in the next one.
        last = "" if start + len(part) == len(text) else pieces.pop()
        start += len(part) - len(last)
        for piece in pieces:
            yield "".join([*begun, piece])
            begun.clear()
        if 2 * len(last) > _AT_ONCE:
            # Otherwise its beginning would be given again and again. No word is cut.
            begun.append(last[: last.rfind(" ") + 1] or last)
            start += len(begun[-1])


def separator(language: str) -> str:
    """What stands between two sentences: a space if the language is written with spaces."""
    return "" if base_language(language) in UNSPACED else " "
