"""Reads the parameters of a request, of limited size and in limited time."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Collection
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from mtkit.serve.http_errors import RequestError, invalid

# A body that is larger than the limit by this factor is not read.
_TOO_LARGE = 8
# Fields of a form or a query.
_MAX_FIELDS = 1000
# Bytes of a form in parts that are read at a time.
_CHUNK = 65536
# How a form and a query say yes and no.
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_SURROGATES = re.compile("[\ud800-\udfff]")
# What the APIs read; the rest of a request need not stay in memory until it is answered.
_KNOWN = {
    *("q", "source", "target", "format", "alternatives", "alignments", "glossary"),
    *("check", "api_key", "file"),
    *("text", "source_lang", "target_lang", "tag_handling", "formality", "type", "auth_key"),
    *("glossary_id", "style_id", "translation_memory_id", "split_sentences", "model_type"),
    *("preserve_formatting", "outline_detection", "show_billed_characters"),
    *("tag_handling_version", "ignore_tags", "splitting_tags", "non_splitting_tags"),
}


class ClientFile(NamedTuple):
    """A file of a client, and its name without folders."""

    name: str
    data: bytes

    @property
    def ending(self) -> str:
        """The ending of its name, in lower case and without the point; empty if it has none."""
        return PurePosixPath(self.name).suffix.lower().removeprefix(".")


class Parameters(dict[str, Any]):
    """Parameters by their names; `is_json` if they can be anything that JSON has.

    Of a form they are strings, and lists of strings if they are given several times. Of a form in
    parts, one can be a `ClientFile`.
    """

    is_json = False

    def first(self, name: str) -> Any:
        """A parameter; the first one, if a form has several of the name."""
        value = self.get(name)
        return value[0] if isinstance(value, list) and value and not self.is_json else value


async def read_parameters(
    request: Request, *, most: int, seconds: float, has_file: bool = False
) -> Parameters:
    """The parameters of a request; RequestError if they cannot be read.

    The body has `most` bytes and must come within `seconds`. With `has_file`, it may also be a form
    in parts, with a file.
    """
    query = _fields(request.scope["query_string"])
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await _body(request, most, seconds)
    if not body and request.method == "GET":
        return query
    if kind == "application/json" or kind.endswith("+json"):
        return _of_json(body)
    if kind == "application/x-www-form-urlencoded":
        form = _fields(body)
    elif kind == "multipart/form-data" and has_file:
        form = await _of_parts(request.headers, body)
    elif body and request.method != "GET":
        raise RequestError(415, f"{kind[:100] or 'a body without a type'} is not supported")
    else:
        form = Parameters()
    # As in LibreTranslate, the query comes first. Clients send bodies with GET too.
    form.update(query)
    return form


async def _body(request: Request, most: int, seconds: float) -> bytes:
    """The body. A larger one is read to its end: a client that is sending does not read answers."""
    announced = request.headers.get("content-length", "0")
    parts, size, discard_limit = [], 0, _TOO_LARGE * most
    too_large = RequestError(413, f"the body is larger than {most} bytes")
    too_large.closes_connection = not announced.isdecimal() or int(announced[:20]) > discard_limit
    try:
        async with asyncio.timeout(seconds):
            if too_large.closes_connection:
                raise too_large
            async for part in request.stream():
                size += len(part)
                if size <= most:
                    parts.append(part)
                elif size > discard_limit:
                    too_large.closes_connection = True
                    raise too_large
    except TimeoutError:
        message = f"the body did not come within {seconds:g} s"
        raise RequestError(408, message, closes_connection=True) from None
    except ClientDisconnect:
        raise RequestError(400, "the body is not complete", closes_connection=True) from None
    if size > most:
        raise too_large
    return b"".join(parts)


async def _of_parts(headers: Headers, body: bytes) -> Parameters:
    """The fields of a form in parts (RFC 7578), and its file."""

    async def whole() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(body), _CHUNK):
            yield body[start : start + _CHUNK]
            # Others are answered meanwhile.
            await asyncio.sleep(0)

    parser = MultiPartParser(headers, whole(), max_files=1, max_fields=_MAX_FIELDS)
    # Nothing of a client is written to a disk.
    parser.spool_max_size = len(body) + 1
    try:
        fields = await parser.parse()
    except MultiPartException as error:
        raise RequestError(400, f"Invalid form: {error.message}") from None
    form = Parameters({name: value for name, value in fields.items() if name in _KNOWN})
    for name, value in form.items():
        if isinstance(value, UploadFile):
            # Windows has other folders.
            path = PurePosixPath((value.filename or "").replace("\\", "/"))
            form[name] = ClientFile(path.name, await value.read())
    await fields.close()
    return form


def _of_json(body: bytes) -> Parameters:
    fields = None
    with suppress(ValueError, RecursionError):
        fields = json.loads(body)
    if not isinstance(fields, dict):
        raise RequestError(400, "Invalid JSON format")
    parameters = Parameters({name: fields[name] for name in _KNOWN & fields.keys()})
    parameters.is_json = True
    return parameters


def _fields(text: bytes) -> Parameters:
    """The fields of a query or of a form."""
    try:
        fields = parse_qs(
            text.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        advice = "a document is sent with a form: curl -F file=@report.docx"
        raise RequestError(400, f"the parameters are not UTF-8, or too many; {advice}") from None
    return Parameters(
        {name: v[0] if len(v) == 1 else v for name, v in fields.items() if name in _KNOWN}
    )


def texts_of(value: Any, name: str) -> list[str]:
    """A text or a list of texts (else a RequestError), as a list; half characters become U+FFFD."""
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise invalid(f"{name} parameter is not a text or a list of texts")
    return [_SURROGATES.sub("\ufffd", text) for text in texts]


def flag_of(parameters: Parameters, name: str) -> bool:
    """A parameter that is true or false, false if it is not given; else a RequestError.

    In a form or a query it is `true`, `false`, `1` or `0`.
    """
    value = parameters.first(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if parameters.is_json or value not in _FLAGS:
        raise invalid(f"{name} parameter is not true or false")
    return _FLAGS[value]


def choice_of(parameters: Parameters, name: str, choices: Collection[str]) -> str | None:
    """A parameter that is one of some words, in lower case; empty if it is not given, None if it
    is another one. Numbers and booleans of JSON are words too.
    """
    value = parameters.first(name)
    if value is None or value == "":
        return ""
    word = str(value).lower() if isinstance(value, str | int) else None
    return word if word in choices else None


def text_of(parameters: Parameters, name: str) -> str:
    """A parameter that is a text (else a RequestError); empty if it is not given."""
    value = parameters.first(name)
    return "" if value is None else texts_of([value], name)[0]
