"""Constituency trees: bracketed files, and the line of text that a model learns to write.

The paper parses English (Section 6.3) as a translation from the words of a sentence to its tree,
after Vinyals et al. (*Grammar as a Foreign Language*, 2015). `linearise` writes a tree as words of
a target language, and `restore` makes a tree from whatever a model wrote:

    (S (NP (NNP Ann)) (VP (VBZ sleeps)) (. .))  is  S NP xNNP zNP VP xVBZ zVP xucov zS

`NP` opens a phrase, `zNP` closes it, and `xNNP` is the next word of the sentence, with its
part-of-speech tag. Words are not copied. Without tags, as in Vinyals et al., every word is `XX`,
and a restored tree has the tag `XX` for each. Everything is written with letters only, so that a
subword vocabulary has one subword for each bracket and each tag.

A `Tree` is flat, so that no depth is too deep: words, tags, and phrases as spans. Files are read as
evalb reads them (Sekine and Collins 1997): without traces and function tags.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mtkit.base.errors import MtkitError

# The tag of a word that is not known.
ANY_TAG = "XX"
# A sentence without a usable tree has one phrase.
_FLAT = "S"
_TRACE = "-NONE-"
# Brackets around a whole tree that are no phrase; a label is missing in the Penn Treebank's files.
_WRAPPERS = {"", "TOP", "ROOT", "S1"}
_TOP = "TOP"

# Not Python's \s: words may have the spaces of Unicode within them.
_SPACE = " \\t\\n\\r\\f\\v"
_PART = re.compile(rf"[()]|[^{_SPACE}()]+")
_SPACES = re.compile(f"[{_SPACE}]+")


class Phrase(NamedTuple):
    """A labelled span of words: from `start` to before `end`, never empty."""

    label: str
    start: int
    end: int


@dataclass(frozen=True)
class Tree:
    """A constituency tree.

    Attributes:
        words: of the sentence, at least one, with brackets as `-LRB-` and `-RRB-`.
        tags: the part-of-speech tag of each word.
        phrases: each before those within it, and in the order of the sentence. The first one is
            the root; there is none if the tree is a single tagged word.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    phrases: tuple[Phrase, ...]

    @classmethod
    def flat(cls, words: Sequence[str]) -> Tree:
        """One phrase `S` over all words."""
        tags = (ANY_TAG,) * len(words)
        return cls(tuple(words), tags, (Phrase(_FLAT, 0, len(words)),))

    @property
    def root(self) -> str:
        """The label of the root."""
        return self.phrases[0].label if self.phrases else self.tags[0]

    @property
    def sentence(self) -> str:
        """The words, joined by spaces."""
        return " ".join(self.words)

    def __str__(self) -> str:
        """The tree in brackets, on one line, as the treebank writes it."""
        leaves = [f"({tag} {word})" for tag, word in zip(self.tags, self.words, strict=True)]
        parts = _in_order(self.phrases, leaves, lambda label: f"({label}", lambda label: ")")
        return " ".join(parts).replace(" )", ")")


def _in_order(
    phrases: Iterable[Phrase],
    leaves: Iterable[str],
    opening: Callable[[str], str],
    closing: Callable[[str], str],
) -> list[str]:
    """The openings and closings of the phrases, by their labels, and the leaves between them."""
    parts: list[str] = []
    begun: list[Phrase] = []
    rest = iter(phrases)
    phrase = next(rest, None)
    for index, leaf in enumerate(leaves):
        while phrase is not None and phrase.start == index:
            parts.append(opening(phrase.label))
            begun.append(phrase)
            phrase = next(rest, None)
        parts.append(leaf)
        while begun and begun[-1].end == index + 1:
            parts.append(closing(begun.pop().label))
    return parts


# ---------------------------------------------------------------------------------------------
# Bracketed files


