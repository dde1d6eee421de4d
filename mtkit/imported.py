"""What the manifest of a run says of the model that it was imported from."""

from __future__ import annotations

from mtkit.base.files import Record


class OldIds(Record):
    """Where the subwords of a side were before an import.

    Attributes:
        size: their number.
        pad, eos, unk: ids.
        start: the id that begins a translation.
    """

    size: int
    pad: int
    eos: int
    unk: int
    start: int


class OldIdsOfSides(Record):
    """Where the subwords of both sides were before an import.

    Attributes:
        src, tgt: of each side.
        pad_bias: the output bias of padding.
    """

    src: OldIds
    tgt: OldIds
    pad_bias: float


class ImportRecord(Record):
    """The record of `mtkit import`.

    Attributes:
        source: the name of the model on the hub, or of its folder or file.
        commit: on the hub.
        licence, citations: of the model, from its card; citations are BibTeX.
        subwords: where they were, if an export can restore that.
    """

    source: str
    commit: str
    licence: str
    citations: list[str]
    subwords: OldIdsOfSides | None
