"""The page of a run: parsed as a browser would, and drawn from numbers whose charts are known."""

import json
import math
import os
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.browsed import HOSTILE, Page, loaded_by, well_formed
from support.program import printed

from mtkit.run_folder import Run
from mtkit.train.report_page import RunFacts, run_page

TRAINING = [
    {"step": step, "loss": 8 - step / 100, "lr": step * 1e-6, "tokens_per_second": 1000.0 + step}
    for step in range(50, 401, 50)
]
VALIDATION = [
    {"step": 200, "valid_loss": 3.25, "valid_perplexity": 25.79, "valid_bleu": 21.5},
    {"step": 400, "valid_loss": 2.125, "valid_perplexity": 8.37, "valid_bleu": 30.75}
    | {"valid_chrf": 55.5},
]
HAT = {"src": "A red hat.", "ref": "Ein roter Hut."}
SAMPLES = [{"step": step, "samples": [HAT | {"hyp": f"Ein Hut {step}."}]} for step in (200, 400)]
FACTS = RunFacts(
    name="demo",
    summary={"Data": "demo-en-de", "Step": "400 of 400"},
    config_yaml="train:\n  seed: 1\n",
    metrics=[*TRAINING[:4], VALIDATION[0], *TRAINING[4:], VALIDATION[1]],
    samples=SAMPLES,
    findings=["BLEU fell twice."],
    best_step=200,
)
NOTHING = RunFacts("", {}, "", [], [], [], None)


def drawn(text: str) -> list[int]:
    """How many points each path has that could be a curve."""
    paths = [element["attrs"]["d"] for element in Page(text).all("path")]
    return [len(re.findall("[ML]", path)) for path in paths]


def rows_of(page: Page) -> list[str]:
    """The text of the rows of the table of validations."""
    return [
        " ".join(element["text"].split())
        for element in page.all("tr")
        if "details" not in element["inside"] and "tbody" in element["inside"]
    ]


def test_the_chart_of_both_losses_says_how_they_differ() -> None:
    note = "The training loss is measured with dropout and label smoothing"
    for metrics, is_noted in ((FACTS.metrics, True), (TRAINING, False)):
        page = well_formed(run_page(replace(FACTS, metrics=metrics)))
        assert any(text.startswith(note) for text in page.texts("p")) == is_noted


def test_tags_balance_and_ids_are_unique() -> None:
    page = well_formed(run_page(FACTS))
    ids = [element["attrs"]["id"] for element in page.elements if "id" in element["attrs"]]
    assert len(ids) == len(set(ids))
    referred = re.findall(r'(?:url\(#|href="#|labelledby=")([^)"]+)', run_page(FACTS))
    assert referred
    assert set(referred) <= set(ids)


def test_nothing_is_loaded_from_elsewhere() -> None:
    addresses = loaded_by(run_page(FACTS))
    assert addresses  # those of the charts' own parts, and of the icon that is none
    assert all(address.startswith("#") or address == "data:," for address in addresses)


def test_the_same_facts_give_the_same_bytes_in_any_process() -> None:
    program = "from test_run_page import FACTS, run_page; print(run_page(FACTS), end='')"
    tests = os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]])
    assert printed("-c", program, PYTHONPATH=tests) == run_page(FACTS)


def test_settings_of_matplotlib_change_nothing_and_are_left_as_they_were() -> None:
    import matplotlib

    with matplotlib.rc_context({"grid.linestyle": ":", "legend.fontsize": 30, "lines.marker": "x"}):
        strange = run_page(FACTS)
        assert matplotlib.rcParams["grid.linestyle"] == ":"
    assert strange == run_page(FACTS)


def test_a_page_can_be_read_without_seeing_it() -> None:
    page = well_formed(run_page(FACTS))
    assert page.all("html")[0]["attrs"]["lang"] == "en"
    assert page.texts("title") == ["demo – Training run"]
    assert page.texts("h1") == ["demo"]
    headings = "Findings Summary Curves Validations Samples Configuration"
    assert " ".join(page.texts("h2")) == headings
    charts = page.all("div", role="img")
    assert len(charts) == len(page.all("svg")) == 4
    assert charts[0]["attrs"]["aria-label"] == (
        "Loss. training: 7.5 at step 50, 4 at step 400, lowest 4, highest 7.5. "
        "validation: 3.25 at step 200, 2.125 at step 400, lowest 2.125, highest 3.25."
    )
    assert all(heading["attrs"].get("scope") in ("row", "col") for heading in page.all("th"))


