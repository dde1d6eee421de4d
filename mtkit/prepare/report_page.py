"""The page about prepared data: for somebody who wonders whether it is good.

Plain values come in and HTML goes out; who gathers the values and writes the file is up to the
caller. How a page looks is the business of `mtkit.html`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mtkit.html import (
    FIGURES,
    FINDINGS,
    ONE,
    SUMMARY,
    TWO,
    Axis,
    Cells,
    Chart,
    Line,
    Points,
    page,
    section,
)

# Ratios of lengths are counted in steps of this part of an octave.
RATIO_STEPS = 8
# Lengths from this on count as it, where those of both sides are counted together.
LONGEST = 1024
# A chart of lengths ends where so many of the pairs are on it: a few long ones would flatten it.
_ON_CHART = 0.995
_MOST_BARS = 60
_MOST_SHIFTS = 100
_MOST_CELLS = 48
_SHADES = 6
_SIDES = ("source", "target")


@dataclass(frozen=True)
class Side:
    """One side of the pairs of a split, counted; EOS is a token.

    Attributes:
        tokens, words, byte_tokens: their number; byte tokens spell what no piece is for.
        rare_tokens: of those whose piece is rare in training.
        lengths: pairs by their tokens.
    """

    tokens: int
    words: int
    byte_tokens: int
    rare_tokens: int
    lengths: Mapping[int, int]

    @property
    def subwords(self) -> int:
        """Tokens but for the ends of sentences."""
        return self.tokens - sum(self.lengths.values())


@dataclass(frozen=True)
class Vocabulary:
    """How the training pairs use the pieces that were learned.

    Attributes:
        label: whose it is.
        size: of all pieces, those of single bytes and the special ones too.
        by_use: learned pieces by how often they are used: never, 1 to 9, 10 to 99 times, more.
        unused, rare: examples; of rare ones with how often.
    """

    label: str
    size: int
    by_use: tuple[int, int, int, int]
    unused: Sequence[str]
    rare: Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Origin:
    """Where pairs came from.

    Attributes:
        split: `train`, `valid` or `test`.
        place: files, or what else it is.
        pairs, kept: their number; `kept` of training pairs alone.
        weight: how often an epoch sees them.
        mended: lines by what was mended in them.
        digests: SHA-256 in hexadecimal, by what they are of.
    """

    split: str
    place: str
    pairs: int
    kept: int | None
    weight: float
    mended: Mapping[str, int]
    digests: Mapping[str, str]


@dataclass(frozen=True)
class Dropped:
    """Training pairs left out for one reason.

    Attributes:
        reason, meaning: a name, and a sentence.
        pairs: their number.
        samples: file, line, source and target of some.
    """

    reason: str
    meaning: str
    pairs: int
    samples: Sequence[tuple[str, int, str, str]]


@dataclass(frozen=True)
class Setting:
    """A setting by which the data was made; `value` as it is given to the command."""

    key: str
    value: str
    changed: bool
    meaning: str


@dataclass(frozen=True)
class DataFacts:
    """What the page of prepared data shows.

    Attributes:
        name: of the data.
        findings: sentences on what may be amiss.
        summary: facts in a few words, by their label, in the order in which they are shown.
        read, kept: training pairs.
        counted: of those kept, pairs that lengths and subwords were counted in.
        dropped: by reason, in the order in which the reasons are looked for.
        origins: of the pairs.
        shifts: stretches out of step: place, first and last line, and how far off.
        train, valid: source and target side.
        ratios: pairs by target over source length, in steps of an octave over `RATIO_STEPS`.
        both_lengths: pairs by source and target length, of which none is above `LONGEST`.
        max_ratio: the most that one side may be longer.
        coverage: for each side (k, share of tokens that are among its k most frequent pieces).
        vocabularies: a joint one, or one for each side.
        samples: number, source and target of pairs that are kept, from all over the corpus.
        settings, versions: by which it can be made again.
    """

    name: str
    findings: Sequence[str]
    summary: Mapping[str, str]
    read: int
    kept: int
    counted: int
    dropped: Sequence[Dropped]
    origins: Sequence[Origin]
    shifts: Sequence[tuple[str, int, int, int]]
    train: tuple[Side, Side]
    valid: tuple[Side, Side]
    ratios: Mapping[int, int]
    both_lengths: Mapping[tuple[int, int], int]
    max_ratio: float
    coverage: tuple[Points, Points]
    vocabularies: Sequence[Vocabulary]
    samples: Sequence[tuple[int, str, str]]
    settings: Sequence[Setting]
    versions: Mapping[str, str]


def data_page(facts: DataFacts) -> str:
    """The page about prepared data, as HTML to be written in UTF-8."""
    sections = []
    if facts.findings:
        sections.append(section("Findings", FINDINGS, kind="findings", findings=facts.findings))
    sections.append(section("Summary", SUMMARY, summary=list(facts.summary.items())))
    lost = [(one.reason, f"{one.pairs:,}", _share(one.pairs, facts.read)) for one in facts.dropped]
    rows = [
        ("read", f"{facts.read:,}", "", ""),
        *((*row, "dropped") for row in lost),
        ("kept", f"{facts.kept:,}", _share(facts.kept, facts.read), "best"),
    ]
    sections.append(section("Training pairs", _PAIRS, rows=rows))
    sections.append(section("Sources", _SOURCES, rows=[_of_origin(one) for one in facts.origins]))
    if facts.shifts:
        shifts = [
            (place, f"{first:,}", f"{last:,}", f"{abs(by)} {'later' if by > 0 else 'earlier'}")
            for place, first, last, by in facts.shifts[:_MOST_SHIFTS]
        ]
        more = len(facts.shifts) - len(shifts)
        sections.append(section("Out of step", _SHIFTS, rows=shifts, more=f"{more:,}" * (more > 0)))
    sampled = ""
    if facts.counted < facts.kept:
        sampled = (
            f"Counted in {facts.counted:,} of the {facts.kept:,} pairs, in stretches taken evenly "
            "from the whole corpus."
        )
    charts = [
        _lengths_chart(facts),
        _ratios_chart(facts),
        _plane_chart(facts),
        _coverage_chart(facts),
    ]
    sections.append(section("Lengths and pieces", _CHARTS, charts=charts, sampled=sampled))
    sections.append(
        section(
            "Subwords",
            _SUBWORDS,
            sampled=sampled,
            rows=_use_of_subwords(facts),
            vocabularies=facts.vocabularies,
            columns=[_of_vocabulary(one) for one in facts.vocabularies],
        )
    )
    sections.append(section("Dropped pairs", _DROPPED, dropped=facts.dropped))
    sections.append(section("Kept pairs", _KEPT, samples=facts.samples))
    sections.append(
        section(
            "Settings", _SETTINGS, settings=facts.settings, versions=list(facts.versions.items())
        )
    )
    return page(facts.name, sections, kind="Prepared data")


def _share(part: float, whole: float) -> str:
    if not whole:
        return "–"
    share = part / whole
    # A handful among millions is not nothing.
    return "< 0.01%" if 0 < share < 5e-5 else f"{share:.2%}"


def _of_origin(origin: Origin) -> dict[str, object]:
    return {
        "split": origin.split,
        "place": origin.place,
        "pairs": f"{origin.pairs:,}",
        "kept": "–"
        if origin.kept is None
        else f"{origin.kept:,} ({_share(origin.kept, origin.pairs)})",
        "weight": f"{origin.weight:g}",
        "mended": [f"{count:,} × {what}" for what, count in origin.mended.items()],
        "digests": [(what, digest[:12], digest) for what, digest in origin.digests.items()],
    }


# ---------------------------------------------------------------------------------------------
# Numbers of subwords


def _use_of_subwords(facts: DataFacts) -> list[tuple[str, list[str]]]:
    """Label, and for both sides training and validation."""
    columns = [(split[side], split is facts.train) for side in range(2) for split in _splits(facts)]
    sides = [side for side, _ in columns]
    return [
        ("sentences", [f"{sum(side.lengths.values()):,}" for side in sides]),
        ("words", [f"{side.words:,}" for side in sides]),
        ("tokens, with the end of each sentence", [f"{side.tokens:,}" for side in sides]),
        ("subwords per word", [_quotient(side.subwords, side.words) for side in sides]),
        (
            "single bytes among subwords",
            [_share(side.byte_tokens, side.subwords) for side in sides],
        ),
        (
            "subwords rare in training (below 10 times)",
            [_share(side.rare_tokens, side.subwords) for side in sides],
        ),
        ("median length in tokens", [f"{_quantile(side.lengths, 0.5):,}" for side in sides]),
        ("95% are not longer than", [f"{_quantile(side.lengths, 0.95):,}" for side in sides]),
        ("longest", [f"{max(side.lengths, default=0):,}" for side in sides]),
    ]


def _splits(facts: DataFacts) -> tuple[tuple[Side, Side], tuple[Side, Side]]:
    return facts.train, facts.valid


def _quotient(a: float, b: float) -> str:
    return f"{a / b:.3f}" if b else "–"


def _quantile(counts: Mapping[int, int], share: float) -> int:
    """The smallest key that this share of what is counted does not exceed."""
    wanted, seen = share * sum(counts.values()), 0
    for key in sorted(counts):
        seen += counts[key]
        if seen >= wanted:
            return key
    return 0


def _of_vocabulary(vocabulary: Vocabulary) -> list[str]:
    learned = sum(vocabulary.by_use)
    return [
        f"{vocabulary.size:,}",
        f"{learned:,}",
        *(f"{pieces:,} ({_share(pieces, learned)})" for pieces in vocabulary.by_use),
    ]


# ---------------------------------------------------------------------------------------------
# Charts


def _lengths_chart(facts: DataFacts) -> Chart:
    end = max(_quantile(side.lengths, _ON_CHART) for side in facts.train)
    width = max(1, -(-end // _MOST_BARS))
    bars = -(-end // width)
    lines, beyond = [], 0
    for label, color, side in zip(_SIDES, (ONE, TWO), facts.train, strict=True):
        heights = [0] * bars
        for length, count in side.lengths.items():
            # From 1 on, because EOS is always there.
            if length <= bars * width:
                heights[(length - 1) // width] += count
            else:
                beyond += count
        edges = [0.5 + width * bar for bar in range(bars + 1)]
        total = sum(side.lengths.values())
        outline = _outline(edges, [height / total if total else 0 for height in heights])
        lines.append(Line(label, outline, color, dashed=color == TWO, filled=True))
    of_each = "one token" if width == 1 else f"{width} tokens"
    note = f"Share of the sentences; each step is {of_each}."
    if beyond:
        longest = max(max(side.lengths, default=0) for side in facts.train)
        note += f" {beyond:,} sentences are longer, up to {longest:,}."
    words = (
        f"{label}: median {_quantile(side.lengths, 0.5)}, 95% up to "
        f"{_quantile(side.lengths, 0.95)}, longest {max(side.lengths, default=0)}."
        for label, side in zip(_SIDES, facts.train, strict=True)
    )
    return Chart(
        "Length in tokens",
        "Length in tokens. " + " ".join(words),
        Axis("tokens of a sentence, with its end", 0, bars * width + 1, whole=True),
        _shares_axis(lines),
        lines,
        legend=True,
        note=note,
    )


def _outline(edges: Sequence[float], heights: Sequence[float]) -> Points:
    """The steps of a histogram."""
    points = []
    for (left, right), height in zip(itertools.pairwise(edges), heights, strict=True):
        points += [(left, height), (right, height)]
    return points


def _shares_axis(lines: Sequence[Line]) -> Axis:
    highest = max((y for line in lines for _, y in line.points), default=0)
    return Axis(low=0, high=1.05 * highest or 1, form=lambda share: f"{100 * share:.3g}%")


_RATIO_TICKS = [(1 / n, f"1/{n}") for n in (32, 16, 8, 4, 3, 2)]
_RATIO_TICKS += [(2 / 3, "2/3"), (1, "1"), (1.5, "1.5"), (2, "2"), (3, "3"), (4, "4")]
_RATIO_TICKS += [(8, "8"), (16, "16"), (32, "32")]


def _ratios_chart(facts: DataFacts) -> Chart:
    total = sum(facts.ratios.values())
    # Five octaves to either side at most, whatever is allowed.
    steps = min(5 * RATIO_STEPS, max(RATIO_STEPS, *(abs(key) for key in facts.ratios), 1))
    heights = [0] * (2 * steps + 1)
    for key, count in facts.ratios.items():
        heights[min(max(key, -steps), steps) + steps] += count
    edges = [2 ** ((bar - steps - 0.5) / RATIO_STEPS) for bar in range(len(heights) + 1)]
    outline = _outline(edges, [height / total if total else 0 for height in heights])
    lines = [Line("pairs", outline, filled=True)]
    middle = 2 ** (_quantile(facts.ratios, 0.5) / RATIO_STEPS)
    wide = edges[-1] > 5
    ticks = [
        (place, text)
        for place, text in _RATIO_TICKS
        if edges[0] <= place <= edges[-1] and not (wide and text in ("2/3", "1.5", "3", "1/3"))
    ]
    return Chart(
        "Ratio of lengths",
        f"Ratio of lengths, target over source. Median {middle:.2f}.",
        Axis("target over source, logarithmic", edges[0], edges[-1], True, ticks=ticks),
        _shares_axis(lines),
        lines,
        mark=(middle, f"median {middle:.2f}"),
        legend=True,
        note="Share of the pairs. Two humps, or one far from the middle, tell of two kinds of"
        " text, or of sides that do not belong together.",
    )


def _plane_chart(facts: DataFacts) -> Chart:
    end = max(_quantile(side.lengths, _ON_CHART) for side in facts.train)
    end = min(end, LONGEST - 1)
    width = max(1, -(-end // _MOST_CELLS))
    cells: dict[tuple[int, int], int] = {}
    beyond = 0
    for (src, tgt), count in facts.both_lengths.items():
        if max(src, tgt) > end:
            beyond += count
        else:
            cell = (src - 1) // width, (tgt - 1) // width
            cells[cell] = cells.get(cell, 0) + count
    shades = [
        (
            (shade + 1) / _SHADES,
            [
                (0.5 + width * x, 0.5 + width * y, float(width), float(width))
                for (x, y), count in sorted(cells.items())
                if _shade(count, max(cells.values())) == shade
            ],
        )
        for shade in range(_SHADES)
    ]
    limit = facts.max_ratio
    bound = [
        Line(f"{limit:g} times as long", [(0, 0), (end / limit, end)], TWO, dashed=True),
        Line("", [(0, 0), (end, end / limit)], TWO, dashed=True),
    ]
    high = end + 1.0
    return Chart(
        "Lengths of both sides",
        "Lengths of both sides: how many pairs have which source and target length.",
        Axis("source tokens", 0, high, whole=True),
        Axis("target tokens", 0, high, whole=True),
        bound,
        Cells(shades),
        note="The stronger the colour, the more pairs, on a logarithmic scale. Dashed: one side"
        f" {limit:g} times as long as the other, beyond which pairs are dropped."
        + (f" {beyond:,} longer pairs are not shown." if beyond else ""),
    )


def _shade(count: int, most: int) -> int:
    """From 0 for a single pair to the last one, by the logarithm."""
    return min(_SHADES - 1, math.floor(_SHADES * math.log(count) / math.log(most + 1)))


def _coverage_chart(facts: DataFacts) -> Chart:
    lines = [
        Line(label, list(points), color, dashed=color == TWO)
        for label, color, points in zip(_SIDES, (ONE, TWO), facts.coverage, strict=True)
        if points
    ]
    last = max((k for line in lines for k, _ in line.points), default=1)
    words = (
        f"{line.label}: " + ", ".join(f"{share:.0%} by {k:,}" for k, share in _told(line))
        for line in lines
    )
    return Chart(
        "Coverage",
        "Share of the subwords that are among the most frequent pieces. " + "; ".join(words) + ".",
        Axis("most frequent pieces, logarithmic", 1, max(last, 2), True, form=_whole),
        Axis(low=0, high=1.02, form=lambda share: f"{share:.0%}"),
        lines,
        legend=True,
        note="Share of the training subwords that are one of so many pieces, the most frequent"
        " of each side.",
    )


def _told(line: Line) -> Iterator[tuple[float, float]]:
    """Where a curve of coverage passes a half and nine tenths, and its end."""
    for wanted in (0.5, 0.9, 1.0):
        yield next((point for point in line.points if point[1] >= wanted), line.points[-1])


def _whole(number: float) -> str:
    return f"{number:,.0f}"


# ---------------------------------------------------------------------------------------------
# Templates

_PAIRS = """\
<div class="wide">
<table class="numbers named">
<thead>
<tr><th scope="col"></th><th scope="col">Pairs</th><th scope="col">Share</th></tr>
</thead>
<tbody>
{% for label, pairs, share, kind in rows %}
<tr{% if kind == "best" %} class="best"{% endif %}><th scope="row">
{%- if kind == "dropped" %}dropped: {% endif %}{{ label }}</th><td>{{ pairs }}</td><td>
{{- share }}</td></tr>
{% endfor %}
</tbody>
</table>
</div>
"""

_SOURCES = """\
<div class="wide" role="region" aria-label="Sources" tabindex="0">
<table class="facts">
<thead>
<tr><th scope="col">Split</th><th scope="col">Place</th><th scope="col">Pairs</th>
<th scope="col">Kept</th><th scope="col">Weight</th><th scope="col">Mended</th>
<th scope="col">SHA-256</th></tr>
</thead>
<tbody>
{% for row in rows %}
<tr><td>{{ row.split }}</td><td dir="auto">{{ row.place | cut }}</td><td>{{ row.pairs }}</td>
<td>{{ row.kept }}</td><td>{{ row.weight }}</td>
<td>{% for one in row.mended %}{{ one }}{% if not loop.last %}<br>{% endif %}{% else %}–
{%- endfor %}</td>
<td>{% for what, short, whole in row.digests %}{{ what }}
<code title="{{ whole }}">{{ short }}…</code>{% if not loop.last %}<br>{% endif %}
{% else %}–{% endfor %}</td></tr>
{% endfor %}
</tbody>
</table>
</div>
"""

_SHIFTS = """\
<p class="note">In these stretches the translation of a line stands some lines before or after its
place in the other file, as when a line was lost in one of them. Lengths tell. They are dropped;
mend the files and prepare again to have them.</p>
<div class="wide" role="region" aria-label="Stretches out of step" tabindex="0">
<table class="facts">
<thead>
<tr><th scope="col">Source</th><th scope="col">First</th><th scope="col">Last</th>
<th scope="col">Translations stand</th></tr>
</thead>
<tbody>
{% for place, first, last, by in rows %}
<tr><td dir="auto">{{ place | cut }}</td><td>{{ first }}</td><td>{{ last }}</td>
<td>{{ by }}</td></tr>
{% endfor %}
</tbody>
</table>
</div>
{% if more %}
<p class="note after">{{ more }} more are left out.</p>
{% endif %}
"""

_CHARTS = f"""\
{{% if sampled %}}
<p class="note">{{{{ sampled }}}}</p>
{{% endif %}}
{FIGURES}"""

_SUBWORDS = """\
{% if sampled %}
<p class="note">{{ sampled }}</p>
{% endif %}
<div class="wide" role="region" aria-label="Subwords of both sides" tabindex="0">
<table class="numbers named">
<thead>
<tr><th scope="col"></th><th scope="col">Source, training</th><th scope="col">Source, validation
</th><th scope="col">Target, training</th><th scope="col">Target, validation</th></tr>
</thead>
<tbody>
{% for label, cells in rows %}
<tr><th scope="row">{{ label }}</th>
{%- for cell in cells %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
</div>
<p class="note after">A word is what stands between spaces, so languages written without them seem
to have long words. Validation text that takes more subwords a word than training text, or more
single bytes, is of another kind.</p>
<div class="wide">
<table class="numbers named">
<thead>
<tr><th scope="col"></th>
{%- for one in vocabularies %}<th scope="col">{{ one.label }}</th>{% endfor %}</tr>
</thead>
<tbody>
{% for label in ("pieces", "learned", "never used in training", "used 1 to 9 times",
"used 10 to 99 times", "used more often") %}
{% set place = loop.index0 %}
<tr><th scope="row">{{ label }}</th>
{%- for cells in columns %}<td>{{ cells[place] }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
</div>
<p class="note after">A piece seen a few times is hardly learned. Pieces of BPE may be unused,
because they were only steps to longer ones; when many are, a smaller vocabulary does as well.</p>
{% for one in vocabularies %}
{% if one.unused or one.rare %}
<details>
<summary>Rare pieces: {{ one.label }}</summary>
{% if one.unused %}
<p class="meaning">Never used:
{%- for piece in one.unused %} <code dir="auto">{{ piece | cut(60) }}</code>{% endfor %}</p>
{% endif %}
{% if one.rare %}
<p class="meaning">Hardly used:
{%- for piece, count in one.rare %} <code dir="auto">{{ piece | cut(60) }}</code> ×
{{- count }}{% endfor %}</p>
{% endif %}
</details>
{% endif %}
{% endfor %}
"""

_DROPPED = """\
{% if dropped %}
<p class="note">Some of the pairs of each reason, evenly from all over the corpus; long sides are
cut. All are listed in dropped.tsv.gz of the folder. A pair is counted under the first reason that
holds.</p>
{% for one in dropped %}
<details{% if loop.first %} open{% endif %}>
<summary>{{ one.reason }} <span class="badge">{{ "{:,}".format(one.pairs) }}</span></summary>
<p class="meaning">{{ one.meaning }}</p>
{% if one.samples %}
<table class="samples">
<caption>Pairs dropped as {{ one.reason }}</caption>
<thead>
<tr><th scope="col" class="place">Place</th>
<th scope="col">Source</th><th scope="col">Target</th></tr>
</thead>
<tbody>
{% for file, line, src, tgt in one.samples %}
<tr><td dir="auto" data-label="Place">{{ file | cut(300) }}, {{ line }}</td>
<td dir="auto" data-label="Source">{{ src | cut(400) }}</td>
<td dir="auto" data-label="Target">{{ tgt | cut(400) }}</td></tr>
{% endfor %}
</tbody>
</table>
{% endif %}
</details>
{% endfor %}
{% else %}
<p class="note">Nothing was dropped.</p>
{% endif %}
"""

_KEPT = """\
<p class="note">Evenly from the whole corpus, as the model sees them: put together again from
subwords.</p>
<div class="wide">
<table class="samples">
<thead>
<tr><th scope="col" class="place">Pair kept</th>
<th scope="col">Source</th><th scope="col">Target</th></tr>
</thead>
<tbody>
{% for number, src, tgt in samples %}
<tr><td data-label="Pair kept">{{ "{:,}".format(number) }}</td>
<td dir="auto" data-label="Source">{{ src | cut(400) }}</td>
<td dir="auto" data-label="Target">{{ tgt | cut(400) }}</td></tr>
{% endfor %}
</tbody>
</table>
</div>
"""

_SETTINGS = """\
<p class="note">
{%- for what, version in versions %}{{ what }} {{ version }}{% if not loop.last %}, {% endif %}
{% endfor %}. A setting is given as --set KEY=VALUE.</p>
<details>
<summary>All settings</summary>
<table class="facts">
<thead>
<tr><th scope="col">Key</th><th scope="col">Value</th><th scope="col">Meaning</th></tr>
</thead>
<tbody>
{% for one in settings %}
<tr{% if one.changed %} class="best"{% endif %}><td><code>{{ one.key }}</code></td><td dir="auto">
<code>{{- one.value | cut }}</code>{% if one.changed %} <span class="badge">changed</span>
{%- endif %}</td><td>{{ one.meaning }}</td></tr>
{% endfor %}
</tbody>
</table>
</details>
"""
