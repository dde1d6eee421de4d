"""What a server does with broken requests, slow clients, too much work, and at its end."""

import asyncio
import contextlib
import gc
import hashlib
import http.client
import inspect
import json
import logging
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from starlette.requests import ClientDisconnect
from support.served import Gate, Served, request_bytes, until

from mtkit.base.errors import MtkitError
from mtkit.run_folder import Run
from mtkit.serve import Access, Limits, bodies, deepl, libretranslate
from mtkit.serve.http_errors import RequestError
from mtkit.serve.server import _while_connected
from mtkit.translate import Window
from mtkit.translate.sentence_reader import SentenceReader

JSON = "application/json"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", JSON, 400),
        (b"{", JSON, 400),
        (b"null", JSON, 400),
        (b'{"q": "\xff", "source": "en", "target": "de"}', JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b'{"q": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", JSON, 400),
        (b'{"q": "one", "source": "en", "target": "de", "n": 1' + b"0" * 5000 + b"}", JSON, 400),
        (b'{"q": "one", "source": "en", "target": "de", "format": 1}', JSON, 400),
        (b"q=%ff&source=en&target=de", "application/x-www-form-urlencoded", 400),
        (b"a&" * 2000, "application/x-www-form-urlencoded", 400),
        (b"--x\r\n\r\n", "multipart/form-data; boundary=x", 415),
        (b"one two", "text/plain", 415),
        (b"x" * (2**20 + 1), JSON, 413),
    ],
)  # fmt: skip
def test_a_broken_body_is_answered_with_an_error(served, body, kind, status):
    reply = served.ask("POST", "/translate", body, Content_Type=kind)
    assert reply.status == status
    assert reply.json["error"]
    assert served.get("/health").status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/page.png", 404, "Not Found"),
        ("POST", "/", 405, "Method Not Allowed"),
        ("GET", "/../../etc/passwd", 404, "Not Found"),
        ("GET", "/detect?q=one", 405, "Method Not Allowed"),
        ("DELETE", "/translate", 405, "Method Not Allowed"),
        ("PUT", "/languages", 405, "Method Not Allowed"),
        ("GET", "/translate?q=%ff&source=en&target=de", 400, None),
    ],
)
def test_a_wrong_path_or_method_is_answered_in_json(served, method, path, status, message):
    reply = served.ask(method, path)
    assert reply.status == status
    assert message is None or reply.json == {"error": message}


