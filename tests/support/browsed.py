"""Pages as a browser parses them."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr", "col", "base", "source"}
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href"}
# Text that would be markup where it is not escaped.
HOSTILE = """<script>alert("x")</script>'"&amp;<b onclick='x'>]]>--></style></title></textarea>"""


class Page(HTMLParser):
    """The elements of a page: tag, attributes, text with that of the elements inside."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[dict[str, Any]] = []
        self.elements: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.feed(text)
        self.close()
        self.problems += [f"<{element['tag']}> is not closed" for element in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if len(dict(attrs)) < len(attrs):
            self.problems.append(f"<{tag}> has an attribute twice")
        inside = [element["tag"] for element in self.open]
        element = {"tag": tag, "attrs": dict(attrs), "text": "", "inside": inside}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1]["tag"] != tag:
            self.problems.append(f"</{tag}> at {self.getpos()} closes nothing")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element["text"] += data

    def all(self, tag: str, **attrs: str) -> list[dict[str, Any]]:
        return [
            element
            for element in self.elements
            if element["tag"] == tag
            and all(element["attrs"].get(key) == value for key, value in attrs.items())
        ]

    def texts(self, tag: str, **attrs: str) -> list[str]:
        return [" ".join(element["text"].split()) for element in self.all(tag, **attrs)]


def well_formed(text: str) -> Page:
    page = Page(text)
    assert page.problems == []
    return page


def assert_runs_its_own_script_alone(page: Page) -> None:
    """The policy of a page allows its own script and nothing else, and the page loads nothing."""
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    (script,) = [script for script in page.all("script") if "type" not in script["attrs"]]
    digest = base64.b64encode(hashlib.sha256(script["text"].encode()).digest()).decode()
    allowed = policy["attrs"]["content"]
    assert "default-src 'none'" in allowed
    assert re.findall(r"script-src [^;]*", allowed) == [f"script-src 'sha256-{digest}'"]
    for element in page.elements:
        for name in ("src", "srcset", "action"):
            assert element["attrs"].get(name, "data:,").startswith("data:")
        assert element["attrs"].get("href", "#").startswith(("#", "data:"))
        assert not any(name.startswith("on") for name in element["attrs"])


def loaded_by(text: str) -> list[str]:
    """The addresses that a page refers to, after a look at everything else that could load."""
    page = well_formed(text)
    tags = {element["tag"] for element in page.elements}
    assert not tags & {"script", "iframe", "object", "embed", "img", "base", "form"}
    assert "://" not in text
    assert "@import" not in text
    assert "url(" not in re.sub(r"url\(#", "", text)
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["attrs"]["content"].startswith("default-src 'none';")
    return [
        value or ""
        for element in page.elements
        for key, value in element["attrs"].items()
        if key in LOADING
    ]
