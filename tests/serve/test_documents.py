"""Documents over HTTP: an upload, its translation, and how long it is there."""

import asyncio
import hashlib
import json
import logging
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.documents import odt, run, word, xliff, zipped
from support.served import Served, parts, until

from mtkit.check import InputLanguage
from mtkit.serve import Access, Limits
from mtkit.serve.access import DocumentTurns
from mtkit.serve.http_errors import RequestError

SRT = b"1\n00:00:01,000 --> 00:00:02,000\n%s\n\n"
FILES = {
    "a.srt": b"".join(map(SRT.__mod__, [b"<i>one two</i> nine.", b"- four.\n- five", b"12"])),
    "a.vtt": b"WEBVTT\n\nNOTE x\n\n00:01.000 --> 00:02.000 line:0\none two.\n",
    "a.md": b"# one two\n\n- three **four** `code`\n\n```\nsix\n```\n\none two\n",
    "a.po": b'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "one <b>"\nmsgstr ""\n',
    "a.xlf": xliff("<trans-unit id='1'><source>one <g id='x'>two</g></source></trans-unit>"),
    "a.docx": zipped(word(f"<w:p>{run('one two')}{run(' nine', '<w:b/>')}</w:p>")),
    "a.odt": zipped(odt("<text:p>one <text:span>two</text:span></text:p>")),
    "a.txt": b"\xef\xbb\xbfone two\r\n\r\nthree\r\nfour <b>",
    "a.HTML": b"<html lang=en><meta charset=x><p>one\nnine</p>\n<pre>six\n\n</pre><ul><li>three",
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_document_becomes_that_of_mtkit_translate(served, untrained, place, monkeypatch, name):
    (place.folder / name).write_bytes(FILES[name])
    options = ("--run", untrained.path, "--device", "cpu", "--output", f"out{name[1:]}")
    assert place.mtkit("translate", name, *options).status == 0
    # Also if each line is a part of its own.
    for size in (served.service.max_part, 1):
        monkeypatch.setattr(served.service, "max_part", size)
        document = served.fetch(served.upload(name, FILES[name]))
        if name in ("a.txt", "a.HTML"):
            # Here the mark, the line ends and the missing last one are those of the file.
            document = document.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n") + b"\n"
        assert document == (place.folder / f"out{name[1:]}").read_bytes()
        assert document != FILES[name]


def test_a_text_that_is_there_twice_is_decoded_once(untrained, gate):
    gate.open()
    data = b"".join(map(SRT.__mod__, [b"one two.", b"three.", b"one two.", b"one two."]))
    with Served([untrained], changed=gate.close) as server:
        assert server.upload("a.srt", data).status == 200
    assert sorted(gate.texts) == ["one two.", "three."]


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("report.docx", "report.de.docx"),
        ("my.film.en.DOCX", "my.film.en.de.DOCX"),
        ("../../etc/pass wd.docx", "pass%20wd.de.docx"),
        (r"C:\Users\me\für x.docx", "f%C3%BCr%20x.de.docx"),
        ("a;b=c.docx", "a%3Bb%3Dc.de.docx"),
    ],
)
def test_a_result_has_the_name_of_the_upload_and_an_address_without_it(served, name, saved):
    address = served.upload(name, FILES["a.docx"]).json["translatedFileUrl"]
    base = f"http://127.0.0.1:{served.port}/download_file/"
    # 256 bits.
    assert re.fullmatch(rf"{re.escape(base)}[\w-]{{43}}\.docx", address)
    result = served.get(address.removeprefix(base[: -len("/download_file/")]))
    assert result.headers["content-disposition"] == f"attachment; filename*=UTF-8''{saved}"
    # A browser must not show what others have written as a page of this server.
    assert result.headers["content-type"] == "application/octet-stream"
    assert result.headers["x-content-type-options"] == "nosniff"
    assert result.headers["cache-control"] == "no-store"
    assert result.headers["access-control-allow-origin"] == "*"
    assert served.upload(name, FILES["a.docx"]).json["translatedFileUrl"] != address


def test_the_address_has_the_host_that_the_client_names(served):
    body = parts({"source": "en", "target": "de"}, "a.txt", b"one")
    kind = "multipart/form-data; boundary=--x"
    headers = {"Host": "mt.example:81", "X-Forwarded-Proto": "https", "Content_Type": kind}
    reply = served.ask("POST", "/translate_file", body, **headers)
    assert reply.json["translatedFileUrl"].startswith("https://mt.example:81/download_file/")


