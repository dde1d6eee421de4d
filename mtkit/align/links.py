"""Word alignments: their text format, symmetrisation, and the alignment error rate.

An alignment of a pair of lines is a set of links. A link is the index of a source word and the
index of a target word, both from 0. Words are the parts of a line between white space.
"""

from __future__ import annotations

import heapq
import logging
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mtkit.base.errors import MtkitError
from mtkit.base.text import UNSPACED

log = logging.getLogger(__name__)

Link = tuple[int, int]
Links = frozenset[Link]
Method = Literal["grow-diag-final-and", "intersection", "union"]

METHODS: tuple[Method, ...] = ("grow-diag-final-and", "intersection", "union")

# Indices of more digits are surely a mistake, and Python refuses to read very long numbers.
_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")
_WORD = re.compile(r"\S+")
# A letter of a script without spaces, with the marks and signs at it; or what is between those.
_OPENING = r"[({\[“‘«„（「『〈《【]"
_LETTER = rf"{_OPENING}{{0,9}}(?=[{UNSPACED}])\w"
_UNIT = re.compile(rf"{_LETTER}(?:(?!{_OPENING})[^\w\s])*+|(?:(?!{_LETTER})\S)++")
_INDEX_0 = re.compile(r"(?<![0-9])0+[-p]|[-p]0+(?![0-9])")


@dataclass(frozen=True)
class Gold:
    """A human alignment of one pair (Och and Ney 2003, https://aclanthology.org/J03-1002).

    An alignment must have the sure links, and may have the possible ones, which include them.
    """

    sure: Links
    possible: Links


@dataclass(frozen=True)
class AlignmentScore:
    """How well alignments agree with gold alignments, all three between 0 and 1.

    AER is 1 - (|A∩S| + |A∩P|) / (|A| + |S|); lower is better. Precision is |A∩P| / |A|, 0 without
    links; recall is |A∩S| / |S|.
    """

    error_rate: float
    precision: float
    recall: float


def word_spans(line: str) -> list[tuple[int, int]]:
    """Start and end, in characters, of every word of a line: the parts that `str.split` gives."""
    return [match.span() for match in _WORD.finditer(line)]


def unit_spans(line: str) -> Spans:
    """As `word_spans`, but in scripts without spaces each character is a word of its own."""
    return [match.span() for match in _UNIT.finditer(line)]


def words_of_subwords(words: Sequence[tuple[int, int]], starts: Iterable[int]) -> list[int]:
    """The word of each subword: the first that ends after its start, so spaces go to the next."""
    ends = [end for _, end in words[:-1]]
    return [bisect_right(ends, start) for start in starts]


def parse_links(text: str, *, place: str) -> Links:
    """Links from a line in the Pharaoh format; `place` is file and line number, for messages."""
    gold = parse_gold(text, place=place)
    if gold.sure != gold.possible:
        raise MtkitError(f"{place}: has possible links (ipj), which only a reference may have")
    return gold.sure


def parse_gold(text: str, *, place: str, first: int = 0) -> Gold:
    """A gold alignment from sure links `i-j` and possible links `ipj`, which count from `first`."""
    sure, possible = set(), set()
    for item in text.split():
        match = _LINK.fullmatch(item)
        if match is None:
            shown = item if len(item) <= 20 else f"{item[:20]}..."
            raise MtkitError(f"{place}: {shown!r} is not a link such as 0-0 or 3p4")
        link = int(match[1]) - first, int(match[3]) - first
        if min(link) < 0:
            raise MtkitError(f"{place}: {item!r} has an index 0, so words are not counted from 1")
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def index_doubt(lines: Iterable[str]) -> str:
    """Why a text of links, all its lines, may not count words from 0; empty without a reason."""
    filled = [line for line in lines if line.strip()]
    if filled and not any(map(_INDEX_0.search, filled)):
        return "no link has an index 0, so words are probably counted from 1"
    return ""


def refuse_words(links: Links, pair: Sequence[str], *, place: str, advice: str) -> None:
    """Refuse links of words that a pair of lines does not have.

    Raises:
        MtkitError: with the place, and what to do if words are counted from 1.
    """
    for number, side in enumerate(("source", "target")):
        last, words = max((link[number] for link in links), default=-1), len(pair[number].split())
        if last >= words:
            raise MtkitError(
                f"{place}: links {side} word {last}, but the {side} line has {words} words, "
                f"counted from 0; if the file counts from 1, {advice}"
            )


def swapped(links: Links) -> Links:
    """The same links with source and target exchanged."""
    return frozenset((j, i) for i, j in links)


