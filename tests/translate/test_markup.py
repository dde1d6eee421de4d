"""HTML in, HTML out: every tag is there once, nested as it was."""

import html
import re
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fake_translation import (
    FakeTranslator,
    assert_same_elements,
    translated_html,
    with_ids,
)

from mtkit.align.links import Alignment, unit_spans
from mtkit.translate import Translation
from mtkit.translate.html.markup import parse
from mtkit.translate.html.markup_placing import with_markup
from mtkit.translate.html.markup_reading import HTML, MarkupRules
from mtkit.translate.html.markup_segments import Segment

TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^<>]*>")


def aligned(source: str, target: str, links: str) -> Alignment:
    """With links such as 0-0 1-2."""
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    # The first links are the strongest.
    weights = {(i, j): 1 - 0.01 * place for place, (i, j) in enumerate(pairs)}
    return Alignment(weights, unit_spans(source), unit_spans(target))


def only(*lines: str) -> Segment:
    """The only segment of some lines."""
    (part,) = (part for part in parse(lines) if isinstance(part, Segment))
    return part


def placed(segment: Segment, target: str, links: str = "") -> str:
    alignment = aligned(segment.text, target, links)
    return with_markup(segment, Translation(target, 0.0, 0.0), alignment)


def translated(line: str, target: str, links: str) -> str:
    return placed(only(line), target, links)


