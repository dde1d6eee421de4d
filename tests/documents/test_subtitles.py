"""SubRip and WebVTT: sentences over several cues, lines, and what stays."""

import re
from collections import Counter

import pytest
from support.pretended import capitals, reversed_words

from mtkit.base.errors import MtkitError
from mtkit.documents import Document, open_document

SRT = """1
00:00:01,000 --> 00:00:03,000
<i>The old woman buys</i>

2
00:00:03,100 --> 00:00:05,000
<i>a red umbrella.</i>

3
00:00:06,000 --> 00:00:07,000
{\\an8}- Hi, <b>John</b>.
- Hello (sighs) there.

4
00:00:08,000 --> 00:00:09,000
[door slams]

5
00:00:10,000 --> 00:00:12,000
I think we should go to the big
house, because he said that

6
00:00:12,000 --> 00:00:13,500
"the <i>Titanic</i> sank
before -5 degrees."

7
00:00:14,000 --> 00:00:15,000
♪ La la la ♪

8
00:00:15,500 --> 00:00:16,000
123
"""
VTT = """WEBVTT - A film

STYLE
::cue(b) { color: red }

NOTE a comment --> of two
lines

intro
00:01.000 --> 00:03.000 align:start line:0
<v Mary>Tom &amp; <c.loud>Jerry</c> &lt;3.

00:04.000 --> 00:05.000
What <00:04.500>now?
"""


def document(text: str, ending: str = "srt") -> Document:
    return open_document(f"film.{ending}", text.encode())


def lines_of(text: str, ending: str = "srt") -> list[str]:
    return [segment.line for segment in document(text, ending).segments]


def film(*texts: str) -> str:
    """A film whose cues follow each other, of two seconds each."""
    return "\n".join(
        f"{i}\n00:00:{2 * i:02},000 --> 00:00:{2 * i + 2:02},000\n{text}\n"
        for i, text in enumerate(texts, 1)
    )


def shown_in(written: bytes) -> list[list[str]]:
    """The lines of text of each cue."""
    blocks = written.decode().strip().split("\n\n")
    return [block.split("\n")[2:] for block in blocks]


def test_the_segments_are_sentences_without_what_is_around_them():
    segments = document(SRT).segments
    assert [(segment.place, segment.line) for segment in segments] == [
        ("cues 1 to 2", "The old woman buys a red umbrella."),
        ("cue 3", "Hi, <g1>John</g1>."),
        ("cue 3", "Hello <g1>sighs</g1> there."),
        ("cue 4", "door slams"),
        (
            "cues 5 to 6",
            "I think we should go to the big house, because he said that "
            '"the <g1>Titanic</g1> sank before -5 degrees."',
        ),
        ("cue 7", "La la la"),
    ]
    assert lines_of(VTT, "vtt") == ["Tom &amp; <g1>Jerry</g1> &lt;3.", "What <!--1-->now?"]


@pytest.mark.parametrize(("text", "ending"), [(SRT, "srt"), (VTT, "vtt")])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_what_is_not_translated_keeps_its_bytes(text: str, ending: str, line_end: str, mark: bytes):
    data = mark + text.replace("\n", line_end).encode()
    read = open_document(f"film.{ending}", data)
    assert read.write([None] * len(read.segments)) == data
    assert read.write([segment.line for segment in read.segments]) == data


def test_a_file_in_utf_16_stays_one():
    data = SRT.encode("utf-16")
    read = open_document("film.srt", data)
    written = read.write([capitals(segment.line) for segment in read.segments])
    assert written.decode("utf-16").startswith("1\n00:00:01,000 --> 00:00:03,000\n<i>THE OLD")


@pytest.mark.parametrize(("text", "ending"), [(SRT, "srt"), (VTT, "vtt")])
@pytest.mark.parametrize("translated", [capitals, reversed_words])
def test_no_word_is_lost_and_all_else_stays(text: str, ending: str, translated):
    read = document(text, ending)
    written = read.write([translated(segment.line) for segment in read.segments]).decode()
    code = r"<[^<>]*>|\{[^{}]*\}|[\[\]()♪-]|^.*-->.*$"
    assert re.findall(code, written, re.M) == re.findall(code, text, re.M)
    words = [Counter(re.findall(r"\w+", each.lower())) for each in (written, text)]
    assert words[0] == words[1]
    assert len(written.split("\n\n")) == len(text.split("\n\n"))


def test_each_cue_gets_its_share_of_a_sentence():
    read = document(film("The old man and", "his dog", "are walking along the very long street."))
    line = "Der alte Mann und sein Hund laufen die sehr lange Straße da ganz entlang."
    assert shown_in(read.write([line])) == [
        ["Der alte Mann und"],
        ["sein Hund"],
        ["laufen die sehr lange", "Straße da ganz entlang."],
    ]


@pytest.mark.parametrize(
    "reading",
    ["<rt>inu</rt>", "<rt.loud>x y</rt>", "<rt><i>inu</i></rt>", "<rt>inu", "<rt>a<rt>b</rt>"],
)
def test_the_reading_of_a_word_stays_and_is_not_translated(reading: str):
    read = document("WEBVTT\n\n" + film(f"A <ruby>dog{reading}</ruby> is running."), "vtt")
    code = "<!--2--><!--3-->" if reading.count("<rt") > 1 else "<!--2-->"
    assert [segment.line for segment in read.segments] == [f"A <g1>dog{code}</g1> is running."]
    written = read.write([f"Ein <g1>Hund{code}</g1> rennt."])
    assert shown_in(written)[1:] == [[f"Ein <ruby>Hund{reading}</ruby> rennt."]]
    read = document("WEBVTT\n\n" + film(f"<ruby>A dog{reading}</ruby>", "is running."), "vtt")
    assert [segment.line for segment in read.segments] == ["A dog is running."]
    written = read.write(["Ein Hund rennt jetzt."])
    assert shown_in(written)[1:] == [[f"<ruby>Ein Hund{reading}</ruby>"], ["rennt jetzt."]]


def test_an_element_over_a_cut_is_closed_and_opened_again():
    read = document(film("I saw the", "<i>big ship</i> there."))
    written = read.write(["Ich sah <g1>das sehr große Schiff</g1> dort."])
    assert shown_in(written) == [["Ich sah <i>das</i>"], ["<i>sehr große Schiff</i> dort."]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("He came.", "She went."),
        ("He came.»", "She went."),
        ("Who is there?", "me"),
        ("wait…", "no"),
        ("He said", "- No."),
        ("He said", "[door slams]"),
        ("THE END", "and then"),
        ("{\\an8}Above", "below"),
        ("<v Mary>He said", "<v Bob>no"),
        ("{\\pos(9,9)}Above", "{\\pos(9,200)}below"),
        ("来た。", "行った"),
    ],
)
def test_what_is_another_sentence_is_another_segment(first: str, second: str):
    assert len(lines_of(film(first, second))) == 2


def test_a_pause_ends_a_sentence_and_a_text_without_punctuation_is_cut():
    assert len(lines_of(film("He came", "home").replace("0:04,000 --> 00", "0:14,000 --> 00"))) == 2
    cues = [f"word{'x' * i} and" for i in range(14)]
    assert [line.count(" and") for line in lines_of(film(*cues))] == [6, 6, 2]


@pytest.mark.parametrize("seed", range(5))
def test_lines_have_at_most_42_characters_and_as_many_lines_as_before(seed: int):
    words = [f"w{'x' * ((i * 7 + seed * 3) % 11)}" for i in range(12 + 5 * seed)]
    read = document(film("Hello to\nyou."))
    (rows,) = shown_in(read.write([" ".join(words)]))
    assert " ".join(rows).split() == words
    assert max(map(len, rows)) <= 42
    size = len(" ".join(words))
    # Words of at most 12 characters waste less than that on each line.
    assert 2 <= len(rows) <= max(2, -(-size // 30))


def test_text_without_spaces_is_cut_between_characters_of_two_columns():
    read = document(film("She has gone, and I have not seen her again", "since that day."))
    line = "彼女は行ってしまいました。そして私はあの日から彼女に二度と会っていません、本当です。"
    cues = shown_in(read.write([line]))
    assert "".join(row for rows in cues for row in rows) == line
    assert all(0 < len(row) <= 21 and row[0] not in "。、っ" for rows in cues for row in rows)


def test_a_translation_of_fewer_words_than_cues_leaves_no_cue_empty():
    read = document(film("I do not", "really know that", "at all."))
    assert shown_in(read.write(["Nein."])) == [["Nein."], ["…"], ["…"]]


def test_cues_that_are_read_too_fast_are_named():
    read = document(film("Hi.", "Bye."))
    # Of two seconds each: 40 characters are the most.
    read.write(["x" * 20 + " " + "y" * 19, "x" * 20 + " " + "y" * 21])
    assert read.write_notes == ["more than 20 characters a second in 1 of 2 translated cues: 2"]


def test_a_doubt_is_a_note_before_its_cue():
    read = document(VTT, "vtt")
    written = read.write([None, "Was <!--1-->nun?"], {1: "a number is missing -->"}).decode()
    note = "NOTE mtkit: a number is missing ->\n\n00:04.000 --> 00:05.000\nWas <00:04.500>nun?\n"
    assert written == VTT[: VTT.index("00:04.000")] + note


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_later_translation_takes_earlier_notes_away(line_end: str):
    text = VTT.replace("\n", line_end)
    marked = document(text, "vtt").write([None, None], {0: "a", 1: "b"}).decode()
    again = document(marked, "vtt")
    assert again.write([None, None]).decode() == text
    assert again.write([None, None], {0: "a", 1: "b"}).decode() == marked


def test_lines_of_a_cue_after_a_blank_line_are_translated_too():
    text = film("One here.\n\nTwo here.", "Three.").replace("2\n00:00:04", "00:00:04")
    assert lines_of(text) == ["One here.", "Two here.", "Three."]


@pytest.mark.parametrize("data", [b"no times\n", b"", "1\n00:00 é".encode("latin-1")])
def test_what_is_no_subtitle_file_is_one_line(data: bytes):
    with pytest.raises(MtkitError, match=r"^film.srt: [^\n]+$"):
        open_document("film.srt", data)


@pytest.mark.parametrize(
    "time",
    [
        *("00:00:04,000 -> 00:00:06,000", "00:00:0x,000 --> 00:00:02,000", "0:04.000→0:06.000"),
        *("00:00:04 -> 00:00:06", "00:00:04,000 - 00:00:06,000", "O0:OO:04,000 --> 00:00:06,000"),
        *("00:00:04,000 -->", "--> 00:00:06,000", "00:00:04,000 –> 00:00:06,000"),
    ],
)
@pytest.mark.parametrize("ending", ["srt", "vtt"])
def test_a_damaged_time_of_a_cue_is_refused_with_its_line(time: str, ending: str):
    text = f"1\n00:00:01,000 --> 00:00:02,000\nOne.\n\n2\n{time}\nTwo.\n"
    with pytest.raises(MtkitError, match=rf"^\w+\.{ending}: line 6: it looks like the time"):
        document(text, ending)


@pytest.mark.parametrize("words", ["10:30 - 11:00", "10:30 -> 11:00", "3:16, 4:1", "a --> b"])
def test_clocks_and_arrows_in_what_is_said_are_text(words: str):
    assert document(film("One.", words)).segments[0].line == "One."


@pytest.mark.parametrize(
    ("cues", "lines"),
    [
        ("(A MAN)|Two dogs run.", ["A MAN", "Two dogs run."]),
        ("(A MAN|SHOUTS)|Two dogs.", ["A MAN SHOUTS", "Two dogs."]),
        ("Two dogs|run.|[door slams]", ["Two dogs run.", "door slams"]),
        ("<i>[music]</i>|Hello", ["music", "Hello"]),
        ("♪ La la ♪|Two dogs.", ["La la", "Two dogs."]),
        ("♪ La la|la la ♪", ["La la la la"]),
        ("He went to||[door]|the house.", ["He went to the house.", "door"]),
        ("I was||[JOHN] What?", ["I was", "JOHN", "What?"]),
        ("so I went [music]||and saw it.", ["so I went <g1>music</g1> and saw it."]),
        ("Wait... [sighs]||...for me.", ["Wait for me.", "sighs"]),
        ("[sighs] Hello.", ["sighs", "Hello."]),
        ("- [laughs] a man.|- [sighs]|Hi.", ["laughs", "a man.", "sighs", "Hi."]),
        ("-[laughs] A man.", ["laughs", "A man."]),
        (">> [laughs] A man.", ["laughs", "A man."]),
        ("- Hi. - [laughs] Hello.", ["Hi.", "laughs", "Hello."]),
        ("A woman sleeps. [sighs]", ["A woman sleeps.", "sighs"]),
        ("A woman sleeps.(sighs)", ["A woman sleeps.", "sighs"]),
        ("A man [sighs]", ["A man <g1>sighs</g1>"]),
        ("A man (my father)", ["A man <g1>my father</g1>"]),
        ("The man (his father) sleeps.", ["The man <g1>his father</g1> sleeps."]),
        ("The U.S. (America) is big.", ["The U.S. <g1>America</g1> is big."]),
        ("Hi. [sighs] [door] Ho.", ["Hi.", "sighs", "door", "Ho."]),
        ("« Hi. » [sighs] a.[b].c", ["« Hi. » <g1>sighs</g1> a.[b].c"]),
        ("« Hi. » [sighs] Ho.", ["« Hi. »", "sighs", "Ho."]),
        ("I think— [gasps] Help!", ["I think—", "gasps", "Help!"]),
        ("JOHN: [laughs] A man.", ["JOHN:", "laughs", "A man."]),
        ("[JOHN]: A man.", ["JOHN", "A man."]),
        ("<i>[laughs]</i> A <b>man</b>.", ["laughs", "A <g1>man</g1>."]),
        ("<i>[laughs] A man.</i>", ["laughs", "A man."]),
        (r"{\an8}[sighs] I go||{\an8}home.", ["sighs", "I go home."]),
        ("[The old dog|barks] Hi.", ["The old dog barks", "Hi."]),
        ("A man|[A dog|barks] Hi.", ["A man", "A dog barks", "Hi."]),
        ("A man [laughs]|and a dog.", ["A man <g1>laughs</g1> and a dog."]),
        ("Hi. [laughs]|A dog.", ["Hi.", "laughs", "A dog."]),
        ("♪ [music] ♪", ["music"]),
        ("♪ [music] La la ♪", ["music", "La la"]),
        ("♪ La la [applause] ♪", ["La la <g1>applause</g1>"]),
        ("[MAN] what is it? (sighs) “No.” (ha)", ["MAN", "what is it?", "sighs", "“No.”", "ha"]),
        ("No. [laughs]|[JOHN]: Oh! (笑)|[A dog]", ["No.", "laughs", "JOHN", "Oh!", "笑", "A dog"]),
        ("-(risas) ¿Qué?|-[RUIDO] ¡Hola!", ["risas", "¿Qué?", "RUIDO", "¡Hola!"]),
        ("（父）行こう|（母）：うtv||［笑］好", ["父", "行こう", "母", "うtv", "笑", "好"]),
        ("نعم. [tv] لا.", ["نعم.", "tv", "لا."]),
        ("[music (soft)] Hi.", ["music (soft)", "Hi."]),
        ("（犬が吠える）女の人tv。（笑）", ["犬が吠える", "女の人tv。", "笑"]),
        ("【音楽】［男］ 男（父）とtv。", ["音楽", "男", "男（父）とtv。"]),
        ("[...] A woman sleeps.", ["A woman sleeps."]),
        ("(s)he sleeps.", ["(s)he sleeps."]),
        ("I went to the...||...big house.", ["I went to the big house."]),
        ("I went to the||…big house.", ["I went to the big house."]),
        ("<i>Wait…</i>||<i>…for me.</i>", ["Wait for me."]),
        ("He came.||...and left.", ["He came.", "and left."]),
        ("Well...||No.", ["Well...", "No."]),
        ("MAN: Hi there.|WOMAN 2: Hello.", ["MAN: Hi there.", "WOMAN 2: Hello."]),
        (">> JOHN: Hi.|>> Hello.", ["JOHN: Hi.", "Hello."]),
        ("<i>- Hi.</i>|<i>- Ho.</i>", ["Hi.", "Ho."]),
        ("- <b>Hi</b> you|–Ho.", ["<g1>Hi</g1> you", "Ho."]),
        (r"{\i1}Hi{\i0} you\NHo", ["Hi<!--1--> you<!--2-->Ho"]),
        ('<font color="#ff0">Hi</font> you', ["<g1>Hi</g1> you"]),
        ("A dog%(name)s runs.", ["A dog%(name)s runs."]),
        ("Cost is $(x) now.", ["Cost is $(x) now."]),
        (
            "<v Bob>[sighs] No way</v>|<v Al>Yes. [laughs]</v>",
            ["sighs", "No way", "Yes.", "laughs"],
        ),
        # A sound beside half an element stays in its text.
        (
            "<i>[door opens] Hello</i> my <i>friend. [sighs]</i>",
            ["<g1><g2>door opens</g2> Hello</g1> my <g3>friend. <g4>sighs</g4></g3>"],
        ),
        ("...|12|♪♪", []),
    ],
)
def test_sounds_speakers_and_sentences_are_segments(cues: str, lines: list[str]):
    text = film(*(cue.replace("|", "\n") for cue in cues.split("||")))
    read = document(text)
    assert [segment.line for segment in read.segments] == lines
    written = read.write([capitals(line) for line in lines]).decode()
    # Capitals are as long.
    assert written.lower() == text.lower()
    assert not lines or written != text


@pytest.mark.parametrize(
    "cues",
    [
        *("[Two men], in red, play.", "[She] went home.", "[A] dog barks.", "[Tom] & I ran."),
        *("(sighs), I don't know.", "Yes. (laughs). No.", "Oh. (John)? Yes.", "“Yes. (Ha)” No."),
        *("The answer: (a) yes or (b) no.", "Remember; (he said) John is late.", "(a) Yes."),
        *("He saw [a dog]||in the park.", "80 kg [176 lb]||and tall.", "He saw||[a dog] there."),
        *("Mr. (John) Smith.", "5 p.m. (Eastern) Monday.", "The man – (John) Smith – went."),
        *("Er kauft [neues]|Brot.", "Er kauft||[neues] Brot.", "z. B. (heute) Brot."),
        *("Der 3. (dritte) Mann.", "M. (Jean) Dupont.", "(Elle) ! Oui.", "El Sr. (Juan) Paz."),
        *("我去了 [医院]|然后回家", "[两个人]，在玩。", "はい。（笑）。", "هو في [البيت]|مع أمه."),
        "John [quietly]:|I'm here.",
    ],
)
@pytest.mark.parametrize("start", ["", "WEBVTT\n\n"])
def test_words_of_a_sentence_in_brackets_are_no_sounds(cues: str, start: str):
    text = start + film(*(cue.replace("|", "\n") for cue in cues.split("||")))
    line = re.sub(r"\|+", " ", cues).replace("&", "&amp;")
    for number, words in enumerate(re.findall(r"[\[(（].*?[\])）]", line), start=1):
        line = line.replace(words, f"<g{number}>{words[1:-1]}</g{number}>")
    assert lines_of(text, "vtt" if start else "srt") == [line]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("1\n00:00:01.5-->00:00:02\nHi\n", ["Hi"]),
        ("0:01,000 --> 0:02,000 X1:1 X2:2\nHi\n", ["Hi"]),
        ("00:00:01,000 --> 00:00:02,000\nHi\n00:00:02,000 --> 00:00:03,000\nyou.\n", ["Hi you."]),
        (
            "WEBVTT\n\n00:01.000 --> 00:02.000 line:0\n \nHi<00:01.5><c> you</c>\n",
            ["Hi<!--1--><g2> you</g2>"],
        ),
        (
            "WEBVTT\nKind: captions\n\n00:01.000 --> 00:02.000\n&gt;&gt; A &amp; B.\n",
            ["A &amp; B."],
        ),
    ],
)
def test_times_and_lines_as_other_programs_write_them_are_read(text: str, lines: list[str]):
    assert lines_of(text, "vtt" if text.startswith("WEBVTT") else "srt") == lines


def test_a_sound_and_its_sentence_share_their_lines():
    read = document(film("[dog barks] A woman is sleeping\nin her house, and dreams."))
    words = "Eine Frau schläft in ihrem kleinen Haus und träumt."
    assert shown_in(read.write([None, words])) == [
        ["[dog barks] Eine Frau schläft in", "ihrem kleinen Haus und träumt."]
    ]
    assert shown_in(read.write(["Hund bellt", None])) == [
        ["[Hund bellt] A woman is sleeping", "in her house, and dreams."]
    ]


def test_captions_that_roll_up_are_named():
    lines = [f"words number {n}" for n in range(12)]
    cues = [
        f"00:00:{n:02}.000 --> 00:00:{n + 1:02}.000\n{before}\n{line}<c> more</c>\n"
        for n, (before, line) in enumerate(
            zip([" ", *(f"{x} more" for x in lines)], lines, strict=False)
        )
    ]
    (note,) = open_document("a.vtt", "\n".join(["WEBVTT\n", *cues]).encode()).notes
    assert note.startswith("11 cues repeat the line before")
    plain = [cue.replace(cue.split("\n")[1] + "\n", "", 1) for cue in cues]
    assert not open_document("a.vtt", "\n".join(["WEBVTT\n", *plain]).encode()).notes
    music = [f"00:00:{n:02}.000 --> 00:00:{n + 1:02}.000\n<i>♪</i>\n" for n in range(12)]
    assert not open_document("a.vtt", "\n".join(["WEBVTT\n", *music]).encode()).notes
