"""`mtkit translate --check`, `--findings` and `--reject`; `mtkit check --run`."""

import copy
import itertools
import json
import os
import re
import signal
from collections.abc import Sequence

import pytest
from conftest import copied_run, number_pairs, reseal
from support.command_line import Place

from mtkit.base.sentences import LineFacts
from mtkit.run_folder import CONFIDENCE, Run
from mtkit.translate import Translator

LINES = ["one two three", "", "four five six seven", "猫 one", "eight nine"]


@pytest.fixture
def run(fitted: Run, place: Place) -> list[str]:
    place.write("in.txt", "".join(f"{line}\n" for line in LINES))
    return ["translate", "--run", str(fitted.path), "--device", "cpu", "--input", "in.txt"]


def write_pairs(place: Place, pairs: Sequence[tuple[str, str]]) -> None:
    for name, lines in zip(("a.txt", "b.txt"), zip(*pairs, strict=True), strict=True):
        place.write(name, "".join(f"{line}\n" for line in lines))


def test_the_translations_are_the_same_and_the_counts_come_last(place: Place, run: list[str]):
    plain, checked = place.mtkit(*run), place.mtkit(*run, "--check")
    assert checked.status == 0
    assert checked.out == plain.out
    counts, verdict = checked.err.splitlines()[-2:]
    assert counts.startswith("mtkit: ")
    assert "of 5 lines are marked" in counts
    assert "unknown 1" in counts
    # One of the five is blank.
    assert re.search(r"the mean confidence is \d+ \(of the validation set: \d+\)", verdict)
    assert re.search(r"\d of 4 lines (is|are) below 50; most faults are not marked", verdict)


def test_findings_are_written_worst_first(place: Place, run: list[str]):
    assert place.mtkit(*run, "--findings", "found.tsv").status == 0
    heading, *rows = (place.folder / "found.tsv").read_text(encoding="utf-8").splitlines()
    assert heading == "line\tkind\tseverity\treason\tsource\ttranslation"
    fields = [row.split("\t") for row in rows]
    assert ["4", "unknown"] in [row[:2] for row in fields]
    severities = [float(row[2]) for row in fields]
    assert severities == sorted(severities, reverse=True)
    assert {row[4] for row in fields} <= set(LINES)


def test_json_has_findings_and_confidence_only_if_asked_for(place: Place, run: list[str]):
    plain = [json.loads(line) for line in place.mtkit(*run, "--json").out.splitlines()]
    assert not any("confidence" in row or "findings" in row for row in plain)
    rows = [json.loads(line) for line in place.mtkit(*run, "--json", "--check").out.splitlines()]
    assert ["findings" in row for row in rows] == [True] * 5
    # A blank line has no translation that could be measured.
    assert ["confidence" in row for row in rows] == [True, False, True, True, True]
    assert [finding["kind"] for finding in rows[3]["findings"]].count("unknown") == 1
    for row in (*plain, *rows):
        del row["seconds"]
    assert [row["translations"] for row in rows] == [row["translations"] for row in plain]


@pytest.fixture
def uncapped(fitted: Run, place: Place, run: list[str]) -> list[str]:
    """With a run whose forecast findings do not lower: all that it translates are loops."""
    changed = copied_run(fitted, place.folder / "mine")

    def raise_cap(content):
        for tenth in content["directions"][0]["forecast"]["quality"]["tenths"]:
            tenth.update(forecast=100.0, chrf=100.0)

    reseal(changed / CONFIDENCE, raise_cap)
    return ["translate", "--run", str(changed), *run[3:]]


def test_rejected_lines_are_empty_and_counted(place: Place, uncapped: list[str]):
    run = uncapped
    rows = [json.loads(line) for line in place.mtkit(*run, "--json", "--check").out.splitlines()]
    confidences = [row.get("confidence", 101.0) for row in rows]
    measured = itertools.pairwise(sorted(row["confidence"] for row in rows if "confidence" in row))
    low, high = max(measured, key=lambda pair: pair[1] - pair[0])
    # No rounding, of JSON or of the option, may move one over the limit.
    assert high - low > 1
    limit = (low + high) / 2
    outcome = place.mtkit(*run, "--reject", f"{limit:.2f}")
    plain = place.mtkit(*run).out.split("\n")
    expected = [
        "" if confidence < limit else text
        for confidence, text in zip(confidences, plain[:-1], strict=True)
    ]
    assert outcome.out.split("\n") == [*expected, ""]
    count = sum(confidence < limit for confidence in confidences)
    both = sum(
        confidence < limit and bool(row["findings"])
        for confidence, row in zip(confidences, rows, strict=True)
    )
    expected_note = f"left {count} of 5 lines empty: confidence below {limit:g}; {both} of these"
    assert expected_note in outcome.err
    for options, limit in (["--reject", "60"], 60), (["--reject", "40"], 50):
        assert f" below {limit};" in place.mtkit(*run, *options).err
        assert " below 7;" in place.mtkit(*run, *options, "--below", "7").err


