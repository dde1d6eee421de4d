"""A small imitation of the Hugging Face hub on the loopback address.

The real `datasets` and `huggingface_hub` clients download from it over HTTP; they find the address
in the documented variable HF_ENDPOINT, and nothing in them is patched. The libraries read that
variable when they are imported, so a test starts them in a process of their own, with
`client_environment`.

    with Hub({"wmt/wmt14": wmt14_repository({"de-en": splits})}) as hub:
        subprocess.run([sys.executable, ...], env=client_environment(hub.endpoint, home))
        assert any("train-00000" in request for request in hub.requests)

Served as the hub does: the repository's description, its file listing, and its files, with the
headers that carry commit, size and checksum. `Hub.faults` breaks chosen requests.
"""

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
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

Pair = tuple[str, str]
# The pairs of a corpus by the name of their split.
Splits = Mapping[str, Sequence[Pair]]

# Files that the hub stores outside of git, whose tag is another checksum.
LARGE = (".parquet", ".safetensors", ".bin", ".spm")


@dataclass(frozen=True)
class Repository:
    """The files of one repository, of a dataset or a model, by path, at one commit."""

    files: Mapping[str, bytes]
    gated: bool = False

    @functools.cached_property
    def commit(self) -> str:
        """The SHA of the only commit: the same files always give the same one."""
        digest = hashlib.sha1()
        for path, content in sorted(self.files.items()):
            digest.update(f"{path}\0{sha256(content)}\n".encode())
        return digest.hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _etag(path: str, content: bytes) -> str:
    if path.endswith(LARGE):
        return sha256(content)
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def wmt14_repository(
    configs: Mapping[str, Splits],
    *,
    column: str | None = "translation",
    languages: Sequence[str] | None = None,
) -> Repository:
    """A repository in the layout of ``wmt/wmt14``: parquet files and a card that lists them.

    Pairs are in the order of the config's name: "de-en" takes (German, English). The training
    pairs are in three files. `column` and `languages` rename what is inside the rows, for tests of
    a layout that has changed; without a column that holds both sides, each has its own.
    """
    files: dict[str, bytes] = {}
    infos, card_configs = [], []
    for config, splits in configs.items():
        names = list(languages or config.split("-"))
        features: list[dict[str, Any]] = [{"name": name, "dtype": "string"} for name in names]
        if column is not None:
            features = [{"name": column, "dtype": {"translation": {"languages": names}}}]
        for split, pairs in splits.items():
            count = 3 if split == "train" else 1
            bounds = [len(pairs) * i // count for i in range(count + 1)]
            for i, (start, stop) in enumerate(itertools.pairwise(bounds)):
                path = f"{config}/{split}-{i:05d}-of-{count:05d}.parquet"
                files[path] = _parquet(pairs[start:stop], column=column, languages=names)
        sizes = [
            {"name": name, "num_bytes": 1, "num_examples": len(pairs)}
            for name, pairs in splits.items()
        ]
        infos.append({"config_name": config, "features": features, "splits": sizes})
        paths = [{"split": split, "path": f"{config}/{split}-*"} for split in splits]
        card_configs.append({"config_name": config, "data_files": paths})
    # JSON is YAML too.
    card = json.dumps({"dataset_info": infos, "configs": card_configs}, indent=1)
    return Repository({**files, "README.md": f"---\n{card}\n---\n".encode()})


def multi30k_repository(splits: Splits) -> Repository:
    """A repository in the layout of ``bentrevett/multi30k``: three JSON-lines files, plain card.

    Pairs are (English, German).
    """
    files = {"README.md": b"---\nlanguage:\n- en\n- de\n---\n# Multi30k\n"}
    for split, pairs in splits.items():
        rows = (json.dumps({"en": en, "de": de}, ensure_ascii=False) for en, de in pairs)
        name = "val" if split == "validation" else split
        files[f"{name}.jsonl"] = "".join(row + "\n" for row in rows).encode()
    return Repository(files)


def _parquet(pairs: Sequence[Pair], *, column: str | None, languages: Sequence[str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sides = [pa.array([pair[i] for pair in pairs], pa.string()) for i in range(2)]
    table = pa.table(dict(zip(languages, sides, strict=True)))
    if column is not None:
        table = pa.table({column: pa.StructArray.from_arrays(sides, names=list(languages))})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def synthetic_splits(*, lexicon: int, **counts: int) -> Splits:
    """Made-up parallel text: so many pairs of each split, the same for the same arguments.

    Each word has one counterpart in the other language, at the same place. There are `lexicon`
    words a side, in no way alike; 30,000 support a joint BPE of 37,000 pieces.
    """
    rng = random.Random(1)
    german, english = (
        ["".join(rng.choices(letters, k=7)) for _ in range(lexicon)]
        for letters in ("bcdefhiklnorstuwzäöü", "abdefgiklmnoprstu")
    )

    def pair() -> Pair:
        words = rng.choices(range(lexicon), k=rng.randint(6, 18))
        return " ".join(german[i] for i in words) + ".", " ".join(english[i] for i in words) + "."

    return {split: [pair() for _ in range(count)] for split, count in counts.items()}


@dataclass
class Fault:
    """What goes wrong with the GET requests whose path contains a given text.

    `times` limits it to the first so many requests.
    """

    times: int | None = None
    status: int | None = None  # answer with this status instead
    cut_after: int | None = None  # drop the connection after so many bytes of the body
    corrupt: bool = False  # flip one bit of the body


@dataclass
class Hub:
    """The server, between `__enter__` and `__exit__`, at `endpoint`.

    `requests` lists what was asked for ("GET /api/datasets/wmt/wmt14"), in order. `faults` maps a
    part of a request's path to what goes wrong with it.
    """

    repositories: Mapping[str, Repository]
    # By name, or for another revision than main by name@revision.
    models: Mapping[str, Repository] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        handler = functools.partial(_Handler, self)
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def fault(self, path: str) -> Fault:
        """What goes wrong with this request, which is counted."""
        for part, fault in self.faults.items():
            if part in path and fault.times != 0:
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return Fault()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, hub: Hub, *args: Any) -> None:
        self.hub = hub
        super().__init__(*args)  # handles the requests of one connection

    def log_message(self, *_: object) -> None:
        pass  # the test reads `Hub.requests`

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        self.hub.requests.append(f"{self.command} {path}")
        self.fault = self.hub.fault(path) if self.command == "GET" else Fault()
        if self.fault.status is not None:
            self._refuse(self.fault.status, "", "Out of order")
            return
        # A revision such as refs/pr/1 is one part of the path.
        match [unquote(part) for part in url.path.strip("/").split("/")]:
            case ["api", ("datasets" | "models") as kind, namespace, name, *rest]:
                revision = rest[1] if len(rest) > 1 else "main"
                repository = self._repository(f"{namespace}/{name}", revision, kind)
                if repository is not None:
                    self._api(f"{namespace}/{name}", repository, rest, url.query)
            case ["datasets", namespace, name, "resolve", revision, *parts]:
                self._resolve(f"{namespace}/{name}", revision, "/".join(parts), "datasets")
            case [namespace, name, "resolve", revision, *parts]:
                self._resolve(f"{namespace}/{name}", revision, "/".join(parts), "models")
            case _:
                self._refuse(404, "", "Sorry, we can't find the page you are looking for.")

    do_HEAD = do_GET  # noqa: N815

    def _api(self, name: str, repository: Repository, rest: list[str], query: str) -> None:
        match rest:
            case [] | ["revision", _]:
                siblings = [{"rfilename": path} for path in sorted(repository.files)]
                self._json({"id": name, "sha": repository.commit, "siblings": siblings})
            case ["tree", _, *parts]:
                recursive = "recursive=true" in query.lower()
                folder = "".join(f"{part}/" for part in parts)
                self._json(list(_tree(repository, folder, recursive=recursive)))

    def _resolve(self, name: str, revision: str, path: str, kind: str) -> None:
        repository = self._repository(name, revision, kind)
        if repository is None:
            return
        headers = {"X-Repo-Commit": repository.commit}
        content = repository.files.get(path)
        if repository.gated:
            self._refuse(401, "GatedRepo", f"Access to {name} is restricted", headers)
        elif content is None:
            self._refuse(404, "EntryNotFound", "Entry not found", headers)
        else:
            headers["ETag"] = f'"{_etag(path, content)}"'
            if self.fault.corrupt:
                content = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
            self._send(200, content, headers)

    def _repository(self, name: str, revision: str, kind: str) -> Repository | None:
        """The repository, or None when the request was refused."""
        repositories = self.hub.models if kind == "models" else self.hub.repositories
        for key, repository in repositories.items():
            known, _, label = key.partition("@")
            if known == name and revision in (label or "main", repository.commit):
                return repository
        if name in repositories:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:  # strangers do not learn whether it is missing or private
            self._refuse(401, "RepoNotFound", "Repository not found")
        return None

    def _refuse(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        headers = {**(headers or {}), "X-Error-Message": message, "X-Error-Code": code}
        self._json({"error": message}, status=status, headers=headers)

    def _json(
        self, value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
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
        cut = self.fault.cut_after
        if cut is not None and cut < len(content):
            self.wfile.write(content[:cut])
            self.wfile.flush()
            # An abrupt end: the client sees a reset connection, not a short file.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        self.wfile.write(content)


def _tree(repository: Repository, folder: str, *, recursive: bool) -> Iterator[dict[str, Any]]:
    """What is in a folder, "" being the root, or also in those within it."""
    folders = set()
    for path, content in sorted(repository.files.items()):
        if not path.startswith(folder):
            continue
        name, _, inner = path.removeprefix(folder).partition("/")
        oid = _etag(path, content)
        entry = {"type": "file", "path": path, "size": len(content), "oid": oid}
        large = {"oid": oid, "size": len(content), "pointerSize": 134}
        if recursive or not inner:
            yield entry | ({"lfs": large} if path.endswith(LARGE) else {})
        elif name not in folders:
            folders.add(name)
            yield {"type": "directory", "path": folder + name, "size": 0, "oid": oid}


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
