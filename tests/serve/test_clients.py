"""The requests of clients, as their sources send them."""

import pytest

TEXT = "The children are playing in the garden with their new red ball."
MARKUP = [f"<p>{TEXT}</p>", TEXT, "<p>one <span>two</span></p>", ""]


# Mastodon: app/lib/translation_service/libre_translate.rb. Weblate: weblate/machinery/
# libretranslate.py. Discourse: app/services/discourse_translator/provider/libre_translate.rb.
# Mattermost: its end-to-end tests have a server that stands in for LibreTranslate.
@pytest.mark.parametrize(
    ("kind", "fields", "form"),
    [
        ("json", {"q": MARKUP, "source": "auto", "format": "html", "api_key": None}, "<p>{}</p>"),
        ("json", {"q": MARKUP, "source": "en", "format": "html", "api_key": None}, "<p>{}</p>"),
        ("json", {"api_key": "", "q": [TEXT, "one"], "source": "en"}, "{}"),
        ("form", {"q": f"<p>{TEXT}</p>", "source": "en", "format": "html"}, "<p>{}</p>"),
        ("json", {"q": TEXT, "source": "auto"}, "{}"),
        ("form", {"q": TEXT, "source": "auto"}, "{}"),
    ],
    ids=["Mastodon auto", "Mastodon", "Weblate", "Discourse", "Mattermost", "Mattermost's form"],
)
def test_a_request_of_a_client_is_answered(served, plain, kind, fields, form):
    reply = (served.post if kind == "json" else served.form)(
        "/translate", fields | {"target": "de"}
    )
    assert reply.status == 200
    texts, detected = reply.json["translatedText"], reply.json.get("detectedLanguage")
    is_list = isinstance(fields["q"], list)
    first = texts[0] if is_list else texts
    assert first == form.format(*plain.translate([TEXT]))
    assert not is_list or len(texts) == len(fields["q"])
    assert (detected is not None) == (fields["source"] == "auto")
    if detected is not None:
        of_each = detected if is_list else [detected]
        assert {guess["language"] for guess in of_each} == {"en"}
        assert all(0 <= guess["confidence"] <= 100 for guess in of_each)
