"""Scores: against sacreBLEU's and sacremoses' own programs, and what is worked by hand."""

import json
import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from conftest import slow
from hypothesis import given
from hypothesis import strategies as st
from support.program import printed

from mtkit.base.errors import MtkitError
from mtkit.score import (
    System,
    TextMetric,
    first_shift,
    mutual_chrf,
    note_tokenised,
    refuse_unequal,
    score,
    sentence_chrf,
    split_compounds,
)

HYP = ["the cat sat on the mat", "a dog runs"]
REF = ["the cat sat on a mat", "a dog runs fast"]


# Papineni et al. 2002, Section 2, Example 1, without the full stops.
GUIDE = (
    "It is a guide to action which ensures that the military always obeys the commands of the party"
)
GUIDES = [
    "It is a guide to action that ensures that the military will forever heed Party commands",
    "It is the guiding principle which guarantees the military forces always being under the"
    " command of the Party",
    "It is the practical guide for the army always to heed the directions of the party",
]


@pytest.mark.parametrize("metric", ["bleu", "paper"])
def test_bleu_of_the_example_it_was_published_with(metric: Any) -> None:
    # 17 of 18 words, which the paper prints; by the same count 10 of 17, 7 of 16, 4 of 15. The
    # nearest reference has 18 words too, so brevity costs nothing.
    precision = (17 / 18 * 10 / 17 * 7 / 16 * 4 / 15) ** 0.25
    result = score([GUIDE], [[guide] for guide in GUIDES], metric=metric, tgt_lang="en")
    assert result.value == pytest.approx(100 * precision)
    assert result.value == pytest.approx(50.4567, abs=1e-4)


def test_chrf_with_words_equals_a_case_worked_by_hand() -> None:
    # Of "a b" against "a c": letters 1 of 2, pairs of letters 0 of 1, words 1 of 2, pairs of words
    # 0 of 1. Other orders do not exist. Precision and recall are the same, so is their mean.
    result = score(["a b"], [["a c"]], metric="chrf++")
    assert (result.name, result.value) == ("chrF2++", pytest.approx(100 * (1 / 2 + 1 / 2) / 4))
    assert "|nc:6|nw:2|" in result.signature
    assert score(["a b"], [["a c"]], metric="chrf").value == pytest.approx(100 * (1 / 2) / 2)


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        slow("chrf++", ["-m", "chrf", "--chrf-word-order", "2"]),
        ("chrf++", ["-m", "chrf", "--chrf-word-order", "2", "--chrf-lowercase"]),
        ("bleu", ["-lc"]),
    ],
)
def test_words_in_chrf_and_lowercase_have_the_signature_of_sacrebleus_program(
    metric: Any, options: list[str], tmp_path: Path
) -> None:
    hypotheses = [line.upper() for line in edited(GERMAN, seed=1)]
    write_lines(tmp_path / "hyp", hypotheses)
    write_lines(tmp_path / "ref", GERMAN)
    files = (tmp_path / "ref", "-i", tmp_path / "hyp")
    theirs = json.loads(printed("-m", "sacrebleu", *files, "-w", "8", *options))
    lowercase = options[-1] in ("-lc", "--chrf-lowercase")
    ours = score(hypotheses, [GERMAN], metric=metric, lowercase=lowercase)
    assert (ours.name, ours.signature) == (theirs["name"], theirs["signature"])
    assert ours.value == pytest.approx(theirs["score"], abs=1e-7)


def test_a_public_test_set_is_in_the_signature_where_sacrebleu_has_it() -> None:
    metric = sacrebleu.BLEU()
    metric.test_set, metric.langpair = "wmt14/full", "en-de"
    metric.corpus_score(HYP, [REF])
    signature = score(HYP, [REF], test_set="wmt14/full:en-de").signature
    assert signature == str(metric.get_signature())
    assert "|test:wmt14/full|lang:en-de|" in signature


def test_the_chrf_of_each_line_is_sacrebleus() -> None:
    lines = ["", " ", "a", "\u65e5\u672c\u8a9e", "a\ud800b", *GERMAN]
    theirs = [
        sacrebleu.sentence_chrf(line, [other]).score
        for line, other in zip(lines, lines[::-1], strict=True)
    ]
    assert sentence_chrf(lines, lines[::-1]) == theirs
    assert sentence_chrf([], []) == []


@given(st.lists(st.text("abc ", max_size=12), min_size=2, max_size=6))
def test_likeness_is_the_mean_chrf_with_the_others_by_sacrebleu(texts: list[str]) -> None:
    for i, (text, likeness) in enumerate(zip(texts, mutual_chrf(texts), strict=True)):
        others = texts[:i] + texts[i + 1 :]
        scores = [sacrebleu.sentence_chrf(text, [other]).score for other in others]
        assert likeness == pytest.approx(sum(scores) / len(others))


