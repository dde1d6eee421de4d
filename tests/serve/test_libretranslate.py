"""The answers of LibreTranslate's API, and its messages, as LibreTranslate 1.9.6 gives them."""

import threading

import pytest
from conftest import relabelled
from support.served import Served

from mtkit.documents import FORMATS
from mtkit.serve import Limits, texts
from mtkit.translate import Glossary, Translator


def translated(plain: Translator, text: str) -> str:
    return next(plain.translate([text]))


def test_a_text_has_a_text_and_a_list_a_list(served, plain):
    assert served.translate("one two").json == {"translatedText": translated(plain, "one two")}
    expected = list(plain.translate(["one two", "three"]))
    assert served.translate(["one two", "three"]).json == {"translatedText": expected}
    assert served.translate(["one two"]).json == {"translatedText": expected[:1]}


def test_parameters_may_be_json_a_form_or_the_query(served, plain):
    fields = {"q": "one zwei fünf", "source": "en", "target": "de"}
    expected = {"translatedText": translated(plain, "one zwei fünf")}
    query = "q=one+zwei+f%C3%BCnf&source=en&target=de"
    for reply in (
        served.post("/translate", fields),
        served.form("/translate", fields),
        served.get(f"/translate?{query}"),
        served.ask("POST", f"/translate?{query}"),
    ):
        assert (reply.status, reply.json) == (200, expected)


def test_only_line_ends_of_windows_change_in_a_form(served, plain):
    blank = "\n\u2028\x85\x0b\x0c\n"
    fields = {"q": f"one{blank}two".replace("\n", "\r\n"), "source": "en", "target": "de"}
    expected = "\n".join(plain.translate(["one", "", "two"]))
    text = served.form("/translate", fields).json["translatedText"]
    assert text.replace(blank, "\n\n") == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"target": ""}, "Invalid request: missing target parameter"),
        ({"source": "zz"}, "zz is not supported"),
        ({"format": "pdf"}, "pdf format is not supported"),
        (
            {"source": "de", "target": "en"},
            "English (en) is not available as a target language from German (de)",
        ),
        ({"alternatives": "many"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 4}, "Invalid request: alternatives parameter must be <= 3"),
        ({"q": "x" * 50_001}, "Invalid request: request (50001) exceeds text limit (50000)"),
        ({"q": ["x"] * 101}, "Invalid request: request (101) exceeds text limit (100)"),
        ({"q": ["\n" * 5_000] * 2}, "Invalid request: request (10002) exceeds line limit (10000)"),
        ({"q": 7}, "Invalid request: q parameter is not a text or a list of texts"),
        *(
            (
                {"glossary": glossary},
                "Invalid request: glossary parameter is not an object of terms, such as "
                '{"dog": "Hund"}',
            )
            for glossary in (["a"], {"one": 1}, {"one": ["x"]}, {"one": None}, 5, "x")
        ),
        ({"glossary": {"x" * 201: "y"}}, "a term of the glossary has more than 200 characters"),
        ({"glossary": {str(i): "x" for i in range(1001)}}, "the glossary has more than 1000 terms"),
        ({"glossary": {"one": ""}}, "Invalid request: the target term is empty"),
        (
            {"glossary": {"one": "x", "one ": "y"}},
            "Invalid request: the source term 'one' has the target term 'x' already; keep one of "
            "them",
        ),
    ],
)
def test_a_wrong_parameter_has_the_message_of_libretranslate(served, changes, message):
    reply = served.post("/translate", {"q": "one", "source": "en", "target": "de"} | changes)
    assert (reply.status, reply.json) == (400, {"error": message})


def test_alternatives_are_other_translations_best_first(served, plain):
    ((best, *others),) = plain.translate_nbest(["one two three"], n_best=4)
    answer = served.translate("one two three", alternatives=3).json
    assert answer["translatedText"] == best.text
    unique = dict.fromkeys(other.text for other in others)
    unique.pop(best.text, None)
    assert answer["alternatives"] == [*unique]
    listed = served.translate(["one two three", "four"], alternatives="3").json
    assert listed["alternatives"][0] == answer["alternatives"]
    assert len(listed["alternatives"]) == 2
    assert "alternatives" not in served.translate("one", alternatives=0).json
    assert served.translate("<b>one</b>", alternatives=2, format="html").json["alternatives"] == []


