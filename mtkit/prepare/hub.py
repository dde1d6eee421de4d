"""Downloads sentence pairs from the Hugging Face hub.

`fetch` returns the pairs of a corpus of the catalogue, `fetch_split` those of any other dataset.

Only this module uses the `datasets` library. It is slow to import, so it is imported where it is
used. The user configures it by HF_ENDPOINT (another hub), HF_HOME (another cache), HF_TOKEN,
HF_HUB_OFFLINE (use earlier downloads) and the usual proxy variables.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.files import naming_file
from mtkit.base.hub_client import quiet_client, the_hub, transport_errors
from mtkit.data import Split
from mtkit.prepare.catalogue import CatalogueEntry

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo
    from huggingface_hub.hf_api import RepoSibling

log = logging.getLogger(__name__)

# Rows read at a time: a few hundred KB of text, for low memory and little overhead of Python.
_BATCH_ROWS = 1000


@dataclass(frozen=True)
class HubSource:
    """The exact origin of a split; `revision` is the commit on the hub."""

    repository: str
    config: str | None
    split: str
    revision: str


@dataclass(frozen=True)
class HubSplit:
    """The pairs of one split, in the order of the repository; ``len`` is their number.

    They are not changed: a side may contain a line break, or be empty or null.
    """

    source: HubSource
    _rows: Any  # a datasets.Dataset with the columns src and tgt

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def tables(self) -> Iterator[Any]:
        """The pairs as Arrow tables with the columns src and tgt, read from disk one by one."""
        yield from self._rows.with_format("arrow").iter(batch_size=_BATCH_ROWS)


@dataclass(frozen=True)
class _Wanted:
    """The part of a repository to download, and its layout.

    `records` are the columns that may hold both sides, in order of preference; None stands for a
    column per language. With `alone` only one split of the configuration is prepared. `advice` ends
    the error message if the repository has another layout.
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


def fetch(corpus: CatalogueEntry) -> dict[Split, HubSplit]:
    """The splits of a corpus on the hub, from the cache if this revision is there.

    New files are compared with the checksums on the hub. With HF_HUB_OFFLINE set, the last
    downloaded copy is used.

    Raises:
        MtkitError: if the hub cannot be reached (within about 15 seconds) or refuses access, if the
            cache cannot be written, or if the repository has another layout than the catalogue.
    """
    wanted = _Wanted(
        repository=corpus.source,
        config=corpus.config,
        src_lang=corpus.src_lang,
        tgt_lang=corpus.tgt_lang,
        splits=(corpus.train_split, corpus.valid_split, corpus.test_split),
        records=(corpus.column,),
        alone=False,
        advice="it has changed since this version of mtkit; a newer version may support it",
    )
    names: tuple[Split, ...] = ("train", "valid", "test")
    return dict(zip(names, _fetch(wanted), strict=True))