def test_lines_with_a_finding_of_a_kind_are_rejected(place: Place, run: list[str]):
    rows = [json.loads(line) for line in place.mtkit(*run, "--json", "--check").out.splitlines()]
    outcome = place.mtkit(*run, "--reject-findings", "unknown,placeholders")
    kinds = [{finding["kind"] for finding in row["findings"]} for row in rows]
    # Line 4 has a character that the vocabulary lacks.
    assert [number for number, of in enumerate(kinds, 1) if "unknown" in of] == [4]
    lines, plain = outcome.out.split("\n"), place.mtkit(*run).out.split("\n")
    assert lines == [*plain[:3], "", *plain[4:]]
    assert "left 1 of 5 lines empty: finding placeholders, unknown; 1 of these" in outcome.err
    none = place.mtkit(*run, "--reject-findings", "placeholders")
    assert "left 0 of 5 lines empty: finding placeholders; 0 of these" in none.err
    for kind in ("ooops", ""):
        assert f"{kind!r} is none of loop" in place.refused(*run, "--reject-findings", kind)


@pytest.mark.parametrize("check", ["--check", "--thorough"])
def test_a_check_does_not_depend_on_the_lines_around_it(check: str, place: Place, run: list[str]):
    def checked(*options):
        rows = map(json.loads, place.mtkit(*run, "--json", check, *options).out.splitlines())
        return [(row.get("confidence"), row["findings"]) for row in rows]

    expected = checked()
    assert [confidence is None for confidence, _ in expected] == [False, True, False, False, False]
    assert checked("--batch-tokens", "1") == expected
    place.write("in.txt", "".join(f"{line}\n" for line in reversed(LINES)))
    assert checked()[::-1] == expected


def test_a_run_that_was_fitted_without_samples_says_so(place: Place, fitted: Run):
    changed = copied_run(fitted, place.folder / "mine")
    reseal(changed / CONFIDENCE, lambda content: content["directions"][0].pop("thorough"))
    place.write("in.txt", "one\n")
    for command in (["translate", "--input", "in.txt"], ["check", "in.txt", "in.txt"]):
        message = place.refused(*command, "--run", "mine", "--thorough")
        assert "no confidence fitted with samples" in message
        assert "mtkit check --fit --run mine" in message
    assert place.mtkit("translate", "--input", "in.txt", "--run", "mine", "--check").status == 0


def test_a_direction_that_had_too_few_pairs_is_named(place: Place, fitted: Run):
    changed = copied_run(fitted, place.folder / "mine")

    def lose(content):
        other = copy.deepcopy(content["directions"][0])
        other["facts"]["tgt_lang"] = "fr"
        content["directions"][0].update(forecast=None, thorough=None, with_examples=None)
        content["directions"].append(other)

    reseal(changed / CONFIDENCE, lose)
    place.write("in.txt", "one\n")
    for option in (["--thorough"], ["--reject", "50"]):
        error = place.refused("translate", "--input", "in.txt", "--run", "mine", *option)
        assert "has no confidence for en to de, because" in error
        assert f"{option[0]} needs it: leave it out, or train with 100 validation pairs" in error


def test_a_check_with_a_run_says_its_verdict(place: Place, fitted: Run):
    place.write("in.txt", "one two\n\nthree\n")
    place.write("out.txt", "two one\n\nthree\n")
    command = ["check", "in.txt", "out.txt", "--run", str(fitted.path), "--below", "100"]
    for options in ([], ["--json"], ["--thorough"]):
        said = place.mtkit(*command, *options).err
        assert "2 of 2 lines are below 100" in said
        # The translations of others are less probable, also of text of the same kind.
        assert "validation set" not in said
        assert "not the kind of text" not in said


def test_a_checked_output_begins_again_after_an_interruption(place: Place, run: list[str]):
    place.write("out.txt", "an older output\n")
    assert place.mtkit(*run, "--output", "out.txt", "--findings", "found.tsv").status == 0
    assert (place.folder / "out.txt").read_text(encoding="utf-8") == place.mtkit(*run).out


