"""The answers of DeepL's API, as its Python package 1.32 reads them."""

import hashlib
from typing import Any

import pytest
from support.served import Served

from mtkit.serve import Access
from mtkit.translate import Translator


@pytest.fixture(scope="module")
def expected(untrained) -> list[str]:
    return list(Translator.load(untrained, device="cpu").translate(["one two", "three"]))


def translated(*texts: str, sources: tuple[str, ...] = ("one two", "three")) -> Any:
    return {
        "translations": [
            {"detected_source_language": "EN", "text": text, "billed_characters": len(source)}
            for text, source in zip(texts, sources, strict=False)
        ]
    }


def test_texts_are_translated_in_order(served, expected):
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


def test_missing_terms_and_texts_that_are_cut_are_told(served):
    fields = {"text": ["nine", "one " * 200], "target_lang": "DE", "glossary": {"nine": "\x01"}}
    first, other = served.post("/v2/translate", fields).json["translations"]
    assert (first["missing_terms"], other["missing_terms"]) == (["\x01"], [])
    assert "truncated" not in first
    assert other["truncated"] is True


XML = {"target_lang": "DE", "tag_handling": "xml"}


def text_of(served: Served, text: str, **fields: Any) -> str:
    """The translation of a text."""
    reply = served.post("/v2/translate", {"text": [text], "target_lang": "DE"} | fields)
    assert reply.status == 200, reply.body
    (translation,) = reply.json["translations"]
    return str(translation["text"])


@pytest.mark.parametrize("ignored", [["x"], "x", "keep,x", ["keep", "x"], "X,x", ["a,b", "x"]])
@pytest.mark.parametrize("kept", ["<x>two two</x>", '<x id="1"></x>', "<x><b>two</b></x>"])
def test_ignored_tags_keep_their_content(served, ignored, kept):
    # weblate/machinery/deepl.py sends tag_handling=xml and ignore_tags=["x"] with each text.
    for handling in ("xml", "html"):
        text = text_of(served, f"one {kept} three", tag_handling=handling, ignore_tags=ignored)
        assert kept in text
        # And nothing of it is translated a second time.
        assert text.count("<x") == 1


@pytest.mark.parametrize(
    "text",
    [
        "<code>{}</code>",
        "<p>{}</p>",
        "<br>{}</br>",
        "<script>{}</script>",
        "<P>{}</P>",
        "<größe>{}</größe>",
        "<_a:b c='>'>{}</_a:b>",
        "<doc>\n <title>{}</title>\n</doc>",
        "<doc><x/><b>{}</b></doc>",
    ],
)
def test_names_of_xml_mean_nothing(served, expected, text):
    assert text_of(served, text.format("one two"), **XML) == text.format(expected[0])


def test_elements_of_xml_end_sentences_where_no_text_is_beside_them(served, expected):
    two, three = expected
    assert text_of(served, "<a><b>one two</b> <b>three</b></a>", **XML) == (
        f"<a><b>{two}</b> <b>{three}</b></a>"
    )
    # Not so by these parameters; then a sentence has both.
    for more in ({"outline_detection": False}, {"non_splitting_tags": ["b"]}):
        text = text_of(served, "<a><b>one two</b> <b>three</b></a>", **XML, **more)
        assert text != f"<a><b>{two}</b> <b>{three}</b></a>"
        assert text.count("<b>") == text.count("</b>") == 2
    assert (
        text_of(served, "one two<b>three</b>", **XML, splitting_tags="b") == f"{two}<b>{three}</b>"
    )


def test_a_cdata_section_is_text_and_declared_or_unknown_entities_stay(served, expected):
    assert text_of(served, "<a><![CDATA[one two]]></a>", **XML) == f"<a>{expected[0]}</a>"
    assert text_of(served, "<a><![CDATA[<&]]></a>", **XML, source_lang="EN") == "<a>&lt;&amp;</a>"
    assert "&logo;" in text_of(served, "<a>one &logo; two</a>", **XML)
    assert text_of(served, "<!-- <![CDATA[ -->one two", **XML) == f"<!-- <![CDATA[ -->{expected[0]}"
    subset = '<!DOCTYPE a [<!ENTITY logo "word"> <!ELEMENT a ANY>\n]>'
    for tags in (XML, {"tag_handling": "html"}):
        assert text_of(served, f"{subset}<a>one two</a>", **tags) == f"{subset}<a>{expected[0]}</a>"


@pytest.mark.parametrize(
    ("split", "texts"),
    [
        (None, ["one two.", "three. four", "five"]),
        ("1", ["one two.", "three. four", "five"]),
        (1, ["one two.", "three. four", "five"]),
        ("nonewlines", ["one two. three. four five"]),
        ("0", ["one two. three. four five"]),
        (0, ["one two. three. four five"]),
    ],
)
def test_line_ends_and_marks_end_sentences_as_is_wished(served, untrained, split, texts):
    decode = untrained.config.decode.model_copy(update={"split_sentences": str(split) != "0"})
    whole = Translator.load(untrained, device="cpu", config=decode)
    lines = list(whole.translate(texts))
    text = text_of(served, "one two.\nthree. four\nfive", split_sentences=split)
    assert text.count("\n") == 2
    assert text.split() == " ".join(lines).split()
    tags = text_of(served, "<p>one two.\nthree. four\nfive</p>", split_sentences=split, **XML)
    if split is None:
        lines = list(whole.translate(["one two. three. four five"]))
    assert tags.removeprefix("<p>").removesuffix("</p>").split() == " ".join(lines).split()