def fetch_split(
    repository: str,
    *,
    src_lang: str,
    tgt_lang: str,
    config: str | None = None,
    split: str = "train",
) -> HubSplit:
    """The pairs of one split of any dataset on the hub; other splits are not downloaded.

    The sides are the columns named by the language codes, or the fields with these names in a
    column "translation". Without `config` the dataset must have only one configuration. Otherwise
    like `fetch`; `MtkitError` lists the configurations, splits or columns that exist.
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
    with _quiet_libraries(), waiting_noted(f"fetching {wanted.described} from {the_hub()}"):
        builder = _builder(wanted)
        return [_split(builder, wanted, split) for split in wanted.splits]


@contextmanager
def _explained(wanted: _Wanted) -> Iterator[None]:
    """Report in one line what goes wrong in a call of the libraries."""
    try:
        yield
    except Exception as error:
        message = _explanation(error, wanted)
        if message is None:
            raise
        raise MtkitError(message) from error


def _builder(wanted: _Wanted) -> Any:
    """A `datasets` builder whose splits are in the cache and can be read."""
    import datasets
    from huggingface_hub import HfApi, constants

    name = f"hf://datasets/{wanted.repository}"  # never a local folder of that name
    cache = Path(datasets.config.HF_DATASETS_CACHE)
    if wanted.alone:
        # A separate cache, because the library takes the files in it for the whole configuration.
        cache = cache / "mtkit-splits" / wanted.splits[0]
    if datasets.config.HF_HUB_OFFLINE:
        try:
            return datasets.load_dataset_builder(name, wanted.config, cache_dir=str(cache))
        except (OSError, ValueError) as error:
            split = f"'{wanted.splits[0]}' of " if wanted.alone else ""
            raise MtkitError(
                f"HF_HUB_OFFLINE is set and {split}{wanted.described} was not downloaded before: "
                "unset it, or prepare your own files with --train and --valid"
            ) from error
    # One request with one time limit, because it fails fast; the first request of `datasets` is
    # tried six times, for a minute each.
    with _explained(wanted):
        info = HfApi().dataset_info(
            wanted.repository, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
        )
        configs = datasets.get_dataset_config_names(name, revision=info.sha)
    if wanted.config is None and len(configs) > 1:
        raise _lacks(wanted, "default configuration", configs)
    if wanted.config is not None and wanted.config not in configs:
        raise _lacks(wanted, f"configuration '{wanted.config}'", configs)
    with _explained(wanted):
        builder = datasets.load_dataset_builder(
            name, wanted.config, revision=info.sha, cache_dir=str(cache)
        )
    if builder.hash != info.sha:  # `datasets` silently used an older copy
        raise MtkitError(_unreachable("it stopped answering"))
    if not Path(builder.cache_dir).exists():  # it is created as a whole
        if wanted.alone:
            _leave_out_other_splits(builder, wanted)
        _download(builder, wanted, info)
        with _explained(wanted):
            builder.download_and_prepare()
    return builder


def _leave_out_other_splits(builder: Any, wanted: _Wanted) -> None:
    import datasets

    files, splits = builder.config.data_files, builder.info.splits
    (name,) = wanted.splits
    if name not in files:
        raise _lacks(wanted, f"split '{name}'", files)
    builder.config.data_files = type(files)({name: files[name]})
    # The number of pairs is still compared with the dataset card.
    known = splits is not None and name in splits
    builder.info.splits = datasets.SplitDict({name: splits[name]}) if known else None


def _download(builder: Any, wanted: _Wanted, info: DatasetInfo) -> None:
    """Download the files of the builder's configuration to the cache and verify their checksums.

    The client itself compares only sizes.
    """
    import datasets

    urls = builder.config.data_files
    manager = datasets.DownloadManager(dataset_name=builder.dataset_name)
    with _explained(wanted):
        for _ in range(2):  # the client gives up when a connection is reset
            with suppress(*transport_errors()):
                paths = manager.download(urls)
                break
        else:
            paths = manager.download(urls)
    listed = {file.rfilename: file for file in info.siblings or ()}
    prefix = f"hf://datasets/{wanted.repository}@{info.sha}/"
    for split in urls:
        for url, path in zip(urls[split], paths[split], strict=True):
            name = str(url).removeprefix(prefix)
            with naming_file(Path(path)):
                if _intact(Path(path), listed[name]):
                    continue
                # The cache has a link to a file named after its checksum: delete both.
                Path(path).resolve().unlink()
                Path(path).unlink(missing_ok=True)
            raise MtkitError(
                f"{name} of {wanted.repository} arrived damaged (its checksum is not the one "
                f"{the_hub()} lists) and was deleted: run the command again"
            )


def _intact(path: Path, listed: RepoSibling) -> bool:
    """Whether a file has the checksum on the hub: SHA-256 for large files, git's for the others."""
    with path.open("rb") as file:
        if listed.lfs is not None:
            return hashlib.file_digest(file, "sha256").hexdigest() == listed.lfs.sha256
        content = file.read()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return blob.hexdigest() == listed.blob_id


