"""What the rules find, with planted faults, and what they leave alone."""

import itertools
import random
import re

import pytest
from support.demo_grammar import sentences

from mtkit.check.checker import Checker, Decoded
from mtkit.check.model.coverage import Contrast
from mtkit.check.rules import rules
from mtkit.check.rules.facts import PairFacts
from mtkit.check.rules.findings import KINDS, Finding

Pair = tuple[str, str]

# None of these words is in the demo corpus.
FRENCH = [
    "Une femme achète du pain dans la petite boulangerie du quartier.",
    "Les enfants ont joué toute la journée au bord de la rivière.",
    "Nous avons décidé de partir avant la tombée de la nuit.",
]


def demo_pairs(count: int) -> list[Pair]:
    """Pairs of the demo grammar: other ones than the facts are learned from."""
    return [pair for pair, _ in itertools.islice(sentences(seed=7), count)]


@pytest.fixture(scope="module")
def facts():
    """What is usual in the demo corpus."""
    pairs = [pair for pair, _ in itertools.islice(sentences(seed=1), 1000)]
    return PairFacts.learn(pairs, src_lang="en", tgt_lang="de")


@pytest.fixture(scope="module")
def no_facts():
    """What is known without a corpus."""
    return PairFacts.learn([], src_lang="en", tgt_lang="de")


def findings(source: str, translation: str, facts: PairFacts) -> list[Finding]:
    return rules.findings(*facts.texts(source, translation), facts)


def kinds(source: str, translation: str, facts: PairFacts) -> set[str]:
    return {one.kind for one in findings(source, translation, facts)}


def only(kind: str, source: str, translation: str, facts: PairFacts) -> Finding:
    """The only finding for a pair, of this kind."""
    (found,) = findings(source, translation, facts)
    assert found.kind == kind
    return found


def test_good_pairs_are_not_marked(facts, no_facts):
    pairs = demo_pairs(1000)
    assert [pair for pair in pairs if findings(*pair, facts)] == []
    assert [pair for pair in pairs if findings(*pair, no_facts)] == []


def test_blank_lines_are_translations_of_blank_lines_alone(no_facts):
    assert findings("", "", no_facts) == findings(" ", "\u3000\t", no_facts) == []
    assert only("length", "Here.", "", no_facts).severity == 1.0
    assert only("length", "Here.", " ", no_facts).reason == "the translation is empty"
    assert only("length", "", "Hier.", no_facts).reason == (
        "the source is empty, but not the translation"
    )


def test_any_text_can_be_checked(facts):
    choose = random.Random(5)
    words = "12 1. www. :// one ein III"
    parts = [*"\0\u2028\ud800😀ßﬁİ%{}<a &;@(„\r\t日本٣", *words.split()]
    for _ in range(500):
        pair = ["".join(choose.choices(parts, k=choose.randint(0, 40))) for _ in range(2)]
        for one in findings(pair[0], pair[1], facts):
            assert 0 <= one.severity <= 1
            assert one.kind in KINDS
            for text, span in zip(pair, (one.src, one.tgt), strict=True):
                assert span is None or 0 <= span.start < span.stop <= len(text)


def test_a_phrase_of_any_length_that_is_there_three_times_is_a_loop(facts):
    choose = random.Random(1)
    for source, translation in demo_pairs(200):
        words = translation.split()
        size = choose.randint(1, len(words))
        at = choose.randint(0, len(words) - size)
        looped = " ".join(words[:at] + 3 * words[at : at + size] + words[at + size :])
        assert "loop" in kinds(source, looped, facts)


def test_a_loop_has_its_phrase_its_count_and_its_place(no_facts):
    text = "Er geht nach Hause und nach Hause und nach Hause und schläft."
    found = only("loop", "He goes home and sleeps after a very long day.", text, no_facts)
    assert found.reason == '"nach hause und" occurs 3 times in a row'
    assert found.tgt is not None
    assert text[found.tgt.start : found.tgt.stop] == "nach Hause und nach Hause und nach Hause und"


