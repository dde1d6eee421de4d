"""Markdown: what is text, what stays, and that a translation is read as it was meant."""

import re
from collections import Counter

import pytest
from markdown_it import MarkdownIt
from support.pretended import capitals, reversed_words

from mtkit.documents import Document, open_document

TEXT = """---
title: Front matter
---

# 1. Hello *world* ##

A paragraph with **bold `code` text**, a [link](http://x.y/a_b "Title"), ![image](i.png)
and a second line &amp; AT&T\\* <b>html</b> <br> after
a break.  
Hard break above, [ref][r], [name], <http://auto.link/x_y>.

> 1. quote one
> with two lines
>
> | a | b\\|c |
> |---|------|
> | 1 | `x\\|y` two |

- [ ] task **item**
- [x] done[^1]

1986\\. A great year. Math $x^2_1$ costs $5 and $6.

```
code here
```

    indented code

<div>
html block
</div>

:::note
A note here.
:::

Setext heading
==============

snake_case *a*b 2 * 3 ~~gone~~ ***both*** \\<b> \\# x

[^1]: Footnote text here.
[^2]: Another one.
[r]: http://ref.org "T"
[name]: http://name.org
"""  # noqa: W291
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def document(text: str) -> Document:
    return open_document("x.md", text.encode())


def written(text: str, *translations: str) -> str:
    return document(text).write(translations).decode()


def test_the_segments_are_the_texts_with_codes():
    assert [(segment.place, segment.line) for segment in document(TEXT).segments] == [
        ("line 5", "1. Hello <g1>world</g1>"),
        (
            "line 7",
            "A paragraph with <g1>bold <x2/> text</g1>, a <g3>link</g3>, <x4/> "
            "and a second line &amp; AT&amp;T* <g5>html</g5>",
        ),
        ("line 8", "after a break."),
        ("line 10", "Hard break above, <g1>ref</g1>, <g2>name</g2>, <x3/>."),
        ("line 12", "quote one with two lines"),
        ("line 15", "a"),
        ("line 15", "b|c"),
        ("line 17", "two"),
        ("line 19", "task <g1>item</g1>"),
        ("line 20", "done"),
        ("line 22", "1986. A great year. Math <x1/> costs $5 and $6."),
        ("line 31", "html block"),
        ("line 35", "A note here."),
        ("line 38", "Setext heading"),
        (
            "line 41",
            "snake_case <g1>a</g1>b 2 * 3 <g2>gone</g2> <g3><g4>both</g4></g3> &lt;b&gt; # x",
        ),
        ("line 43", "Footnote text here."),
        ("line 44", "Another one."),
    ]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_what_is_not_translated_keeps_its_bytes(line_end: str):
    data = TEXT.replace("\n", line_end).encode()
    read = open_document("x.md", data)
    assert read.write([None] * len(read.segments)) == data
    assert read.write([segment.line for segment in read.segments]) == data
    assert read.notes == []


@pytest.mark.parametrize("translated", [capitals, reversed_words])
def test_no_word_and_no_code_is_lost(translated):
    # Without the footnotes, which this parser does not have.
    text = TEXT[: TEXT.index("[^1]: ")] + TEXT[TEXT.index("[r]: ") :]
    read = document(text)
    result = read.write([translated(segment.line) for segment in read.segments]).decode()
    pages = [PARSER.render(each) for each in (text, result)]
    tags, words = ([re.findall(form, page) for page in pages] for form in (r"<[^>]+>", r"[^\W_]+"))
    assert tags[0] == tags[1]
    assert Counter(map(str.lower, words[0])) == Counter(map(str.lower, words[1]))
    again = document(result).segments
    assert [each.line for each in again] == [translated(each.line) for each in read.segments]


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        ("- eins", "\\- eins"),
        ("+ eins", "\\+ eins"),
        ("1986. eins", "1986\\. eins"),
        ("1) eins", "1\\) eins"),
        ("# eins", "\\# eins"),
        ("#1 eins", "#1 eins"),
        ("&gt; eins", "\\> eins"),
        ("---", "\\---"),
        ("===", "\\==="),
        ("* eins", "\\* eins"),
        ("[eins]: zwei", "\\[eins]: zwei"),
        ("ein *Stern*", "ein \\*Stern\\*"),
        ("snake_case_name", "snake_case_name"),
        ("_eins_", "\\_eins\\_"),
        ("ein &lt;b&gt;", "ein \\<b>"),
        ("ein &amp;lt;", "ein \\&lt;"),
        ("`eins`", "\\`eins\\`"),
        ("[eins](zwei)", "\\[eins\\](zwei)"),
        ("C:\\_x", "C:\\\\\\_x"),
        ("~~eins~~", "\\~\\~eins\\~\\~"),
        ("```", "\\```"),
        ("1. 2. - eins", "1\\. 2. - eins"),
    ],
)
def test_what_would_have_a_meaning_is_escaped(translation: str, expected: str):
    for before in ("", "> ", "- "):
        assert written(f"{before}One two\n", translation) == f"{before}{expected}\n"