CASES = [
    # An element stands around the words that translate its words.
    ("a <b>red</b> car", "ein rotes Auto", "0-0 1-1 2-2", "ein <b>rotes</b> Auto"),
    ("the <i>old man</i> sees", "le vieil homme voit", "0-0 1-1 2-2 3-3",
     "le <i>vieil homme</i> voit"),
    ("a <b>red</b> car", "une voiture rouge", "0-0 1-2 2-1", "une voiture <b>rouge</b>"),
    # Two elements change places.
    ("<b>red</b> <i>car</i>", "voiture rouge", "0-1 1-0", "<i>voiture</i> <b>rouge</b>"),
    # All of the text.
    ("<b>one two</b>", "eins zwei", "0-1 1-0", "<b>eins zwei</b>"),
    # Nested.
    ("see <b>the <i>red</i> car</b> now", "sieh das rote Auto jetzt", "0-0 1-1 2-2 3-3 4-4",
     "sieh <b>das <i>rote</i> Auto</b> jetzt"),
    # What was deleted and what was inserted for it are two words.
    ("we <del>were</del><ins>are</ins> in", "wir waren sind drin", "0-0 1-1 2-2 3-3",
     "wir <del>waren</del> <ins>sind</ins> drin"),
    ("<b><i>one</i></b> two", "eins zwei", "0-0 1-1", "<b><i>eins</i></b> zwei"),
    # One word becomes two.
    ("a <b>cannot</b> b", "a kann nicht b", "0-0 1-1 1-2 2-3", "a <b>kann nicht</b> b"),
    # Words that are apart: the run with the most of them.
    ("he <b>gives up</b> now", "er gibt jetzt auf", "0-0 1-1 2-3 3-2", "er <b>gibt</b> jetzt auf"),
    # Punctuation beside an element stays outside, and inside it stays inside.
    ("a <b>car</b>.", "ein Auto.", "0-0 1-1", "ein <b>Auto</b>."),
    ("a <b>car.</b>", "ein Auto.", "0-0 1-1", "ein <b>Auto.</b>"),
    ("(<b>one</b>) two", "(eins) zwei", "0-0 1-1", "(<b>eins</b>) zwei"),
    # So does a sign that the element does not have, or only in its translation.
    ("see <a>the guide</a> now.", "jetzt siehe Anleitung.", "0-1 2-2 3-0",
     "jetzt siehe <a>Anleitung</a>."),
    ("see <a>it</a> now, b", "jetzt sieh es, b", "0-1 1-2 2-0 3-3", "jetzt sieh <a>es</a>, b"),
    ("(see <a>it</a> now!)", "(jetzt sieh es !)", "0-1 1-2 1-3 2-0", "(jetzt sieh <a>es</a> !)"),
    ("he: “see <b>it</b> now”", "er: „jetzt es“", "0-0 2-2 3-1", "er: „jetzt <b>es</b>“"),
    ("<b>where</b> is it?", "¿(es) dónde está?", "0-1 1-2 2-2", "¿(es) <b>dónde</b> está?"),
    ("is <b>it</b> there?", "¿ello está?", "1-0 2-1", "¿<b>ello</b> está?"),
    ("<i>is it?</i> yes.", "¿es? sí.", "0-0 1-0 2-1", "<i>¿es?</i> sí."),
    ("<b>one</b> he says", "„eins“, sagt er", "0-0 1-2 2-1", "<b>„eins“</b>, sagt er"),
    ("<b>old dog</b> is", "Hund (alt) ist", "0-1 1-0 2-2", "<b>Hund (alt)</b> ist"),
    # But not that of an abbreviation, or one that belongs to a number.
    ("the <b>third</b> of May", "der 3. Mai", "0-0 1-1 2-1 3-2", "der <b>3.</b> Mai"),
    ("by <b>etc.</b> now.", "jetzt von usw.", "0-1 1-2 2-0", "jetzt von <b>usw.</b>"),
    ("take <b>half</b>.", "nimm 50%.", "0-0 1-1", "nimm <b>50%</b>."),
    # A word whose strongest link is elsewhere, where the element has no other word.
    ("a <b>wooden</b> house", "ein Holzhaus", "0-0 2-1 1-1", "ein <b>Holzhaus</b>"),
    # Without a link, the element is around the whole segment.
    ("a <b>red</b> car", "ein Auto", "0-0 2-1", "<b>ein Auto</b>"),
    # Without a translation.
    ("<b>one</b>.", "", "", "<b></b>"),
    # Things at one place.
    ("one <img src='x'> two", "eins zwei", "0-0 1-1", "eins <img src='x'> zwei"),
    ("one<img> two", "eins zwei", "0-0 1-1", "eins<img> zwei"),
    ("one <!-- note --> two", "zwei eins", "0-1 1-0", "<!-- note -->zwei eins"),
    ("<wbr>one", "eins", "0-0", "<wbr>eins"),
    ("one<wbr>", "eins", "0-0", "eins<wbr>"),
    # Code of a program, and things with signs between them.
    ("one <?= $x ?> two", "eins zwei", "0-0 1-1", "eins <?= $x ?> zwei"),
    ("one <%= a > b %> two", "eins zwei", "0-0 1-1", "eins <%= a > b %> zwei"),
    ("5 <% of two", "5 <% von zwei", "0-0 1-1 2-2 3-3", "5 &lt;% von zwei"),
    ("one <kbd>C</kbd>+<kbd>D</kbd>.", "eins .", "0-0 1-1", "eins <kbd>C</kbd>+<kbd>D</kbd>."),
    # Before the punctuation of a word.
    ("one <code>x</code>, two", "eins, zwei", "0-0 2-1", "eins <code>x</code>, zwei"),
    ("one two<img>.", "zwei eins.", "0-1 1-0", "zwei<img> eins."),
    # Empty elements.
    ("one <b></b>two", "eins zwei", "0-0 1-1", "eins <b></b>zwei"),
    ("one <b/>two", "eins zwei", "0-0 1-1", "eins <b/>zwei"),
    ("one <b> </b>two", "eins zwei", "0-0 1-1", "eins <b> </b>zwei"),
    # Spaces beside something that is shown stay, also at the ends of the text.
    ("<i class='icon'></i> one", "eins", "0-0", "<i class='icon'></i> eins"),
    ("one <img>", "eins", "0-0", "eins <img>"),
    ("<a><img> one</a> two", "eins zwei", "0-0 1-1", "<a><img> eins</a> zwei"),
    ("one <a>two <img></a>", "eins zwei", "0-0 1-1", "eins <a>zwei <img></a>"),
    ("<a><img> one two</a>", "eins zwei", "0-0 1-1", "<a><img> eins zwei</a>"),
    ("one <a><img> two</a> three", "eins zwei drei", "0-0 1-1 2-2",
     "eins <a><img> zwei</a> drei"),
    # An element at the end of another one, before its punctuation.
    ("one <b>two <i>three</i></b>.", "eins zwei drei.", "0-0 1-1 2-2",
     "eins <b>zwei <i>drei</i></b>."),
    ("one (<b><i>two</i> three</b>)", "eins (zwei drei)", "0-0 1-1 2-2",
     "eins (<b><i>zwei</i> drei</b>)"),
    ("one <b>two <img>three</b>.", "eins zwei drei.", "0-0 1-1 2-2",
     "eins <b>zwei <img>drei</b>."),
    # Single tags of elements that begin or end on other lines.
    ("one</b> two", "eins zwei", "0-0 1-1", "eins</b> zwei"),
    ("one <b>two", "eins zwei", "0-0 1-1", "eins <b>zwei"),
    # Crossing elements: the outer one stays an element.
    ("<b>one <i>two</b> three</i>", "eins zwei drei", "0-0 1-1 2-2",
     "<b>eins <i>zwei</b> drei</i>"),
    # Attributes are copied as they are written.
    ("a <a href=\"x?a=1&b=2\" title='>'>link</a>", "ein Link", "0-0 1-1",
     "ein <a href=\"x?a=1&b=2\" title='>'>Link</a>"),
    ("a <a href=x/>link</a>", "ein Link", "0-0 1-1", "ein <a href=x/>Link</a>"),
    ("a <a title=it's>link</a>", "ein Link", "0-0 1-1", "ein <a title=it's>Link</a>"),
    ("a <a b = '\">' c>link</a d>", "ein Link", "0-0 1-1", "ein <a b = '\">' c>Link</a d>"),
    # A quote that is not closed: the tag ends where it seems to.
    ('a <a b="c>link</a>', "ein Link", "0-0 1-1", 'ein <a b="c>Link</a>'),
    # Not tags.
    ("a < b > c <3 </> <>", "a < b > c <3 </> <>", "", "a &lt; b &gt; c &lt;3 &lt;/&gt; &lt;&gt;"),
    # Entities are characters for the model, and special ones are escaped again.
    ("a &lt; b &amp; c", "a < b & c", "", "a &lt; b &amp; c"),
    # Upper case.
    ("a <B>car</B>", "ein Auto", "0-0 1-1", "ein <B>Auto</B>"),
    # Unknown elements.
    ("a <x-y z>car</x-y>", "ein Auto", "0-0 1-1", "ein <x-y z>Auto</x-y>"),
    # Spaces around the text stay.
    ("  a <b>car</b>  ", "ein Auto", "0-0 1-1", "  ein <b>Auto</b>  "),
    # An element with spaces inside.
    ("a <b> car </b> b", "ein Auto b", "0-0 1-1 2-2", "ein <b>Auto</b> b"),
    # Text that is not to be translated is in one piece.
    ("see <span translate=\"no\">Foo Bar</span> now", "sieh jetzt", "0-0 1-1",
     "sieh <span translate=\"no\">Foo Bar</span> jetzt"),
]  # fmt: skip