def test_a_loop_inside_of_a_word_and_of_a_language_without_spaces_is_found(no_facts):
    found = only("loop", "He laughed about it for a long time.", "Er " + "haha" * 12, no_facts)
    assert found.tgt == range(3, 51)
    chinese = PairFacts.learn([], src_lang="en", tgt_lang="zh")
    assert "loop" in kinds(
        "The weather is fine today.", "今天天气" + "很好很好" * 4 + "。", chinese
    )
    assert kinds("The weather is fine today.", "今天天气很好。", chinese) == set()
    assert kinds("Thank you very much.", "谢谢谢谢。", chinese) == set()


@pytest.mark.parametrize(
    ("language", "source", "translation", "is_loop"),
    [
        ("zh", "Happy new year!", "新年快乐！新年快乐！", True),
        ("zh", "Thank you very much.", "非常感谢。非常感谢。", True),
        ("ja", "Good morning.", "おはよう。おはよう。", True),
        ("zh", "Happy new year! Happy new year!", "新年快乐！新年快乐！", False),
        ("zh", "Thank you!", "谢谢！谢谢！", False),
        ("ja", "Slowly.", "ゆっくりゆっくり。", False),
        ("ja", "The stars twinkle, twinkle.", "星がきらきらきらきら輝く。", False),
        ("ja", "The stars twinkle, twinkle.", "星がきらきらきらきらきらきら輝く。", True),
    ],
)
def test_a_text_without_spaces_that_is_there_twice_is_a_loop(
    language, source, translation, is_loop
):
    facts = PairFacts.learn([], src_lang="en", tgt_lang=language)
    assert ("loop" in kinds(source, translation, facts)) == is_loop


def test_a_source_that_is_copied_is_found(facts, no_facts):
    for source, _ in demo_pairs(200):
        assert "copied" in kinds(source, source, facts)
        assert "copied" in kinds(source, source, no_facts) or len(source.split()) < 4
    for language in ("zh", "ja", "th", "ko"):
        other = PairFacts.learn([], src_lang="en", tgt_lang=language)
        source = "The cat is sleeping on the sofa."
        assert "copied" in kinds(source, source, other), language
    reason = "the source, unchanged"
    assert only("copied", "The man buys a book.", "The man buys a book.", facts).reason == reason


def test_most_of_a_source_is_copied_too(facts):
    source = "Yesterday the old woman bought a red umbrella."
    found = only("copied", source, "Gestern the old woman bought a red umbrella.", facts)
    assert found.reason == "7 of 8 words are those of the source"


@pytest.mark.parametrize(
    "text", ["Anna, Peter.", "Boeing 747-400", "OK", "Thomas Maria Peter Anna"]
)
def test_names_and_numbers_may_be_the_same_in_both_languages(text, facts):
    assert findings(text, text, facts) == []


def test_a_third_language_of_the_same_script_is_found(facts):
    source = "Yesterday the old woman bought a red umbrella in the small city."
    for text in FRENCH:
        found = only("language", source, text, facts)
        assert found.reason == "looks like fr, and 0% of the words are usual" or (
            found.reason.startswith("looks like French, and ")
        )
    # Too few letters say nothing.
    assert "language" not in kinds("Thank you.", "Merci bien.", facts)


def test_unusual_words_of_the_right_language_are_no_other_language(facts):
    source = "The ministers deliberated about subsidies for milk producers until midnight."
    text = "Die Minister berieten bis Mitternacht über Zuschüsse für Milcherzeuger."
    assert kinds(source, text, facts) <= {"length"}


def test_another_script_is_found_and_names_in_it_are_not(no_facts):
    found = only("language", "Good morning to all.", "Доброе утро всем.", no_facts)
    assert found.reason == "0% of the letters are in a script of de"
    russian = PairFacts.learn([], src_lang="en", tgt_lang="ru")
    assert kinds("Good morning to all.", "Доброе утро всем.", russian) == set()
    assert kinds("Good morning to all.", "Guten Morgen allen.", russian) == {"language"}
    assert kinds("Windows XP Home Edition", "Windows XP Home Edition", russian) <= {"copied"}
    unknown = PairFacts.learn([], src_lang="und", tgt_lang="und")
    assert kinds("Good morning to all.", "Доброе утро всем.", unknown) == set()


