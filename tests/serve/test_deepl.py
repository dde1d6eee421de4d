"""The answers of DeepL's API, as its Python package 1.32 reads them."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from support.served import Served

from mtkit.run_folder import Run
from mtkit.serve import Access
from mtkit.translate import Translator


@pytest.fixture(scope="module")
def expected(untrained: Run) -> list[str]:
    return list(Translator.load(untrained, device="cpu").translate(["one two", "three"]))


def translated(*texts: str, sources: tuple[str, ...] = ("one two", "three")) -> Any:
    return {
        "translations": [
            {"detected_source_language": "EN", "text": text, "billed_characters": len(source)}
            for text, source in zip(texts, sources, strict=False)
        ]
    }


def test_texts_are_translated_in_order(served: Served, expected: list[str]) -> None:
    key = {"Authorization": "DeepL-Auth-Key anything"}
    wanted = {"text": ["one two", "three"], "target_lang": "DE"}
    for fields in (wanted, wanted | {"source_lang": "EN"}):
        for reply in (
            served.post("/v2/translate", fields, **key),
            served.form("/v2/translate", fields, **key),
        ):
            assert (reply.status, reply.json) == (200, translated(*expected))
    single = served.form("/v2/translate", {"text": "one two", "target_lang": "de"})
    assert single.json == translated(*expected[:1])


def test_missing_terms_and_texts_that_are_cut_are_told(served: Served) -> None:
    fields = {"text": ["nine", "one " * 200], "target_lang": "DE", "glossary": {"nine": "\x01"}}
    one, other = served.post("/v2/translate", fields).json["translations"]
    assert (one["missing_terms"], other["missing_terms"]) == (["\x01"], [])
    assert "truncated" not in one
    assert other["truncated"] is True


@pytest.mark.parametrize("handling", ["html", "xml"])
def test_tags_keep_their_places(served: Served, expected: list[str], handling: str) -> None:
    fields = {"text": ["<p>one two</p>"], "target_lang": "DE", "tag_handling": handling}
    (found,) = served.post("/v2/translate", fields).json["translations"]
    assert found["text"] == f"<p>{expected[0]}</p>"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target_lang": "DE"}, "Parameter 'text' not specified."),
        ({"text": ["a"]}, "Parameter 'target_lang' not specified."),
        ({"text": ["a"], "target_lang": "ZZ"}, "Value for 'target_lang' not supported."),
        (
            {"text": ["a"], "target_lang": "DE", "source_lang": "ZZ"},
            "Value for 'source_lang' not supported.",
        ),
        (
            {"text": ["a"], "target_lang": "DE", "tag_handling": "md"},
            "Value for 'tag_handling' not supported.",
        ),
        (
            {"text": ["a"], "target_lang": "DE", "glossary_id": "x"},
            "Parameter 'glossary_id' not supported.",
        ),
        (
            {"text": ["a"], "target_lang": "DE", "formality": "more"},
            "'formality' is not supported for given 'target_lang'.",
        ),
    ],
)
def test_a_wrong_parameter_has_a_message(
    served: Served, fields: dict[str, Any], message: str
) -> None:
    reply = served.post("/v2/translate", fields)
    assert (reply.status, reply.json) == (400, {"message": message})


def test_languages_are_those_of_a_side(served: Served) -> None:
    assert served.get("/v2/languages").json == [{"language": "EN", "name": "English"}]
    targets = [{"language": "DE", "name": "German", "supports_formality": False}]
    assert served.get("/v2/languages?type=target").json == targets
    # The package sends the type in the body of a GET.
    kind = "application/x-www-form-urlencoded"
    assert served.ask("GET", "/v2/languages", b"type=target", Content_Type=kind).json == targets
    assert served.get("/v2/languages?type=both").status == 400


def test_keys_are_checked_and_usage_is_counted_for_each(untrained: Run) -> None:
    hashes = [hashlib.sha256(key.encode()).hexdigest() for key in ("one", "two")]
    fields = {"text": ["one two", "three"], "target_lang": "DE"}
    with Served([untrained], access=Access(hashes)) as server:
        for path in ("/v2/translate", "/v2/languages", "/v2/usage"):
            for key in ({}, {"Authorization": "DeepL-Auth-Key three"}):
                reply = server.post(path, fields, **key)
                assert (reply.status, reply.json) == (403, {"message": "Forbidden"})
        one, two = ({"Authorization": f"DeepL-Auth-Key {key}"} for key in ("one", "two"))
        assert server.post("/v2/translate", fields, **one).status == 200
        assert server.get("/v2/usage", **one).json["character_count"] == len("one twothree")
        assert server.get("/v2/usage", **two).json == {
            "character_count": 0,
            "character_limit": 1_000_000_000_000,
        }


def test_usage_counts_the_characters_that_answers_name(untrained: Run) -> None:
    with Served([untrained]) as server:
        # Two of them come back as they are.
        for text, target in (("one two", "DE"), ("12 / 34", "DE"), ("one", "EN")):
            fields = {"text": [text], "target_lang": target}
            (found,) = server.post("/v2/translate", fields).json["translations"]
            assert found["billed_characters"] == len(text)
        assert server.get("/v2/usage").json["character_count"] == len("one two12 / 34one")
        assert b"mtkit_characters_total 7\n" in server.get("/metrics").body


def test_errors_of_its_paths_have_its_form(served: Served) -> None:
    reply = served.get("/v2/glossaries")
    assert (reply.status, reply.json) == (404, {"message": "Not Found"})
    reply = served.ask("PUT", "/v2/translate")
    assert (reply.status, reply.json) == (405, {"message": "Method Not Allowed"})