# Tags inside of a word are at its borders in the translation.
WORDS = [
    ("H<sub>2</sub>O is wet", "H2O ist nass", "0-0 1-1 2-2", "<sub>H2O</sub> ist nass"),
    ("<b>H</b><sub>2</sub>O is", "H2O ist", "0-0 1-1", "<sub></sub><b>H2O</b> ist"),
    ("a <b>new T</b>GV, b", "ein neuer TGV, b", "0-0 1-1 2-2 3-3", "ein <b>neuer TGV</b>, b"),
    ("in<!--1-->side one", "inside eins", "0-0 1-1", "<!--1-->inside eins"),
    ("(<b>u</b>nhappy) man", "(traurig) Mann", "0-0 1-1", "(<b>traurig</b>) Mann"),
    # Without a link, and without a letter.
    ("one H<sub>2</sub>O", "H2O eins", "", "H2O <sub></sub>eins"),
    ("one two<b>.</b> Three", "eins zwei. Drei", "0-0 1-1 2-2", "eins zwei<b></b>. Drei"),
    # The signs beside an element that begins or ends with one.
    ("by <i>two et al.</i>, now", "von zwei et al., jetzt", "0-0 1-1 2-2 3-3 4-4",
     "von <i>zwei et al.</i>, jetzt"),
    ("one (<b>[two] three</b>)", "eins ([zwei] drei)", "0-0 1-1 2-2",
     "eins (<b>[zwei] drei</b>)"),
]  # fmt: skip

