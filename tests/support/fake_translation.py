"""A translator of HTML without a model: it copies words, or drops, repeats and moves them."""

import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html.parser import HTMLParser
from typing import Any, cast

from mtkit.align.aligner import Aligner
from mtkit.align.links import Alignment, word_spans
from mtkit.config import DecodeConfig
from mtkit.translate import Translation, Translator, Window, markup_windows, translate_markup

Change = Callable[[list[str]], list[int]]


def copied(words: list[str]) -> list[int]:
    """The number of each word in turn."""
    return list(range(len(words)))


def shuffled(seed: int) -> Change:
    """Words that are dropped, repeated and moved, each text in the same way every time."""

    def change(words: list[str]) -> list[int]:
        choose = random.Random(f"{seed} {' '.join(words)}")
        kept = [i for i in range(len(words)) for _ in range(choose.choice([0, 1, 1, 1, 1, 2]))]
        for _ in range(choose.choice([0, 0, 1, 3])):
            if kept:
                word = kept.pop(choose.randrange(len(kept)))
                kept.insert(choose.randint(0, len(kept)), word)
        return kept

    return change


def backwards(words: list[str]) -> list[int]:
    return [*range(len(words))][::-1]


class FakeTranslator:
    """Writes the words of a text again, as `change` says, and links them.

    Args:
        change: the words of a translation, by their numbers in the text.
        splits: whether sentences are translated one by one.
        word: the translation of a word.
        share_linked: of the words that have a link.
    """

    def __init__(
        self,
        change: Change = copied,
        *,
        splits: bool = False,
        word: Callable[[str], str] = str,
        share_linked: float = 1.0,
    ) -> None:
        self._change, self._splits, self._word = change, splits, word
        self._share = share_linked
        self.texts: list[str] = []
        self.config = DecodeConfig()
        self.numbers: list[int] = []

    def translate_windows(
        self, windows: Iterable[Window], **_: Any
    ) -> Iterator[tuple[Window, list[list[Translation]]]]:
        for window in windows:
            self.texts += window.lines
            self.numbers += [window.number_of(i) for i in range(len(window.lines))]
            yield window, [[self._translated(line)] for line in window.lines]

    def _translated(self, line: str) -> Translation:
        words = line.split()
        return Translation(" ".join(self._word(words[i]) for i in self._change(words)), 0.0, 0.0)

    def aligner(self) -> Aligner:
        return cast(Aligner, self)

    def align(
        self, sources: Sequence[str], translations: Sequence[str], **_: Any
    ) -> list[Alignment]:
        return list(map(self._aligned, sources, translations))

    def _aligned(self, source: str, translation: str) -> Alignment:
        src, tgt = word_spans(source), word_spans(translation)
        order = self._change(source.split())
        choose = random.Random(source)
        weights = {
            (i, j): 0.5
            for j, i in enumerate(order[: len(tgt)])
            if self._share == 1 or choose.random() < self._share
        }
        return Alignment(weights, src, tgt)


def translated_html(lines: Sequence[str], fake: FakeTranslator | None = None) -> list[str]:
    """The translation of some lines of HTML."""
    fake = fake or FakeTranslator()
    translator = cast(Translator, fake)
    windows = markup_windows([list(lines)])
    return [
        line for window in windows for line in translate_markup(translator, fake.aligner, window)
    ]


TAG = re.compile(r"<!--.*?-->|<(script|style)\b.*?</\1>|</?[a-zA-Z!][^<>]*>", re.DOTALL)


def tags_of(text: str) -> list[str]:
    """Tags, comments, scripts and styles, sorted."""
    return sorted(match[0] for match in TAG.finditer(text))


def with_ids(text: str) -> str:
    """With a number in each start tag, so that no two are alike."""
    numbers = itertools.count()
    return re.sub(r"<[a-z][^\s/>]*", lambda tag: f"{tag[0]} data-n='{next(numbers)}'", text)


class Tree(HTMLParser):
    """The parent of each element, and whether every end tag ends the innermost element."""

    VOID = frozenset({"area", "br", "col", "embed", "hr", "img", "input", "meta", "wbr"})
    # What may be left open.
    LOOSE = frozenset({"li", "p"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.parents: dict[str, str] = {}
        self.is_well_formed = True
        self._open: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        number = dict(attrs)["data-n"] or ""
        if tag == "li" and self._open[-1][0] == "li":
            self._open.pop()
        self.parents[number] = self._open[-1][1] if self._open else ""
        if tag not in self.VOID:
            self._open.append((tag, number))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parents[dict(attrs)["data-n"] or ""] = self._open[-1][1] if self._open else ""

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open[-1][0] in self.LOOSE - {tag}:
            self._open.pop()
        if not self._open or self._open.pop()[0] != tag:
            self.is_well_formed = False


def assert_same_elements(translation: str, source: str) -> None:
    """Every tag is there, and each element in the element that it was in."""
    assert tags_of(translation) == tags_of(source), (source, translation)
    tree = Tree(translation)
    assert tree.is_well_formed, (source, translation)
    assert tree.parents == Tree(source).parents, (source, translation)
