"""Reads the card of a model, `README.md`: its licence, and what to cite."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, takewhile
from pathlib import Path

from mtkit.base.errors import MtkitError
from mtkit.convert.foreign import open_file, yaml_mapping

CARD = "README.md"
NO_LICENCE = "unknown; its card has none"
_LINE, _FENCE = "---", "```"
_BIBTEX = re.compile(r"\s*@\w+\{")
# Longer cards are cut, and so is what is kept of one.
_LONGEST, _LONGEST_CITATION, _MOST_CITATIONS = 1_000_000, 4_000, 10
_LONGEST_LICENCE = 200


@dataclass(frozen=True)
class Card:
    """What a card says.

    Attributes:
        licence: such as `cc-by-4.0`; empty if it does not say.
        citations: BibTeX, each with one or more entries.
    """

    licence: str = ""
    citations: list[str] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        """The keys of the BibTeX entries."""
        return [key for text in self.citations for key in re.findall(r"@\w+\{\s*([^\s,]+)", text)]


def read_card(folder: Path) -> Card:
    """The card in a folder; empty if there is none, or none that can be read."""
    try:
        with open_file(folder / CARD) as file:
            text: str = file.read(_LONGEST).decode("utf-8", errors="replace")
    except OSError:
        return Card()
    lines = [line.rstrip() for line in text.split("\n")]
    licence = ""
    if lines[0] == _LINE and _LINE in lines[1:]:
        licence = _licence(lines[1 : lines.index(_LINE, 1)])
    citations = (block[:_LONGEST_CITATION] for block in _blocks(lines) if _BIBTEX.match(block))
    return Card(licence, [text.strip() for text in islice(citations, _MOST_CITATIONS)])


def _licence(front_matter: list[str]) -> str:
    """The value of `license`, which may continue on lines that are indented or list items.

    The other facts, some of which are long tables of scores, are not read.
    """
    places = [i for i, line in enumerate(front_matter) if line.startswith("license:")]
    if not places:
        return ""
    first, *rest = front_matter[places[0] :]
    more = takewhile(lambda line: not line or line[0] in " -", rest)
    text = "\n".join([first, *more])
    try:
        value = yaml_mapping(text, CARD)["license"]
    except MtkitError:
        return ""
    names = value if isinstance(value, list) else [value]
    words = ", ".join(name for name in names if isinstance(name, str)).split()
    return " ".join(words)[:_LONGEST_LICENCE]


def _blocks(lines: Iterable[str]) -> Iterator[str]:
    """The blocks of code in Markdown, each as one text."""
    block: list[str] | None = None
    for line in lines:
        if not line.startswith(_FENCE):
            if block is not None:
                block.append(line)
        elif block is None:
            block = []
        else:
            yield "\n".join(block)
            block = None
