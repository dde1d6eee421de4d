"""The page at `/` as the server sends it."""

import re

import pytest
from support.browsed import Page, well_formed
from support.served import Served

FILES = {
    "/": "text/html; charset=utf-8",
    "/page.css": "text/css; charset=utf-8",
    "/page.js": "text/javascript; charset=utf-8",
}
# Everything that is not named here is refused.
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "form-action": "'none'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}


def page_of(served: Served) -> Page:
    return well_formed(served.get("/").body.decode())


@pytest.mark.parametrize("path", FILES)
def test_a_file_has_its_type_and_the_policy(served: Served, path: str):
    reply = served.get(path)
    assert reply.status == 200
    assert reply.headers["content-type"] == FILES[path]
    rules = reply.headers["content-security-policy"].split("; ")
    assert dict(rule.split(" ", 1) for rule in rules) == POLICY
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", FILES)
def test_a_browser_asks_again_and_is_told_that_nothing_changed(served: Served, path: str):
    first = served.get(path)
    assert first.headers["cache-control"] == "no-cache"
    for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = served.get(path, If_None_Match=known)
        assert (again.status, again.body) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
    assert served.get(path, If_None_Match='"other"').status == 200


def test_the_page_names_no_other_host_and_has_no_script_or_style_of_its_own(served: Served):
    page = page_of(served)
    assert [script["attrs"]["src"] for script in page.all("script")] == ["page.js"]
    assert not any(script["text"].strip() for script in page.all("script"))
    assert not page.all("style")
    for element in page.elements:
        for name, value in element["attrs"].items():
            assert not name.startswith("on")
            assert name != "style"
            if name in ("href", "src", "action"):
                # Relative, so that it works in a folder of a proxy.
                assert re.fullmatch(r"data:,|#\w+|page\.\w+", value or "")
    for path in FILES:
        assert not re.search(r"(?:https?:)?//\w+\.", served.get(path).body.decode())


def test_the_script_writes_texts_only_as_texts(served: Served):
    script = served.get("/page.js").body.decode()
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert name not in script


def test_every_field_has_a_label_and_every_button_a_name(served: Served):
    page = page_of(served)
    labelled = {label["attrs"].get("for") for label in page.all("label")}
    for tag in ("select", "input", "textarea"):
        for field in page.all(tag):
            assert field["attrs"]["id"] in labelled or "label" in field["inside"]
    for button in page.all("button"):
        assert button["attrs"].get("type") == "button"
        assert button["text"].strip() or button["attrs"].get("aria-label")


def test_every_element_that_the_script_asks_for_is_there(served: Served):
    ids = [tag["attrs"]["id"] for tag in page_of(served).elements if "id" in tag["attrs"]]
    assert len(set(ids)) == len(ids)
    asked = re.findall(r'byId\("([^"]+)"\)', served.get("/page.js").body.decode())
    assert asked
    assert set(asked) <= set(ids)