def test_signs_at_the_beginning_of_a_later_line_are_escaped():
    text = "> One two three\n> four five six\n"
    assert written(text, "eins zwei drei - vier fünf") == "> eins zwei drei\n> \\- vier fünf\n"


def test_a_translation_of_fewer_words_than_lines_ends_the_paragraph_nowhere():
    text = "> One two\n> three four\n> five\n\nNext.\n"
    assert written(text, "Eins zwei.", "Dann.") == "> Eins\n> zwei.\n\nDann.\n"
    assert written(text, "Eins.", "Dann.") == "> Eins.\n\nDann.\n"


def test_no_line_ends_in_a_code():
    text = "> one `a - b - c - d - e - f`\n> two [x](y 'a - b') three\n"
    lines = written(text, "x <x1/> y z <g2>w</g2> v").split("\n")
    assert lines == ["> x `a - b - c - d - e - f`", "> y z [w](y 'a - b') v", ""]
    assert written("> x `a\n> b` one\n", "eins <x1/> zwei") == "> eins `a b`\n> zwei\n"


def test_an_emphasis_that_is_none_beside_letters_is_written_as_html():
    assert written("Foo **bar** baz", "x<g1>„bar“</g1>y") == "x<strong>„bar“</strong>y"
    assert written("Foo *bar* baz", "x <g1>bar</g1> y") == "x *bar* y"


def test_a_bar_in_a_cell_is_escaped_and_outside_is_not():
    table = "a | b\n--|--\nc | d\n"
    assert written(table, "x|y", "b", "c", "d|") == "x\\|y | b\n--|--\nc | d\\|\n"
    assert written("a b\n", "x|y") == "x|y\n"


def test_a_link_keeps_its_target_whatever_its_words_are():
    text = "See [the page], [page][], [it][page] and [x](a 'T').\n\n[the page]: /a\n[page]: /b\n"
    assert written(
        text, "Siehe <g4>x</g4>, <g1>Seite eins</g1>, <g2>Seite</g2> und <g3>es</g3>."
    ) == (
        "Siehe [x](a 'T'), [Seite eins][the page], [Seite][page] und [es][page].\n\n"
        "[the page]: /a\n[page]: /b\n"
    )


def test_cells_and_list_items_with_the_same_words_as_their_marks_are_found():
    assert written("1. 1 one\n", "eins") == "1. eins\n"
    assert written("- - one\n", "eins") == "- - eins\n"
    text = "| a | a |\n|---|---|\n| a | ab |\n"
    assert written(text, "x", "y", "z", "zz") == "| x | y |\n|---|---|\n| z | zz |\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Press <kbd>Ctrl</kbd>+<kbd>C</kbd> now", ["Press <x1/>+<x2/> now"]),
        ("A <code>b c</code> <var>n</var> d", ["A <x1/> <x2/> d"]),
        ("A <ruby>dog<rp>(</rp><rt>inu</rt></ruby> runs", ["A <g1>dog<!--2--><!--3--></g1> runs"]),
        ("<p>A <ruby>dog<rt>inu</rt></ruby> runs</p>", ["A <g1>dog<!--2--></g1> runs"]),
        ("A <RUBY>d<RT>i<rb>g<rt>u</RUBY> runs", ["A <g1>d<!--2--><x3/>g<!--4--></g1> runs"]),
        ("a <!-- note --> b", ["a <!--1--> b"]),
        ("Term\n: Its definition\n: Another", ["Term", "Its definition", "Another"]),
        ("With **bold**: a word", ["With <g1>bold</g1>: a word"]),
        ("import Tabs from '@theme/Tabs';\n\nText", ["Text"]),
        ("export const x = 1;\n\nText", ["Text"]),
        ('{{< figure src="a.png" >}}\n\nSee {{< ref "x.md" >}} too.', ["See <x1/> too."]),
        ("{% include a.html %} Hello", ["Hello"]),
        ("[![Build](https://a/b.svg)](https://c)\n\n# Tool :tada:", ["Tool"]),
        ("At 10:30:45 now", ["At 10:30:45 now"]),
        ("> [!NOTE]\n> Useful.", ["Useful."]),
        (":::tip\n\nUse this.\n\n:::", ["Use this."]),
        ("- [ ] Do it :smile:", ["Do it"]),
        ("[[Home]] is ![[img.png]] here", ["is <x1/> here"]),
        ("*[HTML]: Hyper Text", []),
        ("[TOC]\n\n## One {#one .x}", ["One"]),
        ("One\\\ntwo<br/>three", ["One", "two", "three"]),
        ("1. one\n   more\n2. two", ["one more", "two"]),
        ("H<sub>2</sub>O and <b>*it*</b>", ["H<g1>2</g1>O and <g2><g3>it</g3></g2>"]),
        ("<https://a.b> and more", ["and more"]),
        ("$$\nx = y\n$$\n\nText $a_b$ for $5.", ["Text <x1/> for $5."]),
        ("$$\na\n\n- b\n= c\n$$\nIs $a*b*c$ or $x_1 + y_2$", ["Is <x1/> or"]),
        ("It \\(x_1\\) is \\\\[ab\\\\] or", ["It <x1/> is <x2/> or"]),
        ("It costs $$5 and $$6 or $$2x = 1$$ now", ["It costs $$5 and $$6 or <x1/> now"]),
        ("> \\[\n> E = m\n> \\]\n\nOne $$\\text{for a}$$", ["One"]),
        ("\\begin{align}\na &= b\n- c\n\\end{align}\n\nOne", ["One"]),
        ("Some[^n] text.\n\n[^n]: A note.\n    More.", ["Some<x1/> text.", "A note. More."]),
        ("<b>*x</b> y*", ["<g1>x<x2/> y</g1>"]),
    ],
)
def test_what_is_written_by_others_is_text_or_kept(text: str, lines: list[str]):
    read = document(text)
    assert [segment.line for segment in read.segments] == lines
    assert read.write([capitals(line) for line in lines]).decode().lower() == text.lower()


HTML = """<div align="center">
  <h1>My <b>great</b> project &amp; more</h1>
  <p>A tool
  for people. <img src="x y.png" alt="A b"/> And <code>x y</code> more.</p>
</div>

<pre>
  stays
</pre>

<script>
var stays = "here";
</script>

<!-- stays -->

<details>
<summary>Click here</summary>

Some *text*.

</details>

> <p>in a quote
> goes on</p>

<table><tr><td>One cell</td><td>Another <a href="x y">cell</a></td></tr></table>
"""


@pytest.mark.parametrize(
    "block",
    [
        "<div>\n<pre>\na b\nc d\n</pre>\n</div>\n",
        "<table><tr><td><PRE>\nq r\n</PRE></td></tr></table>\n",
        "<textarea>\nx y\n</textarea>\n",
        "<?php echo 'x > y'; ?>\n",
        "<![CDATA[ words > here ]]>\n",
        "<div title=\"a > b\" class='c > d'></div>\n",
        '<div @click="x => y">\n</div>\n',
    ],
)
def test_what_is_no_text_in_a_block_of_html_is_none(block: str):
    assert not open_document("x.md", block.encode()).segments


def test_what_is_indented_under_a_footnote_an_admonition_or_a_definition_is_text():
    text = """A[^b] dog
[^b]: One
goes on
[r]: http://x

    Second.

        code
[^c]: Two [r]

!!! note "N"

    Body.

    ```
    code
    ```

Term

:   Meaning.

    More.

End.

    code

```
!!! note
    ```x
[^d]: code
```

    code
"""
    lines = [segment.line for segment in open_document("a.md", text.encode()).segments]
    assert lines[:3] == ["A<x1/> dog", "One goes on", "Second."]
    assert lines[3:] == ["Two <g1>r</g1>", "Body.", "Term", "Meaning.", "More.", "End."]
    code = '```\n!!! note "Code"\n```\n<pre>\n=== "Code"\n</pre>\n'
    read = document(f'=== "A tab"\n\n    In it.\n\n::: tip A title\nBody.\n:::\n\n{code}')
    assert [segment.line for segment in read.segments] == ["In it.", "Body."]
    assert read.notes == ["titles of admonitions and tabs stay as they are: 2"]


def test_what_html_marks_is_not_translated():
    read = document(
        '<p class="notranslate">a\nb</p>\n\n<div>a <span translate="no">B</span> c</div>\n\n'
        'd <span class="x notranslate">e</span> ~~f~~**g** <del>h</del><ins>i</ins>\n'
    )
    assert [segment.line for segment in read.segments] == [
        "a <x1/> c",
        "d <x1/> <g2>f</g2> <g3>g</g3> <g4>h</g4> <g5>i</g5>",
    ]
    new = read.write(["C <x1/> A", "D <x1/> <g3>G</g3> <g2>F</g2> <g4>H</g4> <g5>I</g5>"]).decode()
    assert '<div>C <span translate="no">B</span> A</div>' in new
    assert '<span class="x notranslate">e</span> **G** ~~F~~ <del>H</del> <ins>I</ins>' in new


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('<div><img translate="no" src="x">\nA dog.\n</div>', ["A dog."]),
        ('<input class="notranslate">\n<p>A dog.</p>\n<p>A cat.</p>', ["A dog.", "A cat."]),
        ('<div class="notranslate"><div>a</div> b</div>', []),
        ('<div><video translate="no">a</video> b <button translate=no>c</button></div>', ["b"]),
        ("<p id='a > b' class='x notranslate'>a <p>b</p>", ["a", "b"]),
        *(
            (f"<div {attributes}>A dog</div>", [] if is_kept else ["A dog"])
            for attributes, is_kept in {
                'class="a-notranslate"': False,
                'class="no notranslate-me"': False,
                'title="a translate=no b"': False,
                'data-translate="no"': False,
                'translate="yes"': False,
                "class=notranslate": True,
                "class='a\nnotranslate b'": True,
                'title="a > b" TRANSLATE="NO"': True,
            }.items()
        ),
    ],
)
def test_only_an_element_that_html_marks_is_not_translated(text: str, lines: list[str]):
    read = document(f"{text}\n")
    assert [segment.line for segment in read.segments] == lines
    assert read.write(lines).decode() == f"{text}\n"


def test_blocks_of_html_are_translated():
    document = open_document("x.md", HTML.encode())
    assert [segment.line for segment in document.segments] == [
        "My <g1>great</g1> project &amp; more",
        "A tool for people. <x1/> And <x2/> more.",
        "Click here",
        "Some <g1>text</g1>.",
        "in a quote goes on",
        "One cell",
        "Another <g1>cell</g1>",
    ]
    lines = [
        re.sub(r"(?<![<&/\w])[a-z]", lambda m: m[0].upper(), s.line) for s in document.segments
    ]
    new = document.write(lines).decode()
    assert document.write([segment.line for segment in document.segments]) == HTML.encode()
    assert "<h1>My <b>Great</b> Project &amp; More</h1>" in new
    assert 'For People. <img src="x y.png" alt="A b"/>' in " ".join(new.split())
    assert "And <code>x y</code> More.</p>" in " ".join(new.split())
    assert "> <p>In A Quote\n> Goes On</p>" in new
    assert 'Another <a href="x y">Cell</a></td>' in new
    assert new.count("stays") == 3