@pytest.mark.parametrize("option", [["--check"], ["--findings", "found.tsv"], ["--reject", "50"]])
def test_a_run_without_checks_is_one_line(place, run, untrained, option):
    run[2] = str(untrained.path)
    assert "has no confidence.json" in place.mtkit("-q", *run, *option).error
    assert not (place.folder / "found.tsv").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--findings", "in.txt"], "--findings would replace the --input"),
        (["--findings", "-"], "--findings: give the name of a file, not -"),
        (["--reject", "nan"], "expected a number of at least 0 and at most 100, not nan"),
        (["--findings", "out.txt", "--output", "out.txt"], "--findings would replace the file"),
    ],
)
def test_useless_options_are_refused(place, run, options, message):
    assert message in place.mtkit("-q", *run, *options).error


@pytest.mark.parametrize(
    "command",
    [
        ["translate", "--input", "in.txt", "--check"],
        ["check", "in.txt", "out.txt", "--json"],
        ["compare", "--src", "in.txt", "--reference", "out.txt", "--output", "page.html"],
        ["serve", "--port", "0"],
    ],
    ids=lambda command: command[0],
)
def test_another_checkpoint_than_that_of_the_confidence_is_one_warning(
    place, fitted, command, monkeypatch
):
    monkeypatch.setattr("mtkit.serve.Server.run", lambda server, on_ready: server._socket.close())
    place.write("in.txt", "one\nthree two\n")
    place.write("out.txt", "eins\nzwei drei\n")
    changed = copied_run(fitted, place.folder / "mine")
    run = ["mine"] if command[0] == "compare" else ["--run", "mine"]
    assert place.mtkit("-q", *command, *run).err == ""
    reseal(changed / CONFIDENCE, lambda content: content.update(checkpoint="step 2"))
    outcome = place.done("-q", *command, *run)
    assert outcome.err == (
        "mtkit: warning: mine: the confidence was fitted to step 2, and step 1 is used; to fit it"
        " again: mtkit check --fit --run mine\n"
    )


def test_samples_have_no_fitted_confidence_which_is_one_warning(place: Place, run: list[str]):
    warning = "mtkit: warning: the confidence was not fitted to samples, so it may be wrong"
    for option in (["--sample"], ["--mbr-samples", "2"]):
        assert place.mtkit("-q", *run, "--check", *option).err == f"{warning} for these\n"


def test_a_sentence_that_is_short_in_a_line_of_usual_length_is_still_a_warning(
    place, run, monkeypatch
):
    facts = LineFacts(sampled=9, shortest=100.0)
    of_all = property(lambda _: facts, lambda *_: None)
    monkeypatch.setattr(Translator, "line_facts", of_all, raising=False)
    place.write("in.txt", f"{'one two three ' * 10}\n")
    for options in ([], ["--check"]):
        assert "much shorter in translation than usual" in place.mtkit("-q", *run, *options).err


def test_an_ensemble_has_findings_and_no_confidence(place: Place, run: list[str]):
    run += ["--run", run[2]]
    outcome = place.mtkit("-q", *run, "--json", "--check")
    assert outcome.err == ""
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert ["findings" in row for row in rows] == [True] * 5
    assert not any("confidence" in row for row in rows)
    assert "an ensemble has no confidence" in place.mtkit("-q", *run, "--reject", "5").error


def test_fitting_one_direction_does_not_lose_the_others(place: Place, fitted: Run):
    changed = copied_run(fitted, place.folder / "mine")

    def add(content):
        other = copy.deepcopy(content["directions"][0])
        other["facts"]["tgt_lang"] = "fr"
        content["directions"].append(other)

    reseal(changed / CONFIDENCE, add)
    before = (changed / CONFIDENCE).read_bytes()
    write_pairs(place, number_pairs(600, 5))
    outcome = place.mtkit("-q", "check", "a.txt", "b.txt", "--run", "mine", "--fit")
    assert "has checks of other directions" in outcome.error
    assert (changed / CONFIDENCE).read_bytes() == before


def test_an_exported_run_has_the_same_checks(place: Place, fitted: Run, run: list[str]):
    assert place.mtkit("export", fitted.path, "copy", "--format", "safetensors").status == 0
    expected = place.mtkit(*run, "--json", "--check").out
    run[2] = "copy"
    outcome = place.mtkit("-q", *run, "--json", "--check")
    assert outcome.err == ""

    def without_time(output):
        return [{**json.loads(line), "seconds": 0} for line in output.splitlines()]

    assert without_time(outcome.out) == without_time(expected)


