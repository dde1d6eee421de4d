import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from conftest import TinyText, change_settings, claim_checkpoints, reseal, slow
from support.command_line import Place, prepare_arguments

from mtkit.config import load_config
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.translate import Translator


def test_score_prints_metric_value_and_signature_on_one_line(place: Place):
    place.write("hyp.txt", "the cat sat on the mat\nit is raining today\n")
    outcome = place.done("score", "hyp.txt", "--reference", "hyp.txt")
    # A text scores 100 against itself.
    assert re.fullmatch(r"BLEU 100\.00 \S*tok:13a\S* 95 %: 100\.00 ± 0\.00\n", outcome.out)
    assert outcome.err == ""
    plain = place.mtkit("score", "hyp.txt", "--reference", "hyp.txt", "--no-interval")
    assert re.fullmatch(r"BLEU 100\.00 \S*tok:13a\S*\n", plain.out)


def test_a_tokenised_text_is_named_in_one_line(place: Place):
    place.write("hyp.txt", "the cat sat on the mat .\n" * 100)
    place.write("ref.txt", "the cat sat on a mat .\n" * 100)
    assert place.mtkit("score", "hyp.txt", "--reference", "ref.txt", "--metric", "chrf").err == ""
    (line,) = place.mtkit("score", "hyp.txt", "--reference", "ref.txt").err.splitlines()
    assert line.startswith("mtkit: warning: hyp.txt looks tokenised: 100 lines end in ' .'")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["hyp", "--reference", "ref"], "hyp and ref are empty"),
        (["-", "--reference", "ref"], "standard input and ref are empty"),
        (["hyp", "ref", "--reference", "ref"], "hyp and ref are empty"),
        (["hyp", "--reference", "ref", "--sentence"], "hyp and ref are empty"),
    ],
)
def test_empty_files_are_named(arguments: list[str], named: str, place: Place):
    place.write("hyp", "")
    place.write("ref", "")
    outcome = place.mtkit("score", *arguments, stdin=b"")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == f"mtkit: error: {named}: nothing to score\n"


def test_json_is_the_same_for_programs(place: Place):
    place.write("hyp.txt", "the cat sat on the mat\n")
    arguments = ["score", "-", "--reference", "hyp.txt"]
    text = b"the cat sat on a mat\n"
    (system,) = json.loads(place.mtkit(*arguments, "--json", stdin=text).out)["systems"]
    assert system["system"] == "-"
    (value,) = system["scores"]
    line = place.mtkit(*arguments, stdin=text).out
    interval = f"95 %: {value.pop('mean'):.2f} ± {value.pop('interval'):.2f}"
    assert line == f"{value['name']} {value['value']:.2f} {value['signature']} {interval}\n"
    # These two keys are all that an interval adds.
    plain = place.mtkit(*arguments, "--json", "--no-interval", stdin=text).out
    assert json.loads(plain)["systems"] == [system]


CAPTIONS = [
    "ein Mann mit einem Hut sitzt auf der Bank",
    "zwei Hunde rennen über die Wiese",
    "eine Frau im Ski-Anzug fährt den Berg hinab",
    "Kinder spielen im Sand-Kasten mit einem roten Ball",
]


@pytest.fixture
def captions(place: Place) -> Place:
    """A reference, and two systems of which the second is the worse one."""
    place.write("ref.txt", "".join(f"{line}\n" for line in CAPTIONS))
    place.write("a.txt", "".join(f"{line[:-2]}\n" for line in CAPTIONS))
    place.write("b.txt", "".join(f"{' '.join(line.split()[1:-1])}\n" for line in CAPTIONS))
    return place


NO = "--no-interval"