@pytest.mark.parametrize("name", ["x", "..", "%2e%2e%2fetc%2fpasswd", "a/b", "", "x" * 5000])
def test_other_names_are_not_found(served, name):
    reply = served.get(f"/download_file/{name}")
    assert reply.status == 404
    assert reply.json["error"]


@pytest.mark.parametrize(
    ("name", "data", "fields", "message"),
    [
        ("a.pdf", b"%PDF-1.7", {}, "it is none of txt, html, htm, md, markdown"),
        ("a", b"one", {}, "file format not supported"),
        (".docx", b"one", {}, "file format not supported"),
        ("a.docx", b"one", {}, "a.docx: it is not a zip file"),
        ("a.docx", FILES["a.docx"][:-40], {}, "its end is missing"),
        ("a.txt", b"f\xfcr", {}, "not UTF-8"),
        ("a.txt", b"one", {"target": "zz"}, "zz is not supported"),
        ("a.txt", b"one", {"glossary": "[1]"}, "glossary parameter is not an object"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_the_reason(served, name, data, fields, message):
    reply = served.upload(name, data, **fields)
    assert reply.status == 400
    assert message in reply.json["error"]


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"", "multipart/form-data; boundary=x", "missing file"),
        (b"--x--", "multipart/form-data", "boundary"),
        (b"--x\r\n\r\n1\r\n--x--", "multipart/form-data; boundary=x", "Invalid form"),
        (b'{"file": "a", "source": "en", "target": "de"}', "application/json", "is not a file"),
        (b"file=a&source=en&target=de", "application/x-www-form-urlencoded", "is not a file"),
        (b"PK\3\4\x89", "application/x-www-form-urlencoded", "form: curl -F file=@report.docx"),
    ],
)  # fmt: skip
def test_a_request_without_a_file_is_refused(served, body, kind, message):
    reply = served.ask("POST", "/translate_file", body, Content_Type=kind)
    assert reply.status == 400
    assert message in reply.json["error"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b"x" * 4000),
        ("a.md", b"\n" * 2100),
        ("a.docx", zipped(word("<w:p/>", **{"media/a.bin": "x" * 40_000}))),
        ("a.srt", b"".join(SRT % b"%cine." % (97 + i) for i in range(21))),
        ("a.txt", b"\n" * 20),
        ("a.txt", b"one " * 51),
        ("a.md", b"one " * 51),
    ],
)
def test_what_is_too_large_is_refused(untrained, name, data):
    limits = Limits(file_bytes=3000, body_bytes=2000, lines=20, characters=200)
    with Served([untrained], limits=limits) as server:
        reply = server.upload(name, data)
        assert reply.status == 413
        assert reply.json["error"]
        assert server.upload("a.txt", b"\n" * 19).status == 200


def test_a_document_may_have_more_than_the_queue(untrained):
    lines = [f"one {word}" for word in ("two", "three", "four", "five", "six")] * 4
    with Served([untrained], limits=Limits(queue_tokens=64)) as server:
        assert server.translate("\n".join(lines)).status == 413
        document = server.fetch(server.upload("a.txt", "\n".join(lines).encode()))
        expected = [server.translate(line).json["translatedText"] for line in lines]
        assert document.decode().split("\n") == expected


def test_a_result_is_deleted_after_a_while_and_the_oldest_first(untrained):
    with Served([untrained], limits=Limits(kept_seconds=0.5)) as server:
        reply = server.upload("a.txt", b"one")
        assert server.service.results
        until(lambda: not server.service.results)
        path = reply.json["translatedFileUrl"].partition("/download_file/")[2]
        assert server.get(f"/download_file/{path}").status == 404
    with Served([untrained], limits=Limits(file_bytes=3000)) as server:
        # 20 uploads' worth are kept.
        replies = [server.upload("a.txt", b"12 " * 900) for _ in range(25)]
        paths = [reply.json["translatedFileUrl"][-60:].partition("/")[2] for reply in replies]
        statuses = [server.get(f"/download_file/{path[-47:]}").status for path in paths]
        assert statuses == [404] * 3 + [200] * 22