# In scripts without spaces each character is placed; a mark belongs to its letter.
UNSPACED = [
    ("<b>東京</b><i>大阪</i>です", "It is Tokyo Osaka", "0-2 1-2 2-3 3-3 4-1 5-1",
     "It is <b>Tokyo</b> <i>Osaka</i>"),
    ("<b>Osaka</b> or <i>Tokyo</i>", "東京や大阪", "0-3 0-4 1-2 2-0 2-1",
     "<i>東京</i>や<b>大阪</b>"),
    ("東京<!--1-->大阪", "Osaka, Tokyo", "0-1 1-1 2-0 3-0", "<!--1-->Osaka, Tokyo"),
    ("「<b>東京</b>」、「<i>大阪</i>」", "“Tokyo”, “Osaka”", "0-0 1-0 2-1 3-1",
     "“<b>Tokyo</b>”, “<i>Osaka</i>”"),
    ("an <i>iPhone</i> <b>case</b>", "iPhone手机壳", "0-0 1-0 2-1 2-2 2-3",
     "<i>iPhone</i><b>手机壳</b>"),
    # The words of both parts of one word are in the first one.
    ("<b>東</b><i>京</i>は", "Tokyo is", "0-0 1-0 2-1", "<b>Tokyo</b><i></i> is"),
    ("a <b>cat</b>, now", "बिल्ली, अब", "1-0 2-1", "<b>बिल्ली</b>, अब"),
    ("a <b>fee</b>, now", "มีค่าที่, นี้", "1-0 1-1 1-2 1-3 2-4", "<b>มีค่าที่</b>, นี้"),
]  # fmt: skip

BRACKETS = [
    ("see (<img>) now", "sieh () jetzt", "0-0 1-1 2-2", "sieh (<img>) jetzt"),
    ("see (<img>) now", "() sieh jetzt", "", "(<img>) sieh jetzt"),
    ("see [<img>, x] now", "sieh [, x] jetzt", "", "sieh [<img>, x] jetzt"),
    ('a "<img>" b', 'a "" b', "0-0 1-1 2-2", 'a "<img>" b'),
    ('a "b" "<img>"', 'a "b" ""', "0-0 1-1", 'a "b" "<img>"'),
    ('say “<img>” now', 'sage „“ jetzt', "0-0 1-1 2-2", 'sage „<img>“ jetzt'),
    ("f(<img>, <i></i>) is", "f(, ) ist", "0-0 1-1 2-2", "f(<img>, <i></i>) ist"),
    ("(a) (<img>) b", "(a) () b", "0-0 1-1 2-2", "(a) (<img>) b"),
    # Without brackets in the translation.
    ("see (<img>) now", "sieh jetzt", "0-0 2-1", "sieh <img> jetzt"),
]  # fmt: skip


@pytest.mark.parametrize("line", ["H<sub>2</sub>O, a<b>b c</b>d e<i>f</i>", "(<b>a</b>)(<i>b</i>)"])
def test_a_text_that_is_its_own_translation_keeps_its_tags(line: str):
    segment = only(line)
    assert placed(segment, segment.text) == line


