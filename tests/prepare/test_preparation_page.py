"""The page of prepared data: charts of known numbers, and facts as strange as they come."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from support.browsed import HOSTILE, Page, loaded_by, made_elsewhere, well_formed

from mtkit.prepare.report_page import (
    RATIO_STEPS,
    DataFacts,
    Dropped,
    Origin,
    Setting,
    Side,
    Vocabulary,
    data_page,
)

SOURCE = Side(14, 6, byte_tokens=1, rare_tokens=2, covering=(1, 2, 3), lengths={2: 1, 4: 3})
TARGET = Side(20, 8, byte_tokens=0, rare_tokens=0, covering=(1, 1, 1), lengths={4: 2, 6: 2})
FACTS = DataFacts(
    name="demo",
    findings=["Something is wrong."],
    summary={"Languages": "en → de"},
    read=5,
    kept=4,
    counted=4,
    dropped=[Dropped("empty", "A side is empty.", 1, [("a.en and a.de, 3", "", "x")])],
    origins=[
        Origin(
            "train",
            "a.en, a.de",
            5,
            4,
            2.0,
            {"CRLF line end": 2},
            {"file": "ab" * 32},
            {"src": {"en": 19, "de": 1}, "tgt": {"fr": 20}},
        )
    ],
    misaligned=[("a.en and a.de", 1001, 1021, -2)],
    train=(SOURCE, TARGET),
    valid=(SOURCE, TARGET),
    ratios={0: 1, RATIO_STEPS: 2, -RATIO_STEPS: 1},
    vocabularies=[Vocabulary("joint", size=300, learned=40, unused=10, rare=20)],
    samples=[("1", "A red hat.", "Ein roter Hut.")],
    settings=[Setting("max_ratio", "4.0", False, "a limit")],
    versions={"mtkit": "0.1"},
)
NOBODY = Side(0, 0, 0, 0, (0, 0, 0), {})
NOTHING = DataFacts(
    name="",
    findings=[],
    summary={},
    read=0,
    kept=0,
    counted=0,
    dropped=[],
    origins=[],
    misaligned=[],
    train=(NOBODY, NOBODY),
    valid=(NOBODY, NOBODY),
    ratios={},
    vocabularies=[],
    samples=[],
    settings=[],
    versions={},
)


def figure(page: Page, title: str) -> str:
    """The whole text of a chart: labels of its axes and lines, and the note."""
    (text,) = (text for text in page.texts("figure") if text.startswith(title))
    return text


def shapes(text: str, title: str) -> list[list[tuple[float, float]]]:
    """The corners of all paths of the chart with this title."""
    part = text[text.index(f"<figcaption>{title}") :]
    part = part[: part.index("</figure>")]
    return [
        [(float(x), float(y)) for x, y in re.findall(r"[ML] (\S+) (\S+)", path)]
        for path in re.findall(r'<path d="([^"]*)"', part)
    ]


def test_the_page_says_what_it_was_given() -> None:
    page = well_formed(data_page(FACTS))
    assert page.texts("title") == ["demo – Prepared data"]
    assert page.texts("h2") == [
        "Findings",
        "Summary",
        "Training pairs",
        "Sources",
        "Misaligned lines",
        "Lengths",
        "Subwords",
        "Dropped pairs",
        "Kept pairs",
        "Settings",
    ]
    rows = page.texts("tr")
    assert "kept480.00%" in rows
    assert "dropped: empty120.00%" in rows
    assert "a.en and a.de 1,0011,021 2 earlier" in " ".join(rows).replace("de1,001", "de 1,001")
    (row,) = (row for row in rows if row.startswith("traina.en, a.de"))
    assert "19 × en, 1 × de →20 × fr" in row
    # 10 subwords in 6 words; 1 of them a byte, 2 rare.
    assert "subwords per word1.6671.6672.0002.000" in rows
    assert "single bytes among subwords10.00%10.00%0.00%0.00%" in rows
    assert "subwords rare in training (below 10 times)20.00%20.00%0.00%0.00%" in rows
    assert "different subwords that cover 90% of all2211" in rows
    assert "never used in training10 (25.00%)" in rows
    assert "used 1 to 9 times20 (50.00%)" in rows
    assert all(heading["attrs"].get("scope") in ("row", "col") for heading in page.all("th"))


def test_a_handful_among_millions_is_not_shown_as_none() -> None:
    few = Dropped("empty", "A side is empty.", 3, [])
    page = well_formed(data_page(replace(FACTS, read=36_000_000, dropped=[few])))
    assert "dropped: empty3< 0.01%" in page.texts("tr")


def test_a_histogram_has_a_step_for_each_length() -> None:
    text = data_page(FACTS)
    outlines = [points for points in shapes(text, "Length in tokens") if len(points) == 18]
    # Six lengths, of which each has two corners, and both ends; heights are measured from above.
    source, target = outlines[-2:]
    for outline, shares in ((source, [0, 1, 0, 3, 0, 0]), (target, [0, 0, 0, 2, 0, 2])):
        heights = [outline[-1][1] - y for _, y in outline[2:14:2]]
        unit = heights[3] / shares[3]
        assert [height / unit for height in heights] == pytest.approx(shares)
    assert "each step is one token" in figure(well_formed(text), "Length in tokens")


def test_few_long_sentences_do_not_flatten_the_chart() -> None:
    long = replace(SOURCE, lengths={10: 999, 5000: 1})
    facts = replace(FACTS, train=(long, replace(TARGET, lengths={10: 1000})))
    page = well_formed(data_page(facts))
    assert "1 sentences are longer, up to 5,000." in figure(page, "Length in tokens")
    assert "5,000" not in page.texts("text")


def test_ratios_are_given_for_the_middle_and_for_both_ends() -> None:
    # Of 100 pairs 4 have a target of a quarter, 90 of the same length, 6 of four times the length.
    ratios = {-2 * RATIO_STEPS: 4, 0: 90, 2 * RATIO_STEPS: 6}
    rows = well_formed(data_page(replace(FACTS, ratios=ratios))).texts("tr")
    expected = {"1% of the pairs are not above": 0.25, "5%": 1, "median": 1, "95%": 4, "99%": 4}
    assert {f"{label}{ratio:.2f}" for label, ratio in expected.items()} <= set(rows)


def test_nothing_is_loaded_from_elsewhere_and_everything_is_escaped() -> None:
    facts = replace(
        FACTS,
        name=HOSTILE,
        findings=[HOSTILE],
        summary={HOSTILE: HOSTILE},
        dropped=[Dropped(HOSTILE, HOSTILE, 1, [(HOSTILE, HOSTILE, HOSTILE)])],
        origins=[
            Origin(
                HOSTILE, HOSTILE, 1, 1, 1.0, {HOSTILE: 1}, {HOSTILE: HOSTILE}, {"src": {HOSTILE: 1}}
            )
        ],
        misaligned=[(HOSTILE, 1, 2, 1)],
        vocabularies=[Vocabulary(HOSTILE, 4, 3, 2, 1)],
        samples=[(HOSTILE, HOSTILE, HOSTILE)],
        settings=[Setting(HOSTILE, HOSTILE, True, HOSTILE)],
        versions={HOSTILE: HOSTILE},
    )
    text = data_page(facts)
    page = well_formed(text)
    assert {element["tag"] for element in page.elements}.isdisjoint({"b", "textarea"})
    assert text.count("<script>") == 0
    assert page.texts("h1") == page.texts("li") == page.texts("dd") == [HOSTILE]
    assert page.texts("td", **{"data-label": "Source"}) == [HOSTILE, HOSTILE]
    addresses = loaded_by(text)
    assert addresses
    assert all(address.startswith("#") or address == "data:," for address in addresses)


def test_ids_are_unique_and_what_is_referred_to_is_there() -> None:
    text = data_page(FACTS)
    ids = [e["attrs"]["id"] for e in well_formed(text).elements if "id" in e["attrs"]]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(#|href="#|labelledby=")([^)"]+)', text)) <= set(ids)


def test_the_same_facts_give_the_same_bytes_in_any_process() -> None:
    assert (
        made_elsewhere("prepare/test_preparation_page", "mtkit.prepare.report_page", "data_page")
        == data_page(FACTS).encode()
    )


def test_data_of_which_nothing_is_known_has_a_page() -> None:
    page = well_formed(data_page(NOTHING))
    assert "Nothing was dropped." in page.texts("p")
    assert "read0" in page.texts("tr")


def test_huge_texts_are_cut() -> None:
    huge = "<" * 1_000_000
    text = data_page(
        replace(
            FACTS,
            name=huge,
            findings=[huge],
            summary={huge: huge},
            samples=[("1", huge, huge)] * 20,
            misaligned=[(huge[:900], 1, 2, 1)] * 1100,
            dropped=[Dropped("empty", "", 1, [(huge, huge, huge)] * 12)],
        )
    )
    assert len(text) < 1_000_000
    assert "1,000 more are left out." in text
    well_formed(text)


@pytest.mark.parametrize("seed", range(5))
def test_no_numbers_are_too_strange(seed: int) -> None:
    rng = random.Random(seed)

    def size(most: float) -> int:
        return rng.choice([1, int(most), int(most ** rng.random())])

    def side() -> Side:
        lengths = {size(1e6): size(1e9) for _ in range(rng.randrange(4))}
        return Side(10**10, rng.choice([0, 5]), 3, 0, (1, 2, 3), lengths)

    facts = replace(
        FACTS,
        train=(side(), side()),
        ratios={rng.randint(-1023, 1023): size(1e9) for _ in range(rng.randrange(4))},
    )
    text = data_page(facts)
    assert len(well_formed(text).all("svg")) == any(side.lengths for side in facts.train)
    assert not re.search(r'="[^"]*\b(nan|inf)\b', text)
