"""Documents that are a zip of XML parts: a safe reader, and what their formats have in common."""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mtkit.base.errors import MtkitError
from mtkit.documents.document import MAX_UNPACKED, Document, Options, Segment, TooLargeError
from mtkit.documents.items import Element
from mtkit.documents.xml import Slot, parsed, serialised

MAX_MEMBERS = 20_000
# What begins each entry of the list of members.
_ENTRY = b"PK\x01\x02"
_ENCRYPTED = 0x1
_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError),
    *(NotImplementedError, RuntimeError),
)


class Package:
    """The members of a zip in memory; no name of a member is ever used as a path.

    It may unpack to `max_unpacked` bytes, or to twice its own size: text that is larger is no
    document, and films and pictures do not become larger.

    Raises:
        MtkitError: it is no zip, is damaged or encrypted, or becomes too large.
    """

    def __init__(self, data: bytes, max_unpacked: int = MAX_UNPACKED) -> None:
        self._data = data
        if data.count(_ENTRY) > MAX_MEMBERS:
            raise TooLargeError(f"it has more than {MAX_MEMBERS:,} members")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except _ERRORS:
            raise MtkitError("it is not a zip file, or its end is missing") from None
        # Of members with the same name the last one counts, as for other readers.
        self._members = {info.filename.replace("\\", "/"): info for info in self._zip.infolist()}
        self.names = list(self._members)
        size = sum(info.file_size for info in self._zip.infolist())
        if size > max(max_unpacked, 2 * len(data)):
            raise TooLargeError(f"it is {size:,} bytes unpacked, more than {max_unpacked:,}")
        if any(info.flag_bits & _ENCRYPTED for info in self._zip.infolist()):
            raise MtkitError("it is encrypted; save it without a password")

    def read(self, name: str) -> bytes:
        """The bytes of a member."""
        return self._read(self._members[name]) if name in self._members else b""

    def _read(self, info: zipfile.ZipInfo) -> bytes:
        try:
            with self._zip.open(info) as member:
                # Without a number, what is longer than it says is unpacked as a whole.
                return member.read(info.file_size + 1)
        except _ERRORS as error:
            raise MtkitError(f"its part {info.filename} is damaged: {error}") from None

    def write(self, changed: Mapping[str, bytes]) -> bytes:
        """The zip with some members that are changed or new; order and compression stay."""
        if not changed:
            return self._data
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as target:
            target.comment = self._zip.comment
            for info in self._zip.infolist():
                name = info.filename.replace("\\", "/")
                member = zipfile.ZipInfo(info.filename, info.date_time)
                member.external_attr, member.create_system = info.external_attr, info.create_system
                member.compress_type, member.comment = info.compress_type, info.comment
                is_changed = name in changed and info is self._members[name]
                target.writestr(member, changed[name] if is_changed else self._read(info))
            for name in sorted(changed.keys() - self._members.keys()):
                member = zipfile.ZipInfo(name)
                member.compress_type = zipfile.ZIP_DEFLATED
                target.writestr(member, changed[name])
        return written.getvalue()


class Part(NamedTuple):
    """A part with segments: its name, and the number of its first segment and of the one after."""

    name: str
    start: int
    stop: int


class ZippedDocument(Document):
    """A zip with XML parts whose texts are translated.

    A tree is not kept: it is read again when it is written, and only if something in it changes.
    """

    def __init__(self, data: bytes, options: Options) -> None:
        super().__init__()
        self._package = Package(data, options.max_unpacked)
        self._parts: list[Part] = []
        for name in self._part_names():
            start = len(self.segments)
            for slot in self._slots(name, self._tree(name)):
                self.segments.append(Segment(slot.text.line, slot.place))
            self._parts.append(Part(name, start, len(self.segments)))

    @abstractmethod
    def _part_names(self) -> Iterator[str]:
        """The parts with texts, in the order of reading; `notes` are written here, too."""

    @abstractmethod
    def _slots(self, name: str, root: Element) -> Iterator[Slot]:
        """The segments of a part; always the same ones for the same bytes."""

    def _tree(self, name: str) -> Element:
        return parsed(self._package.read(name), f"its part {name}")

    def write(
        self, translations: Sequence[str | None], marks: Mapping[int, str] | None = None
    ) -> bytes:
        """See `Document.write`."""
        changes = self.changes(translations)
        marks = marks if marks and self.shows_marks else {}
        trees: dict[str, Element] = {}
        marked: list[tuple[Slot, str]] = []
        for part in self._parts:
            wanted = sorted({*changes, *marks} & {*range(part.start, part.stop)})
            if not wanted:
                continue
            trees[part.name] = root = self._tree(part.name)
            slots = list(self._slots(part.name, root))
            for number in wanted:
                slot = slots[number - part.start]
                if number in changes:
                    slot.text.put(changes[number])
                if number in marks:
                    marked.append((slot, marks[number]))
            changed = [slots[number - part.start] for number in wanted if number in changes]
            for render in dict.fromkeys(slot.render for slot in changed):
                render()
        self._mark(trees, marked)
        return self._package.write(
            {name: serialised(root, self._package.read(name)) for name, root in trees.items()}
        )

    def _mark(self, trees: dict[str, Element], marked: Sequence[tuple[Slot, str]]) -> None:
        """Show marks in the trees; more trees of parts can be added."""
