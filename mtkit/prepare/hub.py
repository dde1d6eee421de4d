"""Downloads sentence pairs from the Hugging Face hub.

`fetch` returns the splits of a corpus of the catalogue, `fetch_split` one of any other dataset.

Only this module uses the `datasets` library. It is slow to import, so it is imported where it is
used. The user configures it by HF_ENDPOINT (another hub), HF_HOME (another cache), HF_TOKEN,
HF_HUB_OFFLINE (use earlier downloads) and the usual proxy variables.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.hub_client import quiet_client, the_hub, transport_errors
from mtkit.data import Split
from mtkit.prepare.catalogue import CatalogueEntry
from mtkit.prepare.source import Block, Reading, Source, arrow_block, regrouped

log = logging.getLogger(__name__)

HUB_PREFIX = "hf:"
# Rows read at a time: a few hundred KB of text, for low memory and little overhead of Python.
_BATCH_ROWS = 1000
_OWN_FILES = "or prepare your own files with --train and --valid"


class _HubSplit(Source):
    """The pairs of one split, in the order of the repository.

    `rows` is a `datasets.Dataset` with the columns of both sides, `origin` says where it is from.
    """

    def __init__(
        self, name: str, rows: Any, columns: Sequence[str], origin: dict[str, Any]
    ) -> None:
        super().__init__(name)
        self._rows, self._columns, self._origin = rows, columns, origin

    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        return regrouped(self._batches(reading), size)

    def _batches(self, reading: Reading) -> Iterator[Block]:
        done = 0
        for table in self._rows.with_format("arrow").iter(batch_size=_BATCH_ROWS):
            done += table.num_rows
            reading.share = done / self._rows.num_rows
            yield arrow_block(table, self._columns, reading.found)

    def _place(self) -> dict[str, Any]:
        return {"kind": "hub", **self._origin}


@dataclass(frozen=True)
class _Wanted:
    """The part of a repository to download.

    `advice` ends the error message if the repository has another layout.
    """

    repository: str
    config: str | None
    languages: tuple[str, str]
    splits: tuple[str, ...]
    advice: str

    def __str__(self) -> str:
        return f"{self.repository} ({self.config})" if self.config else self.repository


def fetch(corpus: CatalogueEntry) -> dict[Split, Source]:
    """The splits of a corpus on the hub, from the cache if this revision is there.

    New files are compared with the checksums on the hub. With HF_HUB_OFFLINE set, the last
    downloaded copy is used.

    Raises:
        MtkitError: if the hub cannot be reached (within about 15 seconds) or refuses access, if the
            cache cannot be written, or if the repository has another layout than the catalogue.
    """
    wanted = _Wanted(
        corpus.source,
        corpus.config,
        (corpus.src_lang, corpus.tgt_lang),
        splits=("train", "validation", "test"),
        advice="it has changed since this version of mtkit; a newer version may support it",
    )
    train, valid, test = _fetch(wanted)
    return {"train": train, "valid": valid, "test": test}


def fetch_split(text: str, languages: tuple[str, str]) -> Source:
    """One split of any dataset on the hub; other splits are not downloaded.

    `text` is hf:OWNER/DATASET[:CONFIG][:SPLIT]. The sides are the columns named by the language
    codes, or the fields with these names in a column "translation". Without a configuration the
    dataset must have only one, or one named "default". Otherwise like `fetch`; `MtkitError` lists
    the configurations, splits or columns that exist.
    """
    named = re.fullmatch(
        r"(?P<repository>[^/:\s]+/[^/:\s]+)(:(?P<config>[^:]*))?(:(?P<split>\w+([.-]\w+)*))?",
        text.removeprefix(HUB_PREFIX),
    )
    if named is None:
        raise MtkitError(
            f"{text}: write a dataset on the hub as hf:owner/dataset, "
            "hf:owner/dataset:config, hf:owner/dataset:config:split or hf:owner/dataset::split"
        )
    wanted = _Wanted(
        named["repository"],
        named["config"] or None,
        languages,
        splits=(named["split"] or "train",),
        advice=f"a dataset is named as in hf:{named['repository']}:CONFIG:SPLIT, and its sides "
        f"are the columns {' and '.join(map(repr, languages))}, alone or within a column "
        "'translation'",
    )
    return _fetch(wanted)[0]


def _fetch(wanted: _Wanted) -> list[Source]:
    with _quiet_libraries():
        from datasets.exceptions import DatasetsError

        try:
            builder = _builder(wanted)
            return [_split(builder, wanted, split) for split in wanted.splits]
        except (OSError, ValueError, RuntimeError, DatasetsError, *transport_errors()) as error:
            raise MtkitError(_explanation(error, wanted)) from error


def _builder(wanted: _Wanted) -> Any:
    """A `datasets` builder whose splits are in the cache."""
    import datasets
    from huggingface_hub import HfApi, constants

    name = f"hf://datasets/{wanted.repository}"  # never a local folder of that name
    cache, revision = Path(datasets.config.HF_DATASETS_CACHE), None
    if len(wanted.splits) == 1:
        # A separate cache, because the library takes the files in it for the whole configuration.
        cache = cache / "mtkit-splits" / wanted.splits[0]
    if not datasets.config.HF_HUB_OFFLINE:
        # One request with one time limit, because it fails fast; the first request of `datasets`
        # is tried six times, for a minute each.
        timeout = constants.HF_HUB_ETAG_TIMEOUT
        revision = HfApi().dataset_info(wanted.repository, timeout=timeout).sha
    builder = datasets.load_dataset_builder(
        name, wanted.config, revision=revision, cache_dir=str(cache)
    )
    if revision is None:
        return builder
    if builder.hash != revision:  # `datasets` silently used an older copy
        raise ConnectionError("it stopped answering")
    if not Path(builder.cache_dir).exists():  # it is created as a whole
        files, splits = builder.config.data_files, builder.info.splits
        for split in wanted.splits:
            if split not in files:
                raise _lacks(wanted, f"split '{split}'", files)
        if len(wanted.splits) == 1:
            builder.config.data_files = files = type(files)({split: files[split]})
            # The number of pairs is still compared with the dataset card.
            is_on_card = splits is not None and split in splits
            builder.info.splits = datasets.SplitDict({split: splits[split]}) if is_on_card else None
        _download(files, wanted, revision)
        builder.download_and_prepare()
    return builder


def _download(files: Any, wanted: _Wanted, revision: str) -> None:
    """Download files to the cache, and compare their checksums; the client compares only sizes."""
    import datasets
    from huggingface_hub import HfApi

    log.info("fetching %s from %s", wanted, the_hub())
    manager = datasets.DownloadManager()
    try:
        manager.download(files)
    except transport_errors():  # the client gives up when a connection is reset
        manager.download(files)
    result = HfApi().verify_repo_checksums(
        wanted.repository, repo_type="dataset", revision=revision
    )
    # An older file of another split is not checked now.
    fetched = {url.partition(f"@{revision}/")[2] for urls in files.values() for url in urls}
    damaged = [name for mismatch in result.mismatches if (name := mismatch["path"]) in fetched]
    for name in damaged:
        # The cache has a link to a file named after its checksum: delete both.
        (result.verified_path / name).resolve().unlink()
        (result.verified_path / name).unlink(missing_ok=True)
    if damaged:
        raise MtkitError(
            f"{', '.join(damaged)} of {wanted.repository} arrived damaged (the checksum is not "
            f"that of {the_hub()}) and was deleted: run the command again"
        )


def _split(builder: Any, wanted: _Wanted, name: str) -> Source:
    import datasets

    rows = builder.as_dataset(split=name).flatten()
    texts = [
        column
        for column, feature in rows.features.items()
        if isinstance(feature, datasets.Value) and "string" in feature.dtype
    ]
    for prefix in ("translation.", ""):
        columns = [prefix + language for language in wanted.languages]
        missing = [column for column in columns if column not in texts]
        if not missing:
            break
    else:
        raise _lacks(wanted, f"text column '{missing[0]}' in '{name}'", texts)
    config = f" {wanted.config}" if len(wanted.splits) == 1 and wanted.config else ""
    origin = {
        "repository": wanted.repository,
        "config": wanted.config,
        "split": name,
        "revision": builder.hash,
    }
    rows = rows.select_columns(columns)
    return _HubSplit(f"{wanted.repository}{config} {name}", rows, columns, origin)


def _lacks(wanted: _Wanted, what: str, there: Iterable[str]) -> MtkitError:
    return MtkitError(
        f"{wanted} on {the_hub()} has no {what}, only {', '.join(there)}: {wanted.advice}"
    )


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


def _explanation(error: BaseException, wanted: _Wanted) -> str:
    """What went wrong, and what the user can do about it."""
    import datasets
    from datasets import exceptions
    from huggingface_hub.errors import HfHubHTTPError

    cache = datasets.config.HF_CACHE_HOME
    if datasets.config.HF_HUB_OFFLINE:
        return (
            f"HF_HUB_OFFLINE is set, and {wanted} cannot be read from the cache {cache} "
            f"({reason_of(error)}): unset it, let HF_HOME name another folder, {_OWN_FILES}"
        )
    no_answer = exceptions.DatasetNotFoundError, HfHubHTTPError, ConnectionError, TimeoutError
    for cause in _causes(error):
        if isinstance(cause, (*no_answer, *transport_errors())):
            reason = reason_of(cause) or type(cause).__name__
            if isinstance(cause, HfHubHTTPError):
                response = cause.response
                reason = f"{response.url.host} answered with HTTP {response.status_code}"
            return (
                f"cannot fetch {wanted.repository} from {the_hub()} ({reason}): check its name, "
                "the connection, the proxy and HF_ENDPOINT, set HF_TOKEN if it is private or "
                "gated, and run the command again, which keeps complete files; or set "
                f"HF_HUB_OFFLINE=1 to use earlier downloads, {_OWN_FILES}"
            )
        if isinstance(cause, OSError) and cause.errno is not None:
            return (
                f"cannot write {wanted.repository} to the cache {cache}: make room there, or let "
                f"HF_HOME name another folder ({cause.strerror})"
            )
    if isinstance(error, exceptions.DatasetGenerationError):  # it says less than its cause
        error = error.__cause__ or error
    reason = reason_of(error)
    if isinstance(error, exceptions.SplitsVerificationError):
        reason = "it does not have as many pairs as its card says; try again later"
    return f"cannot read {wanted} from {the_hub()}: {reason}"


def _causes(error: BaseException) -> list[BaseException]:
    """An error and what led to it, which `datasets` may hide by `from None`; never in a circle."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes
