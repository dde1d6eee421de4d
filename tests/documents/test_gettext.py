"""PO files: what is filled, what stays, plural forms, placeholders, and msgfmt's judgement."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.documents import unit, xliff
from support.pretended import capitals, reversed_words

from mtkit.base.errors import MtkitError
from mtkit.documents import DistinctLines, Document, open_document

RUSSIAN = (
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : "
    "n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);"
)
GERMAN = "nplurals=2; plural=(n != 1);"
ENTRIES = r"""
#: a.c:1
msgid "Hello <b>world</b>, \"you\"\n"
msgstr ""

#. note
#: a.c:2
#, c-format
msgctxt "menu"
msgid "One file"
msgid_plural "%d files of %s"
msgstr[0] ""
msgstr[1] ""

#, c-format
#| msgid "Copied"
msgid "Copied %s to %s (100%%)"
msgstr ""

msgid ""
"A very long text that a person has wrapped by hand, and that goes on\n"
"on the second line of the message.\n"
"\n"
"  -v  Be verbose\n"
msgstr ""

#, fuzzy, no-wrap
#| msgid "Old"
msgid "New"
msgstr "Neu?"

msgid "Done"
msgstr "Fertig"

#~ msgid "Gone"
#~ msgstr "Weg"
"""


def po(entries: str = ENTRIES, plural: str = GERMAN, charset: str = "UTF-8") -> str:
    return f"""# A translator
msgid ""
msgstr ""
"Project-Id-Version: x 1\\n"
"PO-Revision-Date: 2026-01-01 00:00+0000\\n"
"Last-Translator: A <a@b.c>\\n"
"Language-Team: x <x@y.z>\\n"
"Language: x\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset={charset}\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: {plural}\\n"
{entries}"""


def document(text: str, **options: bool) -> Document:
    return open_document("x.po", text.encode(), **options)


def filled(text: str, *translations: str, marks: dict[int, str] | None = None) -> str:
    """The text with these translations, without its header."""
    return document(text).write(translations, marks).decode().split("\n\n", 1)[1]


def judged(data: bytes, folder: Path) -> str:
    """What `msgfmt -c` says of a file."""
    if not (program := shutil.which("msgfmt")):
        pytest.skip("msgfmt is not installed")
    (folder / "x.po").write_bytes(data)
    command = [program, "-c", "-v", "-o", "x.mo", "x.po"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr


@pytest.mark.parametrize(
    ("own", "target", "warnings"),
    [
        ("fr", "de", ["its language is fr, not de"]),
        ("pt_BR", "de", ["its language is pt, not de"]),
        *((own, "de", []) for own in ("", "de", "de_AT", "DE", "deu", "de@formal")),
        ("es_ES", "es-MX", []),
        ("fr", "", []),
    ],
)
def test_a_file_in_another_language_than_the_target_is_said(own: str, target: str, warnings):
    text = f'msgid ""\nmsgstr ""\n"Language: {own}\\n"\n"X: fr\\n"\n\nmsgid "One"\nmsgstr ""\n'
    assert document(text, target=target).warnings == warnings


def test_only_entries_without_a_translation_are_segments():
    assert [(segment.place, segment.line) for segment in document(po()).segments] == [
        ("entry 2 (line 15)", 'Hello <g1>world</g1>, "you"'),
        ("entry 3 (line 21)", "One file"),
        ("entry 3 (line 21)", "%d files of %s"),
        ("entry 4 (line 29)", "Copied %s to %s (100%%)"),
        (
            "entry 5 (line 32)",
            "A very long text that a person has wrapped by hand, and that goes on on the second "
            "line of the message.",
        ),
        ("entry 5 (line 32)", "-v  Be verbose"),
    ]
    everything = document(po(), everything=True).segments
    assert [segment.line for segment in everything[-2:]] == ["New", "Done"]


@pytest.mark.parametrize("everything", [True, False])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_what_is_not_translated_keeps_its_bytes(everything: bool, line_end: str):
    data = po().replace("\n", line_end).encode()
    read = open_document("x.po", data, everything=everything)
    assert read.write([None] * len(read.segments)) == data
    if not everything:
        assert read.write([segment.line for segment in read.segments]) == data


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('#, fuzzy\nmsgid "Berlin"\nmsgstr "Wien"\n', 'msgid "Berlin"\nmsgstr "Berlin"\n'),
        ('msgid "&Berlin"\nmsgstr "&Wien"\n', 'msgid "&Berlin"\nmsgstr "&Berlin"\n'),
        ('msgid "Berlin\\n"\nmsgstr "Wien\\n"\n', 'msgid "Berlin\\n"\nmsgstr "Berlin\\n"\n'),
        ('msgid "A"\nmsgid_plural "B"\nmsgstr[0] "C"\nmsgstr[1] "D"\n',
         'msgid "A"\nmsgid_plural "B"\nmsgstr[0] "A"\nmsgstr[1] "B"\n'),
        ('#, fuzzy\nmsgid "Berlin"\nmsgstr "Berlin"\n', None),
        ('msgid "Berlin"\nmsgstr ""\n', None),
    ],
)  # fmt: skip
def test_a_source_that_is_its_own_translation_replaces_another_one(before: str, after: str | None):
    read = document(po(f"\n{before}"), everything=True)
    assert read.write([segment.line for segment in read.segments]).decode() == po(
        f"\n{after or before}"
    )
    assert read.write([None] * len(read.segments)).decode() == po(f"\n{before}")


def test_strings_are_filled_and_all_else_stays():
    read = document(po())
    written = read.write([capitals(segment.line) for segment in read.segments]).decode()
    expected = po()
    for before, after in (
        (
            r'"you\"\n"' + '\nmsgstr ""',
            r'"you\"\n"' + "\n" + r'msgstr "HELLO <b>WORLD</b>, \"YOU\"\n"',
        ),
        ('msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "ONE FILE"\nmsgstr[1] "%d FILES OF %s"'),
        ('#| msgid "Copied"\n', ""),
        ('(100%%)"\nmsgstr ""', '(100%%)"\nmsgstr "COPIED %s TO %s (100%%)"'),
        (
            'verbose\\n"\nmsgstr ""',
            'verbose\\n"\nmsgstr ""\n'
            '"A VERY LONG TEXT THAT A PERSON HAS WRAPPED BY HAND,\\n"\n'
            '"AND THAT GOES ON ON THE SECOND LINE OF THE MESSAGE.\\n"\n'
            '"\\n"\n'
            '"  -V  BE VERBOSE\\n"',
        ),
    ):
        assert expected.count(before) == 1
        expected = expected.replace(before, after)
    assert written == expected


@pytest.mark.parametrize("plural", [GERMAN, RUSSIAN, "nplurals=1; plural=0;"])
@pytest.mark.parametrize("translated", [capitals, reversed_words])
@pytest.mark.parametrize("everything", [True, False])
def test_msgfmt_accepts_the_result(plural: str, translated, everything: bool, tmp_path: Path):
    read = document(po(plural=plural), everything=everything)
    written = read.write([translated(segment.line) for segment in read.segments])
    count = "6 translated messages." if everything else "5 translated messages, 1 fuzzy"
    assert judged(written, tmp_path).startswith(count)


@pytest.mark.parametrize(
    ("plural", "sources"),
    [
        (GERMAN, ["msgid", "plural"]),
        ("nplurals=2; plural=(n > 1);", ["msgid", "plural"]),
        # The form of 1 is that of 21 and 31, which need the number.
        (RUSSIAN, ["plural", "plural", "plural"]),
        ("nplurals=1; plural=0;", ["plural"]),
        ("nplurals=3; plural=(n==1) ? 1 : (n==2) ? 2 : 0;", ["plural", "msgid", "plural"]),
    ],
)
def test_the_header_says_how_many_plural_forms_there_are(plural: str, sources: list[str]):
    entry = '\n#, c-format\nmsgid "One"\nmsgid_plural "%d ones"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    read = document(po(entry, plural))
    of = {"One": "EINS", "%d ones": "%d EINSEN"}
    written = read.write([of[segment.line] for segment in read.segments]).decode()
    found = re.findall(r'msgstr\[(\d)\] "(.*)"', written)
    texts = {"msgid": "EINS", "plural": "%d EINSEN"}
    assert found == [(str(i), texts[source]) for i, source in enumerate(sources)]


@pytest.mark.parametrize(
    ("flag", "source", "good", "bad"),
    [
        ("c-format", "%s of %d", "%s von %d", "%d von %s"),
        ("c-format", "100%% %s", "100%% von %s", "100% von %s"),
        ("c-format", "%1$s of %2$s", "%2$s von %1$s", "%1$s von %1$s"),
        ("python-format", "%(a)s and %(b)d", "%(b)d und %(a)s", "%(a)s und %(a)s"),
        ("python-brace-format", "{a} and {b}", "{b} und {a}", "{a}"),
        ("qt-format", "%1 and %n", "%n und %1", "%1"),
        ("java-format", "{0} is {1}", "{1} ist {0}", "ist {0}"),
        ("sh-format", "$name is $x", "$x ist $name", "$Name ist $x"),
    ],
)
def test_an_entry_that_lost_a_placeholder_is_fuzzy(flag: str, source: str, good: str, bad: str):
    text = po(f'\n#, {flag}\nmsgid "{source}"\nmsgstr ""\n')
    assert filled(text, good) == f'#, {flag}\nmsgid "{source}"\nmsgstr "{good}"\n'
    written = filled(text, bad)
    assert written.startswith("# mtkit: its placeholders differ from %" if "%" in source else "#")
    assert f'\n#, fuzzy, {flag}\nmsgid "{source}"\nmsgstr "{bad}"\n' in written
    # Without the flag, or with its opposite, they are text.
    no = po(f'\n#, no-{flag}\nmsgid "{source}"\nmsgstr ""\n')
    assert "fuzzy" not in filled(no, bad)


def test_a_doubt_is_a_comment_and_makes_a_translation_fuzzy():
    text = po('\n#: a.c:1\nmsgid "One"\nmsgstr ""\nmsgid "Two"\nmsgstr ""\n')
    assert filled(text, "Eins", "Zwei", marks={0: "confidence 12"}) == (
        '# mtkit: confidence 12\n#: a.c:1\n#, fuzzy\nmsgid "One"\nmsgstr "Eins"\n'
        'msgid "Two"\nmsgstr "Zwei"\n'
    )
    read = document(text)
    rejected = read.write([None, "Zwei"], {0: "rejected"}).decode()
    assert '# mtkit: rejected\n#: a.c:1\nmsgid "One"\nmsgstr ""\n' in rejected
    # A second start with all entries takes the doubt back.
    again = document(read.write(["Eins", "Zwei"], {0: "x"}).decode(), everything=True)
    assert (
        again.write(["Uno", "Due"])
        .decode()
        .endswith('\n#: a.c:1\nmsgid "One"\nmsgstr "Uno"\nmsgid "Two"\nmsgstr "Due"\n')
    )


def test_long_strings_are_wrapped_if_those_of_the_file_are():
    words = " ".join(["word"] * 14)
    wrapped = filled(po(f'\nmsgid "{words}"\nmsgstr ""\n'), " ".join(["Wörter"] * 14))
    rows = wrapped.split("\n")[1:-1]
    assert rows[0] == 'msgstr ""'
    assert max(map(len, rows)) <= 79
    assert "".join(row.strip('"') for row in rows[1:]) == " ".join(["Wörter"] * 14)
    long = f'\nmsgid "{words} {words}"\nmsgstr ""\n'
    assert filled(po(long), "x " * 80).endswith(f'\nmsgstr "{"x " * 80}"\n')


def test_a_template_without_a_charset_becomes_utf_8():
    data = po('\nmsgid "One"\nmsgstr ""\n', charset="CHARSET").encode()
    read = open_document("x.pot", data)
    assert read.write(["ä"]).decode() == po('\nmsgid "One"\nmsgstr "ä"\n', charset="UTF-8")
    assert read.write([None]) == data
    assert not read.write_notes


def test_the_charset_of_the_header_is_kept_if_it_has_the_characters():
    data = po('\nmsgid "One"\nmsgstr ""\nmsgid "Ü"\nmsgstr "é"\n', charset="ISO-8859-1")
    read = open_document("x.po", data.encode("latin-1"))
    assert 'msgstr "ä"\n' in read.write(["ä"]).decode("latin-1")
    assert not read.write_notes
    written = read.write(["ł"]).decode()
    assert 'charset=UTF-8\\n"' in written
    assert 'msgid "Ü"\nmsgstr "é"' in written
    assert read.write(["ł"]).decode() == written
    assert read.write_notes == ["the file is UTF-8 now: ISO-8859-1 lacks characters of it"]
    read.write(["ä"])
    assert not read.write_notes + read.notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('msgstr ""\n', 'line 1: not a msgid with its msgstr: msgstr ""'),
        ('msgctxt "c"\nmsgstr ""\n', 'line 1: not a msgid with its msgstr: msgctxt "c"'),
        ('msgid "a"\n\nmsgid "b"\nmsgstr ""\n', 'line 1: not a msgid with its msgstr: msgid "a"'),
        ('# a\nmsgid "a\nmsgstr ""\n', 'line 2: not a msgid with its msgstr: msgid "a'),
        ('msgid ""\nmsgstr "charset=base64"\n', "its header has an unknown charset, base64"),
        ('msgid ""\nmsgstr "charset=undefined"\n', "its header has an unknown charset, undefined"),
        ('"x"\n', 'line 1: not a msgid with its msgstr: "x"'),
        (po(charset="klingon"), "its header has an unknown charset, klingon"),
        (po(plural="nplurals=2; plural=__import__;"), "its header has the plural __import__"),
        (po(plural="nplurals=2; plural=n/0;"), "its header has the plural n/0"),
        (po(plural="nplurals=99999999; plural=n;"), "its header has 99,999,999 plural forms"),
    ],
)
def test_a_broken_file_is_one_line(text: str, message: str):
    with pytest.raises(MtkitError, match=f"^x.po: {re.escape(message)}$"):
        document(text)


def test_a_header_with_plural_forms_and_signs_that_are_no_escapes_are_read():
    read = document('msgid ""\nmsgstr[0] ""\n\nmsgid "a\\8 b"\nmsgstr ""\n')
    assert [segment.line for segment in read.segments] == ["a8 b"]


def test_an_entry_of_which_a_part_is_its_own_translation_has_no_doubt():
    read = document('msgid "Hamburg\\nworld"\nmsgstr ""\n')
    written = read.write(["Hamburg", "Welt"]).decode()
    assert "fuzzy" not in written
    assert 'msgstr "Hamburg\\nWelt"' in written


@pytest.mark.parametrize("name", ["x.po", "x.xlf"])
def test_a_reason_says_whether_something_else_stays(name: str):
    entry = '\nmsgid "{}"\nmsgstr "{}"\n'
    data = po("".join(entry.format(*x) for x in (("One", ""), ("Two", "Zwei"), ("One", "Ein"))))
    if name == "x.xlf":
        two, one = ("<target>Zwei</target>", "<target>Ein</target>")
        data = xliff(unit("One") + unit("Two", two) + unit("One", one)).decode()
    lines = DistinctLines(open_document(name, data.encode(), everything=True))
    lines.put("One", None, "confidence 7")
    lines.put("Two", "Zwo", "confidence 9")
    none, doubtful, rejected = (lines.marks[number] for number in range(3))
    assert none == "source kept: confidence 7"
    assert doubtful == "confidence 9"
    assert rejected == "new translation rejected: confidence 7"
    written = lines.write().decode()
    assert written.count(rejected) == written.count(none) == written.count("confidence 9") == 1


@pytest.mark.parametrize("old", ["", "Alt"])
@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ('msgid "One apple."\nmsgid_plural "%d apples"', ("msgstr[0]", "msgstr[1]")),
        (r'msgid "One apple.\n%d apples"', ("msgstr",)),
    ],
)
@pytest.mark.parametrize("translations", [["Ein Apfel.", None], [None, "%d Äpfel"], [None, None]])
def test_an_entry_with_a_rejected_segment_keeps_what_it_had(source, targets, old, translations):
    entry = f"{source}\n" + "".join(f'{target} "{old}"\n' for target in targets)
    read = document(po(f"\n{entry}"), everything=True)
    marks = {0: "zero", 1: "one"}
    # The doubt about a translation that is not there says nothing.
    shown = "".join(f"# mtkit: {marks[n]}\n" for n in marks if translations[n] is None)
    written = read.write(translations, marks).decode()
    assert written.split("\n\n", 1)[1] == shown + entry
    left = "1 segment more not used: another of the entry was rejected"
    assert read.write_notes == [left] * any(translations)


@pytest.mark.parametrize(
    ("message", "lines", "translation"),
    [
        (r"Open\tCtrl+O", ["Open", "Ctrl+O"], r"OPEN\tCTRL+O"),
        (r"One\r\nTwo\vThree", ["One", "Two", "Three"], r"ONE\r\nTWO\vTHREE"),
        (r"pr\303\251t \x41b \101c", ["prét Ab Ac"], "PRÉT AB AC"),
        (r"\033[1mBold\033[0m text", ["Bold<x1/> text"], r"\033[1mBOLD\033[0m TEXT"),
        (r"bell\a he\302\217re", ["bell<x1/> he<x2/>re"], "BELL\\a HE\x8fRE"),
        (r"a \"word\" \\n", [r'a "word" \n'], r"A \"WORD\" \\N"),
        ("<b>All <i>bold</i></b>", ["All <g1>bold</g1>"], "<b>ALL <i>BOLD</i></b>"),
        (r"<a href=\"x\">Link</a> to", ["<g1>Link</g1> to"], r"<a href=\"x\">LINK</a> TO"),
        (
            r"<a title=\"a>b\">x</a> <y and z> 3",
            ["<g1>x</g1> &lt;y and z&gt; 3"],
            r"<a title=\"a>b\">X</a> <Y AND Z> 3",
        ),
        ("Two<br/>lines ", ["Two<x1/>lines"], "TWO<br/>LINES "),
        ("  spaces: ", ["spaces:"], "  SPACES: "),
        ("charset=klingon", ["charset=klingon"], "CHARSET=KLINGON"),
        ("%d", ["%d"], ""),
        ("R&D &amp; more", ["R&amp;D &amp;amp; more"], "R&D &AMP; MORE"),
        ('One "\n"two', ["One two"], "ONE TWO"),
        ('One" "two', ["Onetwo"], "ONETWO"),
        ("_Open", ["Open"], "_OPEN"),
        ("Save &As...", ["Save As..."], "SAVE &AS..."),
        (r"~Help\tF1", ["Help", "F1"], r"~HELP\tF1"),
        ("a_b ~/c &copy; x & y", ["a_b ~/c &amp;copy; x &amp; y"], "A_B ~/C &COPY; X & Y"),
    ],
)
def test_a_string_is_cut_into_lines_and_codes(message: str, lines: list[str], translation: str):
    read = document(po(f'\nmsgid "{message}"\nmsgstr ""\n'))
    assert [segment.line for segment in read.segments] == lines
    written = read.write([capitals(line) for line in lines]).decode()
    assert written.endswith(f'\nmsgstr "{translation}"\n')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('# charset=klingon\nmsgid "a"\nmsgstr ""\n', '# charset=klingon\nmsgid "a"\nmsgstr "A"\n'),
        ('#, c-format\n#, fuzzy\nmsgid "a"\nmsgstr "x"', '#, c-format\nmsgid "a"\nmsgstr "A"'),
        ('#,fuzzy,range: 0..9\nmsgid "a"\nmsgstr "x"', '#, range: 0..9\nmsgid "a"\nmsgstr "A"'),
        ('#| msgid "o"\n#, fuzzy\nmsgid "a"\nmsgstr "x"', 'msgid "a"\nmsgstr "A"'),
        ('  msgid   "a"\n  msgstr ""\n  ""\n', '  msgid   "a"\n  msgstr "A"\n'),
        ('msgid "a" msgstr ""\n', 'msgid "a" msgstr "A"\n'),
        ('domain "x"\nmsgid "a"\nmsgstr ""\n', 'domain "x"\nmsgid "a"\nmsgstr "A"\n'),
        ('#~ msgid "a"\n#~ msgstr ""\n', '#~ msgid "a"\n#~ msgstr ""\n'),
        ('#~| msgid "o"\n#~ msgid "a"\n#~ msgstr ""', '#~| msgid "o"\n#~ msgid "a"\n#~ msgstr ""'),
        ('msgid "a"\nmsgstr ""\n# the end\n', 'msgid "a"\nmsgstr "A"\n# the end\n'),
        (
            '# x\n\n#. y\nmsgctxt "a"\nmsgid "a"\nmsgstr ""',
            '# x\n\n#. y\nmsgctxt "a"\nmsgid "a"\nmsgstr "A"',
        ),
        (
            'msgid "a"\nmsgstr ""\nmsgid "b"\nmsgstr ""\n',
            'msgid "a"\nmsgstr "A"\nmsgid "b"\nmsgstr "B"\n',
        ),
    ],
)
def test_only_the_flags_and_strings_of_an_entry_change(before: str, after: str):
    read = document(po(before), everything=True)
    written = read.write([capitals(segment.line) for segment in read.segments]).decode()
    assert written == po(after)


def test_the_charset_is_that_of_the_header_and_not_of_a_comment():
    data = po('\n# é\nmsgid "One"\nmsgstr ""\n', charset="ISO-8859-1")
    read = open_document("x.po", f"# charset=UTF-8\n{data}".encode("latin-1"))
    written = read.write(["ł"]).decode()
    assert written.startswith("# charset=UTF-8\n# A translator\n")
    assert "plain; charset=UTF-8\\n" in written


def test_the_letter_of_a_key_is_one_of_the_translation():
    labels = ("&File", "_Open file", "Save ~as")
    entries = "".join(f'\nmsgid "{label}"\nmsgstr ""\n' for label in labels)
    written = document(po(entries)).write(["Datei", "Datei öffnen", "Speichern als"]).decode()
    found = re.findall('msgstr "(.+)"', written)
    assert found == ["&Datei", "_Datei öffnen", "Speichern ~als"]
