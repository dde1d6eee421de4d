"""Glossaries: reading them, finding their terms, and translations that contain every one."""

import gzip
import logging
import random
import re
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import ENGLISH, GERMAN, random_run, slow
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.translators import texts_of

from mtkit.base.errors import MtkitError
from mtkit.native import available
from mtkit.run_folder import Run
from mtkit.tokenizer import UNK_ID, Tokenizer
from mtkit.translate import Glossary, Translation, Translator, Window
from mtkit.translate.glossary.terms import TermEncoder, missing_terms

# Numbers with a translation that the models of these tests do not choose by themselves.
TERMS = {"one": "Bein", "two three": "acht neun", "nine": "fünf", "zebra": "Zu-g"}


# With room for many terms in an output.
ROOMY = {"max_extra_length": 25}


def holding(run: Run | list[Run], terms: dict[str, str], **settings: Any) -> Translator:
    """Translates with these terms and other settings of `decode`."""
    config = (run if isinstance(run, Run) else run[0]).config.decode
    config = config.model_copy(update=settings)
    return Translator.load(run, config=config, device="cpu", glossary=Glossary(terms))


def numbers(count: int) -> list[str]:
    rng = random.Random(1)
    return [" ".join(rng.choices([*ENGLISH, "zebra"], k=rng.randint(1, 4))) for _ in range(count)]


def is_word_of(term: str, text: str) -> bool:
    """Whether a term stands in a text with no letter beside it."""
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text) is not None


def test_a_term_may_be_a_word_of_a_million_characters():
    word = "x" * 1_000_000
    assert Glossary({word: "Hut"}).demanded(f"a {word} is no {word}s") == ["Hut"]


# Reading


def read(folder: Path, text: str | bytes, name: str = "terms.tsv") -> Glossary:
    path = folder / name
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return Glossary.read(path, ("en", "de"))


@pytest.mark.parametrize("name", ["terms.tsv", "terms.tsv.gz"])
def test_a_glossary_is_read_from_a_plain_or_compressed_file(name, tmp_path):
    text = "\ufeffcat\tKatze\r\n\n# pets\n#\ndog\t Hund \r\n#tag\t#Schlagwort\ncat\tKatze\n"
    glossary = read(tmp_path, text, name)
    assert len(glossary) == 3
    assert glossary.demanded("a dog, a cat #tag") == ["Hund", "Katze", "#Schlagwort"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat\tKatze\ndog Hund\n", "line 2: has 1 column; write a source term, a tab and a target"),
        ("cat\tKatze\tf\n", "line 1: has 3 columns"),
        ("\tKatze\n", "line 1: the source term is empty"),
        ("cat\t \n", "line 1: the target term is empty"),
        ("cat\tKatze\n\nbig  cat\tx\nbig cat\ty\n", "line 4: the source term 'big cat' has the "),
        (b"cat\tK\xe4tzchen\n", "line 1: not UTF-8"),
    ],
)
def test_a_mistake_in_a_glossary_is_an_error_with_file_and_line(text, message, tmp_path):
    with pytest.raises(MtkitError) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'terms.tsv'}, {message}")