def test_something_behind_a_subword_of_several_characters_is_behind_its_translation():
    alignment = Alignment(
        {(0, 1): 0.5, (1, 1): 0.5, (2, 0): 0.5, (3, 0): 0.5},
        unit_spans("東京、大阪"),
        [(0, 6), (7, 12)],
    )
    placed_img = with_markup(only("東京<img>、大阪"), Translation("Osaka, Tokyo"), alignment)
    assert placed_img == "Osaka, Tokyo<img>"


PARTS = (((0, 8), (0, 6)), ((9, 20), (7, 18)))
SENTENCES = [
    # Whole sentences, whatever the alignment of their words is.
    ("<b>One two.</b> <i>Three four.</i>", "0-3 1-2 2-1 3-0", "<b>A, bb.</b> <i>Cccc dddd.</i>"),
    ("<b>One two.</b> <i>Three four.</i>", "", "<b>A, bb.</b> <i>Cccc dddd.</i>"),
    # A part of a sentence.
    ("<b>One</b> two. Three <i>four</i>.", "0-3 3-0", "<b>A</b>, bb. Cccc <i>dddd</i>."),
    ("One two<img>. <img>Three four.<img>", "0-0 1-1 2-2 3-3", "A, bb<img>. <img>Cccc dddd.<img>"),
    ("One <b>two. Three</b> four.", "0-0 1-1 2-2 3-3", "A, <b>bb. Cccc</b> dddd."),
]


@pytest.mark.parametrize(("line", "links", "expected"), SENTENCES)
def test_an_element_stays_in_the_translation_of_its_sentence(line: str, links: str, expected: str):
    segment, target = only(line), "A, bb. Cccc dddd."
    translation = Translation(target, 0.0, 0.0, parts=PARTS)
    assert with_markup(segment, translation, aligned(segment.text, target, links)) == expected


@pytest.mark.parametrize(
    ("line", "target", "links", "expected"), [*CASES, *WORDS, *UNSPACED, *BRACKETS], ids=str
)
def test_tags_stand_where_the_alignment_says(line: str, target: str, links: str, expected: str):
    assert translated(line, target, links) == expected


def test_a_line_is_cut_at_block_level_tags():
    line = "<ul><li>one <b>two</b></li><li>three<br>four</li></ul><script>a < b</script>"
    line += "<svg><text>five</text></svg>six"
    parts = parse([line])
    assert [part.text for part in parts if isinstance(part, Segment)] == [
        *("one two", "three", "four", "five", "six")
    ]
    copied = "".join(part for part in parts if isinstance(part, str))
    assert copied == "<ul><li></li><li><br></li></ul><script>a < b</script><svg><text></text>\n"


@pytest.mark.parametrize(
    "line",
    ["", "  ", "<p> </p>", "<b></b>", "<!-- x -->", "&nbsp;", "<style>a {}</style>", "<a>|</a>",
     "<td>&copy; - <b>&lt;</b></td>", "{x}", "<b>{x}</b>, %d!", "<p>%(a)s ${b}</p>",
     "<td>42</td>", "<p>&euro; 19.99</p>", "<a href='x'>www.example.org</a>", "<i>a@b.org</i>, 5",
     "<p class='a notranslate'>a b</p>", "<p><span class=katex>x<b>y</b></span></p>"],
)  # fmt: skip
def test_what_has_no_text_of_a_language_is_copied(line: str):
    fake = FakeTranslator()
    assert translated_html([line], fake) == [line]
    assert fake.texts == []


@pytest.mark.parametrize(
    ("line", "text", "placeholders"),
    [
        ("Hello %1$s, you have %d new", "Hello , you have  new", ["%1$s", "%d"]),
        ("a {name} and {0} and ${x} b", "a  and  and  b", ["{name}", "{0}", "${x}"]),
        ("a %(user)s {{count}} b", "a   b", ["%(user)s", "{{count}}"]),
        ("a %{name} b", "a  b", ["%{name}"]),
        # Without anything between them they stay together.
        ("a {currency}{amount} b", "a  b", ["{currency}{amount}"]),
        ("100 % of 5%", "100 % of 5%", []),
        ("50% sure", "50% sure", []),
        ("a { b c }", "a { b c }", []),
    ],
)
def test_placeholders_are_found(line: str, text: str, placeholders: list[str]):
    segment = only(line).without_placeholders()
    assert segment.text == text
    assert [node.open for node in segment.nodes] == placeholders