def test_a_text_without_others_is_as_it_should_be() -> None:
    assert mutual_chrf(["abc"]) == [100]
    assert mutual_chrf([]) == []


# The paper's BLEU

GERMAN = [
    "Die alte Frau kauft einen roten Regenschirm.",
    "Das E-Mail-Programm zeigt 1.234,56 Euro an – ein Fehler?",
    "„Nein“, sagte Herr Dr. Müller-Lüdenscheidt, „das ist z. B. kein Rad-an-Rad-Rennen.“",
    "Der 3:2-Sieg war knapp; die Fans (rund 5.000) jubelten.",
    "Ost- und Westdeutschland sind seit dem 3. Oktober 1990 vereint.",
    "A-B-C-D ist so leicht wie 1-2-3!",
    'Er rief: "Kommt ihr mit?" Doch niemand antwortete...',
    "Die EU-Kommission will's nicht wahrhaben & schweigt.",
    "Größe, Öl, Übermut: das ß-Problem ist alt.",
    "Um 19.30 Uhr beginnt das Abend-Konzert im Stadt-Theater.",
    "Sie liest die Süddeutsche Zeitung, er das Comic-Heft.",
    "Ein <b>fettes</b> Wort - und ein Gedankenstrich - im Text.",
]


FRENCH = [
    "Le tête-à-tête a duré deux heures, c'est-à-dire trop longtemps.",
    "Qu'y a-t-il vis-à-vis de l'Hôtel-de-Ville ?",
    "Mme Dupont-Aignan a payé 1 234,50 € pour l'après-midi.",
    "« Rendez-vous au rez-de-chaussée », dit-elle au porte-parole.",
    "Y a-t-il un là-bas, ou n'est-ce qu'un va-et-vient ?",
]


def write_lines(file: Path, lines: Sequence[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def edited(lines: list[str], seed: int) -> list[str]:
    """Each line with a few of its words dropped or doubled."""
    rng = random.Random(seed)
    return [
        " ".join(word for word in line.split(" ") for _ in range(rng.choice([0, 2] + 10 * [1])))
        for line in lines
    ]


# sacreBLEU's own program on files NAME.hyp, NAME.1 and NAME.2; a fork each, as it loads slowly.
CONFIDENCE = """
import os, sys
from sacrebleu.sacrebleu import main
for number, options in enumerate((["bleu", "chrf", "ter"], ["chrf", "--chrf-word-order", "2"])):
    for name in sys.argv[1:]:
        if not os.fork():
            references = [name + end for end in (".1", ".2") if os.path.exists(name + end)]
            sys.argv = ["sacrebleu", *references, "-i", f"{name}.hyp", "-w", "2", "--confidence"]
            sys.argv += ["-m", *options]
            os.dup2(os.open(f"{name}.{number}.json", os.O_WRONLY | os.O_CREAT), 1)
            main()
            sys.stdout.flush()
            os._exit(0)
        assert os.wait()[1] == 0, name
"""


@pytest.mark.parametrize("seed", [None, slow("7")])
def test_intervals_are_those_of_sacrebleu_with_confidence(seed, tmp_path, monkeypatch):
    if seed:
        monkeypatch.setenv("SACREBLEU_SEED", seed)
    rng = random.Random(1)
    lengths = [rng.randrange(25) for _ in range(97)]
    numbers = [" ".join(str(rng.randrange(50)) for _ in range(length)) for length in lengths]
    sets = {
        "german": (edited(GERMAN, seed=1), [GERMAN]),
        "numbers, and empty lines": (edited(numbers, seed=2), [numbers]),
        "two references": (edited(20 * FRENCH, seed=3), [20 * FRENCH, edited(20 * FRENCH, seed=4)]),
        "one line": (edited(GERMAN[:1], seed=5), [GERMAN[:1]]),
    }
    for name, (lines, references) in sets.items():
        for end, text in zip(("hyp", "1", "2"), (lines, *references), strict=False):
            write_lines(tmp_path / f"{name}.{end}", text)
    printed("-c", CONFIDENCE, *sets, cwd=tmp_path)
    for name, (lines, references) in sets.items():
        theirs: list[dict[str, Any]] = []
        for number in (0, 1):
            of_file = json.loads((tmp_path / f"{name}.{number}.json").read_text(encoding="utf-8"))
            theirs += of_file if isinstance(of_file, list) else [of_file]
        metrics: list[Any] = ["bleu", "chrf", "ter", "chrf++"]
        for metric, expected in zip(metrics, theirs, strict=True):
            ours = score(lines, references, metric=metric, interval=True)
            # The program prints no interval of zero.
            keys = ("confidence_mean", "confidence_var")
            shown = " ± ".join(f"{expected.get(key, 0.0):.2f}" for key in keys)
            assert ours.shown_interval == shown, (name, metric)
            assert str(ours).endswith(f"|version:{sacrebleu.__version__} 95 %: {shown}")
            # The score is the same as without an interval, and so is its signature.
            plain = score(lines, references, metric=metric)
            assert (ours.value, ours.signature) == (plain.value, plain.signature)
            assert plain.shown_interval == ""


def moses(lines: list[str], lang: str) -> list[str]:
    program = ("-c", "from sacremoses.cli import cli; cli()", "-l", lang, "tokenize")
    out = printed(*program, stdin="".join(f"{line}\n" for line in lines))
    return out.split("\n")[: len(lines)]


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """BLEU as defined by Papineni et al. 2002, over words between spaces, not smoothed."""
    right, all_, length, wanted = [0] * 4, [0] * 4, 0, 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words, truth = hypothesis.split(" "), reference.split(" ")
        length, wanted = length + len(words), wanted + len(truth)
        for n in range(1, 5):
            mine, theirs = (
                Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1))
                for text in (words, truth)
            )
            right[n - 1] += sum(min(count, theirs[gram]) for gram, count in mine.items())
            all_[n - 1] += sum(mine.values())
    brevity = min(1.0, math.exp(1 - wanted / length))
    precisions = [a / b for a, b in zip(right, all_, strict=True)]
    return 100 * brevity * math.exp(sum(map(math.log, precisions)) / 4)


def test_compounds_are_split_as_worked_by_hand() -> None:
    assert split_compounds("rich-text format") == "rich ##AT##-##AT## text format"
    # Matches do not overlap: the b that ended the first cannot begin the second.
    assert split_compounds("a-b-c") == "a ##AT##-##AT## b-c"
    assert split_compounds("ab-bc-cd") == "ab ##AT##-##AT## bc ##AT##-##AT## cd"
    assert split_compounds("Ost- und -west - da") == "Ost- und -west - da"
    assert split_compounds("Öl-Übermut") == "Öl ##AT##-##AT## Übermut"
    assert split_compounds("a--b") == "a ##AT##-##AT## -b"
    # The à is two bytes: the first ends one match, the second begins the next.
    assert split_compounds("vis-à-vis") == "vis ##AT##-##AT## à ##AT##-##AT## vis"


@pytest.mark.parametrize(("lang", "reference"), [("de", GERMAN), ("fr", FRENCH)])
def test_the_papers_bleu_equals_its_pipeline_step_by_step(lang: str, reference: list[str]) -> None:
    hypotheses = edited(reference, seed=3)
    texts = ([*map(split_compounds, moses(text, lang))] for text in (hypotheses, reference))
    result = score(hypotheses, [reference], metric="paper", tgt_lang=lang)
    assert result.value == pytest.approx(multi_bleu(*texts), abs=1e-9)
    assert result.name == "BLEU-paper"
    assert result.signature.startswith(f"nrefs:1|case:mixed|eff:no|tok:moses-{lang}-sacremoses-")
    assert score(hypotheses, [reference], metric="paper", tgt_lang=f"{lang}-XX") == result
    assert "smooth:none" in result.signature
    # The same text by the protocol of WMT is another number.
    assert abs(result.value - score(hypotheses, [reference]).value) > 0.1


def test_a_sentence_without_four_words_still_has_a_score() -> None:
    systems = [System("", ["guten Morgen", "x"])]
    scores = TextMetric(systems, [["guten Morgen", "guten Tag"]]).of_lines()
    assert [round(value.value) for value in scores] == [100, 0]
    assert "eff:yes" in scores[0].signature
    systems = [System("", ["ein A-Team"])]
    (by_the_paper,) = TextMetric(systems, [["ein A-Team"]], "paper", "de").of_lines()
    assert by_the_paper.value == pytest.approx(100.0)


def by_sacrebleus_program(
    folder: Path, metric: str, test: str, systems: list[System], reference: list[str]
) -> list[tuple[float, ...]]:
    """Score, and with `bs` mean and interval, of each system; then the p-values."""
    write_lines(folder / "reference", reference)
    for system in systems:
        write_lines(Path(system.name), system.translations)
    program = ("-m", "sacrebleu", folder / "reference", "-m", metric, f"--paired-{test}")
    # Its JSON cannot hold the numbers of chrF and TER.
    options = ("-w", "8", "-f", "text", "-i", *(system.name for system in systems))
    table = printed(*program, *options, SACREBLEU_SEED=None).split("\n\n")[0]
    number = r"(\d+\.\d+)"
    inside = rf" +\({number} ± {number}\)" if test == "bs" else ""
    scores = re.findall(rf"│ +{number}{inside} +│", table)
    p_values = re.findall(rf"\(p = {number}\)", table)
    rows = [tuple(map(float, row if isinstance(row, tuple) else (row,))) for row in scores]
    return [*rows, tuple(map(float, p_values))]


