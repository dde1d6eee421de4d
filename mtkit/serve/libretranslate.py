"""The API of LibreTranslate: its parameters, answers and messages."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from mtkit.base.language_id import language_name
from mtkit.serve.bodies import ClientFile, Parameters, flag_of, text_of, texts_of
from mtkit.serve.documents import ENDINGS, translate_document
from mtkit.serve.http_errors import RequestError, invalid
from mtkit.serve.languages import Detected
from mtkit.serve.service import Caller, Service, TranslationRequest
from mtkit.serve.texts import Format

# Bytes of a result that are sent at a time: a slow client has the seconds of an answer for each.
_CHUNK = 65536
_FORMS: dict[str, Format] = {"": "text", "text": "text", "html": "html"}


async def translate(service: Service, given: Parameters, caller: Caller) -> dict[str, Any]:
    """`/translate`: `q` is a text or a list of texts.

    `glossary` and `alignments` are extensions of mtkit. With `alignments`, the answer has for each
    text the links between its words and those of the translation: their characters in both. Other
    extensions are `missingTerms`, of a glossary, and `truncated`, which is there if a text is. With
    `check`, the answer has `confidence` and `findings` of each text, and a `verdict` on all.
    """
    q = given.first("q")
    for name, value in (("q", q), ("source", given.get("source")), ("target", given.get("target"))):
        if not value:
            service.admit(caller)
            raise invalid(f"missing {name} parameter")
    texts = texts_of(q, "q")
    key_hash = service.admit(caller, len(texts))
    if not given.is_json:
        # Forms have the line ends of Windows, whatever the client has.
        texts = [text.replace("\r\n", "\n") for text in texts]
    source, target = text_of(given, "source"), text_of(given, "target")
    form_name = text_of(given, "format")
    form = _FORMS.get(form_name)
    alternatives = _number(given.get("alternatives", 0))
    with_links = flag_of(given, "alignments")
    is_checked = flag_of(given, "check")
    if form is None:
        raise RequestError(400, f"{form_name[:100]} format is not supported")
    if is_checked and form != "text":
        raise invalid("check parameter requires the text format")
    glossary = glossary_of(given)
    is_auto = source.lower() == "auto"
    answer = await service.translate(
        TranslationRequest(
            texts,
            "" if is_auto else source,
            target,
            form,
            alternatives if form == "text" else 0,
            glossary,
            with_links,
            is_checked,
        ),
        key_hash,
    )
    best = [translation for translation, *_ in answer.translations]
    others = [[t.text for t in rest[:alternatives]] for _, *rest in answer.translations]
    result: dict[str, Any] = {"translatedText": [translation.text for translation in best]}
    if glossary:
        result["missingTerms"] = [translation.missing for translation in best]
    if any(translation.truncated for translation in best):
        result["truncated"] = [translation.truncated for translation in best]
    if is_auto:
        result["detectedLanguage"] = [_detected(answer.source)] * len(texts)
    if alternatives:
        result["alternatives"] = others
    if with_links:
        result["alignments"] = [links for links, *_ in answer.links]
        if alternatives:
            result["alternativeAlignments"] = [
                links[1 : alternatives + 1] for links in answer.links
            ]
    if is_checked:
        result["confidence"] = [
            None if text.confidence is None else round(text.confidence, 1) for text in answer.checks
        ]
        result["findings"] = [[f.as_dict() for f in text.findings] for text in answer.checks]
        result["verdict"] = [text.verdict for text in answer.checks[:1]]
    if isinstance(q, list):
        # There is one for all texts.
        return result | {"verdict": result["verdict"][0]} if result.get("verdict") else result
    return {name: value[0] for name, value in result.items()}


async def translate_file(service: Service, given: Parameters, caller: Caller) -> dict[str, Any]:
    """`/translate_file`. Extensions of mtkit are `glossary`, and `notes` in the answer."""
    file = given.get("file")
    size = len(file.data) if isinstance(file, ClientFile) else 0
    key_hash = service.admit(caller, 1 + size // service.limits.characters)
    for name in ("file", "source", "target"):
        if not given.get(name):
            raise invalid(f"missing {name} parameter")
    if not isinstance(file, ClientFile):
        raise invalid("file parameter is not a file")
    source, target = text_of(given, "source"), text_of(given, "target")
    source = "" if source.lower() == "auto" else source
    request = TranslationRequest((), source, target, glossary=glossary_of(given))
    result, notes = await translate_document(service, file, request, key_hash)
    address = f"{caller.server}download_file/{service.keep(result)}"
    return {"translatedFileUrl": address} | ({"notes": notes} if notes else {})


async def download_file(service: Service, given: Parameters, _caller: Caller) -> Response:
    """`/download_file/NAME`; a browser saves the file, and shows nothing of it."""
    file = service.results.get(given["name"])
    if file is None:
        raise RequestError(404, "the file does not exist, or was deleted")
    name, data = file
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(len(data)),
        # RFC 6266, section 4.3, and RFC 8187.
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
    }
    chunks = (data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK))
    return StreamingResponse(chunks, headers=headers)


async def detect(service: Service, given: Parameters, caller: Caller) -> list[dict[str, Any]]:
    """`/detect`."""
    q = given.get("q")
    service.admit(caller)
    if not q:
        raise invalid("missing q parameter")
    return [_detected(detected) for detected in await service.detect(texts_of(q, "q"))]


async def list_languages(
    service: Service, _given: Parameters, _caller: Caller
) -> list[dict[str, Any]]:
    """`/languages`; every source is also a target, into which it is copied."""
    directions = service.directions
    sources = directions.sources
    return [
        {
            "code": code,
            "name": language_name(code),
            "targets": sorted({code, *directions.targets(code)}) if code in sources else [],
        }
        for code in directions.languages
    ]


async def settings(service: Service, _given: Parameters, _caller: Caller) -> dict[str, Any]:
    """`/frontend/settings`."""
    source, target = next(iter(service.directions))
    needs_key = bool(service.access.keys)
    return {
        # An extension of mtkit, for its page: as many as do not change the translation.
        "alternatives": min(service.limits.alternatives, service.directions.beam_size - 1),
        "apiKeys": needs_key,
        "charLimit": service.limits.characters,
        # Another one: the directions whose translations can be checked.
        "checks": service.directions.checked,
        "filesTranslation": True,
        "frontendTimeout": 500,
        "keyRequired": needs_key,
        "language": {
            "source": {"code": source, "name": language_name(source)},
            "target": {"code": target, "name": language_name(target)},
        },
        "suggestions": False,
        "supportedFilesFormat": [f".{ending}" for ending in ENDINGS],
    }


async def health(_service: Service, _given: Parameters, _caller: Caller) -> dict[str, str]:
    """`/health`."""
    return {"status": "ok"}


async def no_suggestions(_service: Service, _given: Parameters, _caller: Caller) -> None:
    """`/suggest`, which is not available."""
    raise RequestError(403, "Suggestions are disabled on this server.")


def key_of(given: Parameters, _authorization: str) -> str:
    """The API key of a request; empty if it has none."""
    key = given.get("api_key")
    return key if isinstance(key, str) else ""


def glossary_of(given: Parameters) -> dict[str, str]:
    """The terms of a request, an extension of mtkit: a JSON object, in a form as its text.

    RequestError if they are not a mapping of texts to texts.
    """
    terms = given.get("glossary")
    if terms is None:
        return {}
    if isinstance(terms, str) and not given.is_json:
        with suppress(ValueError, RecursionError):
            terms = json.loads(terms)
    if not (isinstance(terms, dict) and all(isinstance(term, str) for term in terms.values())):
        raise invalid('glossary parameter is not an object of terms, such as {"dog": "Hund"}')
    sources, targets = (texts_of(list(side), "glossary") for side in (terms, terms.values()))
    return dict(zip(sources, targets, strict=True))


def _detected(detected: Detected) -> dict[str, Any]:
    return {"confidence": detected.confidence, "language": detected.language}


def _number(value: Any) -> int:
    """A number of alternatives; negative ones are none."""
    try:
        if isinstance(value, str | int) and not isinstance(value, bool):
            return max(0, int(value))
    except ValueError:
        pass
    raise invalid("alternatives parameter is not a number")
