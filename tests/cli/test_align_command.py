"""`mtkit align`, `mtkit translate --alignments` and `mtkit score-alignments`."""

import json

import pytest
from conftest import claim_checkpoints, random_run, reseal
from support.command_line import Place

import mtkit.translate.reading
from mtkit.align.aligner import Aligner
from mtkit.align.links import METHODS
from mtkit.run_folder import Run
from mtkit.translate import Translator

SRC = "one two three\n\nnine\nfour  five six seven\n"
TGT = "eins zwei drei\nzwei\n\nvier\u00a0fünf sechs\n"


@pytest.fixture
def pairs(trained) -> Place:
    trained.write("src.txt", SRC)
    trained.write("tgt.txt", TGT)
    return trained


def test_align_prints_the_links_of_each_pair(pairs, speaking_run):
    outcome = pairs.mtkit("-q", "align", "src.txt", "tgt.txt")
    assert (outcome.status, outcome.err) == (0, "")
    with Translator.load(speaking_run, device="cpu") as loaded:
        expected = list(loaded.align(SRC.split("\n")[:-1], TGT.split("\n")[:-1]))
    assert outcome.out.split("\n") == [*map(str, expected), ""]
    assert outcome.out.split("\n")[1:3] == ["", ""]
    objects = pairs.mtkit("-q", "align", "src.txt", "tgt.txt", "--json").out.splitlines()
    last = json.loads(objects[3])
    assert last["line"] == 4
    assert [SRC.splitlines()[3][start:end] for start, end in last["src_words"]] == (
        ["four", "five", "six", "seven"]
    )
    assert last["tgt_words"] == [[0, 4], [5, 9], [10, 15]]
    assert {(i, j) for i, j, _ in last["links"]} == expected[3].links


def test_align_writes_a_file_when_it_is_complete_and_resumes(pairs, monkeypatch):
    printed = pairs.mtkit("-q", "align", "src.txt", "tgt.txt").out
    align, done = Aligner.align, []

    def align_and_count(self, *given, **more):
        if len(done) == 1:
            done.append(0)
            raise KeyboardInterrupt
        done.append(1)
        return align(self, *given, **more)

    monkeypatch.setattr(mtkit.translate.reading, "WINDOW_LINES", 2)
    monkeypatch.setattr(Aligner, "align", align_and_count)
    command = ("-q", "align", "src.txt", "tgt.txt", "--output", "links.txt")
    assert pairs.mtkit(*command).status == 130
    assert (pairs.folder / ".links.txt.parts").is_dir()
    outcome = pairs.mtkit(*command)
    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")
    assert done == [1, 0, 1]  # the first window is not aligned again
    assert (pairs.folder / "links.txt").read_text() == printed
    assert [path.name for path in pairs.folder.glob("*links.txt*")] == ["links.txt"]


def test_align_reads_one_side_from_standard_input(pairs):
    printed = pairs.mtkit("-q", "align", "src.txt", "tgt.txt").out
    assert pairs.mtkit("-q", "align", "-", "tgt.txt", stdin=SRC.encode()).out == printed
    assert "once" in pairs.refused("align", "-", "-")


def test_align_prints_the_pairs_before_a_line_that_is_missing(pairs):
    pairs.write("short.txt", TGT.split("\n")[0] + "\n")
    printed = pairs.mtkit("-q", "align", "src.txt", "tgt.txt").out
    outcome = pairs.mtkit("-q", "align", "src.txt", "short.txt")
    assert (outcome.status, outcome.out) == (1, printed.splitlines(keepends=True)[0])
    (line,) = outcome.err.splitlines()
    assert line.endswith("short.txt: has no line 2, but src.txt has one")
    error = pairs.refused("align", "short.txt", "src.txt", "--output", "links.txt")
    assert error.endswith("short.txt: has no line 2, but src.txt has one")