@pytest.mark.parametrize(
    ("metric", "name"), [("bleu", "BLEU"), slow("chrf", "chrF2"), slow("ter", "TER")]
)
def test_p_values_and_intervals_equal_those_of_sacrebleus_program(
    metric: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    reference = [f"{line} {i}" for i in range(2) for line in GERMAN]
    systems = [System(str(tmp_path / x), edited(reference, seed)) for seed, x in enumerate("abc")]
    ours = TextMetric(systems, [reference], metric=metric).compare()
    *rows, p_values = by_sacrebleus_program(tmp_path, metric, "bs", systems, reference)
    for mine, row in zip(ours, rows, strict=True):
        assert (mine.value, mine.mean, mine.interval) == pytest.approx(row, abs=1e-6)
    assert [value.p_bootstrap for value in ours[1:]] == pytest.approx(p_values, abs=6e-5)
    *rows, p_values = by_sacrebleus_program(tmp_path, metric, "ar", systems, reference)
    assert [value.value for value in ours] == pytest.approx([row[0] for row in rows], abs=1e-6)
    assert [value.p_randomisation for value in ours[1:]] == pytest.approx(p_values, abs=6e-5)
    assert (ours[0].name, ours[0].p_bootstrap, ours[0].p_randomisation) == (name, None, None)
    assert "|bs:1000|ar:10000|seed:12345|" in ours[0].signature


def test_text_that_looks_tokenised_is_pointed_out_once(caplog, capfd):
    lines = ["a cat ."] * 100
    note_tokenised("some.txt", lines[1:])
    assert not caplog.messages
    note_tokenised("some.txt", lines)
    (message,) = caplog.messages
    assert message.startswith("some.txt looks tokenised: 100 lines end in ' .'; BLEU is for detok")
    # sacreBLEU does not say it again.
    score(lines, [lines])
    TextMetric([System("one", lines), System("two", ["a dog ."] * 100)], [lines]).compare()
    assert len(caplog.messages) == 1
    assert capfd.readouterr().err == ""


def test_texts_that_differ_only_in_what_the_metric_ignores_are_identical() -> None:
    lines = edited(GERMAN, seed=3)
    systems = [System("one", lines), System("two", [line.replace("e", "E") for line in lines])]
    assert TextMetric(systems, [GERMAN], lowercase=True).compare()[1].identical is True
    assert TextMetric(systems, [GERMAN]).compare()[1].identical is False
    # The same score by chance: each line of the other is one of the first.
    turned = [lines[1], lines[0], *lines[2:]]
    references = [GERMAN[0], GERMAN[0], *GERMAN[2:]]
    systems = [System("one", lines), System("two", turned)]
    first, second = TextMetric(systems, [references]).compare()
    assert first.value == second.value
    assert second.identical is False


@pytest.mark.parametrize(("place", "gap"), [(0, 1), (40, 1), (40, 7), (98, 1)])
def test_the_place_of_missing_lines_is_named(place: int, gap: int) -> None:
    rng = random.Random(place)
    lengths = [rng.randint(10, 200) for _ in range(100 + gap)]
    assert first_shift(lengths[:place] + lengths[place + gap :], lengths) == place


@pytest.mark.parametrize("metric", ["TER", "chrF", "meteor", ""])
def test_an_unknown_metric_is_refused(metric: Any) -> None:
    with pytest.raises(MtkitError, match=r"one of bleu, chrf, chrf\+\+, ter, paper"):
        score(["a"], [["a"]], metric=metric)


@pytest.mark.parametrize("texts", [("a cat", [["a cat"]]), (["a cat"], ["a"]), (["a"], "a")])
def test_a_string_is_not_taken_for_the_lines_of_its_letters(texts: Any) -> None:
    with pytest.raises(TypeError, match=r"pass a list of lines|expected a list of a list of text"):
        score(*texts)


def test_texts_of_different_length_are_refused_with_the_place() -> None:
    words = [f"{'word ' * (i * 7 % 11)}end" for i in range(40)]
    message = r"h has 39 lines and r has 40; h seems to lack a line at line 18"
    with pytest.raises(MtkitError, match=message):
        refuse_unequal("h", words[:17] + words[18:], "r", words)
    with pytest.raises(MtkitError, match="r seems to lack 2 lines at its end"):
        refuse_unequal("h", words, "r", words[:-2])
    refuse_unequal("h", words, "r", words)
