"""Sentence pairs from the Hugging Face hub.

`fetch` gives the pairs of a corpus of the catalogue, `fetch_split` those of any other dataset.

This is the only home of the `datasets` library, which is slow to import and so is imported where
it is used. Its settings are the user's: HF_ENDPOINT (another hub), HF_HOME (another cache),
HF_TOKEN, HF_HUB_OFFLINE (use what was fetched before) and the usual proxy variables.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtkit.errors import MtkitError
from mtkit.prepare.catalogue import Corpus, Pair

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo
    from huggingface_hub.hf_api import RepoSibling

# Rows read at a time: some hundred KB of text, so that memory stays flat and Python's share small.
_BATCH_ROWS = 1000
# How often a download is begun again when the connection is reset.
_TRIES = 3


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


@dataclass(frozen=True)
class _Wanted:
    """What is to be fetched of a repository, and how its pairs are found there.

    `records` are the columns that may hold both sides, in the order of preference; None stands
    for a column per language. All splits of the configuration are prepared together unless `alone`
    says to prepare only the one. `advice` ends the message when the repository is laid out
    otherwise.
    """

    repository: str
    config: str | None
    src_lang: str
    tgt_lang: str
    splits: tuple[str, ...]
    records: tuple[str | None, ...]
    alone: bool
    advice: str

    @property
    def described(self) -> str:
        return f"{self.repository} ({self.config})" if self.config else self.repository


def fetch(corpus: Corpus) -> HubCorpus:
    """The pairs of a corpus of the hub, from the cache if this revision was fetched before.

    New files are compared with the checksums the hub lists, and only then read. Progress bars
    appear on a terminal. With HF_HUB_OFFLINE set, the copy that was fetched last is used.

    Raises `MtkitError` when the hub cannot be reached (within some 15 seconds) or refuses, when
    the cache cannot be written, and when the repository is not laid out as the catalogue says.
    """
    if corpus.built_in:
        raise ValueError(f"{corpus.name} is built in: there is nothing to fetch")
    wanted = _Wanted(
        repository=corpus.source,
        config=corpus.config,
        src_lang=corpus.src_lang,
        tgt_lang=corpus.tgt_lang,
        splits=(corpus.train_split, corpus.valid_split, corpus.test_split),
        records=(corpus.column,),
        alone=False,
        advice="it has changed since this mtkit was made, so a newer mtkit may know it",
    )
    train, valid, test = _fetch(wanted)
    return HubCorpus(train=train, valid=valid, test=test)


def fetch_split(
    repository: str,
    *,
    src_lang: str,
    tgt_lang: str,
    config: str | None = None,
    split: str = "train",
) -> HubSplit:
    """The pairs of one split of any dataset of the hub; the files of its other splits stay there.

    The sides are the columns that are named by the languages, or the fields of these names in a
    column "translation". Without a configuration the dataset must have a single one. Otherwise as
    `fetch`, and `MtkitError` lists the configurations, splits or columns that are there.
    """
    wanted = _Wanted(
        repository=repository,
        config=config,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        splits=(split,),
        records=("translation", None),
        alone=True,
        advice=f"a dataset is named as in hf:{repository}:CONFIG:SPLIT, and its sides are the "
        f"columns '{src_lang}' and '{tgt_lang}', alone or within a column 'translation'",
    )
    return _fetch(wanted)[0]


def _fetch(wanted: _Wanted) -> list[HubSplit]:
    """The splits, or a line for the user."""
    with _libraries_kept_quiet():
        try:
            builder = _prepared(wanted)
            return [_split(builder, wanted, split) for split in wanted.splits]
        except MtkitError:
            raise
        except Exception as error:
            message = _explanation(error, wanted)
            if message is None:
                raise
            raise MtkitError(message) from error


def _prepared(wanted: _Wanted) -> Any:
    """A builder of `datasets` whose splits are in the cache, ready to be read."""
    import datasets

    place = f"hf://datasets/{wanted.repository}"  # never a folder of that name right here
    cache = Path(datasets.config.HF_DATASETS_CACHE)
    if wanted.alone:
        # Of its own, because the library takes what it finds there for the whole configuration.
        cache = cache / "mtkit-splits" / wanted.splits[0]
    if datasets.config.HF_HUB_OFFLINE:
        try:
            return datasets.load_dataset_builder(place, wanted.config, cache_dir=str(cache))
        except (OSError, ValueError) as error:
            what = f"'{wanted.splits[0]}' of {wanted.described}"
            raise MtkitError(
                f"HF_HUB_OFFLINE is set and {what if wanted.alone else wanted.described} was not "
                "fetched before: unset it to download, or prepare your own files with --train and "
                "--valid"
            ) from error
    listing = _ask_hub(wanted.repository)
    try:
        builder = datasets.load_dataset_builder(
            place, wanted.config, revision=listing.sha, cache_dir=str(cache)
        )
    except ValueError:  # such as no configuration of that name, or several and none asked for
        _check_config(wanted, datasets.get_dataset_config_names(place, revision=listing.sha))
        raise
    if builder.hash != listing.sha:  # `datasets` fell back to an older copy, and kept silent
        raise MtkitError(_unreachable("it stopped answering"))
    _check_config(wanted, list(builder.builder_configs))
    if not Path(builder.cache_dir).exists():  # it appears whole, or not at all
        if wanted.alone:
            _leave_out_other_splits(builder, wanted)
        _download(builder, wanted.repository, listing)
        builder.download_and_prepare()
    return builder


def _check_config(wanted: _Wanted, there: list[str]) -> None:
    if wanted.config is None and len(there) > 1:
        raise MtkitError(
            f"{wanted.repository} on {_hub()} has several configurations, {', '.join(there)}: "
            f"{wanted.advice}"
        )
    if wanted.config is not None and wanted.config not in there:
        raise MtkitError(
            f"{wanted.repository} on {_hub()} has no configuration '{wanted.config}', "
            f"only {', '.join(there)}: {wanted.advice}"
        )


def _leave_out_other_splits(builder: Any, wanted: _Wanted) -> None:
    import datasets

    files, splits = builder.config.data_files, builder.info.splits
    (name,) = wanted.splits
    if name not in files:
        raise MtkitError(_no_split(wanted, name, files))
    builder.config.data_files = type(files)({name: files[name]})
    # What the card says of the split is still compared with what there is.
    known = splits is not None and name in splits
    builder.info.splits = datasets.SplitDict({name: splits[name]}) if known else None


def _ask_hub(repository: str) -> DatasetInfo:
    """What the hub says of the repository: its newest commit, its files and their checksums.

    This goes before everything else because it fails fast: one request with one time limit, where
    the client's own first question is asked six times, a minute each.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return HfApi().dataset_info(
            repository, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
        )
    except HfHubHTTPError:
        raise  # it was reached, and refused
    except HFValidationError as error:
        raise MtkitError(
            f"'{repository}' is no name of a dataset, as in owner/dataset ({_one_line(error)})"
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the cache could not be read
        # No route, no such host, proxy, certificate, an address that is no hub: whatever stops
        # this plain question lies between here and there.
        raise MtkitError(_unreachable(_one_line(error) or type(error).__name__)) from error


def _download(builder: Any, repository: str, listing: DatasetInfo) -> None:
    """Bring the files of the builder's configuration into the cache and check each.

    The client itself compares sizes only.
    """
    urls = builder.config.data_files
    paths = _brought(builder, repository)
    listed = {file.rfilename: file for file in listing.siblings or ()}
    prefix = f"hf://datasets/{repository}@{listing.sha}/"
    for split in urls:
        for url, path in zip(urls[split], paths[split], strict=True):
            name = str(url).removeprefix(prefix)
            if not _intact(Path(path), listed[name]):
                # The cache links to a file named after its checksum: neither may stay.
                Path(path).resolve().unlink()
                Path(path).unlink(missing_ok=True)
                raise MtkitError(
                    f"{name} of {repository} arrived damaged (its checksum is not the one "
                    f"{_hub()} lists) and was deleted: run the command again"
                )


def _brought(builder: Any, repository: str) -> Any:
    """The paths in the cache of the files of the builder's configuration, as it lists their URLs.

    What times out or ends too early the client takes up again by itself, where it stopped. A
    connection that is reset it gives up, and so with it the file, but not those before.
    """
    import datasets
    from huggingface_hub.errors import HfHubHTTPError

    manager = datasets.DownloadManager(dataset_name=builder.dataset_name)
    for tries in itertools.count(1):
        try:
            return manager.download(builder.config.data_files)
        except Exception as error:
            causes = list(_causes(error))
            broken = next((cause for cause in causes if _is_of_the_connection(cause)), None)
            if broken is None or any(isinstance(cause, HfHubHTTPError) for cause in causes):
                raise
            reset = any(isinstance(cause, ConnectionResetError) for cause in causes)
            if not reset or tries == _TRIES:
                raise MtkitError(
                    f"the download of {repository} from {_hub()} was interrupted "
                    f"({_one_line(broken) or type(broken).__name__}): run the command again, which "
                    "keeps the files that arrived whole"
                ) from error
            time.sleep(tries)
    raise AssertionError("counting does not end")


def _intact(path: Path, listed: RepoSibling) -> bool:
    """Whether a file has the checksum the hub lists: large ones have SHA-256, the rest git's."""
    with path.open("rb") as file:
        if listed.lfs is not None:
            return hashlib.file_digest(file, "sha256").hexdigest() == listed.lfs.sha256
        content = file.read()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return blob.hexdigest() == listed.blob_id


def _split(builder: Any, wanted: _Wanted, name: str) -> HubSplit:
    import datasets

    if name not in builder.info.splits:
        raise MtkitError(_no_split(wanted, name, builder.info.splits))
    rows = builder.as_dataset(split=name).flatten()
    for record in wanted.records:
        prefix = f"{record}." if record else ""
        sides = {prefix + wanted.src_lang: "src", prefix + wanted.tgt_lang: "tgt"}
        lacking = [column for column in sides if column not in rows.column_names]
        if not lacking:
            break
    for column in lacking:
        raise MtkitError(
            f"{wanted.described} on {_hub()} has no column '{column}' in '{name}', "
            f"only {', '.join(rows.column_names)}: {wanted.advice}"
        )
    for column in sides:
        feature = rows.features[column]
        if not (isinstance(feature, datasets.Value) and "string" in feature.dtype):
            raise MtkitError(
                f"{wanted.described} on {_hub()} has no text in the column '{column}' "
                f"of '{name}': {wanted.advice}"
            )
    source = HubSource(wanted.repository, wanted.config, name, revision=builder.hash)
    return HubSplit(source, rows.select_columns(list(sides)).rename_columns(sides))


def _no_split(wanted: _Wanted, name: str, there: Iterable[str]) -> str:
    return (
        f"{wanted.described} on {_hub()} has no split '{name}', only {', '.join(there)}: "
        f"{wanted.advice}"
    )


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


def _explanation(error: Exception, wanted: _Wanted) -> str | None:
    """The line for the user, or None for what is not theirs to mend."""
    import datasets
    from datasets import exceptions
    from huggingface_hub.errors import HfHubHTTPError

    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, HfHubHTTPError):
            return _refusal(cause, wanted)
        if isinstance(cause, exceptions.DatasetNotFoundError):  # such as a gated one
            return (
                f"{_hub()} refused {wanted.repository}: set HF_TOKEN to a token that may read it "
                f"({_one_line(cause)})"
            )
        if _is_of_the_connection(cause):
            return _unreachable(_one_line(cause) or type(cause).__name__)
        if isinstance(cause, RuntimeError) and "Dataset scripts" in str(cause):
            return (
                f"{wanted.repository} on {_hub()} is written by a program of its own, which is "
                "not run: prepare a dataset that is data files alone"
            )
    for cause in causes:
        if isinstance(cause, FileNotFoundError) and cause.errno is None:
            return f"{wanted.described} on {_hub()} holds no data files: {wanted.advice}"
        if isinstance(cause, exceptions.SplitsVerificationError):
            return (
                f"{wanted.described} on {_hub()} does not hold as many pairs as its card says: "
                "it is being changed, so try again later"
            )
        if isinstance(cause, OSError):
            reason = cause.strerror or _one_line(cause)
            if cause.errno is None and "disk space" not in reason:
                return f"{wanted.repository} was not fetched: run the command again ({reason})"
            return (
                f"cannot write {wanted.repository} to the cache {datasets.config.HF_CACHE_HOME}: "
                f"make room there, or let HF_HOME name another folder ({reason})"
            )
    if isinstance(error, exceptions.DatasetGenerationError):
        return f"cannot read the files of {wanted.described}: {_one_line(causes[-1])}"
    return None