def test_several_systems_are_a_table_with_the_signatures_below(captions: Place):
    metrics = ["--metric", "bleu", "--metric", "ter"]
    out = captions.mtkit("score", "a.txt", "b.txt", "--reference", "ref.txt", *metrics).out
    heading, first, second, *signatures = out.splitlines()
    behind = ["BLEU", "95", "%", "INTERVAL", "TER", "95", "%", "INTERVAL"]
    assert heading.split() == ["SYSTEM", "BLEU", "TER", *behind]
    for name, row in (("a.txt", first), ("b.txt", second)):
        alone = captions.mtkit("score", name, "--reference", "ref.txt", *metrics).out
        values = [line.split(" ", 2)[1] for line in alone.splitlines()]
        intervals = [line.split(" 95 %: ")[1] for line in alone.splitlines()]
        assert row.split() == [name, *values, *" ".join(intervals).split()]
        assert [line.split(" ")[2] for line in alone.splitlines()] == [
            line.split(" ", 1)[1] for line in signatures
        ]
    plain = captions.mtkit("score", "a.txt", "b.txt", "--reference", "ref.txt", *metrics, NO).out
    assert plain.splitlines()[0].split() == ["SYSTEM", "BLEU", "TER"]
    assert plain.splitlines()[1].split() == first.split()[:3]


def test_the_papers_protocol_stands_beside_the_one_of_wmt(captions: Place):
    arguments = ["score", "a.txt", "--reference", "ref.txt", "--protocol", "paper"]
    outcome = captions.mtkit(*arguments, "--tgt-lang", "de")
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["BLEU", "BLEU-paper"]
    assert "do not compare the two" in outcome.err
    assert outcome.err.count("\n") == 1


def test_sentences_come_one_a_row(captions: Place):
    arguments = ["score", "b.txt", "--reference", "ref.txt", "--sentence", "--metric", "ter"]
    outcome = captions.mtkit(*arguments, "--metric", "chrf")
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [row[-1] for row in rows] == CAPTIONS
    assert "TER nrefs:1" in outcome.err
    listed = json.loads(captions.mtkit(*arguments, "--json").out)
    assert [row["line"] for row in listed] == [1, 2, 3, 4]
    for row in listed:
        assert [value["name"] for value in row["scores"]] == ["TER"]
        assert row["scores"][0]["signature"].startswith("nrefs:1|")


def test_a_model_scores_given_translations(trained: Place):
    trained.write("src.txt", "one two\n\nthree\n")
    trained.write("hyp.txt", "zwei eins\n\ndrei\n")
    arguments = ["force-decode", "src.txt", "hyp.txt"]
    rows = [line.split("\t") for line in trained.mtkit(*arguments).out.splitlines()]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert rows[1][1:] == ["0.000000", "0.000000"]
    listed = json.loads(trained.mtkit(*arguments, "--json", "--run", "runs/tiny").out)
    assert listed[1]["tokens"] == []
    assert listed[2]["tokens"][-1]["piece"] == "</s>"
    for row, item in zip(rows, listed, strict=True):
        assert float(row[1]) == pytest.approx(item["log_prob"], abs=1e-5)
        total = sum(token["log_prob"] for token in item["tokens"])
        assert total == pytest.approx(item["log_prob"], abs=1e-9)
    trained.write("short.txt", "zwei eins\n")
    assert "short.txt has 1 line and src.txt has 3" in trained.refused(*arguments[:-1], "short.txt")
    assert "once" in trained.refused("force-decode", "-", "-")


