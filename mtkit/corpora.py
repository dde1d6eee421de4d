"""The catalogue of corpora: what each name means, where it comes from, its licence.

`CATALOGUE` lists the corpora `mtkit prepare` knows by name, each in both directions; `find_corpus`
looks one up; `fetch` gives its pairs, for those that live on the Hugging Face hub. The text of the
demo corpora is made by `demo`, and what becomes of the pairs is the business of `prepare`.

This is the only home of the `datasets` library, which is slow to import and so is imported where
it is used. Its settings are the user's: HF_ENDPOINT (another hub), HF_HOME (another cache),
HF_TOKEN, HF_HUB_OFFLINE (use what was fetched before) and the usual proxy variables.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtkit.errors import MtkitError

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo
    from huggingface_hub.hf_api import RepoSibling

Pair = tuple[str, str]

BUILT_IN = "built in"

# Rows read at a time: some hundred KB of text, so that memory stays flat and Python's share small.
_BATCH_ROWS = 1000


@dataclass(frozen=True)
class Corpus:
    """One entry of the catalogue: a corpus, read in one direction.

    `train_pairs` is the published size, `download_mb` roughly what a first fetch takes (None for
    what is built in), `source` the repository on the hub or `BUILT_IN`. The rest says how the
    repository is laid out: its configuration, the names of its splits, and `column`, which holds
    a record with a field per language; None means a column per language.
    """

    family: str
    src_lang: str
    tgt_lang: str
    vocab_size: int
    train_pairs: int
    download_mb: int | None
    licence: str
    source: str
    config: str | None = None
    column: str | None = None
    train_split: str = "train"
    valid_split: str = "validation"
    test_split: str = "test"

    @property
    def name(self) -> str:
        """The name `mtkit prepare` takes, such as "wmt14-en-de"."""
        return f"{self.family}-{self.src_lang}-{self.tgt_lang}"

    @property
    def built_in(self) -> bool:
        """Whether `demo` writes this corpus, so that there is nothing to fetch."""
        return self.source == BUILT_IN

    def reversed(self) -> Corpus:
        """The same corpus in the other direction."""
        return replace(self, src_lang=self.tgt_lang, tgt_lang=self.src_lang)


def _both_directions(*corpora: Corpus) -> tuple[Corpus, ...]:
    return tuple(way for corpus in corpora for way in (corpus, corpus.reversed()))


# newstest2013 is the validation set and newstest2014 (all 3,003 sentences) the test set of WMT14.
CATALOGUE: tuple[Corpus, ...] = _both_directions(
    Corpus(
        family="wmt14",
        src_lang="en",
        tgt_lang="de",
        vocab_size=37_000,  # the paper, Section 5.1
        train_pairs=4_508_785,
        download_mb=820,
        licence="research use; see statmt.org/wmt14",
        source="wmt/wmt14",
        config="de-en",
        column="translation",
    ),
    Corpus(
        family="wmt14",
        src_lang="en",
        tgt_lang="fr",
        vocab_size=32_000,  # the paper, Section 5.1
        train_pairs=40_836_715,
        download_mb=7_400,
        licence="research use; see statmt.org/wmt14",
        source="wmt/wmt14",
        config="fr-en",
        column="translation",
    ),
    Corpus(
        family="multi30k",
        src_lang="en",
        tgt_lang="de",
        vocab_size=8_000,
        train_pairs=29_000,
        download_mb=5,
        licence="research use; see github.com/multi30k/dataset",
        source="bentrevett/multi30k",
    ),
    Corpus(
        family="demo",
        src_lang="en",
        tgt_lang="de",
        vocab_size=2_000,
        train_pairs=30_000,
        download_mb=None,
        licence="MIT, as mtkit",
        source=BUILT_IN,
    ),
)


def find_corpus(name: str) -> Corpus:
    """The entry of the catalogue with this name.

    Raises `MtkitError` for a name that is not in it, suggesting the nearest.
    """
    by_name = {corpus.name: corpus for corpus in CATALOGUE}
    if name in by_name:
        return by_name[name]
    typed = name.lower().replace("_", "-")
    nearest = [known for known in by_name if typed and known.startswith(typed)]
    nearest = nearest or difflib.get_close_matches(typed, by_name, n=1)
    hint = f"did you mean '{nearest[0]}'? " if nearest else ""
    raise MtkitError(
        f"unknown corpus '{name}': {hint}`mtkit prepare --list` prints the catalogue, "
        "and --train and --valid prepare your own files"
    )


@dataclass(frozen=True)
class HubSource:
    """Where a split came from, exactly: `revision` is the commit the hub resolved."""

    repository: str
    config: str | None
    split: str
    revision: str


@dataclass(frozen=True)
class HubSplit:
    """The pairs of one split, in the order of the repository: the same at every iteration.

    ``len`` is their number. They are read from disk a batch at a time, as the repository has them:
    a side may be empty (it also is where the repository has none) or hold a line break.
    """

    source: HubSource
    _rows: Any  # a datasets.Dataset with the columns src and tgt

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def tables(self) -> Iterator[Any]:
        """The same as tables of Arrow with the columns src and tgt, some rows at a time."""
        yield from self._rows.with_format("arrow").iter(batch_size=_BATCH_ROWS)

    def __iter__(self) -> Iterator[Pair]:
        for table in self.tables():
            columns = (table.column(side).to_pylist() for side in ("src", "tgt"))
            for src, tgt in zip(*columns, strict=True):
                yield src or "", tgt or ""


@dataclass(frozen=True)
class HubCorpus:
    """A fetched corpus, with its sides in the direction that was asked for."""

    train: HubSplit
    valid: HubSplit
    test: HubSplit


def fetch(corpus: Corpus) -> HubCorpus:
    """The pairs of a corpus of the hub, from the cache if this revision was fetched before.

    New files are compared with the checksums the hub lists, and only then read. Progress bars
    appear on a terminal. With HF_HUB_OFFLINE set, the copy that was fetched last is used.

    Raises `MtkitError` when the hub cannot be reached (within some 15 seconds) or refuses, when
    the cache cannot be written, and when the repository is not laid out as the catalogue says.
    """
    if corpus.built_in:
        raise ValueError(f"{corpus.name} is built in: there is nothing to fetch")
    with _libraries_kept_quiet():
        try:
            return _fetch(corpus)
        except MtkitError:
            raise
        except Exception as error:
            message = _explanation(error, corpus)
            if message is None:
                raise
            raise MtkitError(message) from error


def _fetch(corpus: Corpus) -> HubCorpus:
    import datasets

    repository = f"hf://datasets/{corpus.source}"  # never a folder of that name right here
    if datasets.config.HF_HUB_OFFLINE:
        try:
            builder = datasets.load_dataset_builder(repository, corpus.config)
        except (OSError, ValueError) as error:
            raise MtkitError(
                f"HF_HUB_OFFLINE is set and {_described(corpus)} was not fetched before: "
                "unset it to download, or prepare your own files with --train and --valid"
            ) from error
    else:
        listing = _ask_hub(corpus)
        try:
            builder = datasets.load_dataset_builder(repository, corpus.config, revision=listing.sha)
        except ValueError as error:
            if "BuilderConfig" not in str(error):
                raise
            raise MtkitError(
                f"{corpus.source} on {_hub()} no longer has the configuration "
                f"'{corpus.config}': {_one_line(error)}"
            ) from error
        if builder.hash != listing.sha:  # `datasets` fell back to an older copy, and kept silent
            raise MtkitError(_unreachable("it stopped answering"))
        if not Path(builder.cache_dir).exists():  # it appears whole, or not at all
            _download(builder, corpus, listing)
            builder.download_and_prepare()
    return HubCorpus(
        train=_split(builder, corpus, corpus.train_split),
        valid=_split(builder, corpus, corpus.valid_split),
        test=_split(builder, corpus, corpus.test_split),
    )


def _ask_hub(corpus: Corpus) -> DatasetInfo:
    """What the hub says of the repository: its newest commit, its files and their checksums.

    This goes before everything else because it fails fast: one request with one time limit, where
    the client's own first question is asked six times, a minute each.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return HfApi().dataset_info(
            corpus.source, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
        )
    except HfHubHTTPError:
        raise  # it was reached, and refused
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the cache could not be read
        # No route, no such host, proxy, certificate, an address that is no hub: whatever stops
        # this plain question lies between here and there.
        raise MtkitError(_unreachable(_one_line(error) or type(error).__name__)) from error


