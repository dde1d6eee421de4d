"""Translation of HTML: tags, comments and placeholders keep their places in the text.

HTML is read as a browser reads it, over the ends of lines (`markup_reading`). It is cut at its
block-level tags into segments. The tags inside a segment are taken out (`markup_segments`), its
text is translated, and the tags are put back by the word alignment: an element stands around the
words that translate its words, in the translation of the sentences that it is in
(`markup_placing`). No tag is lost or made up, elements stay nested as they were, and none comes
into another that was beside it.

The number of lines stays. Outside of block-level elements every line is a text of its own, which is
translated at once. Inside, a line end is white space: the translation of a text of several lines
gets as many line ends instead of spaces, each as far along in its sentence as in the source. A
window of lines ends where no text is unfinished (`markup_windows`).

Placeholders and addresses (`base.copied`) are text for the model. If the translation does not have
each of them again, the text is translated without them, and they are put back as tags are. If they
still differ, the text is copied with a warning. A line of plain text whose translation lost some
is treated in the same way (`with_placeholders`); all other lines stay as they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from mtkit.base.character_references import unescape
from mtkit.base.copied import may_have_copied_parts
from mtkit.translate.doubts import IncompleteTranslations, place_of
from mtkit.translate.html.markup_marks import marked
from mtkit.translate.html.markup_placing import with_markup
from mtkit.translate.html.markup_reading import HTML, Item, MarkupRules, Reader, without_cdata
from mtkit.translate.html.markup_segments import Segment, escaped, parts_of, placeholders_of
from mtkit.translate.reading import WINDOW_CHARACTERS, Window
from mtkit.translate.requests import Translation
from mtkit.translate.sentence_reader import align_by_sentence
from mtkit.translate.translator import Translator

if TYPE_CHECKING:
    from mtkit.align import Aligner, Alignment

log = logging.getLogger(__name__)

_DIFFER = "line %d: the translation has other placeholders than the text%s"
Result = TypeVar("Result")
# As from `Translator.translate_windows`.
Translated = tuple[Window, list[list[Translation]]]
# Whether a translation is taken: from the number of its line, the text, the translation as HTML
# and as the decoder made it.
Review = Callable[[int, str, str, Translation], bool]


class MarkupLines(list[str]):
    """Lines of HTML, and the pieces that were read of them."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Item] = []

    @property
    def parts(self) -> list[str | Segment]:
        """Segments to translate, and what is copied between them."""
        return list(parts_of(self.items))


def markup_windows(
    windows: Iterable[list[str]], first_line: int = 1, rules: MarkupRules = HTML
) -> Iterator[MarkupLines]:
    """The lines in other windows: none ends in a sentence, a tag or an element that is copied.

    These lines wait for the next window; after very many characters they are divided. An empty
    window stays one: there may be no more lines for a while.
    """
    reader = Reader(first_line, rules=rules)
    ready, waiting = MarkupLines(), MarkupLines()
    characters = 0
    for window in windows:
        for line in window:
            waiting.append(line)
            waiting.items += reader.read(f"{line}\n")
            characters += len(line) + 1
            is_long = characters > WINDOW_CHARACTERS
            if is_long:
                waiting.items += reader.flush()
            if not reader.is_open:
                ready += waiting
                ready.items += waiting.items
                waiting = MarkupLines()
            if is_long:
                yield ready
                ready, characters = MarkupLines(), 0
        if ready or not window:
            yield ready
            ready, characters = MarkupLines(), sum(map(len, waiting)) + len(waiting)
    waiting.items += reader.flush()
    reader.warn_of_end()
    if waiting:
        yield waiting


class MarkupPairs(NamedTuple):
    """Texts and their translations, whose words are to be aligned; numbers are of their lines."""

    sources: list[str]
    translations: list[Translation]
    numbers: list[int]

    def aligned(self, aligner: Aligner) -> list[Alignment]:
        """The word alignment of each text, by characters in scripts without spaces."""
        from mtkit.align import unit_spans

        texts = self.sources, self.translations
        return align_by_sentence(aligner, *texts, numbers=self.numbers, words=unit_spans)


