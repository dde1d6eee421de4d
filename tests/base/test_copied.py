"""Which parts of a text are copied: placeholders and addresses, and nothing of ordinary text."""

import pytest

from mtkit.base.copied import TAG, copied, copied_parts, has_language, may_have_copied_parts


def found(text: str) -> list[str]:
    """The parts that are copied, in order."""
    parts = [match[0] for match in copied().finditer(text)]
    assert may_have_copied_parts(text) or not parts
    assert sum(copied_parts([text]).values()) == len(parts)
    return parts


# The forms as the documentation of each library writes them.
PLACEHOLDERS = (
    "%s %d %5.2f %-10s %+d %ld %lld %zu %c %p %n %x %05d %*d %.*f %1$s %2$d %@ %1$@ %(name)s %% %b "
    "%q %v %Y %m %H %M %S %B %p %-d %{name} %<name>s %<n>05.2f %USER% %USERPROFILE% %count% %1 %2 "
    "%L1 %9 %1% {0} {} {name} {user.name} {x[0]} {n:.2f} {x!r:>10} {0,number} {n,plural,other{#}} "
    "{{x}} {{user.name}} {{{html}}} {{#if}} ${x} ${HOME} #{x} @{x} {$name} $(USER) $(CC) $t(key) "
    "$USER $HOME $name $user_id :name :user_id :NAME @:key @:message.hello @.lower:key @:(a.b) "
    "@:{x} %#@x@ <0> </0> <1/> <12> </12> [[x]] [[page|text]] [X0X] [X12X] @name %S %2$S %+v "
    "#name# *|FNAME|* \\(name) \\n [1} {2] [1> <2] {1> <1} [/b] [/url]"
)
WITH_SPACES = [
    "{ $name }",
    "{ -brand-name }",
    "{ NUMBER($x, minimum: 2) }",
    "{n, plural, one {# day} other {# days}}",
    "{ $n -> [one] a day *[other] {$n} days }",
    "{who, select, male {he} other {they}}",
    "{when, date, short}",
    "{{ x }}",
    "{{ x | date: 'short' }}",
    "{% if x %}",
    "<%= name %>",
    "<?= $x->name ?>",
    "{0,choice,0#no dogs|1#one dog|1<{0} dogs}",
    '[gallery id="3"]',
    "${ a + b }",
    *(r"\(x^2 + y\)", r"\[a \le b\]", "$$E = m c^2$$"),
]
ADDRESSES = [
    *("http://example.org/a", "https://example.org", "ftp://a.example.org:21/x;type=i"),
    *("http://пример.рф", "https://пример.рф/путь", "http://例え.jp/a", "http://www.пример.рф/"),
    *("HTTPS://EXAMPLE.ORG/A", "s3://bucket/key", "file:///etc/hosts", "http://[::1]:80/"),
    *("https://en.wikipedia.org/wiki/A_(b)", "https://a.org/?x=1&y=%20s#z", "www.example.org"),
    *("info@example.org", "a.b+c@sub.example.co.uk", "mailto:info@example.org", "почта@пример.рф"),
    *("example.org", "example.org/path", "sub.example.co.uk", "example.com:8080/x", "example.it/x"),
    *("github.com/a/b-c_1.html", "münchen.de", "xn--mnchen-3ya.de", "example.museum/a"),
    *("report.pdf", "IMG_1234.jpg", "IMG_1234.JPG", "a.b.tar.gz", "README.md", "отчёт.docx"),
    *(
        "C:\\Users\\x",
        "C:\\Program Files\\a b\\x.exe",
        "d:\\",
        "/usr/bin/env",
        "~/.bashrc",
        "./x.sh",
    ),
    *("../a/b", "a/b.py", "a/b/c-d.html", "/etc/hosts"),
]


@pytest.mark.parametrize("part", [*PLACEHOLDERS.split(), *WITH_SPACES, *ADDRESSES])
def test_each_form_is_found_whole(part: str):
    texts = ["{}", "Open {} now.", "a {}, b", "({})", "“see {}.”", "Um {}:"]
    for text in texts[: 5 if part.startswith(":") else 6]:  # :name: is an emoji
        assert found(text.replace("{}", part)) == [part]


@pytest.mark.parametrize("address", ["https://example.com/help", "info@example.com", "report.pdf"])
@pytest.mark.parametrize(
    "text", ["请访问{}，谢谢。", "{}をご覧ください。", "{}을 방문하세요.", "ดู{}ได้"]
)
def test_letters_of_scripts_without_spaces_are_not_of_an_address(address: str, text: str):
    assert found(text.replace("{}", address)) == [address]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("%d%%, %s%s", ["%d", "%%", "%s", "%s"]),
        ("%1%2", ["%1", "%2"]),
        ("%Y-%m-%d %H:%M", ["%Y", "%m", "%d", "%H", "%M"]),
        ("100%d", ["%d"]),
        ("<0>link</0>", ["<0>", "</0>"]),
        ("{a}{b}", ["{a}", "{b}"]),
        # What is marked is the sign alone; the word is translated.
        ("&Open", ["&"]),
        ('Save &As "&Öffnen"', ["&", "&"]),
    ],
)
def test_forms_beside_each_other_are_found_each_by_itself(text: str, parts: list[str]):
    assert found(text) == parts


