"""Safe files: atomic writing, checksums, JSON records, locks.

A file is written under a temporary name, synced and renamed, so a file with its final name is
complete. A JSON file is parsed as a strict model. A sealed JSON file has the checksum of
its own content, so a changed file is refused.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import hashlib
import itertools
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_type_hints

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.models import Around, Check, InvalidValuesError, Model
from mtkit.base.text import compressed

log = logging.getLogger(__name__)

# What a run folder and a prepared folder have, and what an export has.
MANIFEST, EXPORT = "manifest.json", "export.json"
_MAKERS = {"run folder": "mtkit train makes one", "prepared folder": "mtkit prepare makes one"}
# Folders that are looked at to say which one was meant.
_MAX_SEARCHED = 100
_CHECKSUM = "checksum"
# Characters of the name of a file in its temporary name. A name has at most 255 bytes, and a
# character up to four.
_NAME_IN_PARTIAL = 50
# The errors of a file system without locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class Record(Model):
    """The content of a JSON file: every key is known and has its type.

    Its key `format` is the version of its format; a file without it has version 1.

    Attributes:
        newest_formats: by the key `kind` of the file, or "" without one, the newest version that
            can be read; 1 for other kinds.
    """

    newest_formats: ClassVar[Mapping[str, int]] = {}


RecordT = TypeVar("RecordT", bound=Record)


class NewerFormatError(MtkitError):
    """A file that a newer version wrote. It is not damaged, so nothing may replace it."""

    def __init__(self, place: Path, version: int, newest: int) -> None:
        super().__init__(
            f"{place}: was written by a newer mtkit (format {version}, this one reads up to "
            f"{newest}); install a newer mtkit"
        )


class _AnyText(Around):
    def checked(self, value: Any, check: Check) -> Any:
        return value if isinstance(value, str) else check(value)


# A path, which may hold bytes that are not UTF-8 (as lone surrogates); pydantic refuses those.
FileName = Annotated[str, _AnyText()]


def resolved(path: Path) -> Path:
    """The path with all links followed, also of a missing file; `OSError` for a circle of links."""
    # Path.resolve raises RuntimeError for a circle, and from Python 3.13 on nothing.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.stat()
    return Path(os.path.realpath(path))


def shareable_name(path: Path | str) -> str:
    """A path as a file that is passed on may name it, without the folders of this machine.

    It is the path as it was given if that is relative and leads to no folder above, and otherwise
    its last part.
    """
    given = Path(path)
    return given.name if given.is_absolute() or ".." in given.parts else str(path)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal; `MtkitError` if it cannot be read."""
    with naming_file(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def xxh3_of(path: Path) -> str:
    """XXH3 (128 bits) of a file's bytes, in hexadecimal; `MtkitError` if it cannot be read."""
    import xxhash

    with naming_file(path), path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def sha256_of_json(value: Any) -> str:
    """SHA-256 of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Report disk errors in one line that names the file."""
    try:
        yield
    except OSError as error:
        raise MtkitError(f"{error.filename or path}: {error.strerror or error}") from error


@contextlib.contextmanager
def naming_target(partial: Path, target: Path) -> Iterator[None]:
    """Disk errors about a temporary file or folder name what it will be instead."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            # It is not about a file, and has its own text.
            raise
        # The error of a full disk has no name.
        name = str(target) if error.filename is None else str(error.filename)
        error.filename = name.replace(str(partial), str(target))
        raise
    except MtkitError as error:
        error.args = (str(error).replace(str(partial), str(target)),)
        raise


def require_writable(path: Path, folder: Path) -> None:
    """Refuse `path` if no file can be created in a folder. It is tried: root has all permissions.

    Raises:
        MtkitError: if it cannot, with the reason of the system.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise MtkitError(f"{path}: no file can be created in {folder}: {error.strerror}") from None


def partial_name(path: Path) -> Path:
    """The temporary name next to `path` for a folder that is incomplete; one process has it."""
    return path.with_name(f".{path.name}.partial")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The temporary name, next to `path`, of a file that replaces it when it is written.

    No other process has the same name, and none sees an incomplete file under the name of `path`.

    Raises:
        OSError: if writing fails, with the name of the file, which is unchanged then.
    """
    unique = f"{path.name[:_NAME_IN_PARTIAL]}.{os.urandom(4).hex()}"
    partial = path.with_name(f".{unique}.partial")
    try:
        with naming_target(partial, path):
            yield partial
            with contextlib.suppress(OSError):
                shutil.copymode(path, partial)  # of the file that is replaced
            sync(partial)
            partial.replace(path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def write_whole(path: Path, parts: str | Iterable[str | bytes]) -> None:
    """Replace a file atomically, by a text or by parts that are made while it is written.

    It is compressed if its name ends so. Raises as `replacing`.
    """
    texts = [parts] if isinstance(parts, str) else parts
    with replacing(path) as partial, partial.open("xb") as raw, compressed(path, raw) as file:
        file.writelines(part.encode() if isinstance(part, str) else part for part in texts)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that can be encoded in UTF-8; names that are not UTF-8 are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def write_record(path: Path, record: Record) -> None:
    """Write a sealed JSON file atomically; raises as `write_whole`."""
    content = record.model_dump(exclude_unset=True)
    sealed = {**content, _CHECKSUM: sha256_of_json(content)}
    write_whole(path, json_text(sealed, indent=2) + "\n")


def read_record(path: Path, kind: type[RecordT], *, advice: str) -> RecordT:
    """The record of a sealed JSON file; its field `kind`, if it has one, names the folder.

    Raises:
        NewerFormatError: if it was written by a newer version.
        MtkitError: if the file is missing, was changed, or does not fit the record.
    """
    wanted = ""
    if "kind" in kind.__annotations__:
        (wanted,) = get_args(get_type_hints(kind)["kind"])
        if not path.is_file():
            raise _not_a(wanted, path.parent)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}; {advice}") from error
    except (ValueError, RecursionError) as error:
        raise MtkitError(f"{path}: damaged ({reason_of(error, most=200)}); {advice}") from error
    checksum = content.pop(_CHECKSUM, None) if isinstance(content, dict) else None
    if checksum != sha256_of_json(content):
        raise MtkitError(f"{path}: changed since it was written (its checksum is wrong); {advice}")
    if wanted and content.get("kind", wanted) != wanted:
        raise MtkitError(f"{path.parent}: is a {content['kind']}, not a {wanted}")
    # First, because a newer version may also have other keys.
    version, newest = (
        content.get("format", 1),
        kind.newest_formats.get(str(content.get("kind", "")), 1),
    )
    if isinstance(version, int) and version > newest:
        raise NewerFormatError(path.parent if "kind" in content else path, version, newest)
    return parse_record(content, kind, name=str(path), advice=advice)


def kind_of(path: Path) -> str:
    """The field `kind` of a sealed JSON file, as in `read_record`; empty if it is none."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and _CHECKSUM in content:
            return str(content.get("kind", ""))
    return ""


def _not_a(wanted: str, path: Path) -> MtkitError:
    """The error for a path that is not a folder of the `wanted` kind: it says what it is."""
    advice = _MAKERS[wanted]
    if not path.exists():
        return MtkitError(f"{path}: there is no such {wanted}; {advice}")
    inside = itertools.islice(path.glob(f"[!.]*/{MANIFEST}"), _MAX_SEARCHED)
    for manifest in (*sorted(inside), *(folder / MANIFEST for folder in path.parents)):
        if kind_of(manifest) == wanted:
            return MtkitError(f"{path}: is not a {wanted}, but {manifest.parent} is one; give that")
    what = "a folder of something else" if path.is_dir() else "a file"
    if (path / EXPORT).is_file():
        what = "an export for other software"
    elif path.is_dir() and not any(path.glob("*")):
        what = "an empty folder"
    return MtkitError(f"{path}: is {what}, not a {wanted}; {advice}")


def parse_record(content: Any, kind: type[RecordT], *, name: str, advice: str) -> RecordT:
    """Parse a plain value as a record; `name` is its origin, for messages.

    Raises:
        MtkitError: naming the first key that is wrong.
    """
    try:
        return kind.model_validate(content)
    except InvalidValuesError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "content"
        raise MtkitError(
            f"{name}: written by another version of mtkit ({key}: {first['msg'].lower()}); {advice}"
        ) from None


@dataclass(frozen=True)
class FileLock:
    """A lock file that this process holds open."""

    path: Path
    descriptor: int

    def is_in_place(self) -> bool:
        """Whether the file under the path is still the one that is held."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), os.stat(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return False


@contextlib.contextmanager
def lock(path: Path, *, what: Path, doing: str) -> Iterator[FileLock]:
    """Hold a lock file, which exists while the lock is held.

    The lock is the kernel's (flock), so it always ends with the process. It works between machines
    if the file system supports that, as NFS does since Linux 2.6.12.

    Args:
        path: in a folder that exists.
        what: the file or folder that is locked.
        doing: what is being done to it, such as "trained".

    Raises:
        MtkitError: if another process holds it, naming process, host and time; if the file cannot
            be written.
    """
    while True:
        try:
            file = path.open("a+b", buffering=0)
        except OSError as error:
            raise MtkitError(f"{what}: cannot be locked: {error.strerror}") from error
        with file:
            held = FileLock(path, file.fileno())
            _take(held, what, doing)
            # Else the last owner removed the file after it was opened here.
            if held.is_in_place():
                _write_owner(held)
                try:
                    yield held
                finally:
                    # While it is held: a process that has the file open sees that it is gone.
                    if held.is_in_place():
                        with contextlib.suppress(OSError):
                            path.unlink()
                return


def _take(held: FileLock, what: Path, doing: str) -> None:
    try:
        fcntl.flock(held.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise MtkitError(
            f"{what}: is being {doing} by {_owner(held)}; wait until it ends"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise MtkitError(f"{what}: cannot be locked: {error.strerror}") from error
        log.warning(
            "%s: this file system has no locks; let no other process write there", held.path.parent
        )


def _write_owner(held: FileLock) -> None:
    """Write this process to the lock file; errors such as a full disk are ignored."""
    import socket

    now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    owner = f"process {os.getpid()} on {socket.gethostname()} since {now}"
    with contextlib.suppress(OSError):
        os.ftruncate(held.descriptor, 0)
        os.pwrite(held.descriptor, owner.encode(), 0)


def _owner(held: FileLock) -> str:
    # A process that has just taken the lock writes its name a moment later.
    for _ in range(50):
        with contextlib.suppress(OSError):
            if text := os.pread(held.descriptor, 4096, 0):
                return text.decode(errors="replace")
        time.sleep(0.01)
    return "another process"