# The first article of the Universal Declaration of Human Rights, but for the Serbian one in Latin.
FIRST_ARTICLE = {
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "zh": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "ur": "تمام انسان آزاد اور حقوق و عزت کے اعتبار سے برابر پیدا ہوئے ہیں۔",
    "srp_Cyrl": "Сва људска бића рађају се слободна и једнака у достојанству и правима.",
    "srp_Latn": "Sva ljudska bića rađaju se slobodna i jednaka u dostojanstvu i pravima.",
    "th": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
}


@pytest.mark.parametrize("language", FIRST_ARTICLE)
def test_each_language_is_told_by_its_script_on_both_sides(language):
    english = "All human beings are born free and equal in dignity and rights."
    for src_lang, tgt_lang in (("en", language), (language, "en")):
        no_facts = PairFacts.learn([], src_lang=src_lang, tgt_lang=tgt_lang)
        for written, text in FIRST_ARTICLE.items():
            pair = (english, text) if tgt_lang == language else (text, english)
            of_kind = {f.kind for f in findings(*pair, no_facts)} & {"language"}
            assert of_kind == ({"language"} if written != language else set()), (written, pair)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ja", "東京都千代田区永田町一丁目"),
        ("ja", "日本国憲法第九条"),
        ("ko", "大韓民國(대한민국)의 首都는 서울이다."),
        ("zho_Hant", "《となりのトトロ》是宮崎駿導演的動畫電影，由吉卜力工作室製作並於日本上映。"),
    ],
)
def test_names_and_titles_of_another_language_of_east_asia_are_no_fault(language, text):
    no_facts = PairFacts.learn([], src_lang="en", tgt_lang=language)
    assert "language" not in kinds("A name of something in East Asia", text, no_facts)


@pytest.mark.parametrize(
    ("language", "source", "translation"),
    [
        ("zh", "Download Microsoft Office", "下载Microsoft Office"),
        ("ja", "Open Google Chrome.", "Google Chromeを開く。"),
        ("ru", "Microsoft Windows Server is running.", "Microsoft Windows Server запущен."),
    ],
)
def test_names_keep_their_script(language, source, translation):
    no_facts = PairFacts.learn([], src_lang="en", tgt_lang=language)
    assert kinds(source, translation, no_facts) == set()
    # Other words do not.
    lower = translation.lower()
    assert kinds(source.lower(), lower, no_facts) == {"language"}


def test_a_number_that_was_changed_is_found(no_facts):
    source, translation = "It costs 15 euros in 2020.", "2020 kostet es 18 Euro."
    found = only("numbers", source, translation, no_facts)
    assert found.reason == "missing: 15; added: 18"
    assert found.src is not None
    assert found.tgt is not None
    assert source[found.src.start : found.src.stop] == "15"
    assert translation[found.tgt.start : found.tgt.stop] == "18"


def test_numbers_are_not_joined_by_what_may_be_a_decimal_mark(no_facts):
    found = only("numbers", "From 1.5 m, 2 m to 3 million.", "Von 4 bis 3 Milliarden.", no_facts)
    assert found.reason == "missing: 1.5 and 2 and 3 million; added: 4 and 3 Milliarden"


def test_a_tag_may_stand_inside_of_a_number(no_facts):
    source, translation = "It costs <b>$4.5</b> million.", "Es kostet 4,5 <b>Millionen</b> Dollar."
    assert kinds(source, translation, no_facts) == set()
    found = only("numbers", source, translation.replace("4,5", "4,6"), no_facts)
    assert found.reason == "missing: 4.5 million; added: 4,6 Millionen"


def test_a_number_that_is_missing_is_reported_where_the_corpus_keeps_all_numbers():
    strict = [
        (f"We saw {n} birds on day {n}.", f"Wir sahen am Tag {n} {n} Vögel.") for n in range(500)
    ]
    loose = [(f"We saw {n} birds.", "Wir sahen sie.") for n in range(250)] + strict[:250]
    for pairs, expected in ((strict, {"numbers"}), (loose, set())):
        facts = PairFacts.learn(pairs, src_lang="en", tgt_lang="de")
        assert facts.is_strict_about_numbers == bool(expected)
        assert kinds("We saw 70 birds on day 70.", "Wir sahen am Tag 70 Vögel.", facts) == expected
        assert kinds("We saw birds on day 70.", "Wir sahen 7 Vögel am Tag 70.", facts) == expected


