"""Reads the card of a model, `README.md`: its licence, and what to cite."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtkit.plain_yaml import NotYamlError, parse_yaml

CARD = "README.md"
NO_LICENCE = "unknown; its card has none"
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)\r?\n---\s*(?:\n|\Z)", re.DOTALL)
_BIBTEX = re.compile(r"^```[a-z]*\s*\n(\s*@\w+\{.*?)^```", re.DOTALL | re.MULTILINE)
# Longer cards are cut, and so is what is kept of one.
_LONGEST, _LONGEST_CITATION, _MOST_CITATIONS = 1_000_000, 4_000, 10


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
        with (folder / CARD).open(encoding="utf-8") as file:
            text = file.read(_LONGEST)
    except (OSError, UnicodeDecodeError):
        return Card()
    facts: Any = {}
    if match := _FRONT_MATTER.match(text):
        try:
            facts = parse_yaml(match[1], words=True)
        except NotYamlError:
            facts = {}
    licence = facts.get("license", "") if isinstance(facts, dict) else ""
    names = licence if isinstance(licence, list) else [licence]
    citations = [found.strip()[:_LONGEST_CITATION] for found in _BIBTEX.findall(text)]
    return Card(
        " ".join(", ".join(str(name) for name in names).split())[:200],
        citations[:_MOST_CITATIONS],
    )