def parse_trees(lines: Iterable[str], *, name: str, first_line: int = 1) -> Iterator[Tree]:
    """The trees of a bracketed text, one per line or spread over several lines.

    As evalb reads them: traces (`-NONE-`), and phrases of nothing else, are left out, and labels
    end before their function tags (`NP-SBJ`, `NP=2`). A bracket around the whole tree without a
    label, or labelled TOP, ROOT or S1, is left out too; with several parts it is TOP, which does
    not count in scores. Blank lines are ignored. In a tree of several lines, the second and later
    lines begin with a space or with `)`: a line that begins with `(` begins a tree, so a missing
    bracket is found where it is missing. Messages have `name` and the number of the line.

    Raises:
        MtkitError: with the line, for brackets that are unbalanced, empty or without label, a word
            without tag, and a tree without words.
    """
    reader = None
    for number, line in enumerate(lines, first_line):
        if reader is not None and line.startswith("("):
            raise _unclosed(name, reader.line)
        for part in _PART.findall(line):
            if reader is None:
                reader = _TreeReader(number)
            try:
                reader.add(part)
                if reader.is_complete:
                    yield reader.tree()
                    reader = None
            except _MalformedError as error:
                raise MtkitError(f"{name}, line {number}: {error}") from None
    if reader is not None:
        raise _unclosed(name, reader.line)


def _unclosed(name: str, line: int) -> MtkitError:
    return MtkitError(
        f"{name}, line {line}: unbalanced brackets: the tree that begins here is not closed"
    )


class _MalformedError(Exception):
    """What is wrong with a tree, without its place."""


