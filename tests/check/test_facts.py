"""What is learned from a sample of pairs, also if some of them are wrong."""

import itertools
import random

import pytest
from support.demo_grammar import sentences

from mtkit.base.files import parse_record, read_record, write_record
from mtkit.check.rules import limits, rules
from mtkit.check.rules.facts import PairFacts, ends_with_mark, language_of, missing_mark
from mtkit.check.rules.findings import Finding

FRENCH = "La vieille femme a acheté hier un parapluie rouge dans une petite ville."


def findings(source: str, translation: str, facts: PairFacts) -> list[Finding]:
    return rules.findings(*facts.texts(source, translation), facts)


def pairs(count: int, *, seed: int = 1) -> list[tuple[str, str]]:
    return [pair for pair, _ in itertools.islice(sentences(seed=seed), count)]


def test_facts_are_the_same_after_they_were_stored(tmp_path):
    facts = PairFacts.learn(pairs(300), src_lang="en", tgt_lang="de")
    write_record(tmp_path / "facts.json", facts)
    again = read_record(tmp_path / "facts.json", PairFacts, advice="")
    assert again == facts
    assert parse_record(facts.model_dump(), PairFacts, name="", advice="") == facts
    assert again.tgt_words == facts.tgt_words != []
    assert again.never_last == facts.never_last != []


@pytest.mark.parametrize("count", [0, 1, 3, 199])
def test_few_pairs_teach_no_words_and_no_habits(count):
    facts = PairFacts.learn(pairs(count), src_lang="en", tgt_lang="de")
    assert facts.sampled == count
    assert facts.tgt_words == facts.never_last == facts.loose == []
    assert [findings(*pair, facts) for pair in pairs(300, seed=9)] == [[]] * 300


@pytest.mark.parametrize(
    ("tgt_lang", "source", "translation", "kinds"),
    [
        ("de", "We have been waiting for an hour.", "We wachten al een uur op hem.", ["language"]),
        ("uk", "Sign it and attach a copy.", "Подпишите это и приложите копию.", ["language"]),
        (
            "pl",
            "Yes",
            "Tak, oczywiście, zgadzam się i nie mam żadnych zastrzeżeń, "
            "których chciałbym bronić wobec kolegów.",
            ["length"],
        ),
        (
            "zh",
            "It is a long way from here to the next station.",
            "从这里到下一站还有很长的路。",
            [],
        ),
        ("zh", "It is a long way from here to the next station, " * 4, "很远。", ["length"]),
    ],
)
def test_a_single_line_has_a_language_and_a_length(tgt_lang, source, translation, kinds):
    for others in ([], [("Good morning!", translation)]):
        pair = source, translation
        facts = PairFacts.learn([pair, *others], src_lang="en", tgt_lang=tgt_lang)
        found = rules.findings(*facts.texts(*pair), facts)
        assert [finding.kind for finding in found] == kinds


def test_no_more_pairs_are_read_than_the_sample_has(monkeypatch):
    monkeypatch.setattr(limits, "MAX_SAMPLED", 250)
    assert PairFacts.learn(itertools.cycle(pairs(300)), src_lang="en", tgt_lang="de").sampled == 250


def test_pairs_with_a_blank_side_teach_nothing():
    some = pairs(250)
    blank = [("", "x"), ("x", " "), ("", "")] * 50
    assert PairFacts.learn(blank + some, src_lang="en", tgt_lang="de") == PairFacts.learn(
        some, src_lang="en", tgt_lang="de"
    )


