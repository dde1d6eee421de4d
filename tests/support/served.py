"""A server in a thread of the tests, and requests to it."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from mtkit.run_folder import Run
from mtkit.serve import Access, Directions, Limits, Server, Service, listen
from mtkit.translate import Sentence, Translation, Translator
from mtkit.translate.glossary.terms import Demand


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A running server; `with` ends it."""

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        limits: Limits | None = None,
        access: Access | None = None,
        changed: Callable[[Translator], object] = lambda _: None,
        proxies: Sequence[str] = (),
    ) -> None:
        def load(run: Run, src_lang: str | None, tgt_lang: str | None) -> Translator:
            return Translator.load(run, device="cpu", src_lang=src_lang, tgt_lang=tgt_lang)

        directions = Directions(runs, load)
        for pair in directions:
            changed(directions.find(*pair))
        self.service = Service(directions, limits or Limits(), access or Access())
        self.server = Server(self.service, listen("127.0.0.1", 0), proxies=proxies)
        ready = threading.Event()
        self._thread = threading.Thread(target=self.server.run, args=[ready.set])
        self._thread.start()
        assert ready.wait(600)
        self.port = int(self.server.address.rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=600)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request(method, path, body, named)
            reply = connection.getresponse()
            content = reply.read()
        finally:
            connection.close()
        lower = {name.lower(): value for name, value in reply.getheaders()}
        return Reply(reply.status, lower, content)

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def post(self, path: str, content: Any, **headers: str) -> Reply:
        body = json.dumps(content).encode()
        return self.ask("POST", path, body, Content_Type="application/json", **headers)

    def form(self, path: str, fields: Any, **headers: str) -> Reply:
        kind = "application/x-www-form-urlencoded"
        body = urlencode(fields, doseq=True).encode()
        return self.ask("POST", path, body, Content_Type=kind, **headers)

    def upload(self, name: str, data: bytes, **fields: str) -> Reply:
        """Send a document as browsers do; with languages, and with other fields of a form."""
        kind = "multipart/form-data; boundary=--x"
        body = parts({"source": "en", "target": "de"} | fields, name, data)
        return self.ask("POST", "/translate_file", body, Content_Type=kind)

    def fetch(self, reply: Reply) -> bytes:
        """The document to which an answer leads."""
        assert reply.status == 200, reply.body
        return self.get(urlsplit(reply.json["translatedFileUrl"]).path).body

    def translate(self, q: str | list[str], **fields: Any) -> Reply:
        return self.post("/translate", {"q": q, "source": "en", "target": "de"} | fields)


def parts(fields: dict[str, str], name: str, data: bytes) -> bytes:
    """A form in parts with a file, and the boundary `--x`."""
    head = b'----x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    body = b"".join(head % (field.encode(), text.encode()) for field, text in fields.items())
    shown = name.encode().replace(b'"', b"%22")
    body += b'----x\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n' % shown
    return body + b"Content-Type: text/plain\r\n\r\n%s\r\n----x--\r\n" % data


def request_bytes(q: Any, **fields: Any) -> bytes:
    """A request for a translation as it is sent."""
    body = json.dumps({"q": q, "source": "en", "target": "de"} | fields).encode()
    return (
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )


class FakeTranslator:
    """Translates every sentence into its number of tokens, when it may.

    Args:
        gate: decoding waits for it.
    """

    def __init__(self, *, threads: int = 1, gate: threading.Event | None = None) -> None:
        # It is its own decoder.
        self.decoder, self.config = self, None
        self.threads, self.needs_torch = threads, threads == 1
        self.batches: list[list[str]] = []
        self.settings: list[int] = []
        self.begun = threading.Semaphore(0)
        self._gate = gate

    def batch_budget(self, config: object, n_best: int) -> int:
        return 10_000

    def decode(self, sentences: Sequence[Sentence], n_best: int) -> list[list[Translation]]:
        self.batches.append([sentence.text for sentence in sentences])
        self.settings.append(n_best)
        self.begun.release()
        if self._gate is not None:
            assert self._gate.wait(600)
        if any(sentence.text == "bad" for sentence in sentences):
            raise ValueError("bad")
        return [[Translation(f"{sentence.text}!")] * n_best for sentence in sentences]


def sentence(text: str, tokens: int = 8, terms: int = 0) -> Sentence:
    """A sentence of so many tokens with EOS, and with so many terms of a glossary."""
    return Sentence(1, [5] * (tokens - 1), text=text, terms=[Demand("a", list)] * terms)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, for ten minutes at most."""
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Gate:
    """Decoding waits until it is opened."""

    def __init__(self) -> None:
        self.event, self.begun = threading.Event(), threading.Semaphore(0)
        self.texts: list[str] = []

    def open(self) -> None:
        self.event.set()

    def close(self, translator: Translator) -> None:
        decode: Callable[..., list[list[Translation]]] = translator.decoder.decode

        def wait(sentences: Sequence[Sentence], n_best: int) -> list[list[Translation]]:
            self.begun.release()
            assert self.event.wait(600)
            self.texts += [sentence.text for sentence in sentences]
            return decode(sentences, n_best)

        translator.decoder.decode = wait  # type: ignore[method-assign]