def test_a_page_says_how_training_stands_and_when_it_was_written() -> None:
    written = "2026-01-31 12:00:05 (UTC+0100)"
    for state in ("running", "stopped", "finished"):
        text = run_page(replace(FACTS, state=state, written=written))
        page = well_formed(text)
        (said,) = page.all("p", **{"class": "state"})
        assert said["text"].startswith(f"{state} written {written}")
        metas = [meta["attrs"] for meta in page.all("meta") if "http-equiv" in meta["attrs"]]
        # The other one is the security policy, which forbids scripts.
        assert [meta["content"] for meta in metas[1:]] == ["30"] * (state == "running")
        assert "<script" not in text


def test_the_best_score_is_in_large_type() -> None:
    page = well_formed(run_page(FACTS))
    (score,) = page.all("p", **{"class": "score"})
    assert score["text"] == "21.5 BLEU at step 200, the best validation"
    assert page.texts("strong") == ["21.5"]
    parser = [{"step": 9, "valid_loss": 1.0, "valid_f1": 88.25}]
    page = well_formed(run_page(replace(FACTS, metrics=parser, best_step=9)))
    assert page.texts("strong") == ["88.2"]
    assert not well_formed(run_page(NOTHING)).texts("strong")


def test_every_validation_is_in_the_table_newest_first_and_the_best_is_marked() -> None:
    page = well_formed(run_page(FACTS))
    assert rows_of(page) == ["4002.12508.3730.7555.50", "best 2003.250025.7921.50–"]
    assert page.texts("tr", **{"class": "best"}) == ["best 2003.250025.7921.50–"]
    many = [{"step": step, "valid_bleu": step / 100} for step in range(100, 30_001, 100)]
    page = well_formed(run_page(replace(FACTS, metrics=many)))
    assert [row.removeprefix("best ") for row in rows_of(page)] == [
        f"{row['step']:,}––{row['valid_bleu']:.2f}–" for row in reversed(many)
    ]
    assert not well_formed(run_page(replace(FACTS, best_step=None))).all("tr", **{"class": "best"})


def test_a_page_shows_the_interval_of_a_score_where_it_shows_the_score() -> None:
    row = VALIDATION[0] | {"valid_chrf": 40.0, "valid_chrf++": 38.5}
    row |= {"valid_also": {"news": {"loss": 2.0, "bleu": 9.0}}}
    intervals = {"bleu": 1.25, "chrf": 0.5, "chrf++": 0.75, "bleu@news": 2.0}
    samples = [SAMPLES[0] | {"intervals": intervals}, SAMPLES[1]]
    metrics = [TRAINING[3], row, VALIDATION[1]]
    page = well_formed(run_page(replace(FACTS, metrics=metrics, samples=samples)))
    assert page.texts("strong") == ["21.5 ± 1.2"]
    newest, of_best = rows_of(page)
    assert newest == "4002.12508.3730.7555.50–––––"
    assert of_best == ("best 2003.250025.7921.50 ± 1.2540.00 ± 0.5038.50 ± 0.752.009.00 ± 2.00––")
    assert any("±: half of the 95 % interval" in text for text in page.texts("p"))


def test_each_score_in_one_chart_has_its_own_colour_or_style_of_line() -> None:
    scores = ("valid_bleu", "valid_chrf", "valid_chrf++")
    rows = [{"step": step, **dict.fromkeys(scores, step / 10)} for step in range(1, 200)]
    page = well_formed(run_page(replace(FACTS, metrics=rows)))
    styles = [
        style
        for path in page.all("path")
        if "stroke-width: 1.7" in (style := path["attrs"].get("style", ""))
    ]
    assert len(set(styles)) == len(scores)


def test_samples_appear_with_the_newest_open() -> None:
    page = well_formed(run_page(FACTS))
    folded = [element for element in page.all("details") if "Step" in element["text"]]
    assert [element["text"].split()[1] for element in folded] == ["400", "200"]
    assert ["open" in element["attrs"] for element in folded] == [True, False]
    assert "best" in folded[1]["text"].split("\n")[1]
    cells = [cell for cell in page.all("td") if "details" in cell["inside"]]
    assert [cell["text"] for cell in cells[:3]] == ["A red hat.", "Ein roter Hut.", "Ein Hut 400."]
    assert {cell["attrs"]["dir"] for cell in cells} == {"auto"}


def test_a_long_run_shows_samples_of_its_newest_its_best_and_some_between() -> None:
    samples = [{"step": step, "samples": SAMPLES[0]["samples"]} for step in range(1, 301)]
    page = well_formed(run_page(replace(FACTS, samples=samples, best_step=123)))
    steps = [int(text.split()[1]) for text in page.texts("summary") if text.startswith("Step")]
    assert (steps[0], steps[-1]) == (300, 1)
    assert 123 in steps
    assert 30 <= len(steps) <= 31
    gaps = [newer - older for newer, older in pairwise(step for step in steps if step != 123)]
    assert set(gaps) <= {10, 11}
    assert any(f"Shown: {len(steps)} of 300 validations." in text for text in page.texts("p"))


@pytest.mark.parametrize(
    ("reference", "translation", "marked"),
    [
        ("Ein roter Hut.", "Ein roter Hut.", []),
        ("Ein roter Hut.", "Ein Hut, der rot ist.", ["der", "rot", "ist."]),
        # Punctuation around a word is not compared; a word said twice is one too many.
        ("the cat sat", "“The” cat, the the cat!", ["“The”", "the", "cat!"]),
        ("一个女人在看书。", "一个女人正在看。", ["正"]),
        ("قبعة برتقالية", "قبعة حمراء", ["حمراء"]),
        ("", "There is nothing to compare with.", []),
    ],
)
def test_words_that_the_reference_lacks_are_marked(reference, translation, marked):
    samples = [{"step": 1, "samples": [{"src": "x", "ref": reference, "hyp": translation}]}]
    page = well_formed(run_page(replace(FACTS, samples=samples)))
    assert [mark["text"] for mark in page.all("mark") if "td" in mark["inside"]] == marked
    assert page.all("td")[-1]["text"] == translation


def test_everything_is_escaped() -> None:
    samples = [{"step": 1, "samples": [dict.fromkeys(("src", "ref", "hyp"), HOSTILE)]}]
    facts = RunFacts(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE, [], samples, [HOSTILE], 1)
    page = well_formed(run_page(facts))
    assert page.texts("h1") == page.texts("pre") == page.texts("li") == [HOSTILE]
    assert page.texts("title") == [f"{HOSTILE} – Training run"]
    assert page.texts("dt") == page.texts("dd") == [HOSTILE]
    assert page.texts("td", dir="auto") == [HOSTILE] * 3
    assert {element["tag"] for element in page.elements}.isdisjoint({"script", "b", "textarea"})


def test_what_a_page_cannot_hold_is_shown_as_a_picture_or_replaced() -> None:
    name = "a\x00b\x1b[1mc\x7fd\x85e\ud800f\ufffeg\rh"
    text = run_page(replace(FACTS, name=name, config_yaml="a\r\nb\tc\n"))
    text.encode("utf-8")
    page = well_formed(text)
    assert page.texts("h1") == ["a␀b␛[1mc␡d\ufffde\ufffdf\ufffdg␍h"]
    assert page.all("pre")[0]["text"] == "a\nb\tc\n"


def test_huge_texts_are_cut() -> None:
    huge = "<" * 1_000_000
    samples = [{"step": 1, "samples": [dict.fromkeys(("src", "ref", "hyp"), huge)] * 200}]
    facts = RunFacts(huge, {huge: huge}, huge, [{"step": 1, "loss": 1.0}], samples, [huge], 1)
    text = run_page(facts)
    assert len(text) < 2_000_000
    assert "[cut here; 1,000,000 characters in all]" in text
    assert "150 more are left out." in text
    well_formed(text)