@pytest.mark.parametrize("text", ["a < b & c", "&lt;p&gt; &amp;", "<p>one</p>", "  one\r\n two \n"])
def test_plain_text_whose_lines_are_joined_is_no_markup(served, text):
    translation = text_of(served, text, split_sentences="nonewlines")
    assert "&lt;p" not in translation or "&lt;p" in text
    assert translation.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tag_handling", 5),
        ("split_sentences", "2"),
        ("split_sentences", ["0"]),
        ("formality", "very"),
        ("preserve_formatting", "yes"),
        ("outline_detection", 2),
        ("model_type", "best"),
        ("show_billed_characters", "x"),
        ("tag_handling_version", "v3"),
    ],
)
def test_another_value_of_a_parameter_with_few_is_refused(served, name, value):
    fields = {"text": ["a"], "target_lang": "DE", name: value}
    reply = served.post("/v2/translate", fields)
    # As in DeepL's own server for tests, github.com/DeepLcom/deepl-mock.
    wanted = (400, {"message": f"Value for '{name}' not supported."})
    assert (reply.status, reply.json) == wanted
    if isinstance(value, str):
        reply = served.form("/v2/translate", fields)
        assert (reply.status, reply.json) == wanted


@pytest.mark.parametrize(
    "fields",
    [
        {"tag_handling": None, "split_sentences": "", "formality": "default"},
        {"formality": "prefer_less", "preserve_formatting": True, "outline_detection": "0"},
        {"model_type": "prefer_quality_optimized", "show_billed_characters": "1"},
        {"tag_handling": "HTML", "tag_handling_version": "v2", "outline_detection": "True"},
        {"split_sentences": 1, "context": "numbers", "ignore_tags": [], "splitting_tags": None},
    ],
)
def test_usual_values_are_accepted(served, expected, fields):
    assert text_of(served, "one two", **fields) == expected[0]


PARTS = (
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n1\r\n--x--\r\n'
)


@pytest.mark.parametrize("path", ["/v2/document", "/v2/document/ABC", "/v2/document/ABC/result"])
@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "application/json"])
def test_documents_are_not_supported(served, path, kind):
    body = b"{}" if "json" in kind else PARTS
    reply = served.ask("POST", path, body, Content_Type=kind)
    assert reply.status == 400
    assert reply.json == {"message": "Document translation is not supported."}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": None}, "Parameter 'text' not specified."),
        ({"target_lang": None}, "Parameter 'target_lang' not specified."),
        ({"target_lang": "ZZ"}, "Value for 'target_lang' not supported."),
        ({"source_lang": "ZZ"}, "Value for 'source_lang' not supported."),
        ({"glossary_id": "x"}, "Parameter 'glossary_id' not supported."),
        ({"formality": "more"}, "'formality' is not supported for given 'target_lang'."),
    ],
)
def test_a_wrong_parameter_has_a_message(served, fields, message):
    given = {"text": ["a"], "target_lang": "DE"} | fields
    reply = served.post("/v2/translate", {key: value for key, value in given.items() if value})
    assert (reply.status, reply.json) == (400, {"message": message})


def test_languages_are_those_of_a_side(served):
    assert served.get("/v2/languages").json == [{"language": "EN", "name": "English"}]
    targets = [{"language": "DE", "name": "German", "supports_formality": False}]
    assert served.get("/v2/languages?type=target").json == targets
    # The package sends the type in the body of a GET.
    kind = "application/x-www-form-urlencoded"
    assert served.ask("GET", "/v2/languages", b"type=target", Content_Type=kind).json == targets
    assert served.get("/v2/languages?type=both").status == 400


def test_keys_are_checked_and_usage_is_counted_for_each(untrained):
    hashes = [hashlib.sha256(key.encode()).hexdigest() for key in ("one", "two")]
    fields = {"text": ["one two", "three"], "target_lang": "DE"}
    with Served([untrained], access=Access(hashes)) as server:
        for path in ("/v2/translate", "/v2/languages", "/v2/usage"):
            for key in ({}, {"Authorization": "DeepL-Auth-Key three"}):
                reply = server.post(path, fields, **key)
                assert (reply.status, reply.json) == (403, {"message": "Forbidden"})
        first, two = ({"Authorization": f"DeepL-Auth-Key {key}"} for key in ("one", "two"))
        assert server.post("/v2/translate", fields, **first).status == 200
        assert server.get("/v2/usage", **first).json["character_count"] == len("one twothree")
        assert server.get("/v2/usage", **two).json == {
            "character_count": 0,
            "character_limit": 1_000_000_000_000,
        }


def test_usage_counts_the_characters_that_answers_name(untrained):
    with Served([untrained]) as server:
        # Two of them come back as they are.
        for text, target in (("one two", "DE"), ("12 / 34", "DE"), ("one", "EN")):
            fields = {"text": [text], "target_lang": target}
            (translation,) = server.post("/v2/translate", fields).json["translations"]
            assert translation["billed_characters"] == len(text)
        assert server.get("/v2/usage").json["character_count"] == len("one two12 / 34one")
        assert b"mtkit_characters_total 7.0\n" in server.get("/metrics").body


def test_errors_of_its_paths_have_its_form(served):
    reply = served.get("/v2/glossaries")
    assert (reply.status, reply.json) == (404, {"message": "Not Found"})
    reply = served.ask("PUT", "/v2/translate")
    assert (reply.status, reply.json) == (405, {"message": "Method Not Allowed"})
