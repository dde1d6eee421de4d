"""Character references of HTML and XML, such as `&amp;`, as their characters."""

import html
import re

# No character has so large a number, and `html.unescape` fails at 4,301 digits.
_TOO_LARGE = re.compile("&#(?=[0-9]{9})")


def unescape(text: str) -> str:
    """`html.unescape`, which leaves numbers of nine digits and more as they are."""
    return html.unescape(_TOO_LARGE.sub("&amp;#", text))