def test_a_chart_has_a_bounded_number_of_points_and_keeps_the_extremes() -> None:
    rng = random.Random(1)
    rows = [{"step": step, "loss": rng.uniform(3, 4)} for step in range(1, 100_001)]
    rows[31_415]["loss"], rows[77_777]["loss"] = 2.9, 9.5
    text = run_page(replace(FACTS, metrics=rows))
    assert 300 <= max(drawn(text)) <= 600
    page = well_formed(text)
    (curve,) = [path["attrs"]["d"] for path in page.all("path") if len(path["attrs"]["d"]) > 5000]
    heights = [float(height) for height in re.findall(r"[ML] \S+ (\S+)", curve)]
    # The axis is logarithmic, and heights are measured from above.
    top, bottom, usual = min(heights), max(heights), sorted(heights)[len(heights) // 2]
    assert heights.count(top) == heights.count(bottom) == 1
    expected = math.log(9.5 / 2.9) / math.log(9.5 / 3.5)
    assert (bottom - top) / (usual - top) == pytest.approx(expected, rel=0.15)


def test_a_marker_at_the_edge_of_a_chart_is_whole() -> None:
    first = {"step": 0, "valid_loss": 4.0, "valid_bleu": 5.0}
    text = run_page(replace(FACTS, metrics=[first, *FACTS.metrics]))
    assert "<use " in text
    # A group with a clip path shows only what is within the axes.
    assert not re.search(r"<g clip-path=[^>]*>\s*<use ", text)


@pytest.mark.parametrize("name", ["", "x"])
def test_a_run_without_a_row_has_a_page(name: str) -> None:
    page = well_formed(run_page(replace(NOTHING, name=name)))
    assert page.texts("p")[2:] == [
        "Nothing has been measured yet.",
        "The run has not been validated yet.",
        "There are no samples yet.",
    ]


@pytest.mark.parametrize("row", [TRAINING[0], VALIDATION[0], {"step": 0, "loss": 0, "lr": 0.0}])
def test_a_run_with_one_row_has_a_page_with_a_mark_for_it(row: dict[str, Any]) -> None:
    page = well_formed(run_page(replace(NOTHING, metrics=[row])))
    charts = page.all("div", role="img")
    assert charts
    # Without a marker a line of one point is invisible.
    assert len(page.all("use")) >= len(charts)


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf, 1e300])
def test_a_number_that_is_not_finite_is_counted_and_not_shown(strange: Any) -> None:
    rows = [*TRAINING, {"step": 450, "loss": strange}, {"step": 450, "valid_loss": strange}]
    text = run_page(replace(FACTS, metrics=rows))
    page = well_formed(text)
    assert "2 not shown: not a finite number." in page.texts("p")
    assert len(page.all("svg")) == 3
    assert max(drawn(text)) == 8
    assert not re.search(r'="[^"]*\b(nan|inf)\b', text)
    (row,) = rows_of(page)
    assert row.startswith("450")
    alone = run_page(replace(NOTHING, metrics=[{"step": 1, "loss": strange, "lr": strange}]))
    assert well_formed(alone).all("svg") == []


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


SAMPLE = st.fixed_dictionaries(dict.fromkeys(("src", "ref", "hyp"), st.text()))


def rows(keys: Sequence[str]) -> st.SearchStrategy[list[Any]]:
    """Rows of which some have what they should have."""
    step = st.integers(0, 100) | st.integers(0, 10**400)
    numbers = st.floats() | st.integers(-(10**400), 10**400)
    sound = st.dictionaries(st.sampled_from(keys), numbers, max_size=3)
    row = st.builds(lambda step, rest: {"step": step, **rest}, step, sound)
    return st.lists(row | st.dictionaries(st.sampled_from(["step", *keys]), ANYTHING) | ANYTHING)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    metrics=rows(["loss", "lr", "valid_loss", "valid_bleu", "tokens"]),
    samples=st.lists(
        st.fixed_dictionaries({"step": st.integers(0, 10**400), "samples": st.lists(SAMPLE)})
        | ANYTHING,
        max_size=3,
    ),
    best_step=st.none() | st.integers(0, 100),
)
def test_a_page_is_written_for_any_records(untrained, tmp_path, metrics, samples, best_step):
    shutil.copytree(untrained.path, tmp_path, dirs_exist_ok=True)
    for name, content in (("metrics", metrics), ("samples", samples)):
        text = "\n".join(json.dumps(row) for row in content)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    run = Run.open(tmp_path)
    facts = replace(FACTS, metrics=run.metrics(), samples=run.samples(), best_step=best_step)
    well_formed(run_page(facts)).rawdata.encode()