class _TreeReader:
    """Reads one tree, part by part; `line` is where it begins."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.is_complete = False
        self._words: list[str] = []
        self._tags: list[str] = []
        self._phrases: list[Phrase] = []
        # Indices of the phrases that are open.
        self._open: list[int] = []
        # The newest bracket, until it is known whether it is a phrase: its label, and its word.
        self._label: str | None = None
        self._word: str | None = None
        self._is_new = False

    def add(self, part: str) -> None:
        """Read a bracket, a label or a word."""
        if part == "(":
            if self._word is not None:
                raise _MalformedError(f"a bracket after the word {self._word!r}")
            self._begin_phrase()
            self._label, self._is_new = "", True
        elif part == ")":
            self._close()
        elif self._is_new:
            self._label, self._is_new = part, False
        elif self._label is None:
            raise _MalformedError(f"{part!r} has no part-of-speech tag, as in (NN {part})")
        elif self._word is not None:
            raise _MalformedError(f"two words in a bracket, {self._word!r} and {part!r}")
        else:
            self._word = part

    def _begin_phrase(self) -> None:
        """The bracket before this one is a phrase, because it has another one in it."""
        if self._label is None:
            return
        if not self._label and self._open:
            raise _MalformedError("a bracket without a label")
        self._open.append(len(self._phrases))
        self._phrases.append(Phrase(_without_function(self._label), len(self._words), -1))

    def _close(self) -> None:
        if self._label is not None:
            # Not a phrase: the bracket of a word.
            if self._word is None:
                raise _MalformedError(f"an empty bracket ({self._label})")
            if self._label != _TRACE:
                self._words.append(self._word)
                self._tags.append(self._label)
            self._label = self._word = None
            self._is_new = False
        elif not self._open:
            raise _MalformedError("unbalanced brackets: ) without (")
        else:
            index = self._open.pop()
            label, start, _ = self._phrases[index]
            if start == len(self._words):
                # Only traces; what is within it is gone already, so this is the last one.
                self._phrases.pop()
            else:
                self._phrases[index] = Phrase(label, start, len(self._words))
        self.is_complete = not self._open

    def tree(self) -> Tree:
        """The complete tree."""
        if not self._words:
            raise _MalformedError("an empty tree")
        phrases = self._phrases
        while phrases and phrases[0].label in _WRAPPERS:
            if len(self._words) > 1 and (len(phrases) == 1 or phrases[1][1:] != phrases[0][1:]):
                # It has several parts, which need a root.
                phrases[0] = phrases[0]._replace(label=_TOP)
                break
            del phrases[0]
        return Tree(tuple(self._words), tuple(self._tags), tuple(phrases))


@functools.cache
def _without_function(label: str) -> str:
    # A label of nothing else, such as "-", stays.
    return re.split("[-=]", label, maxsplit=1)[0] or label


# ---------------------------------------------------------------------------------------------
# The language of trees


class Restored(NamedTuple):
    """The tree, and whether the text did not describe one over the given number of words."""

    tree: Tree
    repaired: bool


def linearise(tree: Tree, *, tags: bool) -> str:
    """The tree as a line of text: `NP` opens a phrase, `zNP` closes it, and `xNN` is a word.

    With `tags` false every word is `XX`. A label or tag is written with letters only: a capital
    stands for itself, and any other character is its code point in hexadecimal, with the digits a
    to p, between `u` and `v`. So no label can be taken for a closing or a word, whatever the labels
    of a treebank are.
    """
    leaves = [_WORD + _spelled(tag) if tags else ANY_TAG for tag in tree.tags]
    return " ".join(_in_order(tree.phrases, leaves, _spelled, _closing))


def restore(text: str, words: Sequence[str]) -> Restored:
    """The tree that a linearised text describes, over exactly these words.

    It never fails. What makes no sense is repaired:

    - A word beyond the last one, an opening after the last word, an empty phrase, and text that is
      none of the three, are left out.
    - A closing also closes the phrases that are open within its own; without an open phrase of its
      label it is left out. The root is not closed before the last word.
    - At the end of the text, words that are left belong to the innermost open phrase, and
      everything that is open is closed.
    - Words outside of a phrase get the root `S`.

    Args:
        text: as `linearise` writes it, or any other text.
        words: of the sentence, at least one; round brackets in them are escaped.
    """
    if not words:
        raise ValueError("a tree has at least one word")
    builder = _TreeBuilder(len(words))
    for part in text.split():
        bracket = read_bracket(part)
        if bracket is None:
            builder.repaired = True
        elif bracket.kind == "word":
            builder.add_word(bracket.label)
        elif bracket.kind == "open":
            builder.open(bracket.label)
        else:
            builder.close(bracket.label)
    tags, phrases = builder.finished()
    return Restored(Tree(tuple(map(escaped, words)), tags, phrases), builder.repaired)


class Bracket(NamedTuple):
    """A part of a linearised tree; the label of a word is its tag."""

    kind: Literal["open", "close", "word"]
    label: str


@functools.lru_cache(1 << 16)
def read_bracket(part: str) -> Bracket | None:
    """What a part of a linearised text means; None if it means nothing."""
    if part == ANY_TAG:
        return Bracket("word", ANY_TAG)
    kind = _KINDS.get(part[:1], "open")
    spelling = part if kind == "open" else part[1:]
    if not _SPELLING.fullmatch(spelling):
        return None
    try:
        label = _CODED.sub(lambda code: chr(int(code[1].translate(_TO_HEX), 16)), spelling)
    except (ValueError, OverflowError):  # not a code point
        return None
    # One label has one spelling, and can be read again from a file.
    if not label.isprintable() or not _PART.fullmatch(label) or _spelled(label) != spelling:
        return None
    if kind != "word" and label != _without_function(label):
        return None
    return Bracket(kind, label)


_WORD, _CLOSING = "x", "z"
_KINDS: dict[str, Literal["open", "close", "word"]] = {_WORD: "word", _CLOSING: "close"}
_SPELLING = re.compile("(?:[A-Z]|u[a-p]+v)+")
_CODED = re.compile("u([a-p]+)v")
_TO_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_TO_HEX = str.maketrans("abcdefghijklmnop", "0123456789abcdef")


def _closing(label: str) -> str:
    return _CLOSING + _spelled(label)


@functools.cache
def _spelled(label: str) -> str:
    if label == ANY_TAG:  # which is a word
        return _coded(label[0]) + label[1:]
    return "".join(c if "A" <= c <= "Z" else _coded(c) for c in label)


def _coded(character: str) -> str:
    return f"u{ord(character):x}v".translate(_TO_LETTERS)


class _TreeBuilder:
    """Makes a tree of a number of words from openings, closings and words in any order."""

    def __init__(self, words: int) -> None:
        self.repaired = False
        self._words = words
        self._tags: list[str] = []
        self._phrases: list[Phrase] = []
        # Indices of the phrases that are open.
        self._open: list[int] = []

    @property
    def _placed(self) -> int:
        return len(self._tags)

    def open(self, label: str) -> None:
        if self._placed == self._words:
            self.repaired = True
        else:
            self._open.append(len(self._phrases))
            self._phrases.append(Phrase(label, self._placed, -1))

    def add_word(self, tag: str) -> None:
        if self._placed == self._words:
            self.repaired = True
            return
        if not self._open and self._words > 1:
            self.repaired = True
            self.open(_FLAT)
        self._tags.append(tag)

    def close(self, label: str) -> None:
        depths = [d for d, at in enumerate(self._open) if self._phrases[at].label == label]
        if not depths:
            self.repaired = True
            return
        self.repaired |= depths[-1] < len(self._open) - 1
        if depths[-1] == 0 and self._placed < self._words:
            # The root stays open; it cannot be empty, because words follow.
            self.repaired = True
            depths[-1] = 1
        while len(self._open) > depths[-1]:
            self._close_innermost()

    def finished(self) -> tuple[tuple[str, ...], tuple[Phrase, ...]]:
        if self._placed < self._words:
            self.repaired = True
            if not self._phrases:
                self.open(_FLAT)
            self._tags += [ANY_TAG] * (self._words - self._placed)
        while self._open:
            self.repaired = True
            self._close_innermost()
        return tuple(self._tags), tuple(self._phrases)

    def _close_innermost(self) -> None:
        index = self._open.pop()
        label, start, _ = self._phrases[index]
        if start == self._placed:
            # Empty; phrases within it were empty too, so this is the last one.
            self.repaired = True
            self._phrases.pop()
        else:
            self._phrases[index] = Phrase(label, start, self._placed)


# ---------------------------------------------------------------------------------------------
# Sentences


def split_words(line: str) -> list[str]:
    """The words of a tokenised sentence, which are separated by spaces."""
    return [escaped(word) for word in _SPACES.split(line) if word]


def treebank_words(line: str) -> list[str]:
    r"""The words of a sentence in plain text, as the Penn Treebank has them.

    After the rules of its tokeniser (MacIntyre 1995): punctuation, brackets and quotes are words,
    quotes are written as \`\` and '', *don't* is *do n't*, and only the last full stop of the line
    ends a sentence. Hyphens and slashes stay in their word; some newer treebanks split them, so
    give their sentences as words.
    """
    for pattern, replacement in _TREEBANK_RULES:
        line = pattern.sub(replacement, line)
    return [_BRACES.get(word, word) for word in split_words(line)]


_BRACES = {"{": "-LCB-", "}": "-RCB-"}
_TREEBANK_RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        ("[\u201c\u201d\u201e]", '"'),
        ("[\u2018\u2019]", "'"),
        # A quote is an opening one at the beginning, and after a space or a bracket.
        (r'(^|[\s(\[{<])"', r"\1 `` "),
        ('"', " '' "),
        (r"\.\.\.|\u2026", " ... "),
        (r"([,:])(?!\d)", r" \1 "),
        (r"[;@#$%&?!\[\](){}<>]|--", r" \g<0> "),
        # The last full stop, before quotes and brackets.
        (r"([^.\s])\.(?=[\s\])}>'\"]*$)", r"\1 . "),
        (r"([^'\s])'(?=\s|$)", r"\1 ' "),
        (r"(?i)([^'\s])('[smd]|'ll|'re|'ve|n't)(?=\s|$)", r"\1 \2 "),
        (r"(?i)\b(can)(not)\b", r"\1 \2"),
        (r"(?i)\b(gon|wan)(na)\b", r"\1 \2"),
        (r"(?i)\b(got)(ta)\b", r"\1 \2"),
    )
]


def model_source(words: Iterable[str]) -> str:
    """What a model reads for the words of a sentence: one word of its tokenizer for each.

    The words are separated by spaces. A tokenizer also begins a word after the spaces of Unicode,
    and drops invisible characters. So within a word, spaces are underscores and invisible
    characters are left out; a word of nothing else is an underscore.
    """
    return " ".join(map(_unbroken, words))


@functools.lru_cache(1 << 16)
def _unbroken(word: str) -> str:
    if word.isascii() and word.isprintable():
        return word
    # The tokenizer normalises; some characters, such as U+00B4, then begin with a space. U+2581 and
    # U+FFFD are spaces to SentencePiece.
    text = re.sub("[\u2581\ufffd]", " ", unicodedata.normalize("NFKC", word))
    visible = [c for c in text if c.isspace() or unicodedata.category(c) not in ("Cc", "Cf")]
    unbroken = "_".join("".join(visible).split()) or "_"
    return word if unbroken == text else unbroken


def escaped(word: str) -> str:
    """A word with round brackets as the treebank writes them, `-LRB-` and `-RRB-`."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")