@pytest.mark.parametrize(
    "text",
    """
50% of them, 20 % in all, 100%ige, 50%-discount, 50%off, a 5%iger Anteil, 30 % d'eau, 3%.
%50 artış, %5'i, %5,5, (%30) in Turkish and Basque
AT&T, R&D, Q&A, S&P 500, Smith & Wesson, black&white, &nbsp;&lt;&amp;&copy; &c.
at 5:30, 12:30–14:00, note: this, il dit : bonjour, std::x, 16:9, :-) :) :D, 2:name, a:b, 3 :four
e.g. z.B. i.e. d.h. U.S. a.m. Ph.D. etc.and end.Next Ende.Der fin.La work.in progress No.5 St.Gallen
3.5 1.000,50 24.12.2026 1.2.3 §5.b Nr.3a J.R.R. Tolkien
$5, US$ 5, $US 5, A$AP, $19.99, $AUD 50, $CAN 5, $1m, Ke$ha
and/or, km/h, 1/2, 24/7, he/she, either / or, 3/4-inch, w/o
$$5 and $$6, \\[note\\], \\(see below\\)
[1] [x] [sic] [a][b] [...] <3 5 < 6 > 4 a<b, @ home, @ 5, C#, #1, #tag, 5 * 3, a_b
{ a b c }
Wirklich?Ja!Nein...Doch, weiter.
""".strip().splitlines(),
)
def test_ordinary_text_has_none(text: str):
    assert found(text) == []


@pytest.mark.parametrize(
    "text",
    [
        *("42", "19.99", "2026-11-27", "$19.99", "€ 5,00", "50 %", "№ 5", "#1", "12:30–14:00"),
        *("½", "3 × 4 = 12", "+49 30 1234567", "192.168.0.1:80", "٣٤", "१२३", "Ⅳ", "①", "👍🏽"),
        *("...", "v1.2.3", "0x1F", "1e-5", "2026-11-27T12:00:00Z", "#ff8800", "2.0.0-rc.1 v2-beta"),
        *("123e4567-e89b-12d3-a456-426614174000", "d41d8cd98f00b204e9800998ecf8427e"),
        *("{0} – {1}", "%s / %s", "{{x}}: {{y}}", "http://example.org/a, www.example.org", "", " "),
        *ADDRESSES,
    ],
)  # fmt: skip
def test_what_has_no_letters_of_a_language_has_no_language(text: str):
    assert not has_language(text)


@pytest.mark.parametrize(
    "text",
    [
        *("XIV", "5 kg", "COVID-19", "十", "二〇二六年", "a", "&Open", "%s of %s", "Tel.: +49"),
        *("a 1", "1st", "see example.org", "5 Äpfel", "décade", "facade", "नमस्ते 5", "٣ كتب"),
    ],
)  # fmt: skip
def test_text_with_letters_has_a_language(text: str):
    assert has_language(text)


@pytest.mark.parametrize(
    "piece",
    [
        *("{", "{{", "{% ", "{n, plural, ", "${", "$(", "<%", "[[", "%", "%5", "&a", ":a"),
        *("a.", "a-", "http://", "http://a(", "a@", "a@a.", "a/", "/a", "C:\\a", "C:\\a ", "~/"),
        *("<0", "(", "#{a", "a.b/", "1e", "0x", "ab12", "$a(", "@:a", "www.", "a", "{a:{a:", ".,"),
        *("<a ", '<a b="', "<a b='\"", " x=1", "a="),
    ],
)  # fmt: skip
def test_long_texts_are_read_once(piece: str):
    # If something were tried again from every character, this would take minutes.
    text = (piece * 30_000)[:30_000]
    assert sum(map(len, found(text))) <= len(text)
    assert TAG.search(f"<a {text}") is None
    has_language(text)


@pytest.mark.parametrize(
    "tag",
    [
        *("<b>", "</b>", "</a >", "<br/>", "<br />", "<username>", '<a href="">', "<A HREF='x'>"),
        *('<a title="a>b">', """<a title='a > b' href="c<d">""", "<img src=a/b/>", '<a title="x>'),
        *("<input disabled>", '<option value="1" selected>', "<td nowrap>", "<font color=red>"),
        *("<a %s>", '<a href="%s" %2$s>', "<div {{ attrs }}>", '<a href="{url}" target=_blank>'),
        *("<li v-else>", '<my-link data-x a="b c">', '<b *ngIf="a > b">', '<b (click)="f()">'),
        *('<x:y z="1"/>', '<a\nhref = "x">', r"<a href=\"x y\">", '<a href="x"class="y">'),
    ],
)
def test_a_tag_in_a_text_is_found_whole(tag: str):
    (match,) = TAG.finditer(f"u {tag} v")
    assert match[0] == tag


@pytest.mark.parametrize(
    "part",
    [
        *("<y and z>", "<b and c>", "<y, then z>", "</b and c>", "<y && z>", "<b + 1>", "<b 5>"),
        *("<y and z=5>", "<i or j = 3>", "<p is small>", "<your name>", "<q - r>", "<a, b>"),
        *("<3>", "< b>", "<->", "<>", "<http://x.org>", "<me@x.org>"),
    ],
)
def test_signs_of_mathematics_and_other_brackets_are_no_tags(part: str):
    assert TAG.search(f"x {part} w") is None


def test_no_pattern_has_a_group_of_its_own():
    # The name of the last group is the kind of a match.
    assert set(copied().groupindex) == {"addresses", "placeholders"}
    assert copied().groups == 2