PLACEHOLDERS = (
    "{name} %s %1$s %(count)d ${user} {{x}} {0} %@ {$name} [X0X] %1 %b %% $(USER) :name <0> [[x]]"
    " @:key {%x%} #{x}"
)


@pytest.mark.parametrize("mark", PLACEHOLDERS.split())
def test_a_placeholder_that_is_lost_or_added_or_changed_is_found(mark, no_facts):
    source, translation = f"Hello {mark} and welcome.", f"Hallo {mark} und willkommen."
    assert kinds(source, translation, no_facts) == set()
    for texts in ((source, translation.replace(mark, "")), (source.replace(mark, ""), translation)):
        found = only("placeholders", *texts, no_facts)
        assert mark in found.reason
    found = only("placeholders", source, translation.replace(mark, "%i"), no_facts)
    assert found.reason == f"missing: {mark}; added: %i"


def test_tags_and_entities_are_those_of_the_source(no_facts):
    source = "A <b>red</b> <a href='x'>car</a> &copy; 5 &lt; 6<br/>"
    good = "Ein <b>rotes</b> <a href='y'>Auto</a> &copy; 5 &lt; 6<br/>"
    assert kinds(source, good, no_facts) == set()
    assert only("markup", source, good.replace("</b>", ""), no_facts).reason == "missing: </b>"
    assert only("markup", source, good.replace("<br/>", "<p>"), no_facts).reason == (
        "missing: <br/>; added: <p>"
    )
    assert only("markup", source, good.replace("&lt;", "<"), no_facts).reason == "missing: &lt;"
    swapped = "Ein </b>rotes<b> <a href='y'>Auto</a> &copy; 5 &lt; 6<br/>"
    assert "another order" in only("markup", source, swapped, no_facts).reason
    # An empty element may be written in several ways, and need not be closed.
    for line_break in ("<br>", "<BR />", "<br />"):
        assert kinds(source, good.replace("<br/>", line_break), no_facts) == set()
        texts = source.replace("<br/>", line_break), swapped.replace("<br/>", line_break)
        assert "another order" in only("markup", *texts, no_facts).reason
    assert kinds('<x id="1" />One.', '<x id="1"/>Eins.', no_facts) == set()
    assert kinds('<x id="1"/>One.', '<x id="1">Eins.', no_facts) == {"markup"}
    # Quotation marks and spaces follow the language.
    assert kinds("&quot;A&quot; &amp; B", "„A“ und B", no_facts) == set()


def test_addresses_are_those_of_the_source(no_facts):
    source = "See https://example.org/a?b=1, or write to joe@example.com."
    good = "Siehe https://example.org/a?b=1 oder schreibe an joe@example.com."
    assert kinds(source, good, no_facts) == set()
    found = only("addresses", source, good.replace("joe@", "jo@"), no_facts)
    assert found.reason == "missing: joe@example.com; added: jo@example.com"
    assert kinds(source, good.replace("b=1", "b=2"), no_facts) == {"addresses"}
    # "&copy" would be a sign of HTML, with a semicolon.
    links = "https://a.org/?x=1&copy=2", "https://a.org/?x=1&amp;copy=2"
    assert kinds(f"See {links[0]} now.", f"Siehe {links[1]} jetzt.", no_facts) == set()
    assert "addresses" in kinds("Visit WWW.FOO.COM now.", "Siehe WWW.BAR.COM jetzt.", no_facts)
    assert kinds("See www.example.org.", "Siehe (WWW.Example.org)", no_facts) <= {
        "cut",
        "addresses",
    }


@pytest.mark.parametrize(
    ("language", "translation"),
    [
        ("zh", "详情请访问https://example.com/help，谢谢。"),
        ("zh", "请访问https://example.com/help。"),
        ("ja", "https://example.com/helpをご覧ください。"),
        ("ko", "https://example.com/help을 방문하세요."),
        ("de", "Siehe ‚https://example.com/help‘."),
    ],
)
def test_an_address_ends_where_other_letters_begin_and_is_in_no_script(language, translation):
    pair_facts = PairFacts.learn([], src_lang="en", tgt_lang=language)
    source = "See https://example.com/help."
    assert kinds(source, translation, pair_facts) == set()
    wrong = translation.replace("help", "hilfe")
    assert only("addresses", source, wrong, pair_facts).reason == (
        "missing: https://example.com/help; added: https://example.com/hilfe"
    )