def _download(builder: Any, corpus: Corpus, listing: DatasetInfo) -> None:
    """Bring the files of the builder's configuration into the cache and check each.

    The client itself compares sizes only.
    """
    import datasets

    urls = builder.config.data_files
    paths = datasets.DownloadManager(dataset_name=corpus.family).download(urls)
    listed = {file.rfilename: file for file in listing.siblings or ()}
    prefix = f"hf://datasets/{corpus.source}@{listing.sha}/"
    for split in urls:
        for url, path in zip(urls[split], paths[split], strict=True):
            name = str(url).removeprefix(prefix)
            if not _intact(Path(path), listed[name]):
                # The cache links to a file named after its checksum: neither may stay.
                Path(path).resolve().unlink()
                Path(path).unlink(missing_ok=True)
                raise MtkitError(
                    f"{name} of {corpus.source} arrived damaged (its checksum is not the one "
                    f"{_hub()} lists) and was deleted: run the command again"
                )


def _intact(path: Path, listed: RepoSibling) -> bool:
    """Whether a file has the checksum the hub lists: large ones have SHA-256, the rest git's."""
    with path.open("rb") as file:
        if listed.lfs is not None:
            return hashlib.file_digest(file, "sha256").hexdigest() == listed.lfs.sha256
        content = file.read()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return blob.hexdigest() == listed.blob_id


