"""What is known of two languages and a corpus: lengths, usual words, what its sides agree on."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field

import numpy as np

from mtkit.base.copied import may_have_copied_parts
from mtkit.base.files import Record
from mtkit.base.invisible import visible
from mtkit.base.text import END_MARKS, base_language
from mtkit.check.rules import damage, limits, marks
from mtkit.check.rules.language import other_language
from mtkit.check.rules.number_matching import unmatched
from mtkit.check.rules.number_reading import has_digit

# The code of BCP 47 for a language that is not known.
UNDETERMINED = "und"
# Sigmas of a normal distribution up to its ninth tenth.
_NINE_TENTHS = 1.2816
# Brackets and quotation marks that may follow the mark at the end of a sentence.
_CLOSING = " \t\u00a0\u202f\"'»«”“’‘)]}›*_"
# Marks of other scripts as European ones, and the marks of scripts, by their letters: Arabic, those
# of Northern India, Chinese and Japanese.
_PLAIN_MARKS = str.maketrans("。．｡！？।॥؟۔", "...!?..?.")
_MARKS_OF_SCRIPTS = (
    ("\u0600", "\u06ff", {"?": "؟"}),
    ("\u0900", "\u09ff", {".": "।"}),
    ("\u3005", "\u9fff", {".": "。", "!": "！", "?": "？"}),
)


class LengthFacts(Record):
    """Median and sigma of log(target length / source length), of sources of similar length."""

    middle: float
    below: float
    above: float


class PairFacts(Record):
    """What the rules know of the languages and the corpus of a pair.

    Attributes:
        src_lang, tgt_lang: codes; `und` if they are not known.
        sampled: pairs that this was learned from.
        is_latin: not used; files of older runs have it.
        lengths: by the number of binary digits of the padded length of the source.
        longest, shortest: limits for the length, in sigmas above and below the median.
        src_words, tgt_words: the usual words of each side that do not belong to the other side.
        usual_share: the median share of usual words in a target; 0 if it is not known.
        never_last: usual words of the target that no sentence ends with.
        ends_kept: the share of the sources with a mark at their end whose target has one too.
        cut_below: a target without its mark that is shorter than this, in sigmas, is cut.
        labels: what begins many texts of one side alone, such as FIXME.
        loose: kinds of findings that are too frequent in the corpus to be reported, and "order" for
            that of numbers.
        off: what is not reported for that reason, with the counts.
        is_strict_about_numbers: whether a number that is missing on one side alone is reported.
        keeps_large_numbers: whether it is reported from two digits on, if there are no measures.
    """

    src_lang: str
    tgt_lang: str
    sampled: int = 0
    is_latin: bool = False
    lengths: list[LengthFacts] = field(default_factory=list)
    longest: float = limits.MAX_SIGMAS
    shortest: float = limits.MAX_SIGMAS
    src_words: list[str] = field(default_factory=list)
    tgt_words: list[str] = field(default_factory=list)
    usual_share: float = 0.0
    never_last: list[str] = field(default_factory=list)
    ends_kept: float = 0.95
    cut_below: float = limits.MIN_CUT_SIGMAS
    labels: list[str] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    off: list[str] = field(default_factory=list)
    is_strict_about_numbers: bool = False
    keeps_large_numbers: bool = False

    @classmethod
    def learn(cls, pairs: Iterable[tuple[str, str]], *, src_lang: str, tgt_lang: str) -> PairFacts:
        """Learn from pairs, of which most are right; at most `limits.MAX_SAMPLED` are read."""
        shown = (
            (visible(src), visible(tgt)) for src, tgt in itertools.islice(pairs, limits.MAX_SAMPLED)
        )
        sample = [pair for pair in shown if pair[0].strip() and pair[1].strip()]
        facts = cls(
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            sampled=len(sample),
            lengths=_lengths(sample, _expected(tgt_lang) - _expected(src_lang)),
            longest=limits.MIN_SIGMAS,
            shortest=limits.MIN_SIGMAS,
            keeps_large_numbers=True,
        )
        if facts.is_of_few:
            return facts
        for learned in (_usual_words, _limits, _labels, _habits):
            facts = facts.model_copy(update=learned(sample, facts))
        return facts

    @property
    def is_of_few(self) -> bool:
        """Whether the pairs are too few to teach words and habits."""
        return self.sampled < limits.MIN_PAIRS

    @property
    def silence(self) -> str:
        """What is not reported of such pairs, with the counts that are the reason; or nothing."""
        off = [*self.off, *(kind for kind in self.loose if not self.off)]
        if self.is_of_few:
            off.append(f"usual words and habits ({self.sampled:,} of {limits.MIN_PAIRS} pairs)")
        if self.ends_kept <= limits.MIN_ENDS_KEPT:
            off.append(f"a missing mark at the end (kept in {self.ends_kept:.0%} of the pairs)")
        return f"not reported: {'; '.join(off)}" if off else ""

    # -- Words

    def texts(self, source: str, translation: str) -> tuple[marks.Text, marks.Text]:
        """Both sides of a pair, without invisible characters."""
        return (
            marks.Text(visible(source), self.src_lang),
            marks.Text(visible(translation), self.tgt_lang),
        )

    @functools.cached_property
    def is_unspaced(self) -> bool:
        """Whether the words of the target are its characters."""
        return marks.is_unspaced(self.tgt_lang)

    @functools.cached_property
    def usual_targets(self) -> frozenset[str]:
        """`tgt_words` as a set."""
        return frozenset(self.tgt_words)

    @functools.cached_property
    def source_only(self) -> frozenset[str]:
        """Usual words of the source that are not usual in the target."""
        return frozenset(self.src_words) - self.usual_targets

    @functools.cached_property
    def target_only(self) -> frozenset[str]:
        """Usual words of the target that are not usual in the source."""
        return self.usual_targets - frozenset(self.src_words)

    @functools.cached_property
    def never_final(self) -> frozenset[str]:
        """`never_last` as a set."""
        return frozenset(self.never_last)

    # -- Lengths

    def sigmas(self, src_chars: int, tgt_chars: int) -> float:
        """How much longer than usual a target of this length is, in sigmas."""
        usual = self._usual(src_chars)
        ratio = (tgt_chars + limits.PADDING) / (src_chars + limits.PADDING)
        difference = math.log(ratio) - usual.middle
        return difference / (usual.above if difference > 0 else usual.below)

    def usual_length(self, src_chars: int) -> tuple[int, int]:
        """The characters that four in five targets have at least, and at most."""
        usual = self._usual(src_chars)
        low, high = (
            round((src_chars + limits.PADDING) * math.exp(usual.middle + _NINE_TENTHS * sigmas))
            - limits.PADDING
            for sigmas in (-usual.below, usual.above)
        )
        return max(1, low), max(1, high)

    def _usual(self, src_chars: int) -> LengthFacts:
        place = (src_chars + limits.PADDING).bit_length()
        return self.lengths[place if place < len(self.lengths) else -1]


def language_of(lines: Sequence[str]) -> str:
    """The language that most lines are in; `und` if they are too few to identify it."""
    # The identifier takes a while to load, and a run knows its languages.
    from mtkit.base import language_id

    try:
        ranking = Counter(language_id.languages(lines)).most_common(1)
    except OSError:  # the model cannot be loaded
        return UNDETERMINED
    return ranking[0][0] if ranking else UNDETERMINED


def ends_with_mark(text: str) -> bool:
    """Whether a text ends with the mark of a finished sentence."""
    last = text[-1:]
    if last in END_MARKS or last == ":":
        return last != ""
    return text.rstrip(_CLOSING)[-1:] in tuple(f"{END_MARKS}:;")


def missing_mark(source: str, translation: str) -> str:
    """The mark of a finished sentence that only the source ends with; empty without one.

    It is the one of the script that the translation ends in.
    """
    if not ends_with_mark(source) or ends_with_mark(translation):
        return ""
    mark = source.rstrip(_CLOSING)[-1].translate(_PLAIN_MARKS)
    last = translation.rstrip(_CLOSING)[-1:]
    own = next((marks for first, end, marks in _MARKS_OF_SCRIPTS if first <= last <= end), {})
    return own.get(mark, mark)


def _expected(language: str) -> float:
    return limits.LENGTHS.get(base_language(language), 0.0)


def _lengths(sample: Sequence[tuple[str, str]], expected: float) -> list[LengthFacts]:
    """The lengths of each class of sources; those with few pairs are like their neighbours.

    `expected` is the median of languages like these, which counts as ten pairs.
    """
    sizes = np.array([[len(src), len(tgt)] for src, tgt in sample], np.float64).reshape(-1, 2)
    sizes += limits.PADDING
    ratios = np.log(sizes[:, 1] / sizes[:, 0])
    places = np.floor(np.log2(sizes[:, 0])).astype(int) + 1
    weight = len(ratios) / (len(ratios) + limits.EXPECTED_PAIRS)
    overall = weight * float(np.median(ratios)) + (1 - weight) * expected if weight else expected
    lengths = []
    for place, spread in enumerate(limits.SPREADS):
        is_last = place == len(limits.SPREADS) - 1
        mine = ratios[(places >= place) if is_last else (places == place)]
        # A guess counts as some pairs, so that few pairs alone decide nothing.
        weight = len(mine) / (len(mine) + 50)
        middle = float(np.median(mine)) if len(mine) else overall
        middle = weight * middle + (1 - weight) * overall
        low, high = np.quantile(mine, [0.1, 0.9]) if len(mine) >= 20 else (middle, middle)
        sigmas = (abs(float(edge) - middle) / _NINE_TENTHS for edge in (low, high))
        below, above = (
            max(limits.MIN_SPREAD, weight * sigma + (1 - weight) * spread) for sigma in sigmas
        )
        lengths.append(LengthFacts(middle=middle, below=below, above=above))
    return lengths


def _own_words(texts: Sequence[str], language: str) -> list[list[str]]:
    """The words of each text; of one that is in another language, none."""
    of_texts = [marks.words_of(text, language) for text in texts]
    own, foreign = Counter[str](), Counter[str]()
    some = slice(None, None, -(-len(texts) // limits.MAX_IDENTIFIED))
    for text, words in zip(texts[some], of_texts[some], strict=True):
        is_foreign = len(text) > limits.MIN_LETTERS and other_language(text, language)
        (foreign if is_foreign else own).update(words)
    other = {word for word, count in foreign.items() if count > own[word]}
    return [
        [] if 2 * sum(map(other.__contains__, words)) > len(words) else words for words in of_texts
    ]


def _usual_words(sample: Sequence[tuple[str, str]], facts: PairFacts) -> dict[str, object]:
    sides = list(map(_own_words, zip(*sample, strict=True), (facts.src_lang, facts.tgt_lang)))
    counts = [Counter(itertools.chain.from_iterable(words)) for words in sides]
    last = Counter(words[-1] for words in sides[1] if words)
    totals = [max(1, count.total()) for count in counts]
    usual: list[list[str]] = []
    for side in (0, 1):
        here, there = counts[side], counts[1 - side]
        factor = totals[side] / totals[1 - side] / limits.MIN_TIMES_USUAL
        usual.append(
            [
                word
                for word, count in here.most_common(limits.MAX_USUAL_WORDS)
                if count > 1 and count >= there[word] * factor and not word.isdigit()
            ]
        )
    never = [
        word
        for word in usual[1]
        if counts[1][word] >= limits.MIN_TIMES_SEEN
        and last[word] <= limits.MAX_LAST_SHARE * counts[1][word]
    ]
    known = frozenset(usual[1])
    shares = [sum(map(known.__contains__, words)) / len(words) for words in sides[1] if words]
    return {
        "src_words": usual[0],
        "tgt_words": usual[1],
        "never_last": [] if facts.is_unspaced else never,
        "usual_share": round(float(np.median(shares)), 4) if shares else 0.0,
    }


def _limits(sample: Sequence[tuple[str, str]], facts: PairFacts) -> dict[str, object]:
    sigmas = np.sort([facts.sigmas(len(src), len(tgt)) for src, tgt in sample])
    tail = limits.MAX_MARKED / 2
    low, high = np.quantile(sigmas, [tail, 1 - tail])
    ends = [
        (ends_with_mark(target), facts.sigmas(len(source), len(target)))
        for source, target in sample
        if ends_with_mark(source)
    ]
    usual: dict[str, object] = {
        "longest": float(np.clip(high, limits.MIN_SIGMAS, limits.MAX_SIGMAS)),
        "shortest": float(np.clip(-low, limits.MIN_SIGMAS, limits.MAX_SIGMAS)),
    }
    if len(ends) >= limits.MIN_PAIRS:
        lost = sorted(sigma for is_kept, sigma in ends if not is_kept)
        usual["ends_kept"] = 1 - len(lost) / len(ends)
        allowed = int(limits.MAX_MARKED / 2 * len(sample))
        cut_below = lost[allowed] if len(lost) > allowed else limits.MAX_CUT_SIGMAS
        usual["cut_below"] = float(np.clip(cut_below, limits.MIN_CUT_SIGMAS, limits.MAX_CUT_SIGMAS))
    return usual


def _labels(sample: Sequence[tuple[str, str]], _facts: PairFacts) -> dict[str, object]:
    """What was put before texts by a program or a person, and never translated."""
    sides = [*sample, *((target, source) for source, target in sample)]
    counts = Counter(damage.label(*pair) for pair in sides)
    often = [label for label, count in counts.items() if label and count >= limits.MIN_LABELLED]
    return {
        "labels": [
            label
            for label in often
            if counts[label]
            >= limits.MIN_LABELLED_SHARE * sum(f"{label} " in text for text, _ in sides)
        ]
    }


def _habits(sample: Sequence[tuple[str, str]], facts: PairFacts) -> dict[str, object]:
    """Which rules the corpus keeps."""
    about: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    for source, target in sample:
        texts = facts.texts(source, target)
        broken["capitals"] += bool(damage.capitals(*texts))
        broken["order"] += damage.exchanged(*texts) is not None
        if any(map(may_have_copied_parts, (source, target))):
            for kind, parts_of in marks.COPIED_PARTS.items():
                src, tgt = parts_of(source), parts_of(target)
                about[kind] += bool(src or tgt)
                broken[kind] += src != tgt
        if has_digit(source) or has_digit(target):
            rest = unmatched(source, target, src_lang=facts.src_lang, tgt_lang=facts.tgt_lang)
            about["numbers"] += 1
            is_one_sided = bool(rest.src) != bool(rest.tgt)
            broken["missing"] += is_one_sided
            broken["large"] += is_one_sided and rest.is_large

    loose = [
        kind
        for kind in marks.COPIED_PARTS
        if broken[kind] > 0.1 * about[kind]
        and about[kind] >= limits.MIN_RULE_PAIRS
        # Where few pairs have tags or placeholders at all, those that differ are faults.
        and broken[kind] > limits.MAX_BROKEN * len(sample)
    ]
    habits = {"capitals": limits.MAX_OTHER_CAPITALS, "order": limits.MAX_OTHER_ORDER}
    loose += [kind for kind, most in habits.items() if broken[kind] > most * len(sample)]
    pairs = about["numbers"]
    most = max(limits.MAX_MARKED * len(sample), (1 - limits.MIN_KEPT) * pairs)
    is_strict = pairs >= limits.MIN_RULE_PAIRS and broken["missing"] <= most
    keeps_large = broken["large"] <= max(2, (1 - limits.MIN_LARGE_KEPT) * pairs)
    off = [
        f"{kind} (other in {broken[kind]:,} of {about[kind] or len(sample):,} pairs)"
        for kind in loose
    ]
    if broken["missing"] and not is_strict:
        size = "small numbers" if keeps_large else "numbers"
        needed = limits.MIN_RULE_PAIRS
        few = f"; {needed} are needed" if pairs < needed else ""
        off.append(
            f"{size} that one side lacks "
            f"(in {broken['missing']:,} of {pairs:,} pairs with any{few})"
        )
    return {
        "loose": loose,
        "off": off,
        "is_strict_about_numbers": is_strict,
        "keeps_large_numbers": keeps_large,
    }
