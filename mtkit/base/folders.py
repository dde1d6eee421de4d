"""Atomic creation of folders.

A folder is created under a hidden name next to its place, with a lock, and renamed when complete.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from mtkit.base.errors import LostWorkerError, MtkitError
from mtkit.base.files import lock, naming_target, require_writable, resolved

SCRATCH = "scratch"
KEY = "key"
_PARTIAL, _DRY_RUN = ".partial", ".dry-run"


def check_writable(
    path: Path, *, force: bool, kind: str, place: str, is_kind: Callable[[Path], bool]
) -> None:
    """Refuse, before any work is done, a folder or file that exists or cannot be created.

    Args:
        force: allow it to replace another one of its kind, or an empty folder.
        kind: the kind of folder or file, in words.
        place: the option or argument that names it.

    Raises:
        MtkitError: with the reason, and what to do.
    """
    with contextlib.suppress(FileNotFoundError):  # the current folder was deleted
        if Path.cwd().is_relative_to(resolved(path)):
            raise MtkitError(
                f"{path}: is the current folder or contains it, so it cannot be replaced; "
                f"give another {place}"
            )
    is_empty = path.is_dir() and not any(path.iterdir())
    # --force replaces only what was made by mtkit, and not for example a home folder. A link to
    # nothing is also there.
    if os.path.lexists(path) and not (is_empty or (path.exists() and is_kind(path))):
        raise MtkitError(
            f"{path}: exists already, and --force does not replace it, because it is not {kind}; "
            f"give another {place}"
        )
    if path.exists() and not force:
        raise MtkitError(f"{path}: exists already; give --force to replace it, or another {place}")
    parent = path.absolute().parent
    while not os.path.lexists(parent):
        parent = parent.parent
    require_writable(path, parent)


@contextlib.contextmanager
def new_folder(path: Path, *, key: str | None = None, keep: bool = True) -> Iterator[Path]:
    """A hidden folder next to `path`, which is renamed to `path` when it is complete.

    After an error nothing is changed, and also not after an interrupt, unless there is a key and
    `keep` is set; then the hidden folder stays.

    With the same key, the hidden folder is the one that a stopped run left. Without `keep`, the
    result is deleted.

    Raises:
        MtkitError: if it cannot be written, or another process is writing it.
    """
    # A dry run has a name of its own, so that it neither deletes nor locks what others write.
    ending = _PARTIAL if keep else f".{secrets.token_hex(4)}{_DRY_RUN}"
    partial = path.with_name(f".{path.name}{ending}")
    made: list[Path] = []
    try:
        made += [parent for parent in path.parents if not parent.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        if not keep:
            _remove_dry_runs(path)
        holding = path.with_name(f"{partial.name}.lock")
        with naming_target(partial, path), lock(holding, what=path, doing="written"):
            is_left = False
            try:
                partial.mkdir(exist_ok=True)
                _resume_or_clear(partial, key)
                yield partial
                if keep:
                    _rename_into_place(partial, path)
            except (KeyboardInterrupt, LostWorkerError):
                is_left = key is not None and keep
                raise
            finally:
                if not is_left:
                    shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        if error.errno is None:
            raise
        raise MtkitError(f"{error.filename or path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):  # a folder is not empty, so all is well
            for parent in made:
                parent.rmdir()


def _remove_dry_runs(path: Path) -> None:
    """Remove the folders of dry runs that were killed; one that goes on holds its lock."""
    for folder in path.parent.glob(f".{glob.escape(path.name)}.*{_DRY_RUN}"):
        holding = path.with_name(f"{folder.name}.lock")
        with contextlib.suppress(MtkitError), lock(holding, what=path, doing="written"):
            shutil.rmtree(folder, ignore_errors=True)


def is_unfinished(path: Path) -> bool:
    """Whether it is the hidden folder of `new_folder`."""
    return path.name.startswith(".") and path.suffix in (_PARTIAL, _DRY_RUN)


def _resume_or_clear(folder: Path, key: str | None) -> None:
    """Empty the folder, unless it is from a run with the same key."""
    key_file = folder / SCRATCH / KEY
    if key is not None and key_file.is_file() and key_file.read_text(encoding="utf-8") == key:
        return
    for left in list(folder.iterdir()):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()
    if key is not None:
        key_file.parent.mkdir()
        key_file.write_text(key, encoding="utf-8")


def _rename_into_place(partial: Path, path: Path) -> None:
    replaced = path.with_name(f".{path.name}.replaced")
    try:
        if path.exists():
            _remove(replaced)
            path.rename(replaced)
        partial.rename(path)
    except BaseException:
        if not path.exists():
            with contextlib.suppress(OSError):
                replaced.rename(path)
        raise
    # A run that was killed between the two steps may also have left it.
    _remove(replaced)


def _remove(folder: Path) -> None:
    """Remove a folder as far as possible; of a link only the link."""
    if folder.is_symlink():
        with contextlib.suppress(OSError):
            folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)