@pytest.mark.parametrize(
    ("engine", "precision"),
    [
        *(("native", "int8"), ("auto", "bf16"), ("torch", "fp32")),
        *(slow("native", precision) for precision in ("bf16", "fp32")),
        *(slow("auto", precision) for precision in ("int8", "fp32")),
        *(slow("torch", precision) for precision in ("int8", "bf16")),
    ],
)
@pytest.mark.parametrize(
    "arguments",
    [
        "force-decode src.txt hyp.txt",
        "align src.txt hyp.txt",
        "inspect one --target zwei --json",
        "check src.txt hyp.txt --run runs/tiny",
    ],
)
def test_what_pytorch_alone_computes_is_in_float32_whatever_the_run_translates_in(
    arguments, engine, precision, trained
):
    trained.write("src.txt", "one two\nthree\n")
    trained.write("hyp.txt", "zwei eins\ndrei\n")
    expected = trained.mtkit(*arguments.split())
    path = trained.folder / "runs" / "tiny" / "config.yaml"
    text = path.read_text(encoding="utf-8")
    for setting, value in (("engine", engine), ("precision", precision)):
        text, count = re.subn(rf"(?s)(\ndecode:.*\n  {setting}:) \w+", rf"\1 {value}", text)
        assert count == 1
    path.write_text(text, encoding="utf-8")
    outcome = trained.mtkit(*arguments.split())
    assert (outcome.status, outcome.out) == (expected.status, expected.out)
    assert "precision" not in outcome.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--beam-size=4", "--beam-size cannot be combined with HYP"),
        ("--run=x", "--run cannot be combined with HYP"),
        ("--tgt-lang de", "--tgt-lang requires --protocol paper"),
        ("--protocol=paper --tgt-lang=", "--tgt-lang"),
        ("--protocol=paper", "--tgt-lang"),
        ("--paired", "two or more"),
        ("b.txt --sentence", "one system"),
        (f"b.txt --paired {NO}", f"{NO} cannot be combined with --paired or --sentence"),
        (f"--sentence {NO}", f"{NO} cannot be combined with --paired or --sentence"),
    ],
)
def test_score_refuses_options_that_do_not_go_together(options: str, message: str, captions: Place):
    arguments = ["score", "a.txt", "--reference", "ref.txt", *options.split()]
    assert message in captions.refused(*arguments)