def test_an_email_address_and_a_placeholder_are_in_no_script():
    chinese = PairFacts.learn([], src_lang="en", tgt_lang="zh")
    source = "Mail info@example.com, {username}!"
    assert kinds(source, "请发邮件至info@example.com，{username}！", chinese) == set()
    assert kinds(source, "Mail an info@example.com, lieber {username}!", chinese) == {"language"}


def test_the_number_of_an_entity_is_no_number(facts):
    strict = facts.model_copy(update={"is_strict_about_numbers": True})
    assert kinds("It&#39;s good &#160;here.", "Es ist gut hier.", strict) == set()


@pytest.mark.parametrize(
    "text",
    ["Python 3.11 5 7 9", "5 ± 0.2 mm", "https://example.com/en/help/page", "{one_two} %s %d"],
)
def test_what_has_few_words_is_not_copied(text, no_facts):
    assert kinds(text, text, no_facts) == set()


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("{n, plural, one {# file} other {#}}", "{n,plural, one {# Datei} other {#}}"),
        ("{x, select, male {He} other {They}} sat.", "{x, select, male {Er} other {Sie}} saß."),
        ("{{user.name}} left.", "{{ user.name }} ging."),
        ("a 50%-discount", "ein 50%-Rabatt"),
        ("50%discount", "50%Rabatt"),
        ("A 30% discount", "%30 deskontua"),
        ("50% of them, 20 % in all", "50 % von ihnen, 20 % insgesamt"),
        ("100% safe", "100%ige Sicherheit"),
        ("See aktualne.cz.", "Voir aktuálně.cz."),
        ("See https://example.org/a?b=1&amp;c=2.", "Siehe https://example.org/a?b=1&c=2."),
        (
            "Our caf&eacute; &copy; Example &#8211; &#x2022; 5 &euro;",
            "Unser Café © Beispiel – • 5 €",
        ),
        ("It&#39;s &#8220;good&#8221;.", "Es ist &bdquo;gut&ldquo;."),
    ],
)
def test_other_forms_of_the_same_placeholder_address_or_sign_are_no_fault(
    source, translation, no_facts
):
    assert kinds(source, translation, no_facts) == set()
    # Nobody reads an entity in place of a sign that the source has.
    escaped = {"markup"} if "&" in source and "&" not in translation else set()
    assert kinds(translation, source, no_facts) == escaped


def test_an_address_may_have_any_code_of_the_language_of_its_side(no_facts):
    for ours, theirs in (("eng.html", "deu.html"), ("a_eng.pdf", "a_ger.pdf"), ("en.md", "de.md")):
        assert kinds(f"See {ours} now.", f"Siehe {theirs}.", no_facts) == set()
    assert kinds("See eng.html now.", "Siehe fra.html.", no_facts) == {"addresses"}


def test_placeholders_may_get_their_position_in_a_translation(no_facts):
    source = "%s of %5.1f pages by %(name)s"
    assert kinds(source, "%1$s von %2$5.1f Seiten, %(name)s", no_facts) == set()
    assert kinds(source, "von %2$5.1f Seiten %1$s, %(name)s", no_facts) == set()
    assert kinds("%1$s von %2$s Seiten", "%s of %s pages", no_facts) == set()
    assert kinds("50%-discount for %s", "50 % Rabatt für %1$s", no_facts) == set()
    found = only("placeholders", source, "%1$5.1f Seiten, davon %2$s, %(name)s", no_facts)
    assert found.reason == "missing: %5.1f, %s; added: %1$5.1f, %2$s"
    assert kinds(source, "%1$s von %1$s Seiten, %(name)s", no_facts) == {"placeholders"}


def test_the_argument_of_a_plural_is_a_placeholder(no_facts):
    source = "{count, plural, one {# file} other {# files}}"
    translation = "{anzahl, plural, one {# Datei} other {# Dateien}}"
    assert only("placeholders", source, translation, no_facts).reason == (
        "missing: {count,plural}; added: {anzahl,plural}"
    )