def test_placeholders_at_the_ends_are_not_placed_by_the_alignment():
    segment = only("<b>{x}</b> and <i>two {y}</i> %d").without_placeholders()
    assert (segment.before, segment.text, segment.after) == ("<b>{x}</b> ", "and two", " %d")


@pytest.mark.parametrize(
    ("line", "target", "links", "expected"),
    [
        ("one {x}.", "zwei eins", "0-1 1-0", "{x} zwei eins"),
        ("see <b>{x} items</b> now", "sieh Dinge jetzt", "0-0 1-1 2-2",
         "sieh <b>{x} Dinge</b> jetzt"),
    ],
)  # fmt: skip
def test_a_placeholder_is_beside_words_and_in_the_element_it_was_in(line, target, links, expected):
    assert placed(only(line).without_placeholders(), target, links) == expected


@pytest.mark.parametrize(
    "declaration",
    ["<!DOCTYPE a\n[\n<!ELEMENT a ANY>\n]>", "<!DOCTYPE a [\n]\n>", "<!DOCTYPE\na\n[\n%b;\n]\n\n >",
     '<!DOCTYPE a [<!ENTITY b "c>d">\n]\n>', '<!DOCTYPE a [<!ENTITY b "]">\n ]\t\n\t>',
     '<!DOCTYPE a PUBLIC "-//b//c"\n"a.dtd"\n[<!NOTATION b SYSTEM "c">\n]\r\n>',
     "<!doctype html SYSTEM\n'about:legacy-compat'\n>"],
)  # fmt: skip
def test_a_document_type_may_be_on_several_lines(declaration: str):
    for rules in (HTML, MarkupRules(is_xml=True)):
        parts = parse([*declaration.split("\n"), "<p>one two</p>"], rules=rules)
        (segment,) = (part for part in parts if isinstance(part, Segment))
        assert segment.text == "one two"
        assert "".join(parts[: parts.index(segment)]).startswith(f"{declaration}\n")


def test_an_entity_of_a_line_end_does_not_end_the_line():
    for line in ("&#10;one", "one&NewLine;", "one&#10;two", "<b>&#xA;one</b> two"):
        segment = only(line)
        assert "\n" not in placed(segment, segment.text)


UNFINISHED = [
    ("one <!-- two > three", "<!-- two > three\n", "<!--"),
    ("one <a href='x'", "<a href='x'", "<a"),
    ("one </b", "</b", "</b"),
    ("one <script> two < 3; <b>", "<script> two < 3; <b>\n", "<script"),
    ("one <pre translate=no>two <b>three</b>", "<pre translate=no>two <b>three</b>\n", "<pre"),
    ("one <![CDATA[ two", "<![CDATA[ two\n", "<![CDATA["),
]


@pytest.mark.parametrize(("line", "copied", "what"), UNFINISHED)
def test_what_never_ends_is_copied_with_a_warning(line, copied, what, caplog):
    parts = parse(["", line])
    (segment,) = (part for part in parts if isinstance(part, Segment))
    assert (segment.text, segment.number) == ("one", 2)
    assert copied in [f"{segment.after} ".lstrip().removesuffix(" "), *parts]
    (message,) = caplog.messages
    assert message.startswith(f"line 2: {what} does not end")


PIECES = ["<", "<!--", "<a ", "<a a='", '<a b="', "</a ", "<?", "<![CDATA[", "<script>"]


@pytest.mark.parametrize("piece", [*PIECES, "</script ", "<a ="])
def test_broken_markup_is_read_once(piece: str):
    # In quadratic time this would take minutes.
    line = f"<script>{piece * 200_000}" if piece == "</script " else piece * 200_000
    parts = parse([line])
    texts = [part if isinstance(part, str) else part.text for part in parts]
    assert "".join("".join(texts).split()) == "".join(line.split())


