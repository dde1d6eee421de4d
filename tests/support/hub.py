"""A small imitation of the Hugging Face hub on the loopback address.

The real `datasets` and `huggingface_hub` clients download from it over HTTP; they find the address
in the documented variable HF_ENDPOINT, and nothing in them is patched. The libraries read that
variable when they are imported, so a test starts them in a process of their own, with
`client_environment`.

    with Hub({"wmt/wmt14": wmt14_repository({"de-en": splits})}) as hub:
        subprocess.run([sys.executable, ...], env=client_environment(hub.endpoint, home))
        assert any("train-00000" in request for request in hub.requests)

Served as the hub does: the repository's description, its file listings, and its files, whole or in
part, with the headers that carry commit, size and checksum. Parquet files are large files: the
hub sends the client on to another host for their contents. `Hub.faults` breaks chosen requests.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import json
import os
import random
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Pair = tuple[str, str]


# ---------------------------------------------------------------------------------------------
# Repositories


@dataclass(frozen=True)
class Splits:
    """The pairs of one corpus; None leaves a split out of the repository."""

    train: Sequence[Pair] | None
    validation: Sequence[Pair] | None
    test: Sequence[Pair] | None

    def present(self) -> dict[str, Sequence[Pair]]:
        return {name: pairs for name, pairs in vars(self).items() if pairs is not None}


@dataclass(frozen=True)
class HubFile:
    """A file of a repository: small ones are plain git objects, large ones are stored apart."""

    content: bytes
    large: bool = False

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @functools.cached_property
    def git_sha1(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.large else self.git_sha1

    def description(self, path: str) -> dict[str, Any]:
        """What the listings of the hub say of this file."""
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(self.content)}
        entry["oid"] = self.git_sha1
        if self.large:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.content), "pointerSize": 134}
        return entry


@dataclass(frozen=True)
class Repository:
    """The files of one repository, of a dataset or a model, by path, at one commit."""

    files: Mapping[str, HubFile]
    gated: bool = False

    @functools.cached_property
    def commit(self) -> str:
        """The SHA of the only commit: the same files always give the same one."""
        digest = hashlib.sha1()
        for path, file in sorted(self.files.items()):
            digest.update(f"{path}\0{file.sha256}\n".encode())
        return digest.hexdigest()


def wmt14_repository(
    configs: Mapping[str, Splits],
    *,
    shards: int = 3,
    column: str | None = "translation",
    languages: Sequence[str] | None = None,
) -> Repository:
    """A repository in the layout of ``wmt/wmt14``: parquet files and a card that lists them.

    Pairs are in the order of the config's name: "de-en" takes (German, English). `column` and
    `languages` rename what is inside the rows, for tests of a layout that has changed; without a
    column that holds both sides, each has its own.
    """
    files: dict[str, HubFile] = {}
    card_infos: list[str] = []
    card_configs: list[str] = []
    for config, splits in configs.items():
        names = list(languages or config.split("-"))
        card_infos += [
            f"- config_name: {config}",
            "  features:",
            *_card_features(column, names),
            "  splits:",
        ]
        card_configs += [f"- config_name: {config}", "  data_files:"]
        size = 0
        for split, pairs in splits.present().items():
            n_files = shards if split == "train" else 1
            bounds = [len(pairs) * i // n_files for i in range(n_files + 1)]
            for i, (start, stop) in enumerate(itertools.pairwise(bounds)):
                content = _parquet(pairs[start:stop], column=column, languages=names)
                path = f"{config}/{split}-{i:05d}-of-{n_files:05d}.parquet"
                files[path] = HubFile(content, large=True)
                size += len(content)
            card_infos += [
                f"  - name: {split}",
                f"    num_bytes: {sum(len(side) for pair in pairs for side in pair)}",
                f"    num_examples: {len(pairs)}",
            ]
            card_configs += [f"  - split: {split}", f"    path: {config}/{split}-*"]
        card_infos += [f"  download_size: {size}", f"  dataset_size: {size}"]
    card = ["---", "dataset_info:", *card_infos, "configs:", *card_configs, "---", "# wmt14", ""]
    files["README.md"] = HubFile("\n".join(card).encode())
    return Repository(files)


def _card_features(column: str | None, languages: Sequence[str]) -> list[str]:
    if column is None:
        return [line for name in languages for line in (f"  - name: {name}", "    dtype: string")]
    return [
        f"  - name: {column}",
        "    dtype:",
        "      translation:",
        "        languages:",
        *[f"        - {name}" for name in languages],
    ]


def multi30k_repository(splits: Splits) -> Repository:
    """A repository in the layout of ``bentrevett/multi30k``: three JSON-lines files, plain card.

    Pairs are (English, German).
    """
    files = {"README.md": HubFile(b"---\nlanguage:\n- en\n- de\n---\n# Multi30k\n")}
    for split, pairs in splits.present().items():
        rows = (json.dumps({"en": en, "de": de}, ensure_ascii=False) for en, de in pairs)
        name = "val" if split == "validation" else split
        files[f"{name}.jsonl"] = HubFile("".join(row + "\n" for row in rows).encode())
    return Repository(files)


def _parquet(pairs: Sequence[Pair], *, column: str | None, languages: Sequence[str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sides = [pa.array([pair[i] for pair in pairs], pa.string()) for i in range(2)]
    if column is None:
        buffer = io.BytesIO()
        pq.write_table(pa.table(dict(zip(languages, sides, strict=True))), buffer)
        return buffer.getvalue()
    features = {column: {"languages": list(languages), "_type": "Translation"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({column: pa.StructArray.from_arrays(sides, names=list(languages))})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), buffer, row_group_size=1000)
    return buffer.getvalue()


# ---------------------------------------------------------------------------------------------
# Text


def synthetic_splits(
    *,
    train: int = 20_000,
    validation: int = 300,
    test: int = 300,
    lexicon: int = 30_000,
    seed: int = 1,
) -> Splits:
    """Made-up parallel text, the same for the same arguments.

    Every word of one language has one counterpart in the other, at the same place in the
    sentence. There are `lexicon` words a side, in no way alike, so that the defaults support a
    joint BPE of 37,000 pieces.
    """
    rng = random.Random(seed)
    first = _pseudo_words(lexicon, rng, onsets="b d f g k l m n p r s t v z", vowels="aeiou")
    second = _pseudo_words(
        lexicon, rng, onsets="br ch dr gl kn pf sch st str tr w zw", vowels="aeioäöü"
    )

    def pairs(count: int) -> list[Pair]:
        made = []
        for _ in range(count):
            words = [rng.randrange(lexicon) for _ in range(rng.randint(6, 18))]
            made.append(
                tuple(" ".join(words_of[i] for i in words) + "." for words_of in (first, second))
            )
        return made

    return Splits(train=pairs(train), validation=pairs(validation), test=pairs(test))


def _pseudo_words(count: int, rng: random.Random, *, onsets: str, vowels: str) -> list[str]:
    starts = onsets.split()
    words: dict[str, None] = {}  # a set that keeps its order
    while len(words) < count:
        syllables = (rng.choice(starts) + rng.choice(vowels) for _ in range(rng.randint(2, 4)))
        words["".join(syllables) + rng.choice("nrstl ").strip()] = None
    return list(words)


# ---------------------------------------------------------------------------------------------
# The server


@dataclass
class Fault:
    """What goes wrong with the requests whose path contains a given text.

    `method` limits it to one method; `times` to the first so many requests.
    """

    method: str | None = None
    times: int | None = None
    status: int | None = None  # answer with this status instead
    delay: float = 0.0  # wait so many seconds first
    cut_after: int | None = None  # drop the connection after so many bytes of the body
    corrupt: bool = False  # flip one bit of the body


@dataclass
class Hub:
    """The server, between `__enter__` and `__exit__`, at `endpoint`.

    `requests` lists what was asked for ("GET /api/datasets/wmt/wmt14"), in order. `faults` maps a
    part of a request's path to what goes wrong with it.
    """

    repositories: Mapping[str, Repository]
    port: int = 0
    # By name, or for another revision than main by name@revision.
    models: Mapping[str, Repository] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    # Whether large files are offered by Xet too, as on the hub; but that storage does not work.
    has_xet: bool = False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Hub:
        handler = functools.partial(_Handler, self)
        self._server = _Server(("127.0.0.1", self.port), handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fault(self, method: str, path: str) -> Fault | None:
        """The fault that strikes this request, if there is one; counts it."""
        for part, fault in self.faults.items():
            if part in path and fault.method in (None, method) and fault.times != 0:
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away; the test checks what became of it."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, hub: Hub, *args: Any) -> None:
        self.hub = hub
        super().__init__(*args)  # handles the requests of one connection

    def log_message(self, *_: object) -> None:
        pass  # the test reads `Hub.requests`

    def do_GET(self) -> None:
        self.is_model = False
        url = urlsplit(self.path)
        path = unquote(url.path)
        self.hub.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.fault = self.hub.fault(self.command, path)
        if self.fault is not None:
            time.sleep(self.fault.delay)
            if self.fault.status is not None:
                self._refuse(self.fault.status, "", "Out of order")
                return
        # A revision such as refs/pr/1 is one part of the path.
        match [unquote(part) for part in url.path.strip("/").split("/")]:
            case ["api", ("datasets" | "models") as kind, namespace, name, *rest]:
                self.is_model = kind == "models"
                self._api(f"{namespace}/{name}", rest, parse_qs(url.query), body)
            case ["datasets", namespace, name, "resolve", revision, *parts]:
                self._resolve(f"{namespace}/{name}", revision, "/".join(parts))
            case [namespace, name, "resolve", revision, *parts]:
                self.is_model = True
                self._resolve(f"{namespace}/{name}", revision, "/".join(parts))
            case ["storage", sha256]:
                self._storage(sha256)
            case _:
                self._refuse(404, "", "Sorry, we can't find the page you are looking for.")

    do_HEAD = do_POST = do_GET  # noqa: N815

    def _api(self, name: str, rest: list[str], query: dict[str, list[str]], body: bytes) -> None:
        repository = self._repository(name, revision=rest[1] if len(rest) > 1 else "main")
        if repository is None:
            return
        match rest:
            case [] | ["revision", _]:
                self._json(_description(name, repository, blobs="blobs" in query))
            case ["tree", _, *parts]:
                folder = "/".join(parts)
                recursive = query.get("recursive", ["false"])[0].lower() in ("1", "true")
                entries = list(_tree(repository, folder, recursive=recursive))
                if entries:
                    self._json(entries)
                else:
                    self._refuse(404, "EntryNotFound", f"{folder} does not exist on main")
            case ["paths-info", _]:
                entries = []
                for path in parse_qs(body.decode()).get("paths", []):
                    if path in repository.files:
                        entries.append(repository.files[path].description(path))
                    elif any(_tree(repository, path, recursive=False)):
                        entries.append(_folder(path))
                self._json(entries)
            case ["xet-read-token", _]:
                # No Xet storage is there: it answers as `faults` say, or with status 404.
                headers = {"X-Xet-Cas-Url": f"{self.hub.endpoint}/xet"}
                headers |= {"X-Xet-Access-Token": "token", "X-Xet-Token-Expiration": "9999999999"}
                self._json({}, headers=headers)
            case ["refs"]:
                main = {"name": "main", "ref": "refs/heads/main"}
                main["targetCommit"] = repository.commit
                self._json({"branches": [main], "converts": [], "tags": []})
            case _:
                self._refuse(404, "", "Not found")

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository = self._repository(name, revision=revision)
        if repository is None:
            return
        commit = {"X-Repo-Commit": repository.commit}
        file = repository.files.get(path)
        if repository.gated:
            message = f"Access to dataset {name} is restricted. You must be authenticated."
            self._refuse(401, "GatedRepo", message, commit)
        elif file is None:
            self._refuse(404, "EntryNotFound", "Entry not found", commit)
        elif not file.large:
            self._file(file, commit)
        else:
            # Not the host name of the endpoint: the hub, too, keeps large files elsewhere.
            storage = f"http://localhost:{self.hub.port}/storage/{file.sha256}"
            headers = {
                "Location": f"{storage}?name={path}",
                "X-Linked-Size": str(len(file.content)),
                "X-Linked-ETag": f'"{file.etag}"',
            }
            if self.hub.has_xet:
                token = f"{self.hub.endpoint}/api/datasets/{name}/xet-read-token/{revision}"
                headers |= {"X-Xet-Hash": file.sha256, "X-Xet-Refresh-Route": token}
            self._send(302, b"", commit | headers)

    def _storage(self, sha256: str) -> None:
        for repository in (*self.hub.repositories.values(), *self.hub.models.values()):
            for file in repository.files.values():
                if file.large and file.sha256 == sha256:
                    self._file(file, {})
                    return
        self._refuse(403, "", "Access denied")

    def _file(self, file: HubFile, headers: dict[str, str]) -> None:
        content = file.content
        if self.fault is not None and self.fault.corrupt:
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        headers = {**headers, "ETag": f'"{file.etag}"', "Accept-Ranges": "bytes"}
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, stop = 0, len(content)
        if span is not None:
            start, stop = int(span[1]), int(span[2] or stop - 1) + 1
        part = content[start:stop]
        if span is None:
            self._send(200, content, headers)
        elif part:
            headers["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
            self._send(206, part, headers)
        else:
            self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})

    def _repository(self, name: str, *, revision: str) -> Repository | None:
        """The repository, or None when the request was refused."""
        repository = self.hub.repositories.get(name)
        if self.is_model:
            repository = self.hub.models.get(name)
            others = [one for key, one in self.hub.models.items() if key.startswith(f"{name}@")]
            by_revision = {one.commit: one for one in others}
            by_revision |= {
                key.partition("@")[2]: one for key, one in self.hub.models.items() if "@" in key
            }
            if revision in by_revision:
                return by_revision[revision]
        if repository is None:  # strangers do not learn whether it is missing or private
            self._refuse(401, "RepoNotFound", "Repository not found")
        elif revision not in ("main", repository.commit):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return repository
        return None

    def _refuse(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        headers = {**(headers or {}), "X-Error-Message": message}
        if code:
            headers["X-Error-Code"] = code
        self._json({"error": message}, status=status, headers=headers)

    def _json(
        self, value: object, *, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        content = json.dumps(value).encode()
        self._send(status, content, {**(headers or {}), "Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = self.fault.cut_after if self.fault is not None else None
        if cut is not None and cut < len(content):
            self.wfile.write(content[:cut])
            self.wfile.flush()
            # An abrupt end: the client sees a reset connection, not a short file.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        self.wfile.write(content)


def _description(name: str, repository: Repository, *, blobs: bool) -> dict[str, Any]:
    siblings = []
    for path, file in sorted(repository.files.items()):
        entry: dict[str, Any] = {"rfilename": path}
        if blobs:
            entry |= {"size": len(file.content), "blobId": file.git_sha1}
            if file.large:
                size = len(file.content)
                entry["lfs"] = {"sha256": file.sha256, "size": size, "pointerSize": 134}
        siblings.append(entry)
    return {
        "_id": repository.commit[:24],
        "id": name,
        "author": name.split("/")[0],
        "sha": repository.commit,
        "lastModified": "2024-04-03T00:00:00.000Z",
        "private": False,
        "gated": "auto" if repository.gated else False,
        "disabled": False,
        "tags": [],
        "downloads": 0,
        "likes": 0,
        "siblings": siblings,
    }


def _tree(repository: Repository, folder: str, *, recursive: bool) -> Iterator[dict[str, Any]]:
    """The entries under a folder, "" being the root; nothing when there is no such folder."""
    prefix = f"{folder}/" if folder else ""
    folders: set[str] = set()
    for path, file in sorted(repository.files.items()):
        if not path.startswith(prefix):
            continue
        *parents, _ = path.removeprefix(prefix).split("/")
        for depth in range(len(parents) if recursive else min(len(parents), 1)):
            parent = prefix + "/".join(parents[: depth + 1])
            if parent not in folders:
                folders.add(parent)
                yield _folder(parent)
        if recursive or not parents:
            yield file.description(path)


def _folder(path: str) -> dict[str, Any]:
    return {
        "type": "directory",
        "path": path,
        "size": 0,
        "oid": hashlib.sha1(path.encode()).hexdigest(),
    }


# ---------------------------------------------------------------------------------------------
# The client's side


def client_environment(endpoint: str, home: Path | str, **more: str) -> dict[str, str]:
    """The environment of a process whose `datasets` talks to `endpoint` and nothing else.

    `home` is its cache. Settings of whoever runs the tests are left out: their proxy, token,
    cache and verbosity. Anything not on the loopback address goes to a proxy that is not there.
    """
    ours = re.compile(r"(?i)HF_|HUGGINGFACE|DATASETS_|TRANSFORMERS_|XDG_CACHE_HOME|.*_proxy$")
    environment = {name: value for name, value in os.environ.items() if not ours.match(name)}
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        environment[name] = "http://127.0.0.1:9"
    environment["NO_PROXY"] = "127.0.0.1,localhost"
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home)}
    return environment | more
