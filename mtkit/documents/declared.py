"""The charset and the language that a translated page or book names."""

from __future__ import annotations

import re
from typing import NamedTuple

# Comments and scripts may show a tag; only those of the page count.
_TAG = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|textarea|xmp)\b.*?(?:</\1|\Z)"
    r"|<(?:\?xml\s|(?P<name>meta|html)\b)[^<>]*>",
    re.DOTALL | re.IGNORECASE,
)
_CHARSET = re.compile(r"((?:charset|encoding)\s*=\s*[\"']?\s*)(?!utf-?8\b)[\w.:-]+", re.IGNORECASE)
_LANGUAGE = re.compile(r"(\s(?:xml:)?lang\s*=\s*[\"']?)([\w-]+)", re.IGNORECASE)
# What a page says about its text, such as a description, has a name.
_NAMED = re.compile(r"\s(?:name|property|itemprop)\s*=", re.IGNORECASE)


class Languages(NamedTuple):
    """The languages of a translation; empty if they are not known."""

    source: str
    target: str

    def declared(self, code: str) -> str:
        """What stands for a language in the translation: the target for the source."""
        # On first use, because most commands need no table of languages.
        from mtkit.base.language_id import is_same_language, standard_tag

        is_known = self.source and self.target and is_same_language(code, self.source)
        return standard_tag(self.target) if is_known else code

    def page(self, html: str) -> str:
        """Translated HTML, or whole tags of it, that says that it is UTF-8 and in the target."""

        def tag(match: re.Match[str]) -> str:
            if (name := (match["name"] or "").lower()) == "html":
                return _LANGUAGE.sub(lambda x: x[1] + self.declared(x[2]), match[0])
            is_charset = match[0].startswith("<?") or (name and not _NAMED.search(match[0]))
            return _CHARSET.sub(r"\1utf-8", match[0]) if is_charset else match[0]

        return _TAG.sub(tag, html)