def test_a_line_of_very_many_elements_takes_time_for_each_once():
    # In quadratic time for the words of each element, this would take minutes.
    line = "one <b>two</b> three " * 3000
    segment = only(line)
    links = " ".join(f"{i}-{i}" for i in range(1000))
    target = " ".join(segment.text.split()[:1000])
    page = placed(segment, target, links)
    assert (page.count("<b>"), page.count("</b>")) == (3000, 3000)


def test_very_many_tags_before_and_after_a_text_are_copied():
    line = f"{'<img>' * 50_000}one{'</b>' * 50_000}"
    assert translated(line, "eins", "0-0") == line.replace("one", "eins")


def test_very_deep_elements_are_kept():
    line = f"one {'<b>' * 3000}two{'</b>' * 3000} three"
    page = translated(line, "eins zwei drei", "0-0 1-1 2-2")
    assert (page.count("<b>"), page.count("</b>")) == (3000, 3000)
    assert TAG.sub("", page) == "eins zwei drei"


words = st.sampled_from(["one", "two,", "(three)", "4", "fünf", "日本語", "a&lt;b", "&amp;"])
names = st.sampled_from(["b", "i", "a href='x'", 'span class="y"', "x-z"])
empty = st.sampled_from(["<img>", "<wbr>", "<b/>", "<!-- c -->", "<i></i>"])


def element(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    wrapped = st.builds(lambda tag, text: f"<{tag}>{text}</{tag.split()[0]}>", names, inside)
    space = st.sampled_from([" ", ""])
    return st.lists(st.one_of(inside, wrapped, empty), min_size=1, max_size=4).flatmap(
        lambda parts: space.map(lambda gap: gap.join(parts))
    )


nested = st.recursive(st.lists(words, min_size=1, max_size=3).map(" ".join), element, max_leaves=6)
anything = st.lists(
    st.one_of(words, empty, names.map(lambda n: f"<{n}>"), st.sampled_from(["</b>", "</i>", " "])),
    max_size=12,
).map("".join)


def tags(text: str) -> Counter[str]:
    return Counter(TAG.findall(text))


def rendered(line: str, links: Sequence[tuple[int, int]], order: Sequence[int]) -> str:
    """A line whose segments are translated word by word, in another order."""
    out = []
    for part in parse([line]):
        if isinstance(part, str):
            out.append(part)
            continue
        source = part.text.split()
        target = " ".join(source[i % len(source)] for i in order) or "leer"
        count = len(target.split())
        weights = {(i % len(source), j % count): 0.5 for i, j in links}
        alignment = Alignment(weights, unit_spans(part.text), unit_spans(target))
        out.append(with_markup(part, Translation(target, 0.0, 0.0), alignment))
        plain = html.unescape(TAG.sub("", out[-1]))
        # Spaces may be added beside an image.
        assert "".join(plain.split()) == "".join(target.split())
    return "".join(out)


link_lists = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12)
orders = st.lists(st.integers(0, 9), min_size=1, max_size=9)


@settings(deadline=None, max_examples=300)
@given(nested, link_lists, orders)
def test_every_tag_is_there_once_and_elements_stay_nested(line, links, order):
    source = with_ids(line)
    assert_same_elements(rendered(source, links, order), source)


@settings(deadline=None, max_examples=300)
@given(anything, link_lists, orders)
def test_every_tag_is_there_once_whatever_the_tags_are(line, links, order):
    assert tags(rendered(line, links, order)) == tags(line)


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="<>/&;!-ab =\"'# \u2028%{}1s", max_size=30))
def test_a_line_is_never_lost(line: str):
    parts = parse([line])
    for part in parts:
        if isinstance(part, Segment):
            assert part.text.strip() == part.text != ""
    whole = "".join(part if isinstance(part, str) else placed(part, part.text) for part in parts)
    # Without an alignment a tag may stand at another place.
    ours, theirs = (html.unescape(text).replace(" ", "") for text in (whole, f"{line}\n"))
    assert Counter(ours) == Counter(theirs)