def translate_markup(
    translator: Translator,
    aligner: Callable[[], Aligner],
    lines: Sequence[str],
    *,
    doubts: IncompleteTranslations | None = None,
    review: Review | None = None,
) -> list[str]:
    """Translate lines of HTML, perhaps of `markup_windows`; no text goes on after the last one.

    Words are aligned only if they must be, by what `aligner` makes. `review` is asked for each
    segment with a translation; False leaves it as it was.
    """
    copies = translator.config.copy_numbers
    steps = markup_steps(lines, copies=copies, doubts=doubts, review=review)
    translated, _ = answered(steps, translator, aligner, doubts=doubts)
    return translated


def answered(
    steps: Generator[Window | MarkupPairs, Any, Result],
    translator: Translator,
    aligner: Callable[[], Aligner],
    *,
    n_best: int = 1,
    doubts: IncompleteTranslations | None = None,
) -> Result:
    """What a generator such as `markup_steps` returns when it was given all that it asks for."""
    answer: Any = None
    while True:
        try:
            wanted = steps.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        if isinstance(wanted, Window):
            windows = translator.translate_windows([wanted], n_best=n_best, doubts=doubts)
            ((_, answer),) = windows
        else:
            answer = wanted.aligned(aligner())


def markup_steps(
    lines: Sequence[str],
    *,
    copies: bool = True,
    doubts: IncompleteTranslations | None = None,
    rules: MarkupRules = HTML,
    review: Review | None = None,
) -> Generator[Window | MarkupPairs, Any, tuple[list[str], list[Translation]]]:
    """As `translate_markup`, without a translator: a generator that asks its caller for the rest.

    It yields a window, and must be sent the translations of each line of it, the best first; or
    pairs, and must be sent their alignments. With `copies`, text without letters is copied.

    Returns:
        The translated lines, and the translations that are in them.
    """
    parts = lines.parts if isinstance(lines, MarkupLines) else parse(lines, rules=rules)
    for i, part in enumerate(parts):
        if copies and isinstance(part, Segment) and part.is_copied:
            parts[i] = part.raw
            if doubts is not None:
                doubts.copied += 1
    segments = [part for part in parts if isinstance(part, Segment)]
    given = list(segments)
    segments = list(map(marked, segments))

    def translated(wanted: Sequence[int]) -> Generator[Window, Any, list[Translation]]:
        if not wanted:
            return []
        texts = [segments[i].text for i in wanted]
        results = yield Window(1, texts, numbers=[segments[i].number for i in wanted])
        return [best for best, *_ in results]

    placeholders = [segment.placeholders() for segment in segments]
    # The words of a placeholder with spaces would be translated one by one.
    spaced = [i for i, marks in enumerate(placeholders) if any(" " in raw for raw, _ in marks)]
    for i in spaced:
        segments[i] = segments[i].without_placeholders()
    translations = yield from translated(range(len(segments)))
    again = [
        i
        for i in range(len(segments))
        if i not in spaced and not segments[i].is_in(translations[i].text)
    ]
    for i in again:
        segments[i] = segments[i].without_placeholders()
    second = yield from translated(again)
    for i, translation in zip(again, second, strict=True):
        translations[i] = translation
    results = yield from placed(segments, translations)
    results = [
        _checked(segment, result, doubts) if marks or may_have_copied_parts(best.text) else result
        for segment, result, marks, best in zip(
            segments, results, placeholders, translations, strict=True
        )
    ]
    if review is not None:
        results = [
            result if review(segment.number, segment.text, result, best) else segment.raw
            for segment, result, best in zip(given, results, translations, strict=True)
        ]
    rendered = iter(results)
    whole = "".join(part if isinstance(part, str) else next(rendered) for part in parts)
    return whole.split("\n")[:-1], translations


def placed(
    segments: Sequence[Segment], translations: Sequence[Translation]
) -> Generator[MarkupPairs, Any, list[str]]:
    """Each translation with the nodes of its segment, as HTML; yields pairs to be aligned."""
    pairs = zip(segments, translations, strict=True)
    tagged = [i for i, (s, best) in enumerate(pairs) if s.nodes and best.text != s.text]
    alignments: dict[int, Alignment] = {}
    if tagged:
        aligned = yield MarkupPairs(
            [segments[i].text for i in tagged],
            [translations[i] for i in tagged],
            [segments[i].number for i in tagged],
        )
        alignments = dict(zip(tagged, aligned, strict=True))
    return [
        with_markup(segment, translation, alignments.get(i))
        for i, (segment, translation) in enumerate(zip(segments, translations, strict=True))
    ]


