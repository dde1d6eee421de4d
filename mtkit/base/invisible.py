"""Invisible characters that mean nothing, which are dropped before subwords are looked up.

They are the default-ignorable characters of Unicode (DerivedCoreProperties.txt), such as the soft
hyphen, U+200B and the marks of writing direction, which order the letters on a line and not in the
text; also U+FFF9 to U+FFFB. Some stay where a script or an emoji needs them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# With the variants of Chinese characters and of signs.
_NEVER_NEEDED = (
    "\u00ad\u034f\u061c\u17b4\u17b5\u200e\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0d\ufeff"
    "\ufff0-\ufffb"
)
# What may be dropped. Each range beyond U+FFFF makes the search slower, so it is one.
IGNORABLE = (
    f"{_NEVER_NEEDED}\u115f\u1160\u180b-\u180f\u200b-\u200d\u3164\ufe0e\ufe0f\uffa0"
    "\U0001bca0-\U000e0fff"
)
_BEYOND = "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e001f\U000e0080-\U000e0fff"
_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001fbff"
)
# Scripts whose letters join, from Arabic to Mongolian, and Korean letters.
_JOINED = (
    "\u0600-\u0dff\u0f00-\u109f\u1100-\u115e\u1161-\u11ff\u1700-\u1cff\u2d30-\u2d7f\u3131-\u3163"
    "\u3165-\u318e\ua800-\uabff\ud7b0-\ud7ff\ufb50-\ufdff\ufe70-\ufefc\uffa1-\uffdc"
    "\U00010800-\U00011fff\U0001e900-\U0001e95f"
)
# Scripts without spaces whose lines end between words: class SA of UAX #14, Balinese, Javanese.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff"
    "\uaa60-\uaadf\U00011700-\U0001174f"
)
_MONGOLIAN = "\u1800-\u180a\u1810-\u18af\U00011660-\U0001166f"
# The characters of a flag such as Scotland's, at most six.
_TAG = "\U000e0020-\U000e007f"
_OF_NO_FLAG = "".join(f"(?<!\U0001f3f4[{_TAG}]{{{count}}}.)" for count in range(6))
# A neighbour may be dropped before. U+200B is a space between the words of unspaced scripts, as in
# SentencePiece; elsewhere a line may be broken there. U+200C and U+200D join or separate letters
# and emoji, and in German or English only the parts of ligatures.
_DROPPED = rf"""[{IGNORABLE}](?:
        (?<=[{_NEVER_NEEDED}{_BEYOND}])
      | (?<=\u200b)(?<![{_UNSPACED}{_NEVER_NEEDED}].)(?![{_UNSPACED}{_NEVER_NEEDED}])
      | (?<=[\u115f\u1160\u200c\u200d\u3164\uffa0])
        (?<![{_JOINED}{_EMOJI}\ufe0e\ufe0f{_NEVER_NEEDED}].)(?![{_JOINED}{_EMOJI}{_NEVER_NEEDED}])
      | (?<=[\ufe0e\ufe0f])(?<![{_EMOJI}].)(?:(?<![#*0-9].)|(?!\u20e3))
      | (?<=[\u180b-\u180f])(?<![{_MONGOLIAN}].)(?<![{_MONGOLIAN}][\u180b-\u180f].)
      | (?<=[{_TAG}]){_OF_NO_FLAG}
    )"""


def visible(text: str) -> str:
    """A text without its invisible characters that mean nothing."""
    if text.isascii():
        return text
    while (shown := re.sub(_DROPPED, "", text, flags=re.VERBOSE)) != text:
        text = shown
    return text


def bounds_in(text: str, shown: str) -> Sequence[int]:
    """(n + 1,): the places in a text before, between and after the n characters of `visible(text)`.

    What was dropped belongs to the character before it; between two spaces it is before both.
    """
    at = -1
    bounds = [at := text.index(character, at + 1) for character in shown]
    for i in range(len(shown) - 1, 0, -1):
        if shown[i - 1 : i + 1] == "  ":
            bounds[i - 1] = bounds[i]
    return [0, *bounds[1:], len(text)]