def symmetrize(forward: Links, backward: Links, method: Method) -> Links:
    """One alignment from those of two models, one for each direction.

    Args:
        forward, backward: links of source and target words, both in this order.
        method: `intersection`, `union`, or grow-diag-final-and (Koehn et al. 2005,
            https://aclanthology.org/2005.iwslt-1.8), which starts with the intersection and adds
            links of the union beside it, then links between words that have none.
    """
    if method == "intersection":
        return forward & backward
    if method == "union":
        return forward | backward
    chosen = set(forward & backward)
    # Of the union, what may still be added.
    left = set(forward ^ backward)
    sources, targets = {i for i, _ in chosen}, {j for _, j in chosen}

    def add(link: Link) -> None:
        chosen.add(link)
        left.remove(link)
        sources.add(link[0])
        targets.add(link[1])

    # Found links are scanned in order, again and again, until no link is added; the order decides
    # which of two neighbours is added. A link need not be scanned twice, because a neighbour that
    # was refused once, for its words have links, is refused always. A link that is added behind the
    # place of the scan belongs to the same scan, another to the next.
    scan: list[Link] = sorted(chosen)
    next_scan: list[Link] = []
    while scan and left:
        link = heapq.heappop(scan)
        for di, dj in _NEIGHBOURS:
            beside = link[0] + di, link[1] + dj
            if beside in left and not (beside[0] in sources and beside[1] in targets):
                add(beside)
                heapq.heappush(scan if beside > link else next_scan, beside)
        if not scan:
            scan, next_scan = next_scan, []
    for links in (forward, backward):
        for link in sorted(links & left):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return frozenset(chosen)


# Beside a link first, then diagonal to it.
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def alignment_score(alignments: Sequence[Links], golds: Sequence[Gold]) -> AlignmentScore:
    """The score of the alignments of a whole text.

    Raises:
        ValueError: if there are more alignments than gold alignments, or fewer; or if no gold
            alignment has a sure link, because any alignment has the same score then.
    """
    pairs = list(zip(alignments, golds, strict=True))
    total = sum(len(links) for links in alignments)
    sure = sum(len(gold.sure) for gold in golds)
    in_sure = sum(len(links & gold.sure) for links, gold in pairs)
    in_possible = sum(len(links & gold.possible) for links, gold in pairs)
    if not sure:
        raise ValueError("no gold alignment has a sure link")
    return AlignmentScore(
        1 - (in_sure + in_possible) / (total + sure),
        in_possible / total if total else 0.0,
        in_sure / sure,
    )


def score_links(
    files: Sequence[tuple[str, Sequence[str]]],
    gold: tuple[str, Sequence[str]],
    *,
    first_gold: int = 0,
    is_swapped: bool = False,
) -> list[AlignmentScore]:
    """The score of each file of links, given by name and lines, as many as the gold alignments.

    Words count from `first_gold` in the gold alignments; with `is_swapped`, links have the target
    word first. A text that probably counts from 1, unlike the other one, is named in a warning.

    Raises:
        MtkitError: if a line has no links, or if no gold link is sure.
    """
    gold_name, gold_lines = gold
    golds = [
        parse_gold(line, place=f"{gold_name}, line {number}", first=first_gold)
        for number, line in enumerate(gold_lines, start=1)
    ]
    gold_doubt = "" if first_gold else index_doubt(gold_lines)
    if not any(gold.sure for gold in golds):
        raise MtkitError(f"{gold_name}: has no sure link (i-j), so nothing can be scored")
    scores, warnings = [], {}
    for name, lines in files:
        links = [
            parse_links(line, place=f"{name}, line {number}")
            for number, line in enumerate(lines, start=1)
        ]
        doubt = index_doubt(lines)
        # If both texts count from 1, the scores are right.
        if doubt and not gold_doubt:
            warnings[name] = f"{doubt}; if so, subtract 1 from each index"
        elif gold_doubt and not doubt:
            warnings[gold_name] = f"{gold_doubt}; if so, give --one-based"
        scores.append(alignment_score(list(map(swapped, links)) if is_swapped else links, golds))
    for warning in warnings.items():
        log.warning("%s: %s", *warning)
    return scores


Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class Alignment:
    """The word alignment of one pair of lines.

    Attributes:
        weights: each link with its attention weight, from 0 to 1: how much the target word attends
            to the source word. With a model of the other direction, the geometric mean of both.
        src_words, tgt_words: start and end of each word, in characters of the line.
    """

    weights: dict[Link, float]
    src_words: Spans
    tgt_words: Spans

    @property
    def links(self) -> Links:
        """Indices of a source word and a target word, from 0."""
        return frozenset(self.weights)

    def __str__(self) -> str:
        """In the Pharaoh format: `0-0 1-2`, in order."""
        return " ".join(f"{i}-{j}" for i, j in sorted(self.weights))

    def as_dict(self) -> dict[str, Any]:
        """For JSON: links with weights, and the characters of each word."""
        return {
            "links": [[i, j, round(weight, 6)] for (i, j), weight in self.weights.items()],
            "src_words": [list(span) for span in self.src_words],
            "tgt_words": [list(span) for span in self.tgt_words],
        }