def parse(
    lines: Sequence[str], first_line: int = 1, rules: MarkupRules = HTML
) -> list[str | Segment]:
    """The parts of some lines, which have no line ends; the parts have one for each."""
    if rules.is_xml:
        lines = without_cdata("\n".join(lines)).split("\n")
    windows = markup_windows([list(lines)], first_line, rules)
    return [part for window in windows for part in parts_of(rules.outlined(window.items))]


def markup_text(markup: str, rules: MarkupRules = HTML) -> str:
    """The plain text of HTML or XML: without tags, comments, and elements that are copied."""
    reader = Reader(warns=False, rules=rules)
    markup = without_cdata(markup) if rules.is_xml else markup
    items = [item for line in markup.split("\n") for item in reader.read(f"{line}\n")]
    items += reader.flush()
    # A block separates words; other tags may stand inside of one.
    texts = (
        item.raw if item.kind == "text" else " " for item in items if item.kind in ("text", "block")
    )
    return unescape("".join(texts))


def _checked(segment: Segment, result: str, doubts: IncompleteTranslations | None) -> str:
    """The translation of a segment, or the segment itself if their placeholders differ."""
    if placeholders_of(result) == placeholders_of(segment.raw):
        return result
    log.warning(
        "%s: the translation has other placeholders than the text, which is copied",
        place_of(segment.number, doubts),
    )
    return segment.raw


def with_placeholders(
    translator: Translator, windows: Iterable[Translated], *, n_best: int = 1
) -> Iterator[Translated]:
    """Windows with translations, as from `translate_windows`, that have their placeholders."""
    for window, translations in windows:
        steps = placeholder_steps(window, translations)
        yield window, answered(steps, translator, translator.aligner, n_best=n_best)


def placeholder_steps(
    window: Window, translations: list[list[Translation]]
) -> Generator[Window | MarkupPairs, Any, list[list[Translation]]]:
    """The translations of a window with their placeholders; asks its caller as `markup_steps`."""
    lost: list[int] = []
    for i, (line, (best, *_)) in enumerate(zip(window.lines, translations, strict=True)):
        if not _is_complete(line, best.text):
            if not (window.prefixes and window.prefixes[i]):
                lost.append(i)
                continue
            log.warning(_DIFFER, window.number_of(i), "; it stays, because its beginning is given")
    if not lost:
        return translations
    texts = [window.lines[i].strip() for i in lost]
    numbers = list(map(window.number_of, lost))
    segments = [segment.without_placeholders() for segment in map(_segment, texts, numbers)]
    second = yield Window(1, [segment.text for segment in segments], numbers=numbers)
    rendered = yield from placed(
        [segment for segment, of_line in zip(segments, second, strict=True) for _ in of_line],
        [translation for of_line in second for translation in of_line],
    )
    # A segment is rendered as HTML.
    whole = map(unescape, rendered)
    translations = list(translations)
    for i, text, of_line in zip(lost, texts, second, strict=True):
        hypotheses = [replace(each, text=next(whole), parts=()) for each in of_line]
        translations[i] = [each for each in hypotheses if _is_complete(text, each.text)]
        if not _is_complete(text, hypotheses[0].text):
            log.warning(_DIFFER, window.number_of(i), ", which is copied")
            translations[i] = [Translation(text)]
    return translations


def _segment(text: str, number: int) -> Segment:
    """A line as it would be in HTML, in which `<0>` and `</0>` surround words."""
    surrounding = {*re.findall(r"<(\d{1,3})>(?=.*</\1>)", text)}
    markup = re.sub(
        r"&lt;(/?)(\d{1,3})&gt;",
        lambda tag: f"<{tag[1]}{tag[2]}>" if tag[2] in surrounding else tag[0],
        escaped(text),
    )
    segments = (part for part in parse([markup], number) if isinstance(part, Segment))
    return next(segments, Segment(text, [], text, number))


def _is_complete(text: str, translation: str) -> bool:
    """Whether a translation has the same placeholders as a text, or the text has none."""
    segment = Segment(text, [], text, 0)
    return not segment.placeholders() or segment.is_in(translation)