def test_a_tenth_of_wrong_pairs_hides_no_others():
    choose = random.Random(3)
    sample = pairs(1500)
    for index in range(0, len(sample), 10):
        source, target = sample[index]
        wrong = choose.choice([source, FRENCH, " ".join(target.split()[:3]), 3 * f"{target} "])
        sample[index] = source, wrong
    facts = PairFacts.learn(sample, src_lang="en", tgt_lang="de")
    good = [pair for pair in pairs(500, seed=9) if len(pair[1].split()) > 5]
    assert [pair for pair in good if findings(*pair, facts)] == []

    def found(kind: str, change) -> float:
        marked = [
            kind in {one.kind for one in findings(source, change(source, target), facts)}
            for source, target in good
        ]
        return sum(marked) / len(marked)

    assert found("copied", lambda source, _: source) == 1
    assert found("language", lambda *_: FRENCH) == 1
    assert found("loop", lambda _, target: 3 * f"{target} ") == 1
    assert (
        found("cut", lambda _, target: " ".join(target.split()[: len(target.split()) // 2])) > 0.8
    )


@pytest.mark.parametrize("every", [2, 3, 10])
@pytest.mark.parametrize("kind", ["source", "target", "swapped"])
def test_a_side_in_another_language_is_found_however_many_pairs_have_one(every, kind):
    sample = [pair for pair in pairs(900) if len(pair[1].split()) > 5]
    for index in range(0, len(sample), every):
        src, tgt = sample[index]
        french = FRENCH.replace("hier", ("hier", "demain", "toujours")[index % 3])
        sample[index] = {"source": (french, tgt), "target": (src, french)}.get(kind, (tgt, src))
    facts = PairFacts.learn(sample, src_lang="en", tgt_lang="de")
    kinds = [{one.kind for one in findings(*pair, facts)} for pair in sample]
    marked = [index for index, of_pair in enumerate(kinds) if "language" in of_pair]
    assert marked == list(range(0, len(sample), every))


def test_the_usual_length_is_that_of_the_corpus():
    # Each target is exactly twice as long as its source, counted with the padding of four.
    sample = [("a" * n, "b" * (2 * n + 4)) for n in range(20, 120)] * 5
    facts = PairFacts.learn(sample, src_lang="en", tgt_lang="de")
    for size in (20, 50, 100):
        assert facts.sigmas(size, 2 * size + 4) == pytest.approx(0, abs=0.2)
        assert facts.sigmas(size, size) < -3
        assert facts.sigmas(size, 5 * size) > 3
    # The mean of other sizes is a guess.
    assert abs(facts.sigmas(10_000, 20_000)) < 1


def test_words_that_no_sentence_ends_with_are_learned():
    sample = [
        (f"the cat {n} sleeps", f"die Katze {n} schläft und die Maus ruht") for n in range(300)
    ]
    facts = PairFacts.learn(sample, src_lang="en", tgt_lang="de")
    assert {"die", "und", "katze"} <= set(facts.never_last)
    assert "ruht" not in facts.never_last


def test_a_finished_sentence_ends_with_a_mark():
    for text in ("End.", "End!", "End? »", 'End."', "End.)", "終わり。", "End…", "End:"):
        assert ends_with_mark(text)
        assert ends_with_mark(f"{text} ")
    for text in ("", " ", "End", "End,", "(End)", "End.a", "“"):
        assert not ends_with_mark(text)


def test_the_language_of_a_text_is_that_of_most_of_its_lines():
    german = [target for _, target in pairs(300)]
    assert language_of(german) == "de"
    assert language_of([FRENCH] * 50 + german) == "de"
    assert language_of(german[:9]) == language_of([]) == "und"


def test_without_room_for_the_identifier_no_language_is_found(monkeypatch):
    def full(*_: object) -> None:
        raise OSError("no space left")

    for name in ("languages", "probabilities", "labels_of"):
        monkeypatch.setattr(f"mtkit.base.language_id.{name}", full)
    assert language_of(["one"] * 100) == "und"
    facts = PairFacts.learn(pairs(300), src_lang="en", tgt_lang="de")
    source = "The old woman bought a red umbrella yesterday in a small city."
    assert "language" not in {one.kind for one in findings(source, FRENCH, facts)}


@pytest.mark.parametrize(
    ("source", "translation", "mark"),
    [
        ("你好。", "Hello", "."),
        ("كيف حالك؟", "Wie geht es dir", "?"),
        ("Hello.", "你好", "。"),
        ("Hello.", "नमस्ते", "।"),
        ("How are you?", "كيف حالك", "؟"),
        ("Hello.", "안녕하세요", "."),
        ("Hello…", "Hallo", "…"),
        ("(Hello.)", "(Hallo)", "."),
        ("Hello.", "Hallo!", ""),
        ("Hello", "Hallo", ""),
    ],
)
def test_a_missing_mark_is_that_of_the_translations_script(source, translation, mark):
    assert missing_mark(source, translation) == mark
