"""A zip in memory: a safe reader, and a writer that copies what does not change."""

from __future__ import annotations

import copy
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Mapping
from itertools import pairwise

from mtkit.base.errors import MtkitError
from mtkit.documents.document import MAX_UNPACKED, TooLargeError

MAX_MEMBERS = 20_000
# What begins each entry of the list of members.
_ENTRY = b"PK\x01\x02"
# The bytes before the name of a member.
_HEADER = 30
# Flags of a member.
_ENCRYPTED, _UTF_8 = 0x1, 0x800
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError)
_ERRORS = (*_ZIP_ERRORS, EOFError, OSError, ValueError, RuntimeError)
# What is said if members have such names; `{}` is how many have.
_NOTES = {
    "it is signed; the signature becomes invalid": r"_xmlsignatures/|META-INF/\w*signatures\.xml$",
    "its macros are kept as they are": r".*vbaProject\.bin$|Basic/|Scripts/",
    "files that are embedded in it are kept as they are: {}": r".*/embeddings/",
}


class Package:
    """The members of a zip; no name of a member is ever used as a path.

    It may unpack to `max_unpacked` bytes, or to twice its own size: text that is larger is no
    document, and films and pictures do not become larger. MtkitError if it becomes too large, or is
    no zip, damaged or encrypted.
    """

    def __init__(self, data: bytes, max_unpacked: int = MAX_UNPACKED) -> None:
        self._data = data
        if data.count(_ENTRY) > MAX_MEMBERS:
            raise TooLargeError(f"it has more than {MAX_MEMBERS:,} members")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except _ERRORS:
            raise MtkitError("it is not a zip file, or its end is missing") from None
        infos = self._zip.infolist()
        names = [info.filename.replace("\\", "/") for info in infos]
        self._members = dict(zip(names, infos, strict=True))
        self.names = list(self._members)
        # Programs differ in which of them counts, and Word opens none. A folder has nothing in it.
        for name, info in zip(names, infos, strict=True):
            if self._members[name] is not info and not name.endswith("/"):
                raise MtkitError(f"it is damaged: it has two members {name}")
        self.notes = [
            note.format(count)
            for note, pattern in _NOTES.items()
            if (count := sum(bool(re.match(pattern, name)) for name in self.names))
        ]
        size = sum(info.file_size for info in infos)
        if size > max(max_unpacked, 2 * len(data)):
            raise TooLargeError(f"it is {size:,} bytes unpacked, more than {max_unpacked:,}")
        if sum(info.compress_size for info in infos) > len(data):
            raise MtkitError("it is damaged: its members overlap")
        if any(info.flag_bits & _ENCRYPTED for info in infos):
            raise MtkitError("it is encrypted; save it without a password")
        if others := {info.compress_type for info in infos}.difference(_METHODS):
            raise MtkitError(f"it is compressed by a method that is not supported: {min(others)}")

    def read(self, name: str) -> bytes:
        """The bytes of a member; empty if there is none."""
        return self._read(self._members[name]) if name in self._members else b""

    def size(self, name: str) -> int:
        """The number of these bytes."""
        return self._members[name].file_size

    def _read(self, info: zipfile.ZipInfo) -> bytes:
        try:
            with self._zip.open(info) as member:
                # Without a number, what is longer than it says is unpacked as a whole.
                return member.read(info.file_size + 1)
        except _ERRORS as error:
            raise MtkitError(f"its part {info.filename} is damaged: {error}") from None

    def write(self, changed: Mapping[str, bytes]) -> bytes:
        """The zip with some members that are changed or new; the bytes of all others stay."""
        if not changed:
            return self._data
        infos = self._zip.infolist()
        offsets = sorted({self._zip.start_dir, *(info.header_offset for info in infos)})
        ends = dict(pairwise(offsets))
        new = {id(self._members.get(name)): data for name, data in changed.items()}
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as target:
            target.comment = self._zip.comment
            for info in infos:
                member, begin = copy.copy(info), info.header_offset
                # The name is in front of the bytes, too, and must not be written in another way.
                name = info.orig_filename
                is_same_name = name.isascii() or info.flag_bits & _UTF_8
                if id(info) in new or not is_same_name or "\0" in name:
                    member.flag_bits, member.extra = 0, b""
                    target.writestr(member, new[id(info)] if id(info) in new else self._read(info))
                    continue
                # A wrong place of another member may be inside of this one.
                least = begin + _HEADER + len(name) + info.compress_size
                raw = self._data[begin : max(ends[begin], least)]
                member.header_offset = target.start_dir
                target.start_dir += written.write(raw)
                target.filelist.append(member)
            for name in sorted(changed.keys() - self._members.keys()):
                target.writestr(zipfile.ZipInfo(name), changed[name], zipfile.ZIP_DEFLATED)
        return written.getvalue()
