"""Folders that appear as a whole or not at all.

One is made beside its place, under a hidden name and a lock, and gets its name when all is done.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mtkit.errors import LostWorkerError, MtkitError
from mtkit.files import lock

SCRATCH = "scratch"
KEY = "key"


def check_writable(
    path: Path,
    *,
    force: bool,
    kind: str,
    place: str,
    is_kind: Callable[[Path], bool],
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
    with contextlib.suppress(FileNotFoundError):  # the current folder was deleted
        if Path.cwd().is_relative_to(path.resolve()):
            raise MtkitError(
                f"{path}: is the current folder or contains it, so it cannot be replaced; "
                f"give another {place}"
            )
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
def new_folder(path: Path, *, key: str | None = None, keep: bool = True) -> Iterator[Path]:
    """A hidden folder beside `path`, which takes that name, and its place, when all went well.

    An error leaves everything as it was; so does an interrupt, unless there is a key and the
    folder is to be kept.

    Args:
        path: the folder to come.
        key: with the same one, the hidden folder is the one that a stopped run left.
        keep: whether it takes the name at all.

    Raises:
        MtkitError: if it cannot be written, or somebody writes it at this moment.
    """
    # What a stopped run has done is not for a dry run to throw away.
    partial = path.with_name(f".{path.name}.{'partial' if keep else 'dry-run'}")
    made = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        holding = path.with_name(f"{partial.name}.lock")
        with lock(holding, what=path, doing="written"):
            try:
                partial.mkdir(exist_ok=True)
                _take_up(partial, key)
                yield partial
                if keep:
                    _put_in_place(partial, path)
            except (KeyboardInterrupt, LostWorkerError):
                if key is None or not keep:
                    shutil.rmtree(partial, ignore_errors=True)
                raise
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
            if not keep:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        if error.errno is None:
            raise
        raise MtkitError(f"{error.filename or path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):  # one is not empty, so all went well
            for parent in made:
                parent.rmdir()


def _take_up(folder: Path, key: str | None) -> None:
    """Empty the folder, unless a run with the same key left it."""
    note = folder / SCRATCH / KEY
    if key is not None and note.is_file() and note.read_text(encoding="utf-8") == key:
        return
    for left in list(folder.iterdir()):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()
    if key is not None:
        note.parent.mkdir()
        note.write_text(key, encoding="utf-8")


def _put_in_place(partial: Path, path: Path) -> None:
    replaced = path.with_name(f".{path.name}.replaced")
    try:
        if path.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            path.rename(replaced)
        partial.rename(path)
    except BaseException:
        if not path.exists():
            with contextlib.suppress(OSError):
                replaced.rename(path)
        raise
    # A run that was killed between the two may have left it as well.
    shutil.rmtree(replaced, ignore_errors=True)