def _is_of_the_connection(error: BaseException) -> bool:
    from huggingface_hub.errors import HfHubHTTPError

    # Every error of the HTTP client descends from the class the library's own derives from.
    transport = tuple(base for base in HfHubHTTPError.__bases__ if base is not OSError)
    return isinstance(error, (ConnectionError, TimeoutError, *transport))


def _refusal(error: Any, wanted: _Wanted) -> str:
    """What the status of an answer means. `error` is a HfHubHTTPError: its response is untyped."""
    status = error.response.status_code
    if status in (401, 403, 404):
        return (
            f"{_hub()} has no dataset {wanted.repository}, or does not show it (HTTP {status}): "
            "check HF_ENDPOINT and HF_TOKEN, or prepare your own files with --train and --valid"
        )
    return f"{_hub()} answered with HTTP {status} for {wanted.repository}: try again later"


def _unreachable(reason: str) -> str:
    return (
        f"cannot reach {_hub()} ({reason}): check the connection, the proxy and HF_ENDPOINT; "
        "or set HF_HUB_OFFLINE=1 to use what was fetched before, or prepare your own files with "
        "--train and --valid"
    )


def _hub() -> str:
    from huggingface_hub import constants

    return f"the Hugging Face hub at {constants.ENDPOINT}"


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
