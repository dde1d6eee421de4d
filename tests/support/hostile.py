"""Lines that nobody writes and that come all the same."""

import random
import sys
import unicodedata
from collections.abc import Callable, Iterator

# Every code point by category, without surrogates: those are not text, only bytes.
_CATEGORIES: dict[str, list[str]] = {}
for _point in range(sys.maxunicode + 1):
    _CATEGORIES.setdefault(unicodedata.category(chr(_point)), []).append(chr(_point))
del _CATEGORIES["Cs"]
_CATEGORIES["Cc"].remove("\n")

SPACES = "\t\v\f\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2003\u2009\u2028\u2029\u202f\u205f\u3000"
SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", "<0x0A>", "<0x00>", "▁", "▁▁", "<0x", "⁇", "\\n", "#"]
WORDS = ["one", "two", "three", "a", "man", "in", "the", "street", "fünf", "."]
EMOJI = (
    "👩\u200d👩\u200d👧\u200d👦",
    "🏳\ufe0f\u200d🌈",
    "👍🏿",
    "🇩🇪",
    "1\ufe0f\u20e3",
    "\u200d",
    "\ufe0f",
)


def _words(rng: random.Random, most: int = 6) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def _category(rng: random.Random) -> bytes:
    points = _CATEGORIES[rng.choice(sorted(_CATEGORIES))]
    text = "".join(rng.choice(points) for _ in range(rng.randint(1, 12)))
    return f"{_words(rng, 2)} {text}".encode()


def _mixed(rng: random.Random) -> bytes:
    points = (rng.choice(_CATEGORIES[rng.choice(sorted(_CATEGORIES))]) for _ in range(12))
    return "".join(points).encode()


def _blank(rng: random.Random) -> bytes:
    return "".join(rng.choice(SPACES) for _ in range(rng.randint(0, 5))).encode()


def _separated(rng: random.Random) -> bytes:
    return rng.choice(SPACES + "\0\b\x1b\r\ufeff\u200b").join([_words(rng), _words(rng)]).encode()


def _begun(rng: random.Random) -> bytes:
    return (rng.choice("\ufeff\ufffe\0\r\u0301\u202e\u2066") + _words(rng)).encode()


def _right_to_left(rng: random.Random) -> bytes:
    return f"{_words(rng, 2)} שלום \u202eعالم\u202c {_words(rng, 2)}".encode()


def _combining(rng: random.Random) -> bytes:
    marks = _CATEGORIES["Mn"]
    return ("a" + "".join(rng.choice(marks) for _ in range(rng.choice([1, 3, 20])))).encode()


def _emoji(rng: random.Random) -> bytes:
    return "".join(rng.choice(EMOJI) for _ in range(rng.randint(1, 4))).encode()


def _special(rng: random.Random) -> bytes:
    parts = [rng.choice([*SPECIAL, "one"]) for _ in range(rng.randint(1, 4))]
    return rng.choice(["", " "]).join(parts).encode()


def _crlf(rng: random.Random) -> bytes:
    return rng.choice([_words(rng), ""]).encode() + b"\r" * rng.randint(1, 2)


KINDS: list[Callable[[random.Random], bytes]] = [
    *(_category, _mixed, _blank, _separated, _begun),
    *(_right_to_left, _combining, _emoji, _special, _crlf),
]
# What is no UTF-8: a stray byte, cut short, too long, surrogates alone and in a pair, beyond the
# last code point.
INVALID = [b"\xff", b"\x80", b"\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80", b"\xed\xbf\xbf"]
INVALID += [b"\xed\xa0\xbd\xed\xb8\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80"]


def hostile_lines(count: int, seed: int, *, long_every: int = 1000) -> Iterator[bytes]:
    """So many lines without their ends, the same for the same seed; one in a while is very long.

    The very long ones are, in turn, a letter with 1,000 marks, 10,000 words, and 30,000 letters.
    """
    rng = random.Random(seed)
    for number in range(1, count + 1):
        if number % long_every == 0:
            marks = "".join(rng.choice(_CATEGORIES["Mn"]) for _ in range(1000))
            longest = ["a" + marks, "one " * 10_000, "x" * 30_000]
            yield longest[number // long_every % 3].encode()
        else:
            yield KINDS[number % len(KINDS)](rng)