def test_a_kind_that_is_usual_in_the_corpus_is_not_reported():
    pairs = [(f"<i>Bird {n}</i> flies.", f"Der Vogel {n} fliegt.") for n in range(400)]
    facts = PairFacts.learn(pairs, src_lang="en", tgt_lang="de")
    assert facts.loose == ["markup"]
    assert kinds("<i>Bird 9</i> flies.", "Der Vogel 9 fliegt.", facts) == set()
    assert kinds("{x} flies.", "Der Vogel fliegt.", facts) >= {"placeholders"}


def test_tags_that_few_pairs_have_are_no_habit():
    pairs = [(f"Bird {n} flies.", f"Der Vogel {n} fliegt.") for n in range(3000)]
    pairs[:30] = [(source, f"<b>{text}</b>") for source, text in pairs[:30]]
    facts = PairFacts.learn(pairs, src_lang="en", tgt_lang="de")
    assert facts.loose == []
    assert kinds(*pairs[0], facts) == {"markup"}


def test_a_translation_that_is_much_longer_or_shorter_than_usual_is_found(facts):
    source, translation = demo_pairs(1)[0]
    both = " ".join(other for _, other in demo_pairs(8))
    assert "longer than usual" in only("length", source, both, facts).reason
    long_source = " ".join(other for other, _ in demo_pairs(8))
    assert "shorter than usual" in only("length", long_source, translation, facts).reason


def test_a_wrong_length_is_given_with_the_length_of_four_in_five_translations():
    # 40 characters and 4 more, twice as long, without 4: the median is 84.
    pairs = [("s" * 40, "t" * size) for size in (60, 84, 84, 84, 110) for _ in range(400)]
    facts = PairFacts.learn(pairs, src_lang="en", tgt_lang="de")
    found = only("length", "s" * 40, "t" * 5, facts).reason
    match = re.fullmatch("much shorter than usual: 5 characters, usual ([0-9]+) to ([0-9]+)", found)
    assert match is not None
    low, high = map(int, match.groups())
    assert 58 <= low < 84 < high <= 112