def test_with_one_source_language_auto_is_that_with_its_probability(served, plain):
    text = "The children are playing in the garden with their new red ball."
    answer = served.translate(text, source="auto").json
    assert answer["translatedText"] == translated(plain, text)
    assert answer["detectedLanguage"]["language"] == "en"
    assert 90 < answer["detectedLanguage"]["confidence"] <= 100
    other = "Les enfants jouent aujourd'hui dans le jardin avec leur nouveau ballon rouge."
    unsure = served.translate([other, other], source="AUTO").json["detectedLanguage"]
    assert [guess["language"] for guess in unsure] == ["en", "en"]
    assert all(guess["confidence"] < 10 for guess in unsure)


def test_a_text_without_letters_comes_back_with_confidence_zero(served):
    nothing = {"confidence": 0.0, "language": "en"}
    for text in ("\U0001f600\U0001f44d", "12 / 34", " \n "):
        answer = served.translate(text, source="auto").json
        assert answer == {"translatedText": text, "detectedLanguage": nothing}
    assert served.form("/detect", {"q": "\U0001f600"}).json == [nothing]


def test_auto_chooses_among_the_languages_that_can_be_translated(both):
    german = "Die Kinder spielen heute mit ihrem neuen roten Ball im Garten."
    english = "The children are playing in the garden with their new red ball."
    answer = both.translate(german, source="auto", target="en").json
    assert answer["detectedLanguage"]["language"] == "de"
    assert (
        answer["translatedText"]
        == both.translate(german, source="de", target="en").json["translatedText"]
    )
    # A text that is in the target language already is copied.
    answer = both.translate(english, source="auto", target="en").json
    assert answer["translatedText"] == english
    assert answer["detectedLanguage"]["language"] == "en"
    ranked = both.form("/detect", {"q": german}).json
    assert ranked[0]["language"] == "de"
    assert ranked[0]["confidence"] > 90


@pytest.mark.parametrize(
    ("directions", "same", "impossible"),
    [
        # Each request, and the direction whose text it gets.
        (
            [("en-GB", "de"), ("de", "en")],
            {("en", "de"): ("en-GB", "de"), ("de", "EN-GB"): ("de", "en")},
            [("en", "en-GB"), ("en-US", "de")],
        ),
        (
            [("en-US", "de"), ("en-GB", "fr")],
            {("en", "de"): ("en-US", "de"), ("EN", "fr"): ("en-GB", "fr")},
            [("en-GB", "de"), ("en-US", "fr")],
        ),
        (
            [("en", "de"), ("en-GB", "fr")],
            {("en-GB", "de"): ("en", "de"), ("en", "fr"): ("en-GB", "fr")},
            [("en-US", "fr")],
        ),
    ],
)
def test_codes_mean_a_direction_that_the_server_has(
    directions, same, impossible, untrained, also_untrained, tmp_path
):
    runs = [
        relabelled(run, tmp_path / src, src_lang=src, tgt_lang=tgt)
        for run, (src, tgt) in zip((untrained, also_untrained), directions, strict=True)
    ]
    text = "one two three"
    with Served(runs) as server:
        of_each = {
            pair: server.translate(text, source=pair[0], target=pair[1]).json["translatedText"]
            for pair in directions
        }
        assert len(set(of_each.values())) == 2
        for (source, target), meant in same.items():
            answer = server.translate(text, source=source, target=target).json
            assert answer == {"translatedText": of_each[meant]}
        for source, target in impossible:
            assert server.translate(text, source=source, target=target).status == 400
        for code in directions[0]:
            assert server.translate(text, source=code, target=code).json["translatedText"] == text