@pytest.mark.parametrize("seed", ["abc", "-1", ""])
def test_a_seed_that_is_none_is_refused(seed, captions, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    arguments = ["score", "a.txt", "b.txt", "--reference", "ref.txt"]
    assert "SACREBLEU_SEED" in captions.refused(*arguments, "--paired")
    assert "SACREBLEU_SEED" in captions.refused(*arguments)
    # Nothing is drawn.
    assert captions.mtkit(*arguments, NO).status == 0


def rewrite_config(run: Path, text: str) -> None:
    """Have a run folder say that it was made with other settings."""
    (run / "config.yaml").write_text(text, encoding="utf-8")
    change_settings(run, load_config(str(run / "config.yaml")))


def test_runs_under_two_seeds_are_summed_up_by_mean_and_deviation(trained: Place):
    moved_away(trained.folder / "runs" / "tiny", trained.folder / "data" / "tiny")
    shutil.copytree(trained.folder / "runs" / "tiny", trained.folder / "runs" / "other")
    other = trained.folder / "runs" / "other"
    text = (other / "config.yaml").read_text(encoding="utf-8")
    rewrite_config(other, text.replace("seed: 1", "seed: 2"))
    runs = ["--run", "runs/tiny", "--run", "runs/other", "--metric", "chrf"]
    *_, spread, _ = trained.mtkit("score", *runs).out.splitlines()
    assert spread.startswith("mean ± deviation of runs/tiny, runs/other")
    (group,) = json.loads(trained.mtkit("score", *runs, "--json").out)["groups"]
    assert group["systems"] == ["runs/tiny", "runs/other"]
    # The weights are the same, so is the score.
    assert group["scores"][0]["deviation"] == 0.0

    def is_summed_up(*changes: tuple[str, str], runs: list[str] = runs) -> bool:
        changed = text
        for old, new in (("seed: 1", "seed: 2"), *changes):
            assert old in changed
            changed = changed.replace(old, new)
        rewrite_config(other, changed)
        return "mean" in trained.mtkit("score", *runs).out

    assert is_summed_up(("log_every: 2", "log_every: 1"))
    assert not is_summed_up(("label_smoothing: 0.1", "label_smoothing: 0.2"))
    assert not is_summed_up(("max_steps: 4", "max_steps: 5"))
    assert not is_summed_up(("finish_steps: 0", "finish_steps: 5"))
    # Another search gives other translations.
    assert not is_summed_up(("beam_size: 4", "beam_size: 2"))
    # The same seed again says nothing about chance.
    assert not is_summed_up(("seed: 2", "seed: 1"))
    assert not is_summed_up(runs=["--run", "runs/tiny", "--run", "runs/tiny"])


def test_runs_are_compared_on_one_text_only(trained: Place, tiny_text: TinyText):
    moved_away(trained.folder / "runs" / "tiny", trained.folder / "data" / "tiny")
    shutil.copytree(trained.folder / "runs" / "tiny", trained.folder / "runs" / "other")
    swapped = prepare_arguments(tiny_text, test=tiny_text.valid)
    assert trained.mtkit("-q", *swapped, "--out", "data/swapped").status == 0
    moved_away(trained.folder / "runs" / "other", trained.folder / "data" / "swapped")
    manifest = trained.folder / "runs" / "other" / "manifest.json"
    swapped_data = PreparedData.open(trained.folder / "data" / "swapped")
    reseal(manifest, lambda it: it["data"].update(fingerprint=swapped_data.fingerprint))
    claim_checkpoints(manifest.parent)
    both = ["score", "--run", "runs/tiny", "--run", "runs/other"]
    assert "another test text" in trained.refused(*both)
    # The validation text is the same.
    assert trained.mtkit(*both, "--split", "valid").status == 0


def test_the_best_of_several_references_counts(place: Place):
    place.write("a.txt", "something else altogether here\n")
    place.write("b.txt", "the cat sat on the mat\n")
    text = b"the cat sat on the mat\n"
    references = ["--reference", "a.txt", "--reference", "b.txt"]
    outcome = place.mtkit("score", "-", *references, stdin=text)
    assert outcome.out.startswith("BLEU 100.00 ")
    assert "nrefs:2" in outcome.out
    error = place.mtkit("score", "-", *references, stdin=2 * text).error
    assert "standard input has 2 lines and a.txt has 1; a.txt seems to lack a line" in error


PLAIN = b"".join(f"{line} von hier aus\n".encode() for line in CAPTIONS)
TEXTS = {
    "plain": PLAIN,
    "mark": b"\xef\xbb\xbf" + PLAIN,
    "marks": b"\xef\xbb\xbf" * 2 + PLAIN,
    "crlf": PLAIN.replace(b"\n", b"\r\n"),
    "returns": PLAIN.replace(b" auf", b"\rauf").replace(b"\n", b"\r\r\n"),
    "separators": PLAIN.replace(b" ", "\u2028".encode(), 3).replace(b"ein", "\x85ein".encode()),
    "nul": PLAIN.replace(b" ", b"\0", 2).replace(b"\n", b"\0\n"),
    "spaces": PLAIN.replace(b"\n", " \u3000\x1c \t\n".encode()).replace(b"zwei", b"  zwei"),
    "blank lines": PLAIN.replace(b"\n", b"\n\n") + b"\n \n",
    "only blank lines": b"\n" * 4,
    "no newline": PLAIN.removesuffix(b"\n"),
    "return at the end": PLAIN.removesuffix(b"\n") + b"\r",
    "text.gz": gzip.compress(b"\xef\xbb\xbf" + PLAIN),
}
# sacreBLEU's command, a fork for each file, because it closes its standard input.
SACREBLEU = """
import os, sys
from sacrebleu.sacrebleu import main
for name in sys.argv[1:]:
    reference = "long" if name == "blank lines" else "reference"
    if not os.fork():
        sys.argv = ["sacrebleu", reference, "-i", name, "-w", "8", "-m", "bleu", "chrf", "ter"]
        os.dup2(os.open(f"{name}.json", os.O_WRONLY | os.O_CREAT), 1)
        main()
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


def test_scores_of_odd_files_are_those_of_sacrebleus_command(place: Place):
    for name, text in TEXTS.items():
        place.write(name, text)
    lines = PLAIN.replace(b"Hut", b"Helm").replace(b"roten", b"blauen").splitlines(keepends=True)
    place.write("reference", b"".join(lines))
    place.write("long", b"".join(line + b"\n" for line in lines) + b"\n\n")
    subprocess.run([sys.executable, "-c", SACREBLEU, *TEXTS], cwd=place.folder, check=True)
    for name in TEXTS:
        reference = "long" if name == "blank lines" else "reference"
        command = ["score", name, "--reference", reference, "--json"]
        outcome = place.mtkit(*command, "--metric=bleu", "--metric=chrf", "--metric=ter")
        (ours,) = json.loads(outcome.out)["systems"]
        theirs = json.loads((place.folder / f"{name}.json").read_text(encoding="utf-8"))
        assert [score["score"] for score in theirs] == pytest.approx(
            [score["value"] for score in ours["scores"]], abs=1e-7
        ), name
        is_warned = "begins with a byte-order mark" in outcome.err
        assert is_warned == (name in ("mark", "marks", "text.gz"))


def test_translations_that_do_not_line_up_are_refused_with_both_counts(place: Place):
    place.write("hyp.txt", "one\ntwo\n")
    place.write("ref.txt", "eins\nzwei\ndrei\n")
    error = place.refused("score", "hyp.txt", "--reference", "ref.txt")
    assert "hyp.txt has 2" in error
    assert "ref.txt has 3" in error
    place.write("good.txt", "eins\nzwei\n")
    both = ["--reference", "good.txt", "--reference", "ref.txt"]
    assert "ref.txt has 3" in place.refused("score", "hyp.txt", *both)


def test_files_to_score_that_are_missing_or_no_text_are_named(place: Place):
    place.write("hyp.txt", "one\n")
    place.write("bad.txt", b"one\n\xff\n")
    assert "nowhere.txt" in place.refused("score", "hyp.txt", "--reference", "nowhere.txt")
    assert "nowhere.txt" in place.refused("score", "nowhere.txt", "--reference", "hyp.txt")
    assert "bad.txt, line 2:" in place.refused("score", "bad.txt", "--reference", "hyp.txt")


def test_score_of_the_newest_run_is_that_of_its_translations(trained: Place):
    src, tgt = PreparedData.open(trained.folder / "data" / "tiny").text("test")
    trained.write("ref.txt", "".join(f"{line}\n" for line in tgt))
    # The fixture's run remembers another place of the same data.
    at_once = trained.done("score", "--data", "data/tiny", "--metric", "chrf")
    assert at_once.out.startswith("chrF2 ")
    assert at_once.out.count("\n") == 1
    translated = trained.mtkit("translate", stdin="".join(f"{line}\n" for line in src).encode())
    by_hand = trained.mtkit(
        "score", "-", "--reference", "ref.txt", "--metric", "chrf", stdin=translated.out.encode()
    )
    assert at_once.out == by_hand.out


def moved_away(run: Path, place: Path) -> None:
    """Have the run remember another place of its data."""
    reseal(run / "manifest.json", lambda manifest: manifest["data"].update(path=str(place)))


def test_score_without_the_data_of_the_run_says_what_to_give(trained: Place):
    moved_away(trained.folder / "runs" / "tiny", trained.folder / "gone")
    shutil.rmtree(trained.folder / "data" / "tiny")
    error = trained.refused("score")
    assert error.startswith("mtkit: error: runs/tiny: its data, ")
    assert error.endswith("gone, is not there; give --data, or HYP and --reference")


def test_score_on_data_that_was_prepared_anew_is_refused(trained: Place, tiny_text: TinyText):
    moved_away(trained.folder / "runs" / "tiny", trained.folder / "data" / "tiny")
    swapped = prepare_arguments(tiny_text, test=tiny_text.valid)
    assert trained.mtkit("-q", *swapped, "--force").status == 0
    assert "prepared anew" in trained.refused("score")


def test_score_on_data_without_a_test_set_is_refused(trained: Place, tiny_text: TinyText):
    arguments = prepare_arguments(tiny_text)
    at = arguments.index("--test")
    without = [*arguments[:at], *arguments[at + 3 :], "--out", "data/untested"]
    assert trained.mtkit("-q", *without).status == 0
    assert "--test" in trained.refused("score", "--data", "data/untested")


# Scores from outside


@pytest.fixture
def rated(captions: Place) -> Place:
    """Scores for each line of both systems, and the numbers of errors."""
    captions.write("a.comet", "0.9\n0.8\n0.7\n0.8\n")
    captions.write("b.comet", "".join(f'{{"COMET": {x}}}\n' for x in (0.5, 0.7, 0.6, 0.8)))
    captions.write("a.errors", "line\terrors\n1\t3\n2\t0\n3\t1\n4\t2\n")
    captions.write("b.errors", "5\n1\n2\n2\n")
    return captions


BOTH = ["score", "a.txt", "b.txt", "--reference", "ref.txt"]
COMETS = ["--segment-scores", "COMET=a.comet", "--segment-scores", "COMET=b.comet"]
ERRORS = ["--segment-scores", "errors=a.errors", "--segment-scores", "errors=b.errors"]


def test_scores_from_outside_are_columns_of_the_table_with_a_signature(rated: Place):
    out = rated.mtkit(*BOTH, *COMETS, *ERRORS, "--lower-is-better", "errors", NO).out
    heading, first, second, *signatures = out.splitlines()
    assert heading.split() == ["SYSTEM", "BLEU", "COMET", "errors"]
    assert first.split()[2:] == ["0.8000", "1.5000"]
    assert second.split()[2:] == ["0.6500", "2.5000"]
    assert signatures[1:] == [
        "COMET mean:lines|lines:4|better:higher",
        "errors mean:lines|lines:4|better:lower",
    ]
    chrf = ["score", "a.txt", "--reference", "ref.txt", "--metric", "chrf", *COMETS[:2]]
    assert rated.mtkit(*chrf).out.splitlines()[1] == "COMET 0.8000 mean:lines|lines:4|better:higher"


def test_paired_tests_say_how_sure_a_difference_is(rated: Place):
    arguments = [*BOTH, *ERRORS, "--lower-is-better", "errors", "--paired"]
    lines = rated.mtkit(*arguments).out.splitlines()
    rows = [line.split() for line in lines if line.startswith(("a.txt", "b.txt"))]
    assert [rows[i][-2:] for i in (0, 2)] == [["baseline"] * 2] * 2
    assert "|bs:1000|ar:10000|seed:12345|" in lines[-2]
    assert lines[-1].endswith("|seed:12345|bs:1000|ar:10000")
    first, second = json.loads(rated.mtkit(*arguments, "--json").out)["systems"]
    for row, of_first, value in zip(rows[1::2], first["scores"], second["scores"], strict=True):
        p_values = [value["p_bootstrap"], value["p_randomisation"]]
        assert row[-2:] == [f"{p_value:.4f}" for p_value in p_values]
        assert value["identical"] is False
        assert not {"p_bootstrap", "p_randomisation", "identical"} & of_first.keys()
    errors = second["scores"][1]
    assert (errors["name"], errors["value"], errors["lower_is_better"]) == ("errors", 2.5, True)


def test_identical_texts_are_called_so_instead_of_having_a_p_value(rated: Place):
    arguments = ["score", "a.txt", "a.txt", "--reference", "ref.txt", "--paired"]
    arguments += ["--segment-scores", "COMET=a.comet"] * 2
    outcome = rated.mtkit(*arguments)
    assert outcome.err == ""
    rows = [line.split() for line in outcome.out.splitlines() if line.startswith("a.txt")]
    assert [row[-2:] for row in rows] == [["baseline"] * 2, ["identical"] * 2] * 2
    _, twin = json.loads(rated.mtkit(*arguments, "--json").out)["systems"]
    for value in twin["scores"]:
        assert value["identical"] is True
        assert "p_bootstrap" not in value
        assert "p_randomisation" not in value


def test_scores_from_outside_stand_beside_each_sentence(rated: Place):
    arguments = ["score", "a.txt", "--reference", "ref.txt", "--sentence"]
    arguments += ["--segment-scores", "errors=a.errors"]
    rows = [line.split("\t") for line in rated.mtkit(*arguments).out.splitlines()]
    assert [row[2] for row in rows] == ["3.0000", "0.0000", "1.0000", "2.0000"]
    # Without a reference there are only these scores.
    arguments = ["score", "a.txt", *arguments[4:]]
    rows = [line.split("\t") for line in rated.mtkit(*arguments).out.splitlines()]
    assert [row[2] for row in rows] == [line[:-2] for line in CAPTIONS]


def test_only_the_scores_from_outside_need_no_reference(rated: Place):
    heading, *rows = rated.mtkit("score", "a.txt", "b.txt", *COMETS, "--paired").out.splitlines()
    assert heading.split()[:2] == ["SYSTEM", "COMET"]
    assert [row.split()[1] for row in rows[:2]] == ["0.8000", "0.6500"]
    error = rated.refused("score", "a.txt", *COMETS[:2], "--metric", "bleu")
    assert "HYP requires at least one --reference, or --test-set" in error
    assert "at least one --reference" in rated.refused("score", "a.txt")


def test_a_run_has_scores_from_outside_beside_its_own(trained: Place):
    data = PreparedData.open(trained.folder / "data" / "tiny")
    trained.write("comet.txt", "0.5\n" * len(data.text("test")[0]))
    arguments = ["score", "--data", "data/tiny", "--segment-scores"]
    out = trained.mtkit(*arguments, "COMET=comet.txt").out
    assert out.splitlines()[1].startswith("COMET 0.5000 ")
    trained.write("comet.txt", "0.5\n")
    assert "comet.txt has 1 score and runs/tiny has" in trained.refused(
        *arguments, "COMET=comet.txt"
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (COMETS[:2], "--segment-scores COMET: give one FILE for each system, in their order"),
        (["--segment-scores", "a.comet"], "expected NAME=FILE, as in COMET=scores.txt"),
        (["--segment-scores", "COMET="], "expected NAME=FILE, as in COMET=scores.txt"),
        ([*COMETS, "--lower-is-better", "comet"], "--lower-is-better comet: requires"),
        ([*COMETS[:3], "COMET=b.txt"], "b.txt, line 1: 'zwei"),
        ([*COMETS[:3], "COMET=nowhere"], "nowhere: No such file"),
        *(
            (["--segment-scores", f"{name}=a.comet"], f"{name} is a metric of mtkit")
            for name in ("BLEU", "chrF", "ChrF++", "chrF2", "Ter", "bleu-PAPER", "parseval")
        ),
        (["--segment-scores", "x=-"] * 2, "standard input (-) can be read once"),
    ],
)
def test_scores_from_outside_that_do_not_fit_are_refused(options, error, rated):
    rated.write("b.txt", "5\nzwei\n6\n7\n")
    assert error.replace("line 1", "line 2") in rated.refused(*BOTH, *options)


def test_lowercase_is_in_the_signature(place: Place):
    place.write("hyp.txt", "The cat sat on THE mat\n")
    place.write("ref.txt", "the cat sat on the mat\n")
    arguments = ["score", "hyp.txt", "--reference", "ref.txt", "--metric", "chrf++"]
    assert not place.mtkit(*arguments).out.startswith("chrF2++ 100.00 ")
    out = place.mtkit(*arguments, "--lowercase").out
    assert out.startswith("chrF2++ 100.00 nrefs:1|case:lc|eff:yes|nc:6|nw:2|")


def test_the_score_without_near_duplicates_is_said(trained: Place, monkeypatch: pytest.MonkeyPatch):
    data, run = (trained.folder / place / "tiny" for place in ("data", "runs"))
    src, tgt = PreparedData.open(data).text("test")
    translator = Translator.load(Run.open(run), device="cpu")
    rest = [index for index in range(len(src)) if index not in (0, 2)]
    translations = list(translator.translate([src[index] for index in rest]))
    bleu = sacrebleu.corpus_bleu(translations, [[tgt[index] for index in rest]]).score
    monkeypatch.setattr(PreparedData, "_near_duplicates", lambda *_: [0, 2])
    said = trained.mtkit("score", "--device", "cpu").err
    assert f"2 of {len(src)} lines ({2 / len(src):.1%}) are nearly the same" in said
    assert f"without them: BLEU {bleu:.2f}" in said
    (system,) = json.loads(trained.mtkit("score", "--device", "cpu", "--json").out)["systems"]
    (of_rest,) = system["without_near_duplicates"]
    assert of_rest["value"] == pytest.approx(bleu)
    # With one line in a hundred or fewer, nothing is said.
    monkeypatch.setattr(PreparedData, "_near_duplicates", lambda *_: [])
    assert "nearly the same" not in trained.mtkit("score", "--device", "cpu").err


@pytest.mark.parametrize(
    ("line", "is_unspaced"),
    [
        *(("人人生而自由，在尊严和权利上一律平等。", True), ("มนุษย์ทั้งหลายเกิดมามีอิสระ", True)),
        *(("すべての人間は、生まれながらにして自由", True), ("འགྲོ་བ་མིའི་རིགས་རྒྱུད", True)),
        *(
            ("모든 인간은 태어날 때부터 자유로우며", False),
            ("All human beings (人) are born free", False),
        ),
        *(("1234 , 5678 !", False), ("सभी मनुष्य स्वतन्त्र हैं", False)),
    ],
)
def test_bleu_of_words_without_spaces_is_a_warning(place: Place, line: str, is_unspaced: bool):
    place.write("hyp.txt", f"{line}\n")
    command = ["score", "hyp.txt", "--reference", "hyp.txt", "--no-interval"]
    for metric in ([], ["--metric", "ter"], ["--protocol", "paper", "--tgt-lang", "en"]):
        assert ("are not separated by spaces" in place.mtkit(*command, *metric).err) == is_unspaced
    assert "separated by spaces" not in place.mtkit(*command, "--metric", "chrf").err


def test_files_of_blank_lines_only_are_named(place: Place):
    for name, text in {"blank": "\n \n", "hyp": "a b\n\n"}.items():
        place.write(name, text)
    said = place.mtkit("score", "blank", "hyp", "--reference", "blank", "--no-interval").err
    assert said.count("warning: blank: all lines are blank") == 2
    assert "hyp" not in said


@pytest.mark.parametrize("ending", ["docx", "srt", "vtt", "po", "pdf", "md", "srt.gz"])
def test_a_document_is_refused_where_lines_are_read(place: Place, ending: str):
    gzipped = gzip.compress(b"1\n") if ending.endswith("gz") else b"1\n"
    src, tgt = (place.write(f"{side}.{ending}", gzipped).name for side in "ab")
    languages = ["--src-lang", "en", "--tgt-lang", "de"]
    for command in (
        ["check", src, tgt],
        ["score", src, "--reference", tgt],
        ["compare", src, "--reference", tgt, "--output", "page.html"],
        ["prepare", "mine", *languages, "--train", src, tgt, "--valid", src, tgt],
    ):
        said = place.refused(*command)
        assert f".{ending}: is a document, and mtkit {command[0]} reads plain text" in said
