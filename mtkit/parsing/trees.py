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
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from mtkit.base.errors import MtkitError
from mtkit.base.invisible import visible

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
_NAME = re.compile(f"[^{_SPACE}()]+")
# An opening with its label, a closing, or a word.
_BRACKETS = re.compile(rf"\([{_SPACE}]*([^{_SPACE}()]*)|\)|[^{_SPACE}()]+")
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
    # The first phrase is the last one in the list.
    rest = [*phrases][::-1]
    for index, leaf in enumerate(leaves):
        while rest and rest[-1].start == index:
            begun.append(rest.pop())
            parts.append(opening(begun[-1].label))
        parts.append(leaf)
        while begun and begun[-1].end == index + 1:
            parts.append(closing(begun.pop().label))
    return parts


class _Growing:
    """A tree from left to right: tags, phrases, and indices of the open ones, outermost first."""

    def __init__(self) -> None:
        self.tags: list[str] = []
        self.phrases: list[Phrase] = []
        self.open: list[int] = []

    def begin(self, label: str) -> None:
        self.open.append(len(self.phrases))
        self.phrases.append(Phrase(label, len(self.tags), -1))

    def end(self) -> bool:
        """Close the innermost phrase; if it is empty it is left out, and this is False."""
        index = self.open.pop()
        label, start, _ = self.phrases[index]
        if start == len(self.tags):
            # What was within it was empty too, so this is the last one.
            self.phrases.pop()
            return False
        self.phrases[index] = Phrase(label, start, len(self.tags))
        return True


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
    begun: list[str] = []
    for number, line in enumerate(itertools.chain(lines, ["("]), first_line):
        if line.startswith("("):
            text, first = "\n".join(begun), number - len(begun)
            try:
                yield from _trees_of(text)
            except _MalformedError as error:
                reason, at = error.args
                wrong = first + text.count("\n", 0, at)
                raise MtkitError(f"{name}, line {wrong}: {reason}") from None
            begun = []
        begun.append(line)


class _MalformedError(Exception):
    """What is wrong with a tree, and the character at which that is."""


def _trees_of(text: str) -> Iterator[Tree]:
    """The trees of a text, of which none is left open."""
    words: list[str] = []
    tree = _Growing()
    begun = None
    # The newest bracket, until it is known whether it is a phrase: its label, and its word.
    label = word = None
    for match in _BRACKETS.finditer(text):
        part, at = match[0], match.start()
        begun = at if begun is None else begun
        if word is not None and part != ")":
            raise _MalformedError(f"{part!r} in the bracket of the word {word!r}", at)
        if part.startswith("("):
            if label == "" and tree.open:
                raise _MalformedError("a bracket without a label", at)
            if label is not None:
                tree.begin(_without_function(label))
            label = match[1]
        elif part != ")":
            if label is None:
                raise _MalformedError(f"{part!r} has no part-of-speech tag, as in (NN {part})", at)
            word = part
        elif label is not None:
            if word is None:
                raise _MalformedError(f"an empty bracket ({label})", at)
            if label != _TRACE:
                words.append(word)
                tree.tags.append(label)
            label = word = None
        elif tree.open:
            tree.end()
        else:
            raise _MalformedError("unbalanced brackets: ) without (", at)
        if part == ")" and not tree.open:
            if not words:
                raise _MalformedError("an empty tree", at)
            yield Tree(tuple(words), tuple(tree.tags), _without_wrappers(tree.phrases, len(words)))
            words, tree, begun = [], _Growing(), None
    if begun is not None:
        raise _MalformedError("unbalanced brackets: the tree that begins here is not closed", begun)


def _without_wrappers(phrases: list[Phrase], words: int) -> tuple[Phrase, ...]:
    while phrases and phrases[0].label in _WRAPPERS:
        if words > 1 and (len(phrases) == 1 or phrases[1][1:] != phrases[0][1:]):
            # It has several parts, which need a root.
            phrases[0] = phrases[0]._replace(label=_TOP)
            break
        del phrases[0]
    return tuple(phrases)


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
    parts = _in_order(tree.phrases, leaves, _spelled, lambda label: _CLOSING + _spelled(label))
    return " ".join(parts)


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

    There is at least one word; round brackets in words are escaped.
    """
    tree, repaired = _Growing(), False
    for part in text.split():
        kind, label = read_bracket(part) or ("", "")
        is_complete = len(tree.tags) == len(words)
        if kind == "close":
            places = range(len(tree.open) - 1, -1, -1)
            outer = next((i for i in places if tree.phrases[tree.open[i]].label == label), None)
            repaired |= outer != len(tree.open) - 1 or (outer == 0 and not is_complete)
            if outer == 0 and not is_complete:
                # The root stays open; it cannot be empty, because words follow.
                outer = 1
            while outer is not None and len(tree.open) > outer:
                repaired |= not tree.end()
        elif not kind or is_complete:
            repaired = True
        elif kind == "open":
            tree.begin(label)
        else:
            if not tree.open and len(words) > 1:
                repaired = True
                tree.begin(_FLAT)
            tree.tags.append(label)
    repaired |= bool(tree.open) or len(tree.tags) < len(words)
    if not tree.tags and not tree.phrases:
        tree.begin(_FLAT)
    tree.tags += [ANY_TAG] * (len(words) - len(tree.tags))
    while tree.open:
        tree.end()
    restored = Tree(tuple(map(escaped, words)), tuple(tree.tags), tuple(tree.phrases))
    return Restored(restored, repaired)


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
    if not label.isprintable() or not _NAME.fullmatch(label) or _spelled(label) != spelling:
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


@functools.cache
def _spelled(label: str) -> str:
    if label == ANY_TAG:  # which is a word
        return _coded(label[0]) + label[1:]
    return "".join(c if "A" <= c <= "Z" else _coded(c) for c in label)


def _coded(character: str) -> str:
    return f"u{ord(character):x}v".translate(_TO_LETTERS)


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
        line = re.sub(pattern, replacement, line)
    return [_BRACES.get(word, word) for word in split_words(line)]


_BRACES = {"{": "-LCB-", "}": "-RCB-"}
_TREEBANK_RULES = (
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


def model_source(words: Iterable[str]) -> str:
    """What a model reads for the words of a sentence: one word of its tokenizer for each.

    The words are separated by spaces. A tokenizer also begins a word after the spaces of Unicode,
    and drops invisible characters. So within a word, spaces are underscores and invisible
    characters are left out; a word of nothing else is an underscore.
    """
    return " ".join(map(_unbroken, words))


@functools.lru_cache(1 << 16)
def _unbroken(word: str) -> str:
    word = visible(word)
    if word and word.isascii() and word.isprintable():
        return word
    # The tokenizer normalises; some characters, such as U+00B4, then begin with a space. U+2581 and
    # U+FFFD are spaces to SentencePiece.
    text = re.sub("[\u2581\ufffd]", " ", unicodedata.normalize("NFKC", word))
    shown = [c for c in text if c.isspace() or unicodedata.category(c) not in ("Cc", "Cf")]
    unbroken = "_".join("".join(shown).split()) or "_"
    return word if unbroken == text else unbroken


def escaped(word: str) -> str:
    """A word with round brackets as the treebank writes them, `-LRB-` and `-RRB-`."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")