def test_a_text_in_the_target_language_comes_back(served, untrained, also_untrained, tmp_path):
    french = relabelled(also_untrained, tmp_path / "french", src_lang="fr")
    german = "Die Kinder spielen heute mit ihrem neuen roten Ball im Garten."
    with Served([untrained, french]) as server:
        answers = [each.translate(german, source="auto").json for each in (server, served)]
    for answer in answers:
        assert answer["translatedText"] == german
        assert answer["detectedLanguage"]["language"] == "de"
    # Three letters may be in any language.
    assert served.translate("Rat", source="auto").json["detectedLanguage"]["language"] == "en"


def test_the_language_of_html_is_that_of_its_text(both):
    german = "Die Kinder spielen heute mit ihrem neuen roten Ball."
    words = "the page with the latest news from our own readers and what they think about it"
    html = f'<p class="{words}">{german}<!-- {words} --></p>\n<script>// {words}</script>'
    answer = both.translate(html, source="auto", target="en", format="html").json
    assert answer["detectedLanguage"]["language"] == "de"
    assert answer["detectedLanguage"]["confidence"] > 90
    assert german not in answer["translatedText"]
    asked = {"text": [html], "target_lang": "EN", "tag_handling": "html"}
    (deepl,) = both.post("/v2/translate", asked).json["translations"]
    assert deepl["detected_source_language"] == "DE"
    # Letters in tags and entities do not count.
    html = "<p>12 / 34 &lt;&nbsp;</p>"
    answer = both.translate(html, source="auto", target="de", format="html").json
    assert answer["detectedLanguage"] == {"confidence": 0.0, "language": "en"}
    assert answer["translatedText"] == html


def test_languages_have_names_and_targets(served, both):
    # Clients send bodies with GET too.
    for reply in (served.get("/languages"), served.ask("GET", "/languages", b"api_key=x")):
        assert reply.json == [
            {"code": "de", "name": "German", "targets": []},
            {"code": "en", "name": "English", "targets": ["de", "en"]},
        ]
    assert both.get("/languages").json == [
        {"code": "de", "name": "German", "targets": ["de", "en"]},
        {"code": "en", "name": "English", "targets": ["de", "en"]},
    ]


def test_health_settings_and_what_is_not_there(served):
    assert served.get("/health").json == {"status": "ok"}
    assert served.get("/frontend/settings").json == {
        # The run has a beam of 3.
        "alternatives": 2,
        "apiKeys": False,
        "charLimit": 50_000,
        # It has no confidence.json.
        "checks": [],
        "filesTranslation": True,
        "frontendTimeout": 500,
        "keyRequired": False,
        "language": {
            "source": {"code": "en", "name": "English"},
            "target": {"code": "de", "name": "German"},
        },
        "suggestions": False,
        "supportedFilesFormat": [".txt", ".html", ".htm", *(f".{ending}" for ending in FORMATS)],
    }
    suggestions = served.form("/suggest", {"q": "x"})
    assert suggestions.status == 403
    assert suggestions.json == {"error": "Suggestions are disabled on this server."}
    assert served.form("/detect", {}).json == {"error": "Invalid request: missing q parameter"}


def test_a_glossary_is_as_in_translate(served, plain):
    terms = {"two": "zwo", "four": "vier"}
    expected = translated(plain.variant(glossary=Glossary(terms)), "one two three four")
    text = served.translate("one two three four", glossary=terms).json["translatedText"]
    assert text == expected
    assert "zwo" in text
    assert "vier" in text


@pytest.mark.parametrize("form", ["text", "html"])
def test_terms_that_a_translation_lacks_are_named_and_counted(untrained, form):
    # No text has the second term.
    terms = {"two": "zwo", "nine": "\x01"}
    with Served([untrained]) as server:
        answer = server.translate("one two nine", glossary=terms, format=form).json
        assert answer["missingTerms"] == ["\x01"]
        listed = server.translate(["two\nnine\nnine", "two", "12"], glossary=terms, format=form)
        assert listed.json["missingTerms"] == [["\x01", "\x01"], [], []]
        assert "missingTerms" not in server.translate("nine", format=form).json
        assert "mtkit_text_warnings_total 3.0" in server.get("/metrics").body.decode()


