"""Writes the files of a prepared folder, in parts that a stopped run continues."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from mtkit import data
from mtkit.base.errors import column
from mtkit.base.files import MANIFEST, kind_of, sha256_of, write_record
from mtkit.base.folders import KEY, SCRATCH, check_writable, new_folder
from mtkit.tokenizer import Vocabularies

# The ends of the names of files that are written in parts.
_IN_PARTS = (".bin", ".txt", ".gz", ".tsv")
_DROPPED_HEADING = "file\tline\treason\n"


def check_free(path: Path, *, force: bool) -> None:
    """Refuse an output folder that exists or cannot be created; `force` allows a prepared one."""

    def is_kind(folder: Path) -> bool:
        return kind_of(folder / MANIFEST) == "prepared folder"

    check_writable(path, force=force, kind="a prepared folder", place="--out", is_kind=is_kind)


@contextmanager
def create_prepared(
    path: Path, *, force: bool = False, key: str | None = None, keep: bool = True
) -> Iterator[PreparedWriter]:
    """A writer for a new folder, which appears under its name when it is complete.

    Until then the files are in a hidden folder next to it, which is deleted after an error. After
    an interrupt or a kill it is kept if there is a key, a hash of all that the folder depends on:
    with the same key, the writer continues. Without `keep`, the result is deleted.
    """
    if keep:
        check_free(path, force=force)
    with (
        new_folder(path, key=key, keep=keep) as partial,
        closing(PreparedWriter(partial)) as writer,
    ):
        yield writer
        if keep:
            writer.finish()


class PreparedWriter:
    """Writes the files of a prepared folder; from `create_prepared`.

    Files are written in parts, and can be truncated to the end of an earlier part.

    Attributes:
        token_type: the data type of ids, known after `add_tokenizers`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manifest: dict[str, Any] = {}
        self._format = data.FORMAT
        self.token_type: np.dtype[Any] = np.dtype("<u2")
        self._open: dict[str, IO[bytes]] = {}
        self._dropped = [_DROPPED_HEADING]

    @property
    def scratch(self) -> Path:
        """A folder for intermediate files, which is not part of the result."""
        folder = self._folder / SCRATCH
        folder.mkdir(exist_ok=True)
        return folder

    def add_tokenizers(self, vocabularies: Vocabularies) -> None:
        """Save the vocabularies; before any pairs."""
        vocabularies.save(self._folder)
        self.token_type = np.dtype("<u2" if max(vocabularies.sizes) <= 1 << 16 else "<u4")
        self._format = data.FORMAT + vocabularies.has_tags_on_both_sides

    def tokenizers(self) -> Vocabularies:
        """The saved vocabularies."""
        return Vocabularies.load(self._folder)

    def add_pairs(self, split: str, src: Sequence[bytes], tgt: Sequence[bytes]) -> None:
        """Write encoded pairs: the ids of each sentence as `token_type`, EOS at the end."""
        for side, sentences in (("src", src), ("tgt", tgt)):
            self._add_rows(split, side, sentences, self.token_type)

    def add_links(self, split: data.Split, links: Sequence[bytes]) -> None:
        """Write the word alignments of pairs, of `data.LINK_TYPE`, in the order of `add_pairs`."""
        self._add_rows(split, data.LINKS, links, data.LINK_TYPE)

    def _add_rows(self, split: str, side: str, rows: Sequence[bytes], dtype: np.dtype[Any]) -> None:
        numbers, lengths = data.array_names(split, side)
        self._file(numbers).write(b"".join(rows))
        of_each = np.fromiter(map(len, rows), np.uint32, len(rows))
        self._file(lengths).write((of_each // dtype.itemsize).astype("<u4").tobytes())

    def add_text(self, split: str, src: Sequence[str], tgt: Sequence[str]) -> None:
        """Write raw lines of a split."""
        for side, lines in (("src", src), ("tgt", tgt)):
            text = "".join(f"{line}\n" for line in lines)
            self._file(data.text_name(split, side)).write(text.encode())

    def drop(self, file: str, line: int, reason: str) -> None:
        r"""Record a dropped training pair.

        In the table, tab, newline, return and backslash in the name of the file are `\t`, `\n`,
        `\r` and `\\`, and a byte that is not UTF-8 is as in `\xff`.
        """
        self._dropped.append(f"{column(file)}\t{line}\t{reason}\n")

    def list_near_duplicates(self, rows: Sequence[tuple[str, int, str, int, float]]) -> None:
        """Record held-out pairs: split, line, file and line of the training pair, similarity.

        The names of files are as those of `drop`.
        """
        heading = "split", "line", "file", "training line", "similarity"
        shown = [(*row[:2], column(row[2]), *row[3:]) for row in rows]
        for row in [heading, *shown] if rows else ():
            self._file(data.NEAR_DUPLICATES).write(("\t".join(map(str, row)) + "\n").encode())

    def end_part(self) -> dict[str, int]:
        """Write everything to the disk; return the sizes of the files, by their names."""
        # Without name and time, so that the same rows give the same bytes; each part is compressed
        # separately, so that the file can be truncated to an earlier part.
        rows = "".join(self._dropped).encode()
        self._dropped.clear()
        if rows:
            self._file(data.DROPPED).write(gzip.compress(rows, mtime=0))
        for file in self._open.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: file.tell() for name, file in self._open.items()}

    def back_to(self, sizes: dict[str, int]) -> None:
        """Continue where `end_part` returned these sizes; if empty, from the beginning."""
        self.close()
        self._dropped = [] if sizes else [_DROPPED_HEADING]
        written = [file.name for file in self._folder.iterdir()]
        for name in sorted({*sizes, *(name for name in written if name.endswith(_IN_PARTS))}):
            if name in sizes:
                os.truncate(self._folder / name, sizes[name])
                # Open it, so that the next part has its size even if it adds nothing.
                self._file(name)
            else:
                (self._folder / name).unlink(missing_ok=True)

    def describe(self, **facts: Any) -> None:
        """Add facts to the manifest."""
        self._manifest.update(facts)

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def finish(self) -> data.PreparedData:
        """Complete every file and write the manifest last; call it only once."""
        self.end_part()
        self.close()
        names = {*os.listdir(self._folder)} - {SCRATCH, MANIFEST}
        files = {
            path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for path in (self._folder / name for name in sorted(names))
        }
        content = {
            "kind": "prepared folder",
            "format": self._format,
            **self._manifest,
            "token_type": self.token_type.str,
            "files": files,
        }
        place = self._folder / MANIFEST
        manifest = data.DataManifest.model_validate(content)
        write_record(place, manifest)
        # Delete the key first, because a kill may come in between.
        (self._folder / SCRATCH / KEY).unlink(missing_ok=True)
        shutil.rmtree(self._folder / SCRATCH, ignore_errors=True)
        return data.PreparedData(self._folder, manifest)

    def _file(self, name: str) -> IO[bytes]:
        if name not in self._open:
            self._open[name] = (self._folder / name).open("ab")
        return self._open[name]
