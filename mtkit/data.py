"""The prepared folder, written and read; lines of text.

This module owns the names inside `data/<name>/`. What goes into the folder is decided by
`prepare`, and in which order a run sees its sentence pairs by `batches`. It does without PyTorch,
because preparing is done by several processes, and each would load it.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import json
import lzma
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from mtkit.errors import MtkitError
from mtkit.tokenizer import EOS_ID, PAD_ID, Tokenizer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Split = Literal["train", "valid", "test"]
IntArray = npt.NDArray[np.int64]

FORMAT = 1
_MANIFEST = "manifest.json"
_TOKENIZER = "tokenizer.model"
_DROPPED = "dropped.tsv.gz"

# ---------------------------------------------------------------------------------------------
# Lines of text


def open_binary(path: Path) -> IO[bytes]:
    """A plain or compressed (.gz, .bz2, .xz, .zst) file, open for reading its plain bytes."""
    try:
        match path.suffix:
            case ".gz":
                return gzip.GzipFile(path)  # type: ignore[return-value]
            case ".bz2":
                return bz2.open(path)
            case ".xz":
                return lzma.open(path)
            case ".zst":
                return zstd.open(path)  # type: ignore[return-value, unused-ignore]
            case _:
                return path.open("rb")
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error


def decode_lines(stream: Iterable[bytes], *, name: str) -> Iterator[str]:
    r"""The lines of a byte stream, which end at \n and nowhere else.

    A byte-order mark at the start and the \r of a \r\n are no part of a line.

    Args:
        stream: pieces that end after each \n, as binary files yield them.
        name: of the stream, for messages.

    Raises:
        MtkitError: for the first line that is not UTF-8, with its number.
    """
    for number, raw in enumerate(stream, start=1):
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MtkitError(
                f"{name}, line {number}: not UTF-8 (byte 0x{raw[error.start]:02x} at position "
                f"{error.start + 1}); convert the file, with iconv for example"
            ) from None


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a plain or compressed text file, one at a time.

    Raises:
        MtkitError: if the file is missing, damaged or not UTF-8.
    """
    with open_binary(path) as stream:
        try:
            yield from decode_lines(stream, name=str(path))
        except (OSError, EOFError, lzma.LZMAError, zlib.error, zstd.ZstdError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise MtkitError(f"{path}: cannot be read: {reason}") from error


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error


# ---------------------------------------------------------------------------------------------
# The prepared folder


class TokenArray:
    """Sentences as one flat array of ids, each ended by EOS; memory-mapped.

    Attributes:
        lengths: tokens of each sentence, EOS counted.
    """

    def __init__(self, ids: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> None:
        self._ids = ids
        self.lengths: IntArray = lengths.astype(np.int64)
        self._starts: IntArray = np.cumsum(self.lengths) - self.lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> list[int]:
        start = self._starts[index]
        ids: list[int] = self._ids[start : start + self.lengths[index]].tolist()
        return ids

    def select(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """The ids of some sentences, one after another, and the length of each."""
        lengths = self.lengths[indices]
        ends = np.cumsum(lengths)
        first = np.repeat(self._starts[indices] - (ends - lengths), lengths)
        return self._ids[first + np.arange(len(first))].astype(np.int64), lengths

    def counts(self, vocab_size: int) -> IntArray:
        """(V,): how often each id occurs."""
        total = np.zeros(vocab_size, np.int64)
        # Piece by piece, because counting copies what it counts.
        for start in range(0, len(self._ids), 1 << 22):
            total += np.bincount(self._ids[start : start + (1 << 22)], minlength=vocab_size)
        return total

    def padded(self, indices: IntArray) -> IntArray:
        """The sentences of `indices` as (B, longest), padded with `PAD_ID`."""
        lengths = self.lengths[indices]
        column = np.arange(lengths.max(initial=0))
        inside = column < lengths[:, None]
        flat = np.where(inside, self._starts[indices][:, None] + column, 0)
        return np.where(inside, self._ids[flat].astype(np.int64), PAD_ID)


@dataclass(frozen=True)
class SentencePairs:
    """Encoded sentence pairs: `src[i]` and `tgt[i]` belong together."""

    src: TokenArray
    tgt: TokenArray

    def __len__(self) -> int:
        return len(self.src)


class PreparedData:
    """A prepared folder, complete and immutable.

    Attributes:
        path: the folder.
        manifest: what `prepare` recorded.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: Path) -> PreparedData:
        """The prepared folder at `path`.

        Raises:
            MtkitError: if there is none, or a file of it is missing or has another size.
        """
        try:
            manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        except OSError as error:
            raise MtkitError(
                f"{path}: no prepared data here ({_MANIFEST}: {error.strerror}); "
                "run mtkit prepare first"
            ) from error
        except ValueError as error:
            raise MtkitError(f"{path / _MANIFEST}: damaged ({error}); prepare again") from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise MtkitError(f"{path}: prepared by another version of mtkit; prepare again")
        for name, facts in manifest["files"].items():
            file = path / name
            if not file.is_file() or file.stat().st_size != facts["bytes"]:
                raise MtkitError(f"{file}: missing or of the wrong size; prepare again")
        return cls(path, manifest)

    @staticmethod
    @contextlib.contextmanager
    def create(path: Path, *, force: bool = False) -> Iterator[PreparedWriter]:
        """A writer for a new folder, which appears under its name when all went well.

        Until then the files are in a hidden folder beside it. An error leaves nothing behind.

        Args:
            path: the folder to come.
            force: replace what is there.

        Raises:
            MtkitError: if the folder exists and is not to be replaced, or cannot be written.
        """
        check_writable(path, force=force)
        with (
            new_folder(path) as partial,
            contextlib.closing(PreparedWriter(partial)) as writer,
        ):
            yield writer
            writer.finish()

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.path.resolve().name

    @property
    def src_lang(self) -> str:
        """Code of the source language."""
        return str(self.manifest["src_lang"])

    @property
    def tgt_lang(self) -> str:
        """Code of the target language."""
        return str(self.manifest["tgt_lang"])

    @property
    def fingerprint(self) -> str:
        """One SHA-256 for all that training and scoring see of this folder."""
        files = {n: f["sha256"] for n, f in self.manifest["files"].items() if n != _DROPPED}
        return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()

    def verify(self) -> None:
        """Read every file and compare its SHA-256 with the manifest's.

        Raises:
            MtkitError: naming the file that was changed.
        """
        for name, facts in self.manifest["files"].items():
            if sha256_of(self.path / name) != facts["sha256"]:
                raise MtkitError(f"{self.path / name}: changed since it was prepared")

    def tokenizer(self) -> Tokenizer:
        """The joint subwords."""
        return Tokenizer.load(self.path / _TOKENIZER)

    def pairs(self, split: Split) -> SentencePairs:
        """The encoded pairs of `train` or `valid`."""
        return SentencePairs(self._tokens(split, "src"), self._tokens(split, "tgt"))

    def text(self, split: Split) -> tuple[list[str], list[str]]:
        """Raw source and target lines of `valid` or `test`.

        Raises:
            MtkitError: if the data was prepared without that split.
        """
        files = [self.path / _text_name(split, side) for side in ("src", "tgt")]
        if files[0].name not in self.manifest["files"]:
            raise MtkitError(f"{self.path}: prepared without a {split} set (--{split})")
        src, tgt = (list(read_lines(file)) for file in files)
        return src, tgt

    def _tokens(self, split: str, side: str) -> TokenArray:
        ids, lengths = _array_names(split, side)
        dtype = np.dtype(self.manifest["token_type"])
        return TokenArray(
            _map_array(self.path / ids, dtype), _map_array(self.path / lengths, np.dtype("<u4"))
        )


class PreparedWriter:
    """Writes the files of a prepared folder; made by `PreparedData.create`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manifest: dict[str, Any] = {}
        self._token_type: np.dtype[Any] = np.dtype("<u2")
        self._dropped_file = (folder / _DROPPED).open("wb")
        self._dropped = gzip.GzipFile(
            # No name and no time inside, so that the same rows are the same bytes.
            filename="",
            mode="wb",
            fileobj=self._dropped_file,
            mtime=0,
        )
        self._dropped.write(b"file\tline\treason\n")

    def scratch(self, name: str) -> Path:
        """A path for an intermediate file, which will not be part of the folder."""
        folder = self._folder / "scratch"
        folder.mkdir(exist_ok=True)
        return folder / name

    def add_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Keep the subwords; before any pairs."""
        tokenizer.save(self._folder / _TOKENIZER)
        self._token_type = np.dtype("<u2") if len(tokenizer) <= 1 << 16 else np.dtype("<u4")

    def add_pairs(self, split: Split, pairs: Iterable[tuple[list[int], list[int]]]) -> int:
        """Write encoded pairs, given without EOS; return their number."""
        count = 0
        with contextlib.ExitStack() as stack:
            files = [
                [
                    stack.enter_context((self._folder / name).open("wb"))
                    for name in _array_names(split, side)
                ]
                for side in ("src", "tgt")
            ]
            for pair in pairs:
                count += 1
                for ids, (ids_file, lengths_file) in zip(pair, files, strict=True):
                    ids_file.write(np.array([*ids, EOS_ID], self._token_type).tobytes())
                    lengths_file.write(np.uint32(len(ids) + 1).astype("<u4").tobytes())
        return count

    def add_text(self, split: Split, pairs: Sequence[tuple[str, str]]) -> None:
        """Write the raw lines of a split."""
        for index, side in enumerate(("src", "tgt")):
            text = "".join(f"{pair[index]}\n" for pair in pairs)
            (self._folder / _text_name(split, side)).write_text(text, encoding="utf-8", newline="")

    def drop(self, file: str, line: int, reason: str) -> None:
        """Record a pair that is left out of training."""
        self._dropped.write(f"{file}\t{line}\t{reason}\n".encode())

    def describe(self, **facts: Any) -> None:
        """Add facts to the manifest."""
        self._manifest.update(facts)

    def close(self) -> None:
        """Let go of the files; a second time does nothing."""
        self._dropped.close()
        self._dropped_file.close()

    def finish(self) -> None:
        """Finish every file and write the manifest, the last of them."""
        self.close()
        shutil.rmtree(self._folder / "scratch", ignore_errors=True)
        files = {
            file.name: {"bytes": file.stat().st_size, "sha256": sha256_of(file)}
            for file in sorted(self._folder.iterdir())
        }
        manifest = {
            "format": FORMAT,
            **self._manifest,
            "token_type": self._token_type.str,
            "files": files,
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        (self._folder / _MANIFEST).write_text(text, encoding="utf-8")


def _is_prepared(folder: Path) -> bool:
    return (folder / _MANIFEST).is_file()


def check_writable(
    path: Path,
    *,
    force: bool,
    kind: str = "a prepared folder",
    place: str = "--out",
    is_kind: Callable[[Path], bool] = _is_prepared,
) -> None:
    """Refuse, before any work is done, a folder that exists or cannot be made.

    Args:
        path: the folder to come.
        force: let it take the place of another of its kind, or of an empty one.
        kind: what it will be, in words.
        place: how the user names it.
        is_kind: whether a folder is of that kind.

    Raises:
        MtkitError: saying which, and what to do.
    """
    if path.exists() and not force:
        raise MtkitError(f"{path}: exists already; give --force to replace it, or another {place}")
    if path.exists() and not (path.is_dir() and (is_kind(path) or not any(path.iterdir()))):
        # --force replaces what we made, not somebody's home folder.
        raise MtkitError(f"{path}: is not {kind}, so --force does not replace it")
    parent = path.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise MtkitError(f"{path}: cannot be written, because {parent} is not a writable folder")


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A hidden folder beside `path`, which takes that name, and its place, when all went well.

    An error leaves everything as it was.

    Raises:
        MtkitError: if it cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    made_parent = not path.parent.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What a killed run left.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        if path.exists():
            replaced = path.with_name(f".{path.name}.replaced")
            shutil.rmtree(replaced, ignore_errors=True)
            path.rename(replaced)
            partial.rename(path)
            shutil.rmtree(replaced)
        else:
            partial.rename(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise MtkitError(f"{error.filename or path}: {error.strerror}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if made_parent:
            with contextlib.suppress(OSError):  # it is not empty, so all went well
                path.parent.rmdir()


def find_data(root: Path) -> Path:
    """The prepared folder under `root` that was written last.

    Raises:
        MtkitError: if there is none.
    """
    found = list(root.glob(f"[!.]*/{_MANIFEST}"))
    if not found:
        raise MtkitError(
            f"no prepared data under {root}/; run mtkit prepare first, as in "
            "mtkit prepare demo-en-de, or give --data"
        )
    return max(found, key=lambda manifest: manifest.stat().st_mtime_ns).parent


def _array_names(split: str, side: str) -> tuple[str, str]:
    return f"{split}.{side}.bin", f"{split}.{side}.lengths.bin"


def _text_name(split: str, side: str) -> str:
    return f"{split}.{side}.txt"


def _map_array(path: Path, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    # An empty file cannot be mapped.
    if path.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")