def test_a_text_that_is_copied_lacks_no_terms(served):
    answer = served.translate("one", target="en", glossary={"one": "x"}).json
    assert answer == {"translatedText": "one", "missingTerms": []}


@pytest.mark.parametrize("form", ["text", "html"])
def test_a_text_that_is_cut_at_the_limit_has_a_sign(served, form):
    # The run reads 59 subwords.
    long = f"one\n{'one ' * 200}\ntwo"
    assert served.translate(long, format=form).json["truncated"] is True
    assert served.translate(["one", long], format=form).json["truncated"] == [False, True]
    assert "truncated" not in served.translate(["one", "one " * 5], format=form).json


def test_a_sentence_with_too_many_or_too_long_terms_is_refused(served, monkeypatch):
    # One with too long terms would keep the thread of PyTorch busy for minutes.
    monkeypatch.setattr(texts, "_MAX_TERMS", 6)
    for many, fields in ((7, {}), (6, {"format": "html"})):
        term = "x" * (1 if many > 6 else 200)
        reply = served.translate("one " * many, glossary={"one": term}, **fields)
        assert reply.status == 400
        assert "a sentence has more than 6 terms of the glossary, or terms" in reply.json["error"]
    assert served.translate("one " * 6, glossary={"one": "x"}).status == 200
    # Of two sentences each has half of them.
    text = f"{'one ' * 3}\n{'one ' * 3}"
    assert served.translate(text, glossary={"one": "x" * 200}).status == 200


def test_a_glossary_is_read_outside_of_the_event_loop(untrained, monkeypatch):
    threads = set[str]()

    def noted(terms):
        threads.add(threading.current_thread().name)
        return Glossary(terms)

    monkeypatch.setattr("mtkit.serve.service.Glossary", noted)
    with Served([untrained]) as server:
        assert server.translate("one", glossary={"one": "x"}).status == 200
        assert threads
        assert server._thread.name not in threads


def test_every_answer_of_the_apis_may_be_used_by_pages_of_all_origins(served):
    replies = (
        served.translate("one"),
        served.translate("one", target="zz"),
        served.get("/v2/languages"),
        served.ask("DELETE", "/translate"),
        served.ask("OPTIONS", "/translate"),
    )
    for reply in replies:
        names = {name: value for name, value in reply.headers.items() if "access-control" in name}
        assert names == {
            "access-control-allow-origin": "*",
            "access-control-allow-headers": "Authorization, Content-Type",
            "access-control-expose-headers": "Authorization",
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-credentials": "true",
            "access-control-max-age": "1728000",
        }
    assert replies[-1].status == 200
    for path in ("/", "/page.js", "/metrics", "/nothing"):
        for method in ("GET", "OPTIONS"):
            names = served.ask(method, path).headers
            assert not [name for name in names if "access-control" in name]


def test_answers_are_not_cached_and_have_the_type_that_they_say(served):
    for reply in (served.translate("one"), served.get("/v2/languages"), served.get("/metrics")):
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_metrics_count_requests_and_what_was_decoded(untrained):
    with Served([untrained], limits=Limits(characters=10)) as server:
        server.translate("one two")
        server.translate("x" * 11)
        page = server.get("/metrics")
    lines = page.body.decode().splitlines()
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        'mtkit_requests_total{endpoint="/translate",status="200"} 1.0',
        'mtkit_requests_total{endpoint="/translate",status="400"} 1.0',
        'mtkit_request_seconds_bucket{endpoint="/translate",le="+Inf"} 2.0',
        'mtkit_request_seconds_count{endpoint="/translate"} 2.0',
        "mtkit_characters_total 7.0",
        "mtkit_decoded_batches_total 1.0",
        "mtkit_decoded_sentences_total 1.0",
        "mtkit_queue_tokens 0.0",
    ):
        assert line in lines