def test_given_pairs_are_checked_with_a_run(place: Place, fitted: Run):
    pairs = [
        ("one two three four five", "fünf vier drei zwei eins"),
        ("one two six seven eight nine", "neun"),
    ]
    write_pairs(place, pairs)
    command = ["check", "a.txt", "b.txt", "--run", str(fitted.path)]
    rows = [json.loads(line) for line in place.mtkit(*command, "--json").out.splitlines()]
    assert [row["line"] for row in rows] == [1, 2]
    assert rows[0]["findings"] == []
    assert {finding["kind"] for finding in rows[1]["findings"]} >= {"omission"}
    # The forecast of this run counts the source words without a translation.
    assert rows[0]["confidence"] > rows[1]["confidence"] + 20
    for codes in (["eng_Latn", "deu_Latn"], ["eng", "ger"], ["en-GB", "DE"], ["en_US", "deu"]):
        options = ["--src-lang", codes[0], "--tgt-lang", codes[1]]
        assert place.mtkit(*command, *options).status == 0
        of_run = ["--run", str(fitted.path), *options]
        assert place.mtkit("force-decode", "a.txt", "b.txt", *of_run).status == 0
        assert place.mtkit("align", "a.txt", "b.txt", *of_run).status == 0
        assert place.mtkit("translate", "--input", "a.txt", *of_run).status == 0
    refused = place.mtkit("-q", *command, "--src-lang", "fr").error
    assert "is for en to de; leave --src-lang fr out, or give another run" in refused
    refused = place.mtkit("-q", *command, "--tgt-lang", "fr").error
    assert "is for en to de, and not for fr; give another" in refused
    assert "omission" in place.mtkit(*command).out


def test_a_run_is_fitted_to_pairs(place: Place, untrained: Run):
    copied_run(untrained, place.folder / "mine")
    write_pairs(place, number_pairs(600, 5))
    outcome = place.done("check", "a.txt", "b.txt", "--run", "mine", "--fit")
    assert outcome.out == ""
    assert "wrote mine/confidence.json, lexicon.tsv and examples.tsv" in outcome.err
    assert "points on average; rank correlation with chrF " in outcome.err
    begin, *_, end, _ = (line for line in outcome.err.splitlines() if "step" not in line)
    assert begin == "mtkit: fitting the checks to the translations of 120 lines"
    assert re.fullmatch("mtkit: fitted the checks in [0-9]+ s", end)
    assert place.mtkit("check", "a.txt", "b.txt", "--run", "mine").status == 0


def test_more_pairs_than_a_fit_reads_are_a_note(place, untrained, monkeypatch):
    monkeypatch.setattr("mtkit.cli.check._MAX_FITTED", 400)
    for most, is_cut in ((400, False), (401, True)):
        place.write("a.txt", "one\n" * most)
        outcome = place.mtkit("check", "a.txt", "a.txt", "--run", str(untrained.path), "--fit")
        assert "--fit needs at least 500 pairs; found 400" in outcome.err
        assert ("only the first 400 pairs are read" in outcome.err) == is_cut


def test_an_interrupt_of_the_fit_changes_nothing(place, fitted, monkeypatch):
    run = copied_run(fitted, place.folder / "mine")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    write_pairs(place, number_pairs(600, 5))

    def translate_windows(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("mtkit.translate.Translator.translate_windows", translate_windows)
    outcome = place.mtkit("check", "a.txt", "b.txt", "--run", "mine", "--fit")
    assert outcome.status == 130
    assert "mtkit: fitting the checks to the translations of 120 lines" in outcome.err
    assert outcome.err.splitlines()[-1] == "mtkit: interrupted"
    assert "fitted the checks" not in outcome.err
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_a_run_is_fitted_to_its_own_data(place: Place, tiny_run: Run):
    # The tiny data have too few pairs to fit it.
    outcome = place.mtkit("check", "--run", tiny_run.path, "--fit")
    assert outcome.status == 1
    assert "the validation set has under 100 pairs" in outcome.err
    copied_run(tiny_run, place.folder / "deep" / "mine")
    moved = place.mtkit("-q", "check", "--run", "deep/mine", "--fit")
    assert "is not there; give --data, or SRC and TGT instead" in moved.error
    fit = "-q", "check", "--run", "deep/mine", "--fit"
    data = Run.open(tiny_run.path).data_path
    assert "too few pairs in the validation set" in place.mtkit(*fit, "--data", data).error
    manifest = place.folder / "deep" / "mine" / "manifest.json"
    reseal(manifest, lambda content: content["data"].update(fingerprint="0" * 64))
    assert "is not what deep/mine was trained on" in place.mtkit(*fit, "--data", data).error
    unused = place.mtkit("check", "a", "b", "--run", "deep/mine", "--data", data)
    assert "--data has no effect without --fit" in unused.error


def test_the_findings_of_html_are_listed_with_their_lines(place: Place, run: list[str]):
    place.write("in.html", "<p>one two</p>\n<p>猫 one</p>\n")
    outcome = place.mtkit(*run[:-1], "in.html", "--format", "html", "--check")
    (listed,) = (row for row in outcome.err.splitlines() if row.startswith("mtkit: line 2: "))
    assert "the vocabulary lacks 猫" in listed
