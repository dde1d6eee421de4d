"""What can be wrong with a translation: the kinds of findings, and one finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Each kind and what it means, in the order of tables.
KINDS = {
    "loop": "A phrase, or a part of a word, is repeated at once, unlike in the source.",
    "omission": "Words of the source have no counterpart in the translation.",
    "addition": "Words of the translation have no counterpart in the source.",
    "copied": "Much of the translation is text of the source.",
    "language": "The translation, or the source, is in another language or script.",
    "damage": "Characters are damaged: UTF-8 was read as another encoding, or some are lost.",
    "capitals": "The translation is all capitals, or has none, unlike the source.",
    "numbers": "A number of the source was changed, or is missing; or one was added.",
    "units": "A number has another unit than in the source.",
    "placeholders": "The placeholders of programs, such as {name} and %s, are not those of the"
    " source.",
    "markup": "The tags and entities are not those of the source.",
    "addresses": "The URLs and e-mail addresses are not those of the source.",
    "length": "The translation is empty, or much longer or shorter than usual.",
    "cut": "The end of the translation is missing.",
    "unknown": "The source has characters that the vocabulary of the model lacks, or many words"
    " that are new to it.",
    "glossary": "A term of the glossary lacks its translation.",
}


@dataclass(frozen=True)
class Finding:
    """Something that is probably wrong with a translation, with the evidence in a short sentence.

    The kind is a key of `KINDS`, the severity is from 0 to 1, and `src` and `tgt` are the
    characters that it is about, if there are some.
    """

    kind: str
    reason: str
    severity: float
    src: range | None = None
    tgt: range | None = None

    def as_dict(self) -> dict[str, Any]:
        """The finding for JSON, without the spans that it lacks."""
        result: dict[str, Any] = {
            "kind": self.kind,
            "reason": self.reason,
            "severity": round(self.severity, 3),
        }
        for name, span in (("src", self.src), ("tgt", self.tgt)):
            if span is not None:
                result[name] = [span.start, span.stop]
        return result