def _split(builder: Any, corpus: Corpus, name: str) -> HubSplit:
    if name not in builder.info.splits:
        raise MtkitError(
            f"{_described(corpus)} on {_hub()} has no split '{name}', "
            f"only {', '.join(builder.info.splits)}: {_MOVED}"
        )
    rows = builder.as_dataset(split=name).flatten()
    prefix = f"{corpus.column}." if corpus.column else ""
    sides = {prefix + corpus.src_lang: "src", prefix + corpus.tgt_lang: "tgt"}
    for column in sides:
        if column not in rows.column_names:
            raise MtkitError(
                f"{_described(corpus)} on {_hub()} has no column '{column}' in '{name}', "
                f"only {', '.join(rows.column_names)}: {_MOVED}"
            )
    source = HubSource(corpus.source, corpus.config, name, revision=builder.hash)
    return HubSplit(source, rows.select_columns(list(sides)).rename_columns(sides))


@contextmanager
def _libraries_kept_quiet() -> Iterator[None]:
    """Keep the libraries' warnings from the user, and their bars from anything but a terminal.

    What stops the work is told by `_explanation`, once.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets  # sets the level of its logger, so import before setting ours
        from huggingface_hub.utils.tqdm import disable_progress_bars

        if not sys.stderr.isatty():
            datasets.disable_progress_bars()
            disable_progress_bars()
        loggers = [logging.getLogger(name) for name in ("datasets", "huggingface_hub")]
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


_MOVED = "it has changed since this mtkit was made, so a newer mtkit may know it"


def _explanation(error: Exception, corpus: Corpus) -> str | None:
    """The line for the user, or None for what is not theirs to mend."""
    import datasets
    from datasets import exceptions
    from huggingface_hub.errors import HfHubHTTPError

    # Every error of the HTTP client descends from the class the library's own derives from.
    transport = tuple(base for base in HfHubHTTPError.__bases__ if base is not OSError)
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, HfHubHTTPError):
            return _refusal(cause, corpus)
        if isinstance(cause, exceptions.DatasetNotFoundError):  # such as a gated one
            return (
                f"{_hub()} refused {corpus.source}: set HF_TOKEN to a token that may read it "
                f"({_one_line(cause)})"
            )
        if isinstance(cause, (ConnectionError, TimeoutError, *transport)):
            return _unreachable(_one_line(cause) or type(cause).__name__)
    for cause in causes:
        if isinstance(cause, FileNotFoundError) and cause.errno is None:
            return f"{_described(corpus)} on {_hub()} holds no data files: {_MOVED}"
        if isinstance(cause, exceptions.SplitsVerificationError):
            return (
                f"{_described(corpus)} on {_hub()} does not hold as many pairs as its card says: "
                "it is being changed, so try again later"
            )
        if isinstance(cause, OSError):
            reason = cause.strerror or _one_line(cause)
            if cause.errno is None and "disk space" not in reason:
                return f"{corpus.source} was not fetched: run the command again ({reason})"
            return (
                f"cannot write {corpus.source} to the cache {datasets.config.HF_CACHE_HOME}: "
                f"make room there, or let HF_HOME name another folder ({reason})"
            )
    if isinstance(error, exceptions.DatasetGenerationError):
        return f"cannot read the files of {_described(corpus)}: {_one_line(causes[-1])}"
    return None


def _refusal(error: Any, corpus: Corpus) -> str:
    """What the status of an answer means. `error` is a HfHubHTTPError: its response is untyped."""
    status = error.response.status_code
    if status in (401, 403, 404):
        return (
            f"{_hub()} has no dataset {corpus.source}, or does not show it (HTTP {status}): "
            "check HF_ENDPOINT and HF_TOKEN, or prepare your own files with --train and --valid"
        )
    return f"{_hub()} answered with HTTP {status} for {corpus.source}: try again later"


def _unreachable(reason: str) -> str:
    return (
        f"cannot reach {_hub()} ({reason}): check the connection, the proxy and HF_ENDPOINT; "
        "or set HF_HUB_OFFLINE=1 to use what was fetched before, or prepare your own files with "
        "--train and --valid"
    )


def _hub() -> str:
    from huggingface_hub import constants

    return f"the Hugging Face hub at {constants.ENDPOINT}"


def _described(corpus: Corpus) -> str:
    return f"{corpus.source} ({corpus.config})" if corpus.config else corpus.source


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, what caused that, and so on."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        # The libraries raise `from None` where they hide the very cause we are after.
        cause = cause.__cause__ or cause.__context__


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
