"""The requests of clients, as their sources send them."""

from typing import Any

import pytest
from support.served import Served

from mtkit.run_folder import Run
from mtkit.translate import Translator

TEXT = "The children are playing in the garden with their new red ball."


@pytest.fixture(scope="module")
def expected(untrained: Run) -> str:
    (found,) = Translator.load(untrained, device="cpu").translate([TEXT])
    return found


def test_mastodon(served: Served, expected: str):
    # app/lib/translation_service/libre_translate.rb
    languages = served.get("/languages", Content_Type="application/json").json
    assert {one["code"]: set(one["targets"]) - {one["code"]} for one in languages}["en"] == {"de"}
    texts = [f"<p>{TEXT}</p>", TEXT, "<p>one <span>two</span></p>", ""]
    for source in ("auto", "en"):
        body = {"q": texts, "source": source, "target": "de", "format": "html", "api_key": None}
        reply = served.post("/translate", body)
        found = reply.json
        assert reply.status == 200
        assert found["translatedText"][:2] == [f"<p>{expected}</p>", expected]
        assert found["translatedText"][3] == ""
        if source == "auto":
            detected: list[Any] = found["detectedLanguage"]
            assert [one["language"] for one in detected] == ["en"] * 4
        else:
            assert "detectedLanguage" not in found


def test_weblate(served: Served, expected: str):
    # weblate/machinery/libretranslate.py
    body = {"api_key": "", "q": [TEXT, "one"], "source": "en", "target": "de"}
    found = served.post("/translate", body).json
    assert found["translatedText"][0] == expected
    assert len(found["translatedText"]) == 2
    assert [one["code"] for one in served.get("/languages").json] == ["de", "en"]


def test_discourse(served: Served, expected: str):
    # app/services/discourse_translator/provider/libre_translate.rb
    (best,) = served.form("/detect", {"q": TEXT}).json
    assert best["language"] == "en"
    fields = {"q": f"<p>{TEXT}</p>", "source": "en", "target": "de", "format": "html"}
    assert served.form("/translate", fields).json["translatedText"] == f"<p>{expected}</p>"


def test_mattermost(served: Served, expected: str):
    # Its end-to-end tests have a server that stands in for LibreTranslate.
    fields = {"q": TEXT, "source": "auto", "target": "de"}
    for reply in (served.post("/translate", fields), served.form("/translate", fields)):
        found = reply.json
        assert found["translatedText"] == expected
        assert 0 <= found["detectedLanguage"]["confidence"] <= 100
    assert served.post("/detect", {"q": TEXT}).json[0]["language"] == "en"