@pytest.mark.parametrize("path", ["/translate", "/detect", "/languages", "/health", "/page.css"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_slash_at_the_end_is_not_answered_with_a_redirect(served: Served, path: str, method: str):
    # It would lead to whatever host the client names.
    reply = served.ask(method, f"{path}/", Host="elsewhere.example")
    assert (reply.status, reply.json) == (404, {"error": "Not Found"})
    assert "elsewhere" not in str(reply.headers)


def sent(served: Served, *parts: bytes) -> bytes:
    """Everything that a server answers to some bytes, until it closes the connection."""
    with served.connect() as client:
        client.sendall(b"".join(parts))
        return client.makefile("rb").read()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\0\0\0\0\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"GET /health HTTP/99\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 50_000 + b"\r\n",
        b"POST /translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_bytes_that_are_no_request_do_not_stop_the_server(served: Served, request_bytes: bytes):
    with served.connect() as client:
        try:
            client.sendall(request_bytes)
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(65536)
        except OSError:  # it has closed the connection
            answer = b""
    assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
    assert served.get("/health").status == 200


def test_a_body_in_chunks_is_read_and_limited(served: Served):
    head = (
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    body = b'{"q": "one", "source": "en", "target": "de"}'
    whole = sent(served, head, b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    assert whole.startswith(b"HTTP/1.1 200 ")
    large = b"x" * 2**16
    chunks = (b"%x\r\n%s\r\n" % (len(large), large)) * 17
    assert sent(served, head, chunks, b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_a_body_that_is_much_too_large_is_not_read(untrained: Run):
    with Served([untrained], limits=Limits(body_bytes=1000)) as server:
        head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        announced = sent(server, head, b"Content-Length: 8001\r\n\r\n")
        chunk = b"Transfer-Encoding: chunked\r\n\r\n1f41\r\n%s" % (b"x" * 8001)
        for answer in (announced, sent(server, head, chunk)):
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert b"connection: close" in answer.lower()


def test_what_is_half_sent_ends_in_time(untrained: Run):
    head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with Served([untrained], limits=Limits(body_seconds=0.3)) as server:
        slow = sent(server, head + b"Content-Length: 100\r\n\r\n", b'{"q": ')
        assert slow.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in slow.lower()
        assert json.loads(slow.partition(b"\r\n\r\n")[2])["error"]
        # The head of a request that does not come, not all of it, or after another request.
        assert sent(server) == b""
        assert sent(server, head) == b""
        again = sent(server, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", head)
        assert again.startswith(b"HTTP/1.1 200 ")


def test_a_head_that_comes_in_drops_ends_in_time(untrained: Run):
    with Served([untrained], limits=Limits(body_seconds=0.5)) as server, server.connect() as client:
        client.settimeout(0.1)
        client.sendall(b"GET /health HTTP/1.1\r\n")
        begun, is_open = time.monotonic(), True
        while is_open and time.monotonic() < begun + 60:
            try:
                client.sendall(b"A")
                is_open = client.recv(1) != b""
            except TimeoutError:
                pass
            except ConnectionError:
                is_open = False
        assert not is_open


def test_a_client_that_goes_frees_its_place(untrained: Run, gate: Gate):
    with Served([untrained], changed=gate.close) as server, ThreadPoolExecutor(1) as others:
        threads = server.service.directions.threads
        busy = [server.connect() for _ in range(threads)]
        for client in busy:
            client.sendall(request_bytes("one"))
            assert gate.begun.acquire(timeout=600)
        gone = server.connect()
        gone.sendall(request_bytes("three"))
        until(lambda: server.service.scheduler.waiting > 0)
        gone.close()
        until(lambda: server.service.scheduler.waiting == 0)
        gate.open()
        assert others.submit(server.translate, "two").result(60).status == 200
        for client in busy:
            client.close()
        assert "three" not in gate.texts


def test_a_request_that_is_refused_while_its_client_goes_is_not_an_error_of_the_server():
    errors = []

    async def refused() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise RequestError(429, "Slowdown")

    async def serve() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        gone = Mock(receive=AsyncMock(return_value={"type": "http.disconnect"}))
        with pytest.raises(ClientDisconnect):
            await _while_connected(gone, refused())
        for _ in range(3):
            await asyncio.sleep(0)
        # Then asyncio reports the errors of tasks that nobody has read.
        gc.collect()

    asyncio.run(serve())
    assert errors == []


# More than the buffers of the system between a server and a client.
LARGE = "x" * 2**24


def ask_for_much(server: Served, client: socket.socket, header: bytes = b"") -> None:
    """Ask for an answer that does not fit into the buffers, and wait until it is written."""
    # It is copied.
    line, _, rest = request_bytes(LARGE, target="en").partition(b"\r\n")
    client.sendall(b"%s\r\n%s%s" % (line, header, rest))
    answered = b'mtkit_requests_total{endpoint="/translate",status="200"} 1.0\n'
    until(lambda: answered in server.get("/metrics").body)


@pytest.mark.parametrize("header", [b"", b"Connection: close\r\n"])
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_client_that_does_not_read_its_answer_is_cut_off(untrained, header, is_followed):
    limits = Limits(body_seconds=1, body_bytes=2**25, characters=len(LARGE))
    with Served([untrained], limits=limits) as server, server.connect() as client:
        ask_for_much(server, client, header)
        if is_followed:
            with contextlib.suppress(ConnectionError):
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: not server.server._uvicorn.server_state.connections)
        size = 0
        with contextlib.suppress(ConnectionError):
            while received := client.recv(2**20):
                size += len(received)
        assert size < len(LARGE)


def test_the_server_ends_while_a_client_does_not_read_its_answer(untrained: Run):
    limits = Limits(body_seconds=2, body_bytes=2**25, characters=len(LARGE))
    with Served([untrained], limits=limits) as server, server.connect() as client:
        ask_for_much(server, client)
        server.stop()


def test_connections_above_the_limit_are_closed(untrained: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mtkit.serve.server._MAX_CONNECTIONS", 2)
    with Served([untrained]) as server:
        clients = [server.connect() for _ in range(3)]
        with contextlib.suppress(ConnectionError):
            assert not clients[2].recv(1)
        for client in clients[:2]:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        clients[0].close()
        until(lambda: len(server.server._uvicorn.server_state.connections) == 1)
        assert server.get("/health").status == 200
        for client in clients:
            client.close()


def test_a_request_that_takes_too_long_is_answered_with_503(untrained: Run, gate: Gate):
    with Served([untrained], limits=Limits(seconds=0.2), changed=gate.close) as server:
        reply = server.translate("one")
        assert reply.status == 503
        assert reply.json == {"error": "the translation took longer than 0.2 s"}
        assert "retry-after" not in reply.headers
        gate.open()
        until(lambda: server.translate("one").status == 200)


def test_a_full_queue_refuses_requests_and_says_when_to_come_again(untrained: Run, gate: Gate):
    limits = Limits(queue_tokens=20)
    with (
        Served([untrained], limits=limits, changed=gate.close) as server,
        ThreadPoolExecutor(8) as clients,
    ):
        running = []
        for _ in range(server.service.directions.threads):
            running.append(clients.submit(server.translate, "one"))
            assert gate.begun.acquire(timeout=600)
        # A sentence counts as 8 subwords at least.
        running.append(clients.submit(server.translate, ["one", "two"]))
        until(lambda: server.service.scheduler.waiting > 0)
        for reply, field in (
            (server.translate("one two"), "error"),
            (server.translate("<p>one two</p>", format="html"), "error"),
            (server.post("/v2/translate", {"text": ["one two"], "target_lang": "DE"}), "message"),
        ):
            assert reply.status == 429
            assert reply.json[field].startswith("Slowdown: ")
            assert 1 <= int(reply.headers["retry-after"]) <= 60
        gate.open()
        assert [request.result(60).status for request in running] == [200] * len(running)


@pytest.fixture
def windows_read(monkeypatch: pytest.MonkeyPatch) -> list[Window]:
    """What was split into sentences and encoded."""
    read, windows = SentenceReader.read, list[Window]()

    def watched(reader, window):
        windows.append(window)
        return read(reader, window)

    monkeypatch.setattr(SentenceReader, "read", watched)
    return windows


def test_texts_that_cannot_fit_into_the_queue_are_refused_unread(untrained, windows_read):
    with Served([untrained], limits=Limits(queue_tokens=20)) as server:
        for fields in ({}, {"format": "html"}, {"glossary": {"one": "eins"}}):
            reply = server.translate(["one " * 11, "two " * 11], **fields)
            assert reply.status == 413
            assert reply.json == {"error": "the texts are larger than the queue of 20 subwords"}
        assert not windows_read
        # 20 characters, but 5 sentences of at least 8 subwords.
        assert server.translate("1 a\n" * 5).status == 413
        assert windows_read
        assert server.translate("one two").status == 200


def test_an_unexpected_error_is_500_and_its_log_has_no_text(untrained, caplog):
    def broken(translator):
        def decode(sentences, n_best):
            raise RuntimeError(f"cannot decode {sentences[0].text}")

        translator.decoder.decode = decode  # type: ignore[method-assign]

    caplog.set_level(logging.DEBUG)
    with Served([untrained], changed=broken) as server:
        reply = server.translate("secret one", source="auto")
        html = server.translate("<a <b>secret</b> %s {x}", format="html")
    assert (reply.status, reply.json) == (500, {"error": "Internal Server Error"})
    assert html.status == 500
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("fields", [{}, {"glossary": {"one": "x"}}, {"alignments": True}])
def test_an_error_of_the_server_is_told_in_the_log_alone(fields, untrained, caplog):
    def broken(translator):
        def fail(*_, **__):
            raise MtkitError("/srv/runs/mine: was deleted; start the command again")

        kind = type(translator.decoder)
        broken_methods = {"with_terms": property(fail)} | ({} if fields else {"decode": fail})
        translator.decoder.__class__ = type("Broken", (kind,), broken_methods)
        translator.aligner = fail  # type: ignore[method-assign]

    with Served([untrained], changed=broken) as server:
        for form in ("text", "html"):
            reply = server.translate("secret <b>one</b>", format=form, **fields)
            assert (reply.status, reply.json) == (500, {"error": "the text cannot be translated"})
    assert "a text was not translated: /srv/runs/mine: was deleted; start" in caplog.text
    assert "secret" not in caplog.text


def test_a_server_says_that_the_checkpoint_of_its_run_was_deleted(begun, caplog):
    with Served([Run.open(begun)]) as server:
        assert server.translate("one").status == 200
        (folder,) = (begun / "checkpoints").glob("step-*4")
        shutil.rmtree(folder)
        assert server.translate("one", glossary={"one": "x"}).status == 500
        assert server.translate("one").status == 200
    assert f"{folder}: was deleted after it was chosen, probably by mtkit train" in caplog.text


def test_an_error_outside_of_a_request_is_logged_without_text(untrained, caplog):
    def broken(text):
        raise RuntimeError(text)

    with Served([untrained]) as server:
        scheduler = server.service.scheduler
        plan = scheduler._plan

        def plan_badly():
            asyncio.get_running_loop().call_soon(broken, "secret")
            plan()

        scheduler._plan = plan_badly  # type: ignore[method-assign]
        assert server.translate("one").status == 200
    assert "RuntimeError" in caplog.text
    assert "in broken" in caplog.text
    assert "secret" not in caplog.text


def test_characters_count_when_they_are_translated(untrained: Run, gate: Gate):
    with Served([untrained], limits=Limits(seconds=0.2), changed=gate.close) as server:
        assert server.translate("one two").status == 503
        assert server.get("/v2/usage").json["character_count"] == 0
        gate.open()
        until(lambda: server.translate("one two").status == 200)
        assert server.get("/v2/usage").json["character_count"] == 7
        assert b"mtkit_characters_total 7.0\n" in server.get("/metrics").body


def test_what_the_apis_read_is_what_a_body_keeps():
    sources = "".join(inspect.getsource(module) for module in (deepl, libretranslate))
    read = set(re.findall(r"given(?:\.get\(|\[|, )\"(\w+)\"", sources))
    listed = {"glossary_id", "style_id", "translation_memory_id"}
    # A download has its name in the path.
    assert read | listed | deepl._CHOICES.keys() == bodies._KNOWN | {"name"}


def test_a_key_is_needed_if_there_are_keys(untrained: Run):
    with Served([untrained], access=Access([hashlib.sha256(b"right").hexdigest()])) as server:
        for ask in (server.translate, lambda q, **key: server.post("/detect", {"q": q, **key})):
            # Some clients send null if they have no key.
            for key in ({}, {"api_key": None}, {"api_key": ""}):
                reply = ask("one", **key)
                assert reply.status == 400
                assert reply.json == {
                    "error": "Please contact the server operator to get an API key"
                }
            wrong = ask("one", api_key="wrong")
            assert (wrong.status, wrong.json) == (403, {"error": "Invalid API key"})
            assert ask("one", api_key="right").status == 200
        assert server.get("/languages").status == 200
        settings = server.get("/frontend/settings").json
        assert settings["apiKeys"] is settings["keyRequired"] is True


def test_a_client_that_asks_too_often_is_told_to_slow_down(untrained: Run):
    with Served([untrained], access=Access(per_minute=3)) as server:
        assert server.translate(["one", "two"]).status == 200
        reply = server.translate(["one", "two"])
        assert (reply.status, reply.json) == (429, {"error": "Slowdown: 3 per 1 minute"})
        assert 1 <= int(reply.headers["retry-after"]) <= 60
        assert server.translate("one").status == 200
        assert server.get("/languages").status == 200


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/translate", {"q": [""] * 1000, "source": "en", "target": "de"}),
        ("/v2/translate", {"text": [""] * 1000, "target_lang": "DE"}),
    ],
)
def test_too_many_texts_count_as_the_most_that_a_request_may_have(path, fields, untrained):
    with Served([untrained], access=Access(per_minute=60), limits=Limits(texts=50)) as server:
        assert server.post(path, fields).status == 400
        assert server.translate(["one"] * 10).status == 200
        assert server.translate(["one"] * 40).status == 429


def start(run: Run, *options: str) -> tuple[subprocess.Popen[str], str]:
    """`mtkit serve` in a process of its own, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mtkit", "serve", "--run", str(run.path), "--port", "0", *options],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    for line in process.stderr:
        if "serving en to de at http://127.0.0.1:" in line:
            return process, line.split(" at ")[1].split(";")[0]
    raise AssertionError(process.wait())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_the_server_when_what_it_accepted_is_answered(untrained, number, status):
    process, address = start(untrained)
    try:
        port = int(address.rpartition(":")[2])
        request = request_bytes(["one two three four five six seven eight " * 3] * 60)
        clients = [socket.create_connection(("127.0.0.1", port), timeout=600) for _ in range(5)]
        for client in clients:
            client.sendall(request)
        idle = socket.create_connection(("127.0.0.1", port), timeout=600)
        # The requests are accepted when another one behind them is answered.
        probe = socket.create_connection(("127.0.0.1", port), timeout=600)
        probe.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert probe.recv(65536).startswith(b"HTTP/1.1 200 ")
        process.send_signal(number)
        for client in clients:
            answer = client.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["translatedText"]) == 60
        assert process.wait(600) == status
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        for client in (*clients, idle, probe):
            client.close()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.slow
def test_memory_does_not_grow_with_requests(untrained: Run):
    process, address = start(untrained)
    port = int(address.rpartition(":")[2])
    # Letters of all scripts.
    letters = [character for character in map(chr, range(0x2FFFF)) if character.isalpha()]
    choose = random.Random(1)

    def ask(count):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        for _ in range(count):
            # Words, codes, tags and terms that were never there before.
            word = "".join(choose.choices(letters, k=8))
            glossary = {word: "".join(choose.choices(letters, k=3))}
            kinds = [{}, {"format": "html"}, {"glossary": glossary}, {"source": "auto"}]
            more: Any = choose.choice([*kinds, {"source": word}])
            fields = {"q": f"one {word} <b>two</b>", "source": "en", "target": "de"} | more
            connection.request("POST", "/translate", json.dumps(fields), {"Content-Type": JSON})
            reply = connection.getresponse()
            reply.read()
            assert reply.status == (400 if fields["source"] == word else 200)
        connection.close()

    def resident():
        """MiB of memory."""
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    try:
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(ask, [60] * 4))
            before = resident()
            list(clients.map(ask, [150] * 4))
            assert resident() - before < 25
    finally:
        process.terminate()
        assert process.wait(600) == 0
        process.stderr.close()