@pytest.fixture(scope="session")
def reversed_run(tiny_run, tiny_data, tmp_path_factory) -> Run:
    """A run with random weights, for the reverse direction of the tiny run."""
    place = tmp_path_factory.mktemp("reversed") / "reversed"
    random_run(place, tiny_data, 1, config=tiny_run.config)
    languages = {"src_lang": tiny_data.tgt_lang, "tgt_lang": tiny_data.src_lang}
    reseal(place / "manifest.json", lambda it: it["data"].update(languages))
    claim_checkpoints(place)
    return Run.open(place)


@pytest.mark.parametrize("method", METHODS)
def test_align_joins_the_links_of_both_directions(pairs, reversed_run, speaking_run, method):
    command = ("-q", "align", "src.txt", "tgt.txt", "--reverse", str(reversed_run.path))
    outcome = pairs.mtkit(*command, "--symmetrize", method)
    with (
        Translator.load(speaking_run, device="cpu") as forward,
        Translator.load(reversed_run, device="cpu") as backward,
    ):
        sources, targets = SRC.split("\n")[:-1], TGT.split("\n")[:-1]
        alignments = list(forward.align(sources, targets, reverse=backward, method=method))
        turned = list(backward.align(targets, sources, reverse=forward, method=method))
        with pytest.raises(ValueError, match=r"reverse: translates en to de, not de to en"):
            forward.align(sources, targets, reverse=forward)
    assert outcome.out == "".join(f"{alignment}\n" for alignment in alignments)
    assert alignments[0].links
    if method in ("intersection", "union"):
        # The product of both models decides, so neither comes first.
        for one_way, other_way in zip(alignments, turned, strict=True):
            assert one_way.links == {(i, j) for j, i in other_way.links}


def test_a_long_line_is_aligned_up_to_the_limit_with_its_number_in_the_warning(
    trained, reversed_run
):
    trained.write("src.txt", "one two\n" * 3 + "three " * 2000 + "\n")
    trained.write("tgt.txt", "eins\n" * 4)
    outcome = trained.done("align", "src.txt", "tgt.txt", "--reverse", str(reversed_run.path))
    warnings = [line for line in outcome.err.splitlines() if "warning" in line]
    assert warnings
    assert all("line 4: only " in line and "of the source" in line for line in warnings)
    assert len(outcome.out.splitlines()) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--restart"], "--restart requires --output"),
        (["--output", "src.txt"], "--output would replace the SRC"),
        (["--output", "nowhere/out.txt"], "the folder nowhere does not exist"),
        (["--output", "/proc/out.txt"], "no file can be created in /proc"),
        (["--output", "runs"], "runs: is a folder; give --output FILE"),
        (["--reverse", "runs/tiny"], "which is not the reverse of runs/tiny"),
    ],
)
def test_align_refuses_what_it_cannot_do(pairs, options, message):
    assert message in pairs.refused("align", "src.txt", "tgt.txt", *options)


def test_translate_prints_alignments_with_its_translations(place, ending_run):
    def printed(command, *options, stdin=b""):
        run = ["--run", str(ending_run.path), "--device", "cpu"]
        return place.mtkit("-q", command, *options, *run, stdin=stdin).out.split("\n")[:-1]

    text = b"one two three\n\nnine four\n"
    plain = printed("translate", stdin=text)
    rows = printed("translate", "--alignments", stdin=text)
    assert [row.split("\t")[0] for row in rows] == plain
    assert rows[1] == "\t"
    place.write("src.txt", text)
    place.write("tgt.txt", "".join(f"{line}\n" for line in plain))
    links = printed("align", "src.txt", "tgt.txt")
    assert [row.split("\t")[1] for row in rows] == links
    best = printed("translate", "--alignments", "--nbest", "2", stdin=text)
    assert best[0].split("\t")[2:] == rows[0].split("\t")
    (first, *_) = map(json.loads, printed("translate", "--alignments", "--json", stdin=text))
    alignment = first["translations"][0]["alignment"]
    assert " ".join(f"{i}-{j}" for i, j, _ in alignment["links"]) == links[0]


