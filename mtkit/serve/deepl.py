"""The API of DeepL: its parameters and answers, as far as one model has them."""

from __future__ import annotations

import re
from typing import Any

from mtkit.base.language_id import find_code, language_name
from mtkit.serve.bodies import Parameters, choice_of, text_of, texts_of
from mtkit.serve.http_errors import RequestError
from mtkit.serve.libretranslate import glossary_of
from mtkit.serve.service import Caller, Service, TranslationRequest
from mtkit.translate import MarkupRules

# What DeepL says if there is no limit.
_NO_LIMIT = 1_000_000_000_000
# Where it demands a variant as a target, clients do not offer the language itself.
_VARIANTS = {"en": ["EN-GB", "EN-US"], "pt": ["PT-BR", "PT-PT"]}
_AUTHORIZATION = re.compile(r"\s*DeepL-Auth-Key\s+(\S+)\s*", re.IGNORECASE)
# The values of parameters that have few.
_CHOICES = {
    "tag_handling": ("html", "xml"),
    "tag_handling_version": ("v1", "v2"),
    "split_sentences": ("0", "1", "nonewlines"),
    "formality": ("default", "more", "less", "prefer_more", "prefer_less"),
    "model_type": ("latency_optimized", "quality_optimized", "prefer_quality_optimized"),
    "preserve_formatting": (_FLAGS := ("0", "1", "false", "true")),
    "outline_detection": _FLAGS,
    "show_billed_characters": _FLAGS,
}


async def translate(service: Service, given: Parameters, caller: Caller) -> dict[str, Any]:
    """`/v2/translate`."""
    key_hash = _admit(
        service, caller, len(given["text"]) if isinstance(given.get("text"), list) else 1
    )
    if not given.get("text"):
        raise RequestError(400, "Parameter 'text' not specified.")
    texts = texts_of(given["text"], "text")
    target, source = text_of(given, "target_lang"), text_of(given, "source_lang")
    if not target:
        raise RequestError(400, "Parameter 'target_lang' not specified.")
    for name, code in (("target_lang", target), ("source_lang", source)):
        if code and not find_code(code, service.directions.languages):
            raise RequestError(400, f"Value for '{name}' not supported.")
    chosen = {name: choice_of(given, name, choices) for name, choices in _CHOICES.items()}
    for name, value in chosen.items():
        if value is None:
            raise RequestError(400, f"Value for '{name}' not supported.")
    for name in ("glossary_id", "style_id", "translation_memory_id"):
        if given.get(name):
            raise RequestError(400, f"Parameter '{name}' not supported.")
    if chosen["formality"] in ("more", "less"):
        raise RequestError(400, "'formality' is not supported for given 'target_lang'.")
    glossary = glossary_of(given)
    request = TranslationRequest(
        texts,
        source,
        target,
        "html" if chosen["tag_handling"] else "text",
        glossary=glossary,
        rules=MarkupRules(
            is_xml=chosen["tag_handling"] == "xml",
            line_ends={"": "outside", "1": "all"}.get(chosen["split_sentences"] or "", "none"),  # type: ignore[arg-type]
            finds_blocks=chosen["outline_detection"] not in ("0", "false"),
            splitting=_tags(given, "splitting_tags"),
            non_splitting=_tags(given, "non_splitting_tags"),
            ignored=_tags(given, "ignore_tags"),
        ),
        splits=chosen["split_sentences"] != "0",
    )
    answer = await service.translate(request, key_hash)
    return {
        "translations": [
            {
                "detected_source_language": answer.source.language.upper(),
                "text": best.text,
                "billed_characters": len(text),
            }
            | ({"missing_terms": best.missing} if glossary else {})
            | ({"truncated": True} if best.truncated else {})
            for text, (best, *_) in zip(texts, answer.translations, strict=True)
        ]
    }


async def list_languages(
    service: Service, given: Parameters, caller: Caller
) -> list[dict[str, Any]]:
    """`/v2/languages`."""
    _admit(service, caller, 0)
    directions, kind = service.directions, text_of(given, "type") or "source"
    if kind == "source":
        return [
            {"language": code.upper(), "name": language_name(code)}
            for code in sorted(directions.sources)
        ]
    if kind != "target":
        raise RequestError(400, "Value for 'type' not supported.")
    return [
        {"language": variant, "name": language_name(code), "supports_formality": False}
        for code in directions.targets()
        for variant in _VARIANTS.get(code, [code.upper()])
    ]


async def usage(service: Service, _given: Parameters, caller: Caller) -> dict[str, int]:
    """`/v2/usage`: the characters since the server started."""
    key_hash = _admit(service, caller, 0)
    return {"character_count": service.access.used[key_hash], "character_limit": _NO_LIMIT}


async def no_documents(service: Service, _given: Parameters, caller: Caller) -> None:
    """`/v2/document` and what is below it, which is not available."""
    _admit(service, caller, 0)
    raise RequestError(400, "Document translation is not supported.")


def key_of(given: Parameters, authorization: str) -> str:
    """The API key of a request; empty if it has none."""
    if match := _AUTHORIZATION.fullmatch(authorization):
        return match[1]
    key = given.get("auth_key")
    return key if isinstance(key, str) else ""


def _admit(service: Service, caller: Caller, cost: int) -> str:
    """As `Service.admit`; both a missing and a wrong key are 403 here."""
    if service.access.key_hash(caller.key) is None:
        raise RequestError(403, "Forbidden")
    return service.admit(caller, cost)


def _tags(given: Parameters, name: str) -> frozenset[str]:
    """Names of elements: a list, or separated by commas."""
    texts = texts_of(given[name], name) if given.get(name) else []
    is_html = str(given.get("tag_handling")).lower() == "html"
    names = (name.strip() for text in texts for name in text.split(","))
    return frozenset(name.lower() if is_html else name for name in names if name)
