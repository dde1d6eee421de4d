"""Test sets by their names, such as wmt14/full, which sacreBLEU downloads and checks."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mtkit.base.errors import MtkitError, one_line, reason_of
from mtkit.base.language_id import is_same_language
from mtkit.base.text import read_lines
from mtkit.score.scores import refuse_unequal

log = logging.getLogger(__name__)

# Seconds to wait for a server that does not answer. sacreBLEU would wait for ever.
_TIMEOUT = 30


class ScoredText(NamedTuple):
    """What systems translate, and one or more references for all lines.

    Languages, sources or references that are not known are empty. `test_set` is `NAME:SRC-TGT` of a
    public test set. `near` are the indices of lines that are nearly in the training text of a run.
    `name` says on a page what text it is.
    """

    src_lang: str
    tgt_lang: str
    src: list[str]
    references: list[list[str]]
    test_set: str | None = None
    near: frozenset[int] = frozenset()
    name: str = ""

    @property
    def size(self) -> int:
        """The number of lines."""
        return len((self.references or [self.src])[0])


def find_test_set(
    wanted: str, *, src_lang: str | None = None, tgt_lang: str | None = None
) -> ScoredText:
    """A test set of sacreBLEU, which is downloaded the first time.

    It is kept in the folder that the environment variable SACREBLEU names, or in ~/.sacrebleu.

    Args:
        wanted: `NAME:SRC-TGT`, or `NAME` if the languages are given.

    Raises:
        MtkitError: if there is no such set, or it cannot be downloaded.
    """
    from sacrebleu.dataset import DATASETS

    name, _, pair = wanted.partition(":")
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1)
        hint = f"did you mean {near[0]}?" if near else "`sacrebleu --list` prints their names"
        raise MtkitError(f"--test-set {wanted}: there is no test set {name}; {hint}")
    dataset = DATASETS[name]
    if not pair and src_lang and tgt_lang:
        pair = f"{src_lang}-{tgt_lang}"
        codes = src_lang, tgt_lang
        same = (p for p in dataset.langpairs if all(map(is_same_language, p.split("-", 1), codes)))
        pair = pair if pair in dataset.langpairs else next(same, pair)
    if pair not in dataset.langpairs:
        lacks = f"has no direction {pair}" if pair else "needs a direction"
        raise MtkitError(
            f"--test-set {wanted}: {lacks}; write {name}:SRC-TGT with one of "
            f"{', '.join(dataset.langpairs)}"
        )
    src_path, *reference_paths = _files(dataset, pair)
    src = list(read_lines(src_path))
    references = [list(read_lines(path)) for path in reference_paths]
    for path, lines in zip(reference_paths, references, strict=True):
        refuse_unequal(str(path), lines, str(src_path), src)
    source, target = pair.split("-", 1)
    return ScoredText(source, target, src, references, f"{name}:{pair}")


def _files(dataset: Any, pair: str) -> list[Path]:
    """The files of the sources and of each set of references, after a download if needed."""
    folder = Path(dataset._outdir)
    before = set(folder.rglob("*"))
    archives = [Path(dataset._rawdir, dataset._get_tarball_filename(url)) for url in dataset.data]
    errors: list[str] = []
    try:
        with _sacrebleus_messages(errors):
            for archive, checksum in zip(archives, dataset.md5, strict=True):
                # sacreBLEU checks what it has just downloaded, not what a killed process has left.
                if archive.exists():
                    md5 = hashlib.md5(archive.read_bytes(), usedforsecurity=False)
                    if md5.hexdigest() != checksum:
                        archive.unlink()
            references = dataset.get_reference_files(pair)
            return [Path(path) for path in (dataset.get_source_file(pair), *references)]
    except BaseException as error:
        # What is half written would be taken for complete the next time.
        for path in {*folder.rglob("*"), *archives} - (before - {*archives}):
            if path.is_file():
                path.unlink()
        # sacreBLEU exits after a wrong checksum, and else raises exceptions of all kinds.
        if not isinstance(error, Exception | SystemExit):
            raise
        reason = errors[0] if errors else reason_of(error)
        raise MtkitError(
            f"test set {dataset.name}: cannot be downloaded from {', '.join(dataset.data)}: "
            f"{reason}; try again, or copy {folder} from a computer that has it"
        ) from error


@contextlib.contextmanager
def _sacrebleus_messages(errors: list[str]) -> Iterator[None]:
    """Collect the errors that sacreBLEU would print, and say what it downloads.

    A server that does not answer is given up.
    """

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if record.levelno >= logging.ERROR:
                errors.append(message)
            elif message.startswith("Downloading "):
                log.info("%s", one_line(message))

    logger, handler = logging.getLogger("sacrebleu"), Handler()
    before = logger.level, logger.propagate, socket.getdefaulttimeout()
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    socket.setdefaulttimeout(_TIMEOUT)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        socket.setdefaulttimeout(before[2])