def test_alignments_are_scored_against_one_gold_alignment_for_each_line(place):
    place.write("links.txt", "0-0\n")
    place.write("gold.txt", "0-0 1p1\n")
    place.write("short.txt", "")
    score = ("score-alignments", "links.txt", "--reference", "gold.txt")
    assert place.mtkit("-q", *score).out == "AER 0.0 precision 100.0 recall 100.0\n"
    assert "give --reference" in place.refused(*score[:2])
    assert "--reference: give one reference" in place.refused(*score, "--reference", "short.txt")
    assert "short.txt has 0 lines" in place.refused(*score, "short.txt")


def test_links_may_be_numbered_target_first(place):
    place.write("links.txt", "0-1 2-0\n")
    place.write("gold.txt", "1-0 0-2\n")
    score = ("-q", "score-alignments", "links.txt", "--reference", "gold.txt")
    assert place.mtkit(*score).out == "AER 100.0 precision 0.0 recall 0.0\n"
    assert place.mtkit(*score, "--swap-links").out == "AER 0.0 precision 100.0 recall 100.0\n"


FROM_1 = "no link has an index 0, so words are probably counted from 1; if so, "


@pytest.mark.parametrize(
    ("links", "gold", "message"),
    [
        ("0-0 1-1\n", "1-1 2-2\n", f"gold.txt: {FROM_1}give --one-based"),
        ("1-1 2-2\n", "0-0 1-1\n", f"links.txt: {FROM_1}subtract 1 from each index"),
        # One index 0 proves that words are counted from 0, or that 0 stands for no word.
        ("0-0\n" * 20, "1-1 2-0\n" + "1-1\n" * 19, ""),
        ("0-0 1-1\n", "0-1 1p0\n", ""),
        ("0-0\n0-0\n", "0p1 1-1\n1-1\n", ""),
        # The scores are right if both count from 1.
        ("1-1 2-2\n", "1-1 2-3\n", ""),
    ],
)
def test_a_text_that_probably_counts_words_from_1_is_named_in_one_line(place, links, gold, message):
    place.write("links.txt", links)
    place.write("gold.txt", gold)
    outcome = place.done("score-alignments", "links.txt", "--reference", "gold.txt")
    assert outcome.err == (f"mtkit: warning: {message}\n" if message else "")


@pytest.mark.parametrize(
    ("links", "gold", "scores"),
    [
        ("0-0 1-1\n", "1-1 2-2\n", "AER 0.0 precision 100.0 recall 100.0\n"),
        ("0-0 1-1\n\n9-0\n", "1p1 2-2\n\n10-1\n", "AER 0.0 precision 100.0 recall 100.0\n"),
        # By hand: 2 of 3 links are possible, 1 of 2 sure ones was found: 1 - (1 + 2) / (3 + 2).
        ("0-0 1-1 0-2\n", "1-1 2p2 3-3\n", "AER 40.0 precision 66.7 recall 50.0\n"),
    ],
)
def test_gold_alignments_can_count_words_from_1(place, links, gold, scores):
    place.write("links.txt", links)
    place.write("gold.txt", gold)
    score = ("score-alignments", "links.txt", "--reference", "gold.txt", "--one-based")
    outcome = place.mtkit(*score)
    assert (outcome.status, outcome.out, outcome.err) == (0, scores, "")
    place.write("gold.txt", f"0-0 {gold}")
    assert "gold.txt, line 1: '0-0' has an index 0" in place.refused(*score)


def test_gold_alignments_without_sure_links_are_refused(place):
    place.write("links.txt", "0-0\n")
    for gold in ("0p0\n", "\n"):
        place.write("gold.txt", gold)
        error = place.refused("score-alignments", "links.txt", "--reference", "gold.txt")
        assert "gold.txt: has no sure link (i-j)" in error