def test_a_translation_that_is_cut_in_the_middle_is_found(facts):
    pairs = [pair for pair in demo_pairs(300) if len(pair[1].split()) > 5]
    cut = [(s, " ".join(t.split()[: len(t.split()) // 2])) for s, t in pairs]
    found = sum("cut" in kinds(*pair, facts) for pair in cut)
    assert found >= 0.9 * len(cut)


@pytest.mark.parametrize(("last", "is_cut"), [(-0.5, False), (-4.0, True)])
def test_where_the_model_expects_the_mark_nothing_else_is_missing(facts, last, is_cut):
    source, translation = next(pair for pair in demo_pairs(300) if len(pair[1].split()) > 8)
    words = translation.split()
    first_words = " ".join(words[: len(words) * 2 // 3])
    assert kinds(source, first_words, facts) == {"cut"}
    decoded = Decoded(contrast=Contrast(-1.0, -1.0, last, 0.0, 0.0, 0.0))
    found = Checker(facts).check(source, first_words, decoded).findings
    assert [finding.kind for finding in found] == ["cut"] * is_cut


def test_what_is_probable_without_a_missing_mark_may_be_cut(facts):
    # The source has no mark, so no mark was added to the translation.
    source, cut = "The old man buys a red umbrella", "Der Mann kauft einen,"
    decoded = Decoded(contrast=Contrast(-1.0, -1.0, -0.1, 0.0, 0.0, 0.0))
    for known in (None, decoded):
        assert [x.kind for x in Checker(facts).check(source, cut, known).findings] == ["cut"]


@pytest.mark.parametrize(
    ("end", "is_cut"),
    [("{days}", False), ("(%s)", False), ("a.org", False), ("", True), ("</b>", True)],
)
def test_a_text_may_end_with_a_placeholder_behind_any_word(end, is_cut, facts):
    known = facts.model_copy(update={"never_last": ["und"]})
    assert ("cut" in kinds(f"The old man {end}.", f"Der alte Mann und {end}", known)) == is_cut


def test_an_end_that_the_source_lacks_too_is_not_cut(facts):
    for source, translation in demo_pairs(200):
        assert kinds(source.rstrip(".?!"), translation.rstrip(".?!"), facts) == set()


@pytest.mark.parametrize(("end", "is_cut"), [("……", False), ("——", False), ("，", True)])
def test_an_ellipsis_may_become_a_dash(end, is_cut):
    facts = PairFacts.learn([], src_lang="en", tgt_lang="zh")
    for source in ("I do not know what to say…", "I do not know what to say..."):
        assert ("cut" in kinds(source, f"我不知道该说什么{end}", facts)) == is_cut


def test_what_the_decoder_knows_is_a_finding(facts):
    pair = demo_pairs(1)[0]
    checker = Checker(facts)
    assert checker.check(*pair, Decoded()).findings == ()
    assert checker.check(*pair).confidence is None
    decoded = Decoded(finished=False, missing=["Haus"])
    found = checker.check(*pair, decoded).findings
    assert [one.kind for one in found] == ["cut", "glossary"]
    assert [one.reason for one in found] == [
        "the translation ended at the limit of its length",
        "the translation is without 'Haus'",
    ]
    (found,) = checker.check(*pair, Decoded(truncated=True)).findings
    assert (found.kind, found.reason) == ("cut", "the end of the source was not translated")


def test_findings_are_in_the_order_of_their_kinds(facts):
    text = "Good {x} morning www.a.de 3 <b> " * 9
    checker = Checker(facts, alphabet=frozenset("Her"))
    decoded = Decoded(missing=["Haus"], finished=False)
    found = [one.kind for one in checker.check("Here 5.", text, decoded).findings]
    assert found == sorted(found, key=[*KINDS].index)
    assert len(found) > 5


def test_a_tag_at_the_end_is_not_a_cut(facts):
    for source, translation in demo_pairs(100):
        assert "cut" not in kinds(f"<a>{source}</a>", f"<a>{translation}</a>", facts)


@pytest.mark.parametrize(
    "source",
    [
        "It cost $1,234.50.",
        "12 500.25.",
        "1'000.5.",
        "5 tau\u017fend.",
        "2 m\u0131ll\u0131on.",
        "9" * 5000 + " 7:30",
        "It rose by .5.",
        "3" + 1000 * " billion",
        "1/2/3 and 5/0 and ½ and 0 1/1",
        "7 " + 1200 * "hundert",
        "7 " + 200 * "hundert ",
        "7 " + 200 * "hundred ",
    ],
)
def test_no_number_is_an_error(source, facts):
    kinds(source, "Es kostet 7 und 8 Euro um 19:30.", facts)
    kinds("It costs 7 or 8 at 7:30 pm.", source, facts)


def test_long_text_is_checked_in_a_moment(facts):
    # Each took minutes when its time grew with the square of the length.
    texts = ["a" * 50_000 + "@", "1 " * 20_000, "<" * 50_000, "{" * 50_000, "www." * 10_000]
    for text in [*texts, "1/2 " * 20_000, '7" ' * 20_000, "." * 50_000]:
        kinds(text, text[1:], facts)


@pytest.mark.parametrize("text", ["मामूली काकाकी बात।", "cafe\u0301 cafe\u0301"])
def test_marks_belong_to_the_letters_before_them(text, facts):
    assert "loop" not in kinds("A small thing.", text, facts)
    assert len(facts.texts("", text)[1].words) == len(text.split())


@pytest.mark.parametrize(
    ("source", "translation", "is_marked"),
    [
        ("Three million euros.", "Drei Milliarden Euro.", True),
        ("Twenty billion euros.", "Zwanzig Millionen Euro.", True),
        ("Three million euros.", "Drei Millionen Euro.", False),
        ("Two thousand million people.", "Zwei Milliarden Menschen.", False),
    ],
)
def test_millions_and_billions_in_words_are_compared(source, translation, is_marked):
    checker = Checker(PairFacts.learn([], src_lang="en", tgt_lang="de"))
    findings = checker.check(source, translation).findings
    assert [finding.kind for finding in findings] == ["numbers"] * is_marked
