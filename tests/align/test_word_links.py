"""Word alignments: the Pharaoh format, symmetrisation and the alignment error rate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtkit.align.links import (
    Alignment,
    Gold,
    Link,
    Links,
    alignment_score,
    parse_gold,
    parse_links,
    symmetrize,
    unit_spans,
    word_spans,
)
from mtkit.base.errors import MtkitError

links_of_a_pair = st.frozensets(st.tuples(st.integers(0, 7), st.integers(0, 7)))


@given(st.text())
def test_words_are_the_parts_that_split_gives(line):
    assert [line[start:end] for start, end in word_spans(line)] == line.split()


@given(st.text(st.characters(max_codepoint=0xDFF)))
def test_units_are_the_words_of_scripts_with_spaces(line: str):
    assert unit_spans(line) == word_spans(line)


def test_units_are_the_characters_of_scripts_without_spaces_with_the_marks_beside_them():
    line = "iPhone（手机）。「10月」 ที่นี่ don't"
    units = [line[start:end] for start, end in unit_spans(line)]
    assert units == ["iPhone", "（手", "机）。", "「10", "月」", "ที่", "นี่", "don't"]


@given(links_of_a_pair)
def test_links_are_read_as_they_were_written(links):
    assert parse_links(str(Alignment(dict.fromkeys(links, 1.0), [], [])), place="here") == links


def test_links_are_written_in_order():
    weights = dict.fromkeys([(10, 0), (2, 3), (2, 1)], 1.0)
    assert str(Alignment(weights, [], [])) == "2-1 2-3 10-0"


def test_sure_links_of_a_gold_alignment_are_possible_too():
    gold = parse_gold("0-0 3p4  2-1\t", place="here")
    assert gold == Gold(frozenset({(0, 0), (2, 1)}), frozenset({(0, 0), (2, 1), (3, 4)}))


@pytest.mark.parametrize(
    "text", ["0", "0-", "-1", "a-0", "1.5-0", "0-0-0", "0:0", "1" * 30 + "-0", "\u0663-\u0664"]
)
def test_what_is_not_a_link_is_refused_by_file_and_line(text):
    with pytest.raises(MtkitError, match=r"gold, line 3: .* is not a link such as 0-0 or 3p4"):
        parse_gold(f"0-0 {text}", place="gold, line 3")


def test_possible_links_are_for_references_only():
    with pytest.raises(MtkitError, match="only a reference"):
        parse_links("0-0 1p1", place="hypothesis, line 1")


def test_the_error_rate_is_that_of_the_formula():
    gold = [
        Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (1, 2)})),
        Gold(frozenset({(0, 0)}), frozenset({(0, 0)})),
    ]
    links = [frozenset({(0, 0), (1, 2), (2, 2)}), frozenset({(0, 1)})]
    # |A| = 4, |S| = 3; in S: (0, 0); in P: (0, 0) and (1, 2).
    score = alignment_score(links, gold)
    assert score.error_rate == pytest.approx(1 - (1 + 2) / (4 + 3))
    assert score.precision == pytest.approx(2 / 4)
    assert score.recall == pytest.approx(1 / 3)


def test_the_gold_alignment_itself_has_no_errors_and_nothing_has_all():
    gold = Gold(frozenset({(0, 0), (2, 1)}), frozenset({(0, 0), (2, 1), (1, 1)}))
    for links in (gold.sure, gold.possible):
        assert alignment_score([links], [gold]).error_rate == 0
    assert alignment_score([frozenset()], [gold]).error_rate == 1
    with pytest.raises(ValueError, match="sure link"):
        alignment_score([frozenset()], [Gold(frozenset(), frozenset({(0, 0)}))])


def repeated_scans(forward: Links, backward: Links) -> Links:
    """grow-diag-final-and as Moses writes it: all of it again until nothing changes."""
    union, grown = forward | backward, set(forward & backward)
    beside = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]

    def is_linked(link: Link) -> list[bool]:
        return [any(other[side] == link[side] for other in grown) for side in (0, 1)]

    before: set[Link] = set()
    while before != grown:
        before = set(grown)
        for link in sorted(union):
            if link not in grown:
                continue
            for step in beside:
                new = link[0] + step[0], link[1] + step[1]
                if new in union and not all(is_linked(new)):
                    grown.add(new)
    for links in (forward, backward):
        for link in sorted(links):
            if not any(is_linked(link)):
                grown.add(link)
    return frozenset(grown)


@given(links_of_a_pair, links_of_a_pair)
def test_grow_diag_final_and_is_the_method_with_repeated_scans(forward, backward):
    grown = symmetrize(forward, backward, "grow-diag-final-and")
    assert grown == repeated_scans(forward, backward)


def test_grow_diag_final_and_adds_links_beside_others_and_then_links_of_words_without_one():
    forward = frozenset({(0, 0), (1, 1), (2, 1), (4, 4), (5, 2)})
    backward = frozenset({(0, 0), (1, 1), (1, 2), (3, 0), (4, 5)})
    # The intersection is 0-0 and 1-1. Beside 1-1 are 2-1 and 1-2, and diagonal to 2-1 is 3-0, each
    # with a new word. The rest is beside no link. Of it only 4-4 links two words that have none;
    # then 4-5 and 5-2 each have a word with a link.
    expected = {(0, 0), (1, 1), (2, 1), (1, 2), (3, 0), (4, 4)}
    assert symmetrize(forward, backward, "grow-diag-final-and") == expected
    assert symmetrize(forward, backward, "intersection") == {(0, 0), (1, 1)}
    # In the first scan 1-2 adds 1-1 and 2-1, and 2-1 adds 2-0; in the second 1-1 adds 0-0. If 1-1
    # had been scanned before 2-1, target word 0 would have had a link, and 2-0 would be missing.
    forward, backward = frozenset({(1, 1), (1, 2), (2, 0)}), frozenset({(0, 0), (1, 2), (2, 1)})
    expected = {(0, 0), (1, 1), (1, 2), (2, 0), (2, 1)}
    assert symmetrize(forward, backward, "grow-diag-final-and") == expected
    assert symmetrize(forward, backward, "union") == forward | backward