@pytest.mark.parametrize(
    "header", ["source\ttarget", "SRC\ttgt ", "en\tde", "EN-us\tde_DE", "# pets\neng\tdeu"]
)
def test_a_first_line_that_names_the_columns_is_no_term(header, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    glossary = read(tmp_path, f"{header}\nsource\ttarget\ncat\tKatze\n")
    assert glossary.demanded("en cat, eng src EN-us") == ["Katze"]
    assert glossary.demanded("source") == ["target"]
    (record,) = caplog.records
    assert record.message.endswith("names the columns and is not a term")


@pytest.mark.parametrize(
    "line", ["en\tes", "source\tQuelle", "de\ten", "cat\ttarget", "en-x\tde-x"]
)
def test_a_first_line_with_other_words_is_a_term(line, tmp_path):
    source, target = line.split("\t")
    assert read(tmp_path, f"{line}\n").demanded(source) == [target]


def test_a_term_with_a_tag_is_reported_once(tmp_path, caplog):
    read(tmp_path, "a < b > c\tx\n<b>dog</b>\tHund\ncat\t<i>Katze</i>\n")
    (record,) = caplog.records
    assert record.message.startswith(f"{tmp_path / 'terms.tsv'}, line 2: has a tag")


def test_the_checksum_is_that_of_the_terms(tmp_path):
    digest = read(tmp_path, "cat\tKatze\ndog\tHund\n").digest
    assert digest == read(tmp_path, "# pets\ndog\tHund\ncat\tKatze\n").digest
    assert digest != read(tmp_path, "cat\tKater\ndog\tHund\n").digest


# Finding terms


@pytest.mark.parametrize(
    ("terms", "line", "expected"),
    [
        # At word boundaries.
        ({"cat": "x"}, "cats concatenate the cat.", "x"),
        ({"cat": "x"}, 'a (cat), "cat" and cat\'s', "xxx"),
        ({"cat": "x"}, "cat_like cat2 cate\u0301", ""),
        ({"C++": "x"}, "C++ and C+", "x"),
        # The longest one, and none inside of it.
        ({"cat": "x", "black cat": "y", "black": "z"}, "a black cat, black as a cat", "yzx"),
        ({"a b": "x", "b c d": "y"}, "a b c d", "x"),
        # In lower case: any case. With a capital letter: as it is written, and before the others.
        ({"cat": "x"}, "Cat CAT cAt", "xxx"),
        ({"US": "x"}, "tell us about the US", "x"),
        ({"apple": "x", "Apple": "y"}, "Apple apple APPLE", "yxx"),
        ({"straße": "x"}, "STRASSE Straße", "xx"),
        # White space and compatibility characters.
        ({"new  york": "x"}, "New\u00a0York, new york", "xx"),
        ({"fin": "x"}, "\ufb01n", "x"),
        ({"a.b": "x"}, "a.b a. b", "x"),
        # Scripts without spaces.
        ({"猫": "x", "黒猫": "y"}, "黒猫と猫がいる", "yx"),
        ({"AI": "x"}, "生成AI技術", "x"),
        ({"แมว": "x"}, "ฉันมีแมวดำ", "x"),
        ({"고양이": "x"}, "고양이 고양이가", "x"),
    ],
)
def test_source_terms_are_found(terms, line, expected):
    assert "".join(Glossary(terms).demanded(line)) == expected


def test_a_demand_has_the_source_without_the_term(tokenizer):
    glossary = Glossary({"two three": "acht", "nine": "neun"})
    demands = glossary.demands("one two three nine", tokenizer, prefix=[7])
    encode = tokenizer.encode
    assert [(demand.term, demand.erased()) for demand in demands] == [
        ("acht", [7, *encode("one"), UNK_ID, *encode("nine")]),
        ("neun", [7, *encode("one two three"), UNK_ID]),
    ]


def test_demands_do_not_each_hold_the_whole_sentence(tokenizer):
    glossary = Glossary({"a": "x"})
    glossary.demands("a a", tokenizer)
    tracemalloc.start()
    try:
        demands = glossary.demands("a " * 1000, tokenizer)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The ids alone would be 1,000 times 1,000 references of 8 bytes.
    assert len(demands) == 1000
    assert held < 1_000_000


def plain_demanded(terms: dict[str, str], line: str) -> list[str]:
    """For terms of lower-case words between single spaces: every size is tried at every word."""
    words, targets, at = line.split(), [], 0
    while at < len(words):
        for size in range(len(words) - at, 0, -1):
            term = " ".join(words[at : at + size])
            if term in terms:
                targets.append(terms[term])
                break
        else:
            size = 1
        at += size
    return targets


phrases_of_words = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(" ".join)


@given(st.lists(phrases_of_words, max_size=8), st.lists(st.sampled_from("abcd"), max_size=9))
def test_the_longest_terms_are_found_from_left_to_right(sources, words):
    terms = {source: str(number) for number, source in enumerate(sources)}
    line = " ".join(words)
    assert Glossary(terms).demanded(line) == plain_demanded(terms, line)


@pytest.mark.parametrize(
    ("terms", "text", "expected"),
    [
        (["Hund"], "Der Hund.", []),
        (["Hund"], "„Hund“ (Hund)", []),
        (["Hund"], "Hundehütte Jagdhund Hund2", ["Hund"]),
        (["Hund", "Hund"], "Hund", ["Hund"]),
        (["Hund", "Hund"], "Hund und Hund", []),
        # Occurrences do not overlap; the longest term comes first.
        (["Hund", "kleiner Hund"], "ein kleiner Hund", ["Hund"]),
        (["Hund", "kleiner Hund"], "ein kleiner Hund, Hund", []),
        (["猫"], "黒猫と", []),
        (["b", "a"], "", ["b", "a"]),
    ],
)
def test_terms_that_a_translation_lacks_are_found(terms, text, expected):
    assert [terms[i] for i in missing_terms(terms, text)] == expected


# Terms as subwords


@pytest.fixture(scope="module")
def tokenizer(tiny_data) -> Tokenizer:
    return tiny_data.tokenizers()[1]


@given(st.text(min_size=1, max_size=12))
def test_every_spelling_of_a_term_makes_the_term(tokenizer, term):
    normal, phrase = TermEncoder(tokenizer).encoded(term)
    assert bool(phrase) == bool(normal)
    for spelling in phrase.spellings:
        assert tokenizer.decode(spelling.tokens) == normal
        assert tokenizer.decode([*tokenizer.encode("x"), *spelling.tokens]).endswith(normal)


def test_a_term_is_spelt_as_after_a_space_and_as_after_a_bracket(tokenizer):
    phrase = TermEncoder(tokenizer).phrase("acht")
    usual, inside = phrase.spellings
    assert tokenizer.decode([*tokenizer.encode("x"), *usual.tokens]) == "x acht"
    assert tokenizer.decode([*tokenizer.encode("x("), *inside.tokens]) == "x(acht"
    assert (usual.needs_opening, inside.needs_opening, phrase.is_word) == (False, True, True)


def test_a_term_of_a_script_without_spaces_needs_none(tokenizer):
    phrase = TermEncoder(tokenizer).phrase("猫")
    usual, at_start = phrase.spellings
    assert tokenizer.decode([*tokenizer.encode("x"), *usual.tokens]) == "x猫"
    assert tokenizer.decode([*tokenizer.encode("x"), *at_start.tokens]) == "x 猫"
    assert (usual.needs_opening, at_start.needs_opening, phrase.is_word) == (False, False, False)


# Translating


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_line_without_terms_is_translated_as_without_a_glossary(beam_size, untrained):
    # Both decode with PyTorch: a glossary needs it.
    changes = {"beam_size": beam_size, "engine": "torch"}
    lines = numbers(60)
    config = untrained.config.decode.model_copy(update=changes)
    plain = Translator.load(untrained, config=config, device="cpu")
    held = holding(untrained, {"nine": "fünf"}, **changes)
    alone = [line for line in lines if "nine" not in line]
    assert 10 < len(alone) < 50
    given = dict(zip(lines, held.translate_nbest(lines, n_best=1), strict=True))
    for line, (expected,) in zip(alone, plain.translate_nbest(alone, n_best=1), strict=True):
        (best,) = given[line]
        for fact in ("text", "pieces", "finished"):
            assert getattr(best, fact) == getattr(expected, fact)
        assert best.score == pytest.approx(expected.score, abs=1e-5)
    # Without any line with a term, the batches are the same, and so is every bit.
    results = [
        [best.log_probs for (best,) in translator.translate_nbest(alone, n_best=1)]
        for translator in (plain, held)
    ]
    assert results[0] == results[1]


def scores(nbests: Sequence[Sequence[Translation]]) -> list[float]:
    return [translation.score for nbest in nbests for translation in nbest]


@pytest.mark.parametrize("beam_size", [1, slow(4)])
def test_a_translation_does_not_depend_on_its_neighbours_or_the_batch(beam_size, untrained):
    lines = numbers(15)

    def translated(lines: list[str], batch_tokens: int) -> list[list[Translation]]:
        changes = {"beam_size": beam_size, "batch_tokens": batch_tokens}
        held = holding(untrained, TERMS, **ROOMY, **changes)
        return list(held.translate_nbest(lines, n_best=min(beam_size, 2)))

    together = translated(lines, 4096)
    for other in (translated(lines, 1), translated(lines[::-1], 200)[::-1]):
        assert texts_of(other) == texts_of(together)
        assert scores(other) == pytest.approx(scores(together), abs=1e-5)


LETTERS = st.characters(categories=["L", "N", "P", "S"], max_codepoint=0x2FFF)
WORD = st.text(LETTERS | st.sampled_from("aäß猫แ猫😀e\u0301"), min_size=1, max_size=5)
TERM = st.lists(WORD | st.sampled_from(GERMAN), min_size=1, max_size=3).map(" ".join)


@settings(max_examples=10)
@given(st.lists(TERM, min_size=1, max_size=4), st.integers(1, 4), st.integers(0, 5))
def test_every_term_is_there_or_reported(also_untrained, targets, beam_size, seed):
    terms = dict(zip(ENGLISH, targets, strict=False))
    line = " ".join(random.Random(seed).sample(list(terms), k=len(terms)))
    try:
        glossary = Glossary(terms)
    except MtkitError:
        assume(False)
    held = holding(also_untrained, terms, beam_size=beam_size, max_extra_length=120)
    normal = {term: held.tokenizer.decode(held.tokenizer.encode(term)) for term in targets}
    ((best,),) = held.translate_nbest([line], n_best=1)
    assert {term for term in glossary.demanded(line) if not normal[term]} <= set(best.missing)
    for term in terms.values():
        assert normal[term] in best.text or term in best.missing


@pytest.mark.usefixtures("searched_terms")
def test_a_term_is_not_a_part_of_a_longer_word(tiny_data, tmp_path):
    # Parts of German numbers, which models continue to the whole number.
    terms = dict(zip(ENGLISH, ["nul", "ein", "zw", "dr", "vi", "fün"], strict=False))
    for seed in range(3):
        held = holding(random_run(tmp_path / str(seed), tiny_data, seed), terms, **ROOMY)
        for line, text in zip(numbers(6), held.translate(numbers(6)), strict=True):
            for term in plain_demanded(terms, line):
                assert is_word_of(term, text)


@pytest.mark.usefixtures("searched_terms")
def test_terms_that_do_not_fit_are_reported_and_the_others_are_kept(untrained, caplog):
    terms = {"one": "acht", "two": "Donaudampfschifffahrt", "nine": "\x01"}
    held = holding(untrained, terms, max_length=6)
    lines = ["three", "two one nine", "one"]
    with caplog.at_level(logging.WARNING, "mtkit"):
        translations = [best for (best,) in held.translate_nbest(lines, n_best=1)]
    assert is_word_of("acht", translations[1].text)
    missing = [translation.missing for translation in translations]
    assert missing == [(), ("Donaudampfschifffahrt", "\x01"), ()]
    (record,) = caplog.records
    assert record.getMessage() == (
        "line 2: the translation is without 'Donaudampfschifffahrt', '\\x01', "
        "which the glossary demands"
    )


def test_only_what_is_left_of_a_line_that_is_cut_demands_terms(untrained):
    held = holding(untrained, {"nine": "acht"})
    ((best,),) = held.translate_nbest(["one " * 200 + "nine"], n_best=1)
    assert best.missing == ()
    assert not is_word_of("acht", best.text)


@pytest.mark.usefixtures("searched_terms")
@pytest.mark.parametrize(
    ("names", "changes"),
    [
        (["untrained"], {}),
        (["untrained"], {"beam_size": 1}),
        (["untrained"], {} if available() else {"precision": "int8"}),
        (["untrained", "also_untrained"], {}),
        (["uneven"], {}),  # with a vocabulary for each side
    ],
)
def test_every_term_is_in_each_of_the_best_translations(names, changes, request):
    runs, lines = [request.getfixturevalue(name) for name in names], numbers(20)
    n_best = 1 if "beam_size" in changes else 5
    with holding(runs, TERMS, **ROOMY, **changes) as held:
        for line, nbest in zip(lines, held.translate_nbest(lines, n_best=n_best), strict=True):
            assert scores([nbest]) == sorted(scores([nbest]), reverse=True)
            assert len({translation.pieces for translation in nbest}) == len(nbest)
            for translation in nbest:
                assert translation.missing == ()
                for term, wanted in Counter(plain_demanded(TERMS, line)).items():
                    assert len(re.findall(rf"(?<!\w){term}(?!\w)", translation.text)) >= wanted


@pytest.mark.usefixtures("searched_terms")
def test_terms_go_with_forced_beginnings(untrained):
    lines, prefixes = ["one two three", "nine", "zebra"], ["vier Bein", "", "Zu"]
    texts = holding(untrained, TERMS, **ROOMY).translate(lines, prefixes=prefixes)
    for line, prefix, text in zip(lines, prefixes, texts, strict=True):
        assert text.startswith(prefix)
        assert all(is_word_of(term, text) for term in plain_demanded(TERMS, line))


@pytest.mark.usefixtures("searched_terms")
def test_terms_are_demanded_of_each_sentence(untrained):
    changes = {**ROOMY, "split_sentences": True}
    held = holding(untrained, {"One": "acht", "four five": "neun"}, **changes)
    whole = "One two. One three four. Five six."
    text, *parts = held.translate([whole, "One two. ", "One three four. ", "Five six."])
    assert text == " ".join(parts)
    assert len(re.findall(r"\bacht\b", text)) >= 2
    config = untrained.config.decode.model_copy(update=changes)
    plain = Translator.load(untrained, config=config, device="cpu")
    # No term goes from one sentence to the next.
    assert parts[2] == next(plain.translate(["Five six."]))


@pytest.mark.parametrize("changes", [{"sample": True}, {"mbr_samples": 4}])
def test_sampling_is_refused(changes, untrained):
    with pytest.raises(MtkitError, match=r"decode\.\w+: cannot be combined with a glossary"):
        holding(untrained, TERMS, **changes)


def test_a_warning_names_the_line_of_a_window(untrained, caplog):
    held = holding(untrained, TERMS, max_length=1)
    lines = ["four", "one", "", "zebra"]
    given = [Window(11, lines), Window(15, lines, numbers=[15, 15, 16, 16])]
    list(held.translate_windows(given))
    named = re.findall(r"^line \d+", "\n".join(caplog.messages), re.M)
    assert named == ["line 12", "line 14", "line 15", "line 16"]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n#\n"])
def test_a_glossary_without_terms_is_named_and_changes_nothing(text, untrained, tmp_path, caplog):
    path = tmp_path / "terms.tsv"
    path.write_text(text)
    plain = Translator.load(untrained, device="cpu")
    held = Translator.load(untrained, device="cpu", glossary=path)
    assert [record.message for record in caplog.records] == [f"{path}: has no terms"]
    assert held.engine == plain.engine
    assert list(held.translate(ENGLISH)) == list(plain.translate(ENGLISH))
