"""Whole documents of HTML: every tag stays where it was among the others, and lines stay lines."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_translation import (
    FakeTranslator,
    assert_same_elements,
    shuffled,
    translated_html,
    with_ids,
)

from mtkit.translate.html.markup import markup_windows, parse
from mtkit.translate.html.markup_segments import Segment

# Cases like those in the tests of other software that translates pages.
DOCUMENTS = [
    "<div>\n  A plain block of text.\n</div>",
    "Text without any element.",
    "<div>\n  <div></div>\n  <span></span>\n</div>",
    '<!DOCTYPE html>\n<html>\n<head>\n  <meta charset="utf-8" />\n  <title>The name of it</title>\n'
    "</head>\n<body>\n\n</body>\n</html>",
    '<nav class="top">\n  <ul>\n    <li class="a b">\n      <a href="/">New things</a>\n    </li>\n'
    "    <li><a href='#'><span class='arrow'>Groups</span></a></li>\n  </ul>\n</nav>",
    '<p translate="no">Name</p>\n<p class="x notranslate y">Brand</p>\n<p translate="yes">Text</p>',
    "<div>Text.</div>\n<code>\n  x = 1;\n</code>\n<script>\n  if (a < b) {}\n</script>\n"
    "<textarea>\n  typed <b>so</b>\n</textarea>",
    "<!-- first -->\n<div>\n  <!-- second\n  over lines -->\n  Text.\n</div>",
    "<div>\n<span>A part</span> of it goes on in <b>bold</b>.\n</div>",
    "<div>\n  <span>\n    One and\n  </span>\n  <span>\n    much more\n  </span>\n"
    "  <span>in a row.</span>\n</div>",
    "<div>\n  Words\n  <div>in a block</div>\n</div>",
    "<div>Words\n <span>in a line</span>\n <div>and a block</div>\n <div>and one</div>\n</div>",
    "<p>\n  Some text.\n  <span>And more of it</span>\n  <style>p { color: red; }</style>\n</p>",
    "<pre>\n  one   two\n\n    three\n</pre>",
    "<div><div>Before it</div>\n<svg width='2' xmlns='http://www.w3.org/2000/svg'>\n"
    "<style>.t { x: y; }</style>\n<rect x='1' /><circle r='3' />\n"
    "<text x='5'>\n  Text inside.\n</text></svg><div>After it</div></div>",
    '<table>\n<tbody>\n<tr>\n<th abbr="h">Head one</th>\n<th>Head two</th>\n</tr>\n'
    "<tr><td>Cell one</td>\n<td>Cell two</td></tr>\n</tbody></table>",
    '<select>\n<option>red</option>\n<option selected="">green</option>\n</select>',
    '<label title="a title">Give your name:</label>\n<input type="text" placeholder="name">',
    "<p><input>W<u>o</u>rds <b>in bold</b> and <u>so on</u>?</p>",
    "<p>First <em>part of one. And more in</em> another one.</p>",
    "<p>Some<br>space</p>",
    "<p>Long words some&shy;times have a hy&shy;phen</p>",
    "<div>\n <span> A </span>\n <div>\n  big   one\n </div>\n <span> here </span>\n</div>",
    '<div id="t" class="a b " hidden>\n<span x-data="&quot;x&quot;"><!--\na note -->words\n</span>'
    "</div>",
    "<p>Press <kbd>Ctrl</kbd>+<kbd>C</kbd> in <samp>bash</samp>, where <var>x</var> is.</p>",
    "<p>one<wbr>two <b></b>three<i> </i></p>",
    "<ul><li>one<li>two <b>three</b><li>four</ul>",
    '<a\n  href="x"\n  title="a > b\nc">two words</a>',
    "<p>a <ruby>b<rt>c</rt></ruby> d <sub>2</sub><sup>e</sup></p>",
    "<button>Go <b>on</b></button><button>Stop</button>",
    "<p>One.</p>Bare text <b>here</b>\n<p>Two.</p>",
]

FAKES = [
    FakeTranslator(),
    *(FakeTranslator(shuffled(seed)) for seed in range(4)),
    *(FakeTranslator(shuffled(seed), share_linked=0.4) for seed in range(4)),
    FakeTranslator(share_linked=0),
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_element_stays_in_the_element_that_it_was_in(document: str):
    source = with_ids(document)
    for fake in FAKES:
        lines = translated_html(source.split("\n"), fake)
        assert len(lines) == source.count("\n") + 1
        assert_same_elements("\n".join(lines), source)


def texts_of(document: str) -> list[tuple[int, str]]:
    parts = parse(document.split("\n"))
    return [(part.number, part.text) for part in parts if isinstance(part, Segment)]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        # A line end in a block-level element is white space.
        ("<p>One\n  two.\n  Three</p>", [(1, "One two. Three")]),
        ("<p>\n  one\n  two\n</p>", [(2, "one two")]),
        ("<div>\none <b>two\nthree</b> four\n</div>", [(2, "one two three four")]),
        ("<body>\n<p>one</p>\ntwo\nthree\n</body>", [(2, "one"), (3, "two three")]),
        # An empty line too.
        ("<p>one\n\ntwo</p>", [(1, "one two")]),
        # <br> ends a text, but not its paragraph.
        ("<p>one<br>\ntwo\nthree</p>", [(1, "one"), (2, "two three")]),
        # Outside of them every line is a text.
        ("one\ntwo", [(1, "one"), (2, "two")]),
        ("<p>one</p>\ntwo\nthree", [(1, "one"), (2, "two"), (3, "three")]),
        ("one <b>two\nthree</b>", [(1, "one two"), (2, "three")]),
        # An end tag that was left out.
        ("<ul>\n<li>one\n<li>two\n</ul>\nthree\nfour",
         [(2, "one"), (3, "two"), (5, "three"), (6, "four")]),
        ("<p>one<p>two</p>\nthree\nfour", [(1, "one"), (1, "two"), (2, "three"), (3, "four")]),
        # What goes on on other lines is no text.
        ("one <!-- a\nb --> two\nthree", [(1, "one  two"), (3, "three")]),
        ("<style>\np { x: y }\n</style>\none", [(4, "one")]),
        ("one <a\nhref='x'\n>two</a>\nthree", [(1, "one two"), (4, "three")]),
        ("one <a title='>\n>'>two</a>\nthree", [(1, "one two"), (3, "three")]),
        ("<script>\nif (a < b) {}\n</script >\none", [(4, "one")]),
        ("<div translate=no>\n<p>one</p>\n<div>two</div>\n</div>\nthree", [(5, "three")]),
        ("one <code>x\ny</code> two\nthree", [(1, "one  two"), (3, "three")]),
        ("<textarea>\n</p><b>\n</textarea>\none", [(4, "one")]),
        # A tag that ends nowhere is copied to the end of its line.
        ("one <x and\ntwo <b>three</b>", [(1, "one"), (2, "two three")]),
        ("one </x and\ntwo <b>three</b>", [(1, "one"), (2, "two three")]),
        ("one <!x and\ntwo <b>three</b>", [(1, "one"), (2, "two three")]),
        # A text of two words with an image between them is not one word.
        ("one<img/>two", [(1, "one two")]),
        ("one<code>x</code>.", [(1, "one.")]),
        ("one<wbr>two", [(1, "onetwo")]),
    ],
)  # fmt: skip
def test_texts_end_where_they_end_in_a_browser(document: str, expected: list[tuple[int, str]]):
    assert texts_of(document) == expected


def test_a_tag_without_an_end_is_looked_for_on_a_hundred_lines_only():
    document = "one <x a='\n" + "two\n" * 200
    assert texts_of(document)[:2] == [(1, "one"), (2, "two")]
    assert len(texts_of(document)) == 201


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("<p>one two\nthree four\nfive six</p>", "<p>ONE TWO\nTHREE FOUR\nFIVE SIX</p>"),
        ("<p>\n  one\n  <b>two</b>\n</p>", "<p>\n  ONE\n<b>TWO</b>\n</p>"),
        ("<p>one\n\ntwo three four</p>", "<p>ONE\n\nTWO THREE FOUR</p>"),
        # More lines than words.
        ("<p>one <b>two</b>\n\n\n</p>", "<p>ONE <b>TWO</b>\n\n\n</p>"),
        ("<p>one\n<i>\n</i>\n<b>two</b></p>", "<p>ONE\n\n\n<i></i> <b>TWO</b></p>"),
        # A text that is copied, and one with markup of several lines.
        ("<p>\n 1 <i>\n</i></p>\n\n", "<p>\n 1 <i>\n</i></p>\n\n"),
        ("<p>one <a\nhref='x'>two</a>\nthree</p>", "<p>ONE <a\nhref='x'>TWO</a>\nTHREE</p>"),
        ("<pre>\n a  b\n</pre>\none", "<pre>\n a  b\n</pre>\nONE"),
        # A placeholder stays on its line.
        ("<p>{{ a }}\n{{ b }} one {{ c d }} two\nthree</p>",
         "<p>{{ a }} {{ b }} ONE\n{{ c d }} TWO\nTHREE</p>"),
    ],
)  # fmt: skip
def test_a_translation_has_as_many_lines(document: str, expected: str):
    fake = FakeTranslator(word=str.upper)
    assert "\n".join(translated_html(document.split("\n"), fake)) == expected


pieces = st.sampled_from([
    *("one ", "two", "{x}", "%d", " ", "\n", "\n", "<p>", "</p>", "<div>", "</div>", "<b>", "</b>"),
    *("<!--", "-->", "<script>", "</script>", "<a b='", "'>", "<a", ">", "<code>", "</code>"),
    *("<li>", "<br>", "<img>", "<pre>", "</pre>", '"', "<p translate=no>", "<?", "?>", "<!"),
])  # fmt: skip
documents = st.lists(pieces, max_size=25).map("".join)


@settings(deadline=None, max_examples=300)
@given(documents, st.lists(st.integers(0, 3)))
def test_lines_are_read_alike_in_all_windows(document: str, sizes: list[int]):
    lines = document.split("\n")
    left = iter(lines)
    windows = [list(itertools.islice(left, size)) for size in sizes] + [list(left)]
    cut = list(markup_windows(windows))
    assert [line for window in cut for line in window] == lines
    numbers = []
    for window in cut:
        raw = "".join(part if isinstance(part, str) else part.raw for part in window.parts)
        assert raw == "".join(f"{line}\n" for line in window)
        numbers += [(part.number, part.text) for part in window.parts if isinstance(part, Segment)]
    assert numbers == texts_of(document)
    fake = FakeTranslator(shuffled(3))
    assert len(translated_html(lines, fake)) == len(lines)


def test_a_line_of_text_is_translated_before_the_next_one_is_read():
    windows = iter([["one"], ["<p>two"], ["three"], ["four</p>", "five"], ["<!--"], ["six"]])
    cut = [list(window) for window in markup_windows(windows)]
    assert cut == [["one"], ["<p>two", "three", "four</p>", "five"], ["<!--", "six"]]


def test_a_text_without_an_end_is_divided_after_a_million_characters():
    line = "word " * 1000
    windows = list(markup_windows([["<p>", *[line] * 450], ["<!-- ", *[line] * 450, "-->one"]]))
    assert [len(window) for window in windows] == [201, 200, 201, 200, 101]
    texts = [[part.text for part in w.parts if isinstance(part, Segment)] for w in windows]
    assert [text.count("word") for (text,) in texts[:2]] == [200_000, 200_000]
    assert texts[-1] == ["one"]