def _split(builder: Any, wanted: _Wanted, name: str) -> HubSplit:
    import datasets

    if name not in builder.info.splits:
        raise _lacks(wanted, f"split '{name}'", builder.info.splits)
    with _explained(wanted):
        rows = builder.as_dataset(split=name).flatten()
    texts = [
        column
        for column, feature in rows.features.items()
        if isinstance(feature, datasets.Value) and "string" in feature.dtype
    ]
    for record in wanted.records:
        prefix = f"{record}." if record else ""
        sides = {prefix + wanted.src_lang: "src", prefix + wanted.tgt_lang: "tgt"}
        lacking = [column for column in sides if column not in texts]
        if not lacking:
            break
    if lacking:
        raise _lacks(wanted, f"text column '{lacking[0]}' in '{name}'", texts)
    source = HubSource(wanted.repository, wanted.config, name, revision=builder.hash)
    return HubSplit(source, rows.select_columns(list(sides)).rename_columns(sides))


def _lacks(wanted: _Wanted, what: str, there: Iterable[str]) -> MtkitError:
    return MtkitError(
        f"{wanted.described} on {the_hub()} has no {what}, only {', '.join(there)}: {wanted.advice}"
    )


@contextmanager
def waiting_noted(what: str, *, every: float = 30.0) -> Iterator[None]:
    """Say at intervals of so many seconds that it is still being done."""
    ended = threading.Event()
    started = time.monotonic()

    def note() -> None:
        while not ended.wait(every):
            log.info("still %s: %d s", what, time.monotonic() - started)

    noting = threading.Thread(target=note, daemon=True)
    noting.start()
    try:
        yield
    finally:
        ended.set()
        noting.join()


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Silence the libraries' warnings, and their progress bars unless on a terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets  # sets the level of its logger, so import before setting ours

        if not sys.stderr.isatty():
            datasets.disable_progress_bars()
        with quiet_client("datasets"):
            yield


def _explanation(error: Exception, wanted: _Wanted) -> str | None:
    """The message for the user; None if the error is not one of the libraries or the system."""
    import datasets
    from datasets import exceptions
    from huggingface_hub.errors import HfHubHTTPError

    # The root causes come last; `datasets` wraps them.
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, HfHubHTTPError):
            return _refusal(cause, wanted)
        if isinstance(cause, exceptions.DatasetNotFoundError):  # such as a gated one
            return _no_access(wanted, reason_of(cause))
        if isinstance(cause, (ConnectionError, TimeoutError, *transport_errors())):
            return _unreachable(reason_of(cause) or type(cause).__name__)
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno is not None:
            return (
                f"cannot write {wanted.repository} to the cache {datasets.config.HF_CACHE_HOME}: "
                f"make room there, or let HF_HOME name another folder ({cause.strerror})"
            )
    if isinstance(error, exceptions.SplitsVerificationError):
        return (
            f"{wanted.described} on {the_hub()} does not have as many pairs as its card says: "
            "it may be changing now, so try again later"
        )
    if not isinstance(error, (OSError, ValueError, RuntimeError, exceptions.DatasetsError)):
        return None
    shown = causes[-1] if isinstance(error, exceptions.DatasetGenerationError) else error
    return f"cannot read {wanted.described} from {the_hub()}: {reason_of(shown)}"


def _refusal(error: Any, wanted: _Wanted) -> str:
    """The message for an HTTP status. `error` is a HfHubHTTPError, whose response is untyped."""
    from huggingface_hub import constants

    status, host = error.response.status_code, error.response.url.host
    if host == urlsplit(constants.ENDPOINT).hostname and status in (401, 403, 404):
        return _no_access(wanted, f"HTTP {status}")
    return (
        f"{host} answered with HTTP {status} for {wanted.repository}: try again later, and check "
        "that your network allows this host"
    )


def _no_access(wanted: _Wanted, reason: str) -> str:
    return (
        f"{the_hub()} has no dataset {wanted.repository}, or it is private or gated ({reason}): "
        "check the name and HF_ENDPOINT, set HF_TOKEN to a token that may read it, or prepare "
        "your own files with --train and --valid"
    )


def _unreachable(reason: str) -> str:
    return (
        f"cannot reach {the_hub()} ({reason}): check the connection, the proxy and HF_ENDPOINT, "
        "and run the command again, which keeps complete files; or set HF_HUB_OFFLINE=1 to use "
        "earlier downloads, or prepare your own files with --train and --valid"
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its chain of causes."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        # The libraries raise `from None`, which hides the cause that is needed here.
        cause = cause.__cause__ or cause.__context__