def test_uploads_at_the_same_time_get_their_own_documents(served):
    numbers = range(60)
    with ThreadPoolExecutor(20) as clients:
        replies = clients.map(lambda n: served.upload("a.srt", SRT % b"12 %d" % n), numbers)
        assert [served.fetch(reply) for reply in replies] == [SRT % b"12 %d" % n for n in numbers]


def send(server: Served, body: bytes, cut: int = 0) -> Any:
    """A client that has sent an upload without so many bytes of its end."""
    client = server.connect()
    client.sendall(
        b"POST /translate_file HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"
        b"Content-Type: multipart/form-data; boundary=--x\r\n\r\n" % len(body)
    )
    client.sendall(body[: len(body) - cut])
    return client


def test_an_upload_that_is_cut_leaves_nothing(untrained, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    body = parts({"source": "en", "target": "de"}, "a.txt", b"one\n" * 2**19)
    with Served([untrained]) as server:
        free = server.service.document_turns._free._value
        for cut in (1, 100, len(body) // 2, len(body) - 10):
            send(server, body, cut).close()
        metric = b'mtkit_requests_total{endpoint="/translate_file",status="400"} 4.0'
        until(lambda: metric in server.get("/metrics").body)
        assert server.service.document_turns._free._value == free
        assert not server.service.results
        assert not list(tmp_path.iterdir())


def test_a_client_that_goes_has_the_rest_of_its_document_dropped(untrained, gate):
    data = "\n".join(f"three {'x' * n}" for n in range(40)).encode()
    body = parts({"source": "en", "target": "de"}, "a.txt", data)
    with Served([untrained], changed=gate.close) as server:
        server.service.max_part = 1
        client = send(server, body)
        assert gate.begun.acquire(timeout=600)
        client.close()
        until(lambda: b"} 1.0" in server.get("/metrics").body.partition(b'status="499"')[2])
        gate.open()
        assert server.upload("a.txt", b"one").status == 200
    assert len(gate.texts) == 2


def test_documents_wait_for_their_turn_and_not_for_ever(untrained, gate):
    with (
        Served([untrained], limits=Limits(seconds=1), changed=gate.close) as server,
        ThreadPoolExecutor(40) as clients,
    ):
        running = [clients.submit(server.upload, "a.txt", b"one") for _ in range(20)]
        replies = [upload.result(600) for upload in running]
        # What has waited for that long is refused too.
        assert {503} <= {reply.status for reply in replies} <= {429, 503}
        assert "took longer than 1 s" in next(r for r in replies if r.status == 503).json["error"]
        gate.open()
        until(lambda: server.upload("a.txt", b"one").status == 200)


def test_a_client_with_many_slow_uploads_does_not_hold_up_others(untrained):
    body = parts({"source": "en", "target": "de"}, "a.txt", b"one")
    headers = {"Content_Type": "multipart/form-data; boundary=--x", "X_Forwarded_For": "192.0.2.1"}
    with Served([untrained], limits=Limits(seconds=600)) as server:
        slow = [send(server, body, cut=1) for _ in range(20)]
        until(lambda: server.service.document_turns.waiting.total() == 16)
        # Also one whose body is not read at once.
        for data in (b"one", b"one\n" * 2**20):
            refused = server.upload("a.txt", data)
            assert (refused.status, refused.headers["retry-after"]) == (429, "10")
            assert "queue of documents is full" in refused.json["error"]
        assert server.ask("POST", "/translate_file", body, **headers).status == 200
        for client in slow:
            client.close()


def test_turns_are_limited_by_client_and_waiting_ends():
    async def take() -> None:
        turns = DocumentTurns(16, 0.01)
        async with AsyncExitStack() as running:
            for number in range(4):
                await running.enter_async_context(turns.turn(f"2001:db8::{number}"))
            with pytest.raises(RequestError, match="queue of documents"):
                await running.enter_async_context(turns.turn("2001:db8::9"))
            for number in range(12):
                await running.enter_async_context(turns.turn(f"192.0.2.{number}"))
            with pytest.raises(RequestError, match="queue of documents"):
                await running.enter_async_context(turns.turn("192.0.2.99"))
        async with turns.turn("2001:db8::9"), turns.turn("192.0.2.99"):
            assert not turns.waiting

    asyncio.run(take())


def test_32_documents_wait_and_others_are_refused_at_once():
    async def take() -> None:
        turns = DocumentTurns(1, 600)
        async with turns.turn("a"):
            waiting = [
                asyncio.ensure_future(turns.turn(f"{n % 8}").__aenter__()) for n in range(32)
            ]
            while turns.waiting.total() < 32:
                await asyncio.sleep(0)
            with pytest.raises(RequestError, match="queue of documents"):
                await turns.turn("b").__aenter__()
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
        async with turns.turn("b"):
            assert not turns.waiting

    asyncio.run(take())


def test_neither_texts_nor_names_of_files_are_logged(untrained, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("mtkit.documents.subtitles.Subtitles.write", lambda *_: 1 / 0)
    with Served([untrained]) as server:
        assert server.upload("secret.srt", SRT % b"secret one").status == 500
        assert server.upload("secret.txt", b"secret <a {x}").status == 200
        assert server.upload("secret.docx", b"secret").status == 400
        broken = b"--secret\r\nsecret\r\n"
        kind = "multipart/form-data; boundary=x"
        assert server.ask("POST", "/translate_file", broken, Content_Type=kind).status == 400
        assert b"secret" not in server.get("/metrics").body
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text
    assert "boundary" not in caplog.text


def test_a_document_needs_a_key_and_its_result_none(untrained):
    access = Access([hashlib.sha256(b"right").hexdigest()], per_minute=12)
    with Served([untrained], access=access, limits=Limits(characters=1000)) as server:
        assert server.upload("a.txt", b"one").status == 400
        wrong = server.upload("a.txt", b"one", api_key="wrong")
        assert (wrong.status, wrong.json) == (403, {"error": "Invalid API key"})
        # It counts as a text for each 1,000 bytes.
        reply = server.upload("a.txt", b"12\n" * 3000, api_key="right")
        assert server.fetch(reply) == b"12\n" * 3000
        assert server.upload("a.txt", b"12\n" * 3000, api_key="right").status == 429


def test_the_language_is_found_and_terms_are_used(both):
    german = b"Die Kinder spielen heute mit ihrem neuen Ball im Garten."
    text = both.fetch(both.upload("a.txt", german, source="auto", target="en")).decode()
    assert text == both.translate(german.decode(), source="de", target="en").json["translatedText"]
    terms = {"two": "zwo"}
    text = both.fetch(both.upload("a.srt", SRT % b"one two", glossary=json.dumps(terms))).decode()
    assert "zwo" in text
    # A text in the target language comes back as it is.
    assert both.fetch(both.upload("a.txt", german, source="auto")) == german


def test_a_lost_format_and_a_signature_are_said(served, monkeypatch):
    monkeypatch.setattr("mtkit.documents.document.has_same_codes", lambda *_: False)
    reply = served.upload("a.srt", FILES["a.srt"])
    (note,) = [note for note in reply.json["notes"] if "stay as they are" in note]
    assert note.startswith("3 of 3 segments")
    assert served.fetch(reply) == FILES["a.srt"]


@pytest.mark.parametrize("name", ["a.txt", "a.srt", "a.html"])
def test_cut_segments_and_terms_that_are_missing_are_said(served, name):
    # The run reads 59 subwords, and no text has the second term.
    texts = [b"one two nine", b"nine", b"one " * 200]
    data = b"".join(map({"a.srt": SRT, "a.html": b"<p>%s</p>\n"}.get(name, b"%s\n").__mod__, texts))
    notes = served.upload(name, data, glossary=json.dumps({"nine": "\x01", "two": "zwo"})).json[
        "notes"
    ]
    assert "segments that were too long, so that their end is not translated: 1" in notes
    assert "translations without terms that the glossary demands: 2 ('\\x01')" in notes
    plain = served.upload(name, data.replace(texts[2], b"one"), glossary='{"two": "zwo"}').json
    assert "notes" not in plain


def test_a_file_in_another_language_is_said(served, monkeypatch):
    assert "notes" not in served.upload("a.txt", b"one\ntwo").json
    # The words of this run are in no language.
    monkeypatch.setattr(InputLanguage, "sentence", lambda self: f"{len(self._lines)} in German")
    assert served.upload("a.txt", b"one\ntwo").json["notes"] == ["2 in German"]
    # A line of a script is in no language.
    page = b"<style>\np { color: red }\n</style><script>\nlet a\n</script>\n<p>one</p>\n<p>two</p>"
    assert served.upload("a.html", page).json["notes"] == ["0 in German"]
