"""Downloads sentence pairs from the Hugging Face hub.

`fetch` returns the splits of a corpus of the catalogue, `fetch_split` one of any other dataset.

Only this module uses the `datasets` library. It is slow to import, so it is imported where it is
used. The user configures it by HF_ENDPOINT (another hub), HF_HOME (another cache), HF_TOKEN,
HF_HUB_OFFLINE (use earlier downloads) and the usual proxy variables.
"""

from __future__ import annotations

import hashlib
import logging
import re
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
from mtkit.prepare.source import Block, Reading, Source, arrow_block, regrouped

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo
    from huggingface_hub.hf_api import RepoSibling

log = logging.getLogger(__name__)

HUB_PREFIX = "hf:"
# Rows read at a time: a few hundred KB of text, for low memory and little overhead of Python.
_BATCH_ROWS = 1000


class _HubSplit(Source):
    """The pairs of one split, in the order of the repository.

    `rows` is a `datasets.Dataset` with the columns src and tgt, `origin` says where it is from.
    """

    def __init__(self, name: str, rows: Any, origin: dict[str, Any]) -> None:
        super().__init__(name)
        self._rows = rows
        self._origin = origin

    def _read(self, size: int, reading: Reading) -> Iterator[Block]:
        return regrouped(self._batches(reading), size)

    def _batches(self, reading: Reading) -> Iterator[Block]:
        done = 0
        for table in self._rows.with_format("arrow").iter(batch_size=_BATCH_ROWS):
            done += table.num_rows
            reading.share = done / self._rows.num_rows
            yield arrow_block(table, ("src", "tgt"), reading.found)

    def _place(self) -> dict[str, Any]:
        return {"kind": "hub", **self._origin}


@dataclass(frozen=True)
class _Wanted:
    """The part of a repository to download, and its layout.

    `records` are the columns that may hold both sides, in order of preference; None stands for a
    column per language. `advice` ends the error message if the repository has another layout.
    """

    repository: str
    config: str | None
    languages: tuple[str, str]
    splits: tuple[str, ...]
    records: tuple[str | None, ...]
    advice: str

    @property
    def alone(self) -> bool:
        """Whether one split of the configuration is prepared, and not all."""
        return len(self.splits) == 1

    @property
    def described(self) -> str:
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
        repository=corpus.source,
        config=corpus.config,
        languages=(corpus.src_lang, corpus.tgt_lang),
        splits=(corpus.train_split, corpus.valid_split, corpus.test_split),
        records=(corpus.column,),
        advice="it has changed since this version of mtkit; a newer version may support it",
    )
    names: tuple[Split, ...] = ("train", "valid", "test")
    return dict(zip(names, _fetch(wanted), strict=True))


def fetch_split(text: str, languages: tuple[str, str]) -> Source:
    """One split of any dataset on the hub; other splits are not downloaded.

    `text` is hf:OWNER/DATASET[:CONFIG][:SPLIT]. The sides are the columns named by the language
    codes, or the fields with these names in a column "translation". Without a configuration the
    dataset must have only one. Otherwise like `fetch`; `MtkitError` lists the configurations,
    splits or columns that exist.
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
        repository=named["repository"],
        config=named["config"] or None,
        languages=languages,
        splits=(named["split"] or "train",),
        records=("translation", None),
        advice=f"a dataset is named as in hf:{named['repository']}:CONFIG:SPLIT, and its sides "
        f"are the columns {' and '.join(map(repr, languages))}, alone or within a column "
        "'translation'",
    )
    return _fetch(wanted)[0]


def _fetch(wanted: _Wanted) -> list[Source]:
    with _quiet_libraries(), waiting_noted(f"fetching {wanted.described} from {the_hub()}"):
        builder = _builder(wanted)
        return [_split(builder, wanted, split) for split in wanted.splits]


@contextmanager
def _explained(wanted: _Wanted) -> Iterator[None]:
    """Report in one line what goes wrong in a call of the libraries."""
    from datasets.exceptions import DatasetsError

    try:
        yield
    except (OSError, ValueError, RuntimeError, DatasetsError, *transport_errors()) as error:
        raise MtkitError(_explanation(error, wanted)) from error


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
        raise MtkitError(_unanswered(wanted, "it stopped answering"))
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


def _split(builder: Any, wanted: _Wanted, name: str) -> Source:
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
        sides = {prefix + wanted.languages[0]: "src", prefix + wanted.languages[1]: "tgt"}
        lacking = [column for column in sides if column not in texts]
        if not lacking:
            break
    if lacking:
        raise _lacks(wanted, f"text column '{lacking[0]}' in '{name}'", texts)
    rows = rows.select_columns(list(sides)).rename_columns(sides)
    config = f" {wanted.config}" if wanted.alone and wanted.config else ""
    origin = {
        "repository": wanted.repository,
        "config": wanted.config,
        "split": name,
        "revision": builder.hash,
    }
    return _HubSplit(f"{wanted.repository}{config} {name}", rows, origin)


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


def _explanation(error: Exception, wanted: _Wanted) -> str:
    """The message for the user."""
    import datasets
    from datasets import exceptions
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError

    # The root causes come last; `datasets` wraps them.
    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, HfHubHTTPError):
            status, host = cause.response.status_code, cause.response.url.host
            if host == urlsplit(constants.ENDPOINT).hostname and status in (401, 403, 404):
                return _no_access(wanted, f"HTTP {status}")
            return _unanswered(wanted, f"{host} answered with HTTP {status}")
        if isinstance(cause, exceptions.DatasetNotFoundError):  # such as a gated one
            return _no_access(wanted, reason_of(cause))
        if isinstance(cause, (ConnectionError, TimeoutError, *transport_errors())):
            return _unanswered(wanted, reason_of(cause) or type(cause).__name__)
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno is not None:
            return (
                f"cannot write {wanted.repository} to the cache {datasets.config.HF_CACHE_HOME}: "
                f"make room there, or let HF_HOME name another folder ({cause.strerror})"
            )
    reason = reason_of(
        causes[-1] if isinstance(error, exceptions.DatasetGenerationError) else error
    )
    if isinstance(error, exceptions.SplitsVerificationError):
        reason = "it does not have as many pairs as its card says; try again later"
    return f"cannot read {wanted.described} from {the_hub()}: {reason}"


def _no_access(wanted: _Wanted, reason: str) -> str:
    return (
        f"{the_hub()} has no dataset {wanted.repository}, or it is private or gated ({reason}): "
        "check the name and HF_ENDPOINT, set HF_TOKEN to a token that may read it, or prepare "
        "your own files with --train and --valid"
    )


def _unanswered(wanted: _Wanted, reason: str) -> str:
    return (
        f"cannot fetch {wanted.repository} from {the_hub()} ({reason}): check the connection, the "
        "proxy and HF_ENDPOINT, and run the command again, which keeps complete files; or set "
        "HF_HUB_OFFLINE=1 to use earlier downloads, or prepare your own files with --train and "
        "--valid"
    )


def _causes(error: BaseException) -> list[BaseException]:
    """The error and its chain of causes, also those that the libraries hide by `from None`."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__
    return seen
