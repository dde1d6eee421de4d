"""Scores with signatures, and significance tests, by sacreBLEU.

The paper's own BLEU is the metric `paper`: Moses tokenisation, compounds split at their hyphens,
and BLEU over the resulting words. Everything else is standard sacreBLEU.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from mtkit.base.arguments import checks_arguments
from mtkit.base.errors import MtkitError, in_words
from mtkit.base.text import UNSPACED, base_language

log = logging.getLogger(__name__)

Metric = Literal["bleu", "chrf", "chrf++", "ter", "paper"]

PAPER_NAME = "BLEU-paper"
# What the options call the metrics of mtkit, and how they are printed; in lower case.
METRIC_NAMES = frozenset({*get_args(Metric), "chrf2", "chrf2++", PAPER_NAME.lower(), "parseval"})
# Why the two kinds of BLEU differ (Section 6.1 does not say which it uses). The difference depends
# on the text: for three models on Multi30k it was from 1.0 less to 0.05 more.
PAPER_NOTE = (
    "BLEU-paper counts words of the Moses tokeniser, and splits compounds at hyphens. On "
    "newstest2014 English-German it is 0.7 to 1.5 points above BLEU; do not compare the two"
)

_TOKENISED_LINES = 100
# Bootstrap samples, and trials of approximate randomisation, as in sacreBLEU's own program.
_SAMPLES, _TRIALS = 1000, 10_000
# Trials at a time. sacreBLEU takes 32 truth values from each random number, so the number of values
# must be a multiple of it.
_TRIALS_AT_ONCE = 32


@dataclass(frozen=True)
class Score:
    """A score that can be compared with others of the same signature.

    Attributes:
        value: in points, from 0 to 100; TER may be above 100.
        signature: everything that the value depends on besides the text.
        lower_is_better: whether the metric counts errors.
        mean: mean score of the bootstrap samples.
        interval: half the width of the 95 % confidence interval around it.
        p_bootstrap: p-value of the difference to the baseline, by paired bootstrap resampling;
            None for the baseline itself, and for a system identical to it. This and the rest are
            only from `compare`.
        p_randomisation: the same, by approximate randomisation.
        identical: whether every line has the same statistics as the baseline's, so that there is
            no difference to test; None for the baseline.
    """

    # Digits after the point where a value is printed.
    DECIMALS: ClassVar[int] = 2

    name: str
    value: float
    signature: str
    lower_is_better: bool = False
    mean: float | None = None
    interval: float | None = None
    p_bootstrap: float | None = None
    p_randomisation: float | None = None
    identical: bool | None = None

    def shown(self, value: float) -> str:
        """A value of this metric as it is printed."""
        return f"{value:.{self.DECIMALS}f}"

    @property
    def shown_interval(self) -> str:
        """The mean of the bootstrap samples and the 95 % interval; empty if not computed."""
        if self.mean is None or self.interval is None:
            return ""
        return f"{self.shown(self.mean)} ± {self.shown(self.interval)}"

    def __str__(self) -> str:
        interval = self.shown_interval and f" 95 %: {self.shown_interval}"
        return f"{self.name} {self.shown(self.value)} {self.signature}{interval}"


class System(NamedTuple):
    """A named set of translations of one test set."""

    name: str
    translations: Sequence[str]


class LineMetric(ABC):
    """A metric for translations of one text by several systems.

    A score follows from the sums of what is known of each line, its statistics.
    """

    kind: ClassVar[type[Score]] = Score

    @property
    @abstractmethod
    def statistics(self) -> list[Any]:
        """Of each system an array with a row for each line."""

    @property
    @abstractmethod
    def lower_is_better(self) -> bool:
        """Whether the metric counts errors."""

    @abstractmethod
    def _scorer(self, *, of_sentences: bool = False) -> Any:
        """The metric of sacreBLEU, or what has the interface of one."""

    def means(self, *, interval: bool = False) -> list[Score]:
        """The score of each system, if wanted with its 95 % interval: see `_add_interval`."""
        if interval:
            check_seed()
        scorer = self._scorer()
        signature, scores = str(scorer.get_signature()), []
        for statistics in self.statistics:
            result, tested = scorer._aggregate_and_compute(statistics), {}
            if interval:
                _add_interval(result, statistics, scorer)
                tested = {"mean": float(result._mean), "interval": float(result._ci)}
            scores.append(self._score(result, signature, **tested))
        return scores

    def of_lines(self) -> list[Score]:
        """The score of every line of the first system by itself.

        A sentence shorter than four words has no four-grams; its BLEU is over the orders it has
        (`eff:yes` in the signature).
        """
        scorer = self._scorer(of_sentences=True)
        signature = str(scorer.get_signature())
        results = map(scorer._compute_score_from_stats, self.statistics[0])
        return [self._score(result, signature) for result in results]

    def values_of_lines(self) -> list[list[float]]:
        """Of each system, the value of the score of each line by itself."""
        compute = self._scorer(of_sentences=True)._compute_score_from_stats
        return [[float(compute(x).score) for x in lines.tolist()] for lines in self.statistics]

    def compare(self) -> list[Score]:
        """The score of each system, compared with the first by sacreBLEU's two paired tests.

        1,000 bootstrap samples, 10,000 randomisation trials, and the seed 12345 unless
        SACREBLEU_SEED is set: the same p-values as its command line with `--paired-bs` and
        `--paired-ar`. They are computed here, because sacreBLEU draws all at once, which needs
        130 KB for each line.
        """
        by_system, scorer = self.statistics, self._scorer()
        if len(by_system) < 2:
            raise ValueError("a comparison takes a baseline and at least one other system")
        check_seed()
        from sacrebleu.significance import _compute_p_value, estimate_ci

        results = [scorer._aggregate_and_compute(statistics) for statistics in by_system]
        samples = [np.array([s.score for s in scores]) for scores in _bootstrap(by_system, scorer)]
        trials = _randomised(by_system, scorer)
        signature = scorer.get_signature()
        for key, setting in {"seed": str(_seed()).lower(), "bs": _SAMPLES, "ar": _TRIALS}.items():
            signature.update(key, setting)
        scores = []
        for index, (result, sample) in enumerate(zip(results, samples, strict=True)):
            # Without any difference, sacreBLEU's p-values are the lowest that there are.
            same = bool(np.array_equal(by_system[index], by_system[0]))
            mean, interval = estimate_ci(sample)
            gap, gaps = abs(results[0].score - result.score), np.abs(sample - samples[0])
            tested = gaps - gaps.mean(), np.array(trials[index])
            p_values = [None if same else _compute_p_value(gaps, gap) for gaps in tested]
            scores.append(
                self._score(
                    result,
                    str(signature),
                    mean=float(mean),
                    interval=float(interval),
                    p_bootstrap=p_values[0],
                    p_randomisation=p_values[1],
                    identical=same if index else None,
                )
            )
        return scores

    def _score(self, result: Any, signature: str, **tested: Any) -> Score:
        value, is_lower = float(result.score), self.lower_is_better
        return self.kind(result.name, value, signature, lower_is_better=is_lower, **tested)


@dataclass(frozen=True)
class TextMetric(LineMetric):
    """A metric of sacreBLEU, for the detokenised translations of one text by several systems.

    Attributes:
        references: one or more whole sets of references, each as long as the translations.
        metric: BLEU is cased and tokenises as WMT does (13a); chrF and TER are sacreBLEU's
            defaults; chrF++ is chrF with words and pairs of words; `paper` is the paper's BLEU.
        tgt_lang: language of the text, for `paper`.
        lowercase: ignore case. TER always does.
        test_set: `NAME:SRC-TGT` of a set of sacreBLEU, for the signature.

    Raises:
        MtkitError: if the numbers of lines differ, if there are none, or if the metric is unknown.
        TypeError: if a string is given instead of a list of lines.
    """

    systems: Sequence[System]
    references: Sequence[Sequence[str]]
    metric: Metric = "bleu"
    tgt_lang: str | None = None
    lowercase: bool = False
    test_set: str | None = None

    def __post_init__(self) -> None:
        if self.metric not in get_args(Metric):
            raise MtkitError(f"metric {self.metric}: choose one of {', '.join(get_args(Metric))}")
        for system in self.systems:
            for reference in self.references:
                if len(reference) != len(system.translations):
                    raise MtkitError(
                        f"{len(system.translations)} translations do not line up with "
                        f"{len(reference)} references"
                    )
            if not system.translations or not self.references:
                empty = "references" if system.translations else "translations"
                raise MtkitError(f"there is nothing to score: 0 {empty}")

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric counts errors."""
        return self.metric == "ter"

    @functools.cached_property
    def statistics(self) -> list[Any]:
        """What the score depends on: of each system an array with a row for each line."""
        scorer = self._scorer()
        by_system: list[list[list[float]]] = [[] for _ in self.systems]
        for number, references in enumerate(zip(*self.references, strict=True)):
            # Of one line at a time: the n-grams of chrF need 100 KB a line.
            scorer._ref_cache = scorer._cache_references([[line] for line in references])
            for statistics, (_, lines) in zip(by_system, self.systems, strict=True):
                statistics += scorer._extract_corpus_statistics([lines[number]], None)
        return list(map(np.array, by_system))

    def _score(self, result: Any, signature: str, **tested: Any) -> Score:
        score = super()._score(result, signature, **tested)
        return replace(score, name=PAPER_NAME) if self.metric == "paper" else score

    def _scorer(self, *, of_sentences: bool = False) -> Any:
        # Imported here, because `mtkit translate` needs none of it.
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
        from sacrebleu.metrics.ter import TER

        scorer: Any
        if self.metric in ("chrf", "chrf++"):
            words = 2 if self.metric == "chrf++" else 0
            scorer = CHRF(word_order=words, lowercase=self.lowercase)
        elif self.metric == "ter":
            scorer = TER()
        else:
            # `force` silences a warning of three lines that text looks tokenised, which
            # `note_tokenised` gives.
            how: dict[str, Any] = {"force": True, "effective_order": of_sentences}
            if self.metric == "paper":
                # multi-bleu.perl does not smooth.
                how |= {"tokenize": "none", "smooth_method": "exp" if of_sentences else "none"}
            scorer = BLEU(lowercase=self.lowercase, **how)
        if self.metric == "paper":
            if self.tgt_lang is None:
                raise MtkitError("the paper's BLEU needs tgt_lang, for its tokeniser")
            scorer.tokenizer = _paper_tokenizer(base_language(self.tgt_lang))
            scorer.tokenizer_signature = scorer.tokenizer.signature()
        if self.test_set:
            scorer.test_set, scorer.langpair = self.test_set.rsplit(":", 1)
        scorer.num_refs = len(self.references)
        return scorer


@checks_arguments
def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    metric: Metric = "bleu",
    tgt_lang: str | None = None,
    lowercase: bool = False,
    test_set: str | None = None,
    interval: bool = False,
) -> Score:
    """Score detokenised translations, one per sentence; references and options as `TextMetric`.

    With `interval`, the score has its `mean` and 95 % `interval`, by bootstrap resampling.

    Raises:
        MtkitError: if the numbers of lines differ, or there are none.
    """
    systems = [System("", hypotheses)]
    options = (metric, tgt_lang, lowercase, test_set)
    return TextMetric(systems, references, *options).means(interval=interval)[0]


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """sacreBLEU's sentence chrF of each line against its reference, in points.

    Raises:
        MtkitError: if the numbers of lines differ.
    """
    if not hypotheses and not references:
        return []
    return TextMetric([System("", hypotheses)], [references], "chrf").values_of_lines()[0]


def mutual_chrf(texts: Sequence[str]) -> list[float]:
    """The similarity of each of several translations of one sentence to the others.

    It is the mean of sacreBLEU's sentence chrF, in points, with every other text as the reference,
    and 100 for a text without others. Equal texts count as often as they occur: among samples of a
    model, the text with the highest mean has the lowest expected loss (minimum Bayes risk; Kumar
    and Byrne 2004).

    The pairs are scored here, because sacreBLEU counts the n-grams of both texts again for each
    pair, which takes about thirty times longer.
    """
    from sacrebleu.metrics.chrf import CHRF

    if len(texts) < 2:
        return [100.0] * len(texts)
    distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    letters = ["".join(text.split()) for text in distinct]
    sizes = np.array([len(text) for text in letters])
    owners = np.repeat(np.arange(len(letters)), sizes)
    encoded = "".join(letters).encode("utf-32-le", "surrogatepass")
    characters = np.frombuffer(encoded, np.uint32).astype(np.int64)
    ngrams = np.zeros(len(characters) + 1, np.int64)
    places, ends = [], [0]
    for last in range(CHRF.CHAR_ORDER):
        # An n-gram is the number of the shorter one, and its last character, below 2 ** 21.
        spelled = (ngrams[:-1] << 21) + characters[last:]
        different, ngrams = np.unique(spelled, return_inverse=True)
        inside = owners[: len(ngrams)] == owners[last:]
        places.append((owners[: len(ngrams)][inside], ngrams[inside] + ends[-1]))
        ends.append(ends[-1] + len(different))
    # Of each text and n-gram, of the n-grams that occur twice; most occur once.
    owner_of, ngram_of = map(np.concatenate, zip(*places, strict=True))
    is_shared = np.bincount(ngram_of, minlength=ends[-1]) > 1
    numbers = np.concatenate([[0], np.cumsum(is_shared)])
    kept, width = is_shared[ngram_of], int(numbers[-1])
    cells = owner_of[kept] * width + numbers[ngram_of[kept]]
    counts = np.zeros((len(distinct), width), np.int32)
    np.add.at(counts.reshape(-1), cells, 1)
    # Of text i, text j and each order.
    of_orders = [_matches(counts[:, begin:end]) for begin, end in pairwise(numbers[ends])]
    matches = np.stack(of_orders, axis=-1)
    lengths = np.maximum(sizes[:, None] - np.arange(CHRF.CHAR_ORDER), 0)
    matches[np.diag_indices(len(distinct))] = lengths
    # The n-gram orders that both texts have; those without common n-grams have 0.
    orders = np.maximum(((lengths[:, None] > 0) & (lengths > 0)).sum(-1), 1)
    known = np.maximum(lengths, 1)
    precision, recall = ((matches / total).sum(-1) / orders for total in (known[:, None], known))
    factor = CHRF.BETA**2
    weighted = np.maximum(factor * precision + recall, np.finfo(float).tiny)
    scores = 100 * (1 + factor) * precision * recall / weighted
    rows = [distinct[text] for text in texts]
    # A text is not one of its own references.
    totals = (scores @ np.bincount(rows) - scores.diagonal()) / (len(texts) - 1)
    return [float(total) for total in totals[rows]]


def _matches(counts: NDArray[Any]) -> NDArray[Any]:
    """The n-grams that text i and text j have in common, of counts (text, n-gram)."""
    # Sixteen texts at a time, so that the array is small.
    first = range(0, len(counts), 16)
    return np.concatenate([np.minimum(counts[i : i + 16, None], counts).sum(-1) for i in first])


def _seed() -> int | None:
    seed = os.environ.get("SACREBLEU_SEED", "12345").lower()
    return None if seed == "none" else int(seed)


def _bootstrap(by_system: Sequence[Any], scorer: Any) -> list[list[Any]]:
    """The scores of each system in the same random samples of the lines, in float32."""
    random = np.random.default_rng(_seed())
    arrays = [np.asarray(statistics, dtype=np.float32) for statistics in by_system]
    scores: list[list[Any]] = [[] for _ in arrays]
    for _ in range(_SAMPLES):
        indices = random.integers(len(arrays[0]), size=len(arrays[0]))
        for of_system, statistics in zip(scores, arrays, strict=True):
            of_system.append(scorer._compute_score_from_stats(statistics[indices].sum(0)))
    return scores


def _randomised(by_system: Sequence[Any], scorer: Any) -> list[list[float]]:
    """Of each other system: its differences to the first one with some of their lines exchanged."""
    random = np.random.default_rng(_seed())
    first = by_system[0]
    gaps: list[list[float]] = [[] for _ in by_system]
    for done in range(0, _TRIALS, _TRIALS_AT_ONCE):
        size = (min(_TRIALS_AT_ONCE, _TRIALS - done), len(first))
        picked = random.integers(2, size=size, dtype=bool).astype(float)
        for of_system, other in zip(gaps[1:], by_system[1:], strict=True):
            # Sums of whole numbers are exact, and are so again.
            exchanged = (picked @ first + (1 - picked) @ other).astype(first.dtype)
            rest = ((1 - picked) @ first + picked @ other).astype(first.dtype)
            for sums in zip(exchanged.tolist(), rest.tolist(), strict=True):
                a, b = map(scorer._compute_score_from_stats, sums)
                of_system.append(abs(a.score - b.score))
    return gaps


def _add_interval(result: Any, statistics: Any, scorer: Any) -> None:
    """Give a score of sacreBLEU its 95 % interval, as `sacrebleu --confidence` does."""
    (scores,) = _bootstrap([statistics], scorer)
    if len({type(score.score) for score in scores}) > 1:
        # As of a text with hardly any words; sacreBLEU stops at that.
        for score in scores:
            score.score = float(score.score)
    result.estimate_ci(scores)


def note_tokenised(name: str, lines: Sequence[str]) -> None:
    """Warn of text that looks tokenised, by sacreBLEU's rule: a hundred lines end so."""
    count = sum(line.endswith(" .") for line in lines)
    if count >= _TOKENISED_LINES:
        log.warning(
            "%s looks tokenised: %d lines end in ' .'; BLEU is for detokenised text", name, count
        )


def note_unspaced(lines: Sequence[str]) -> None:
    """Warn of references whose words have no spaces between them, by their first lines."""
    text = "".join(lines[:_TOKENISED_LINES])
    # Tibetan has marks between syllables.
    if 2 * len(re.findall(f"[{UNSPACED}\u0f00-\u0fff]", text)) > sum(map(str.isalpha, text)):
        log.warning(
            "the words of the references are not separated by spaces, so BLEU and TER take whole "
            "clauses for words, and BLEU may be 0; chrF is for such text"
        )


def check_seed() -> None:
    """Refuse a SACREBLEU_SEED that sacreBLEU cannot use."""
    seed = os.environ.get("SACREBLEU_SEED", "none")
    if seed.lower() != "none" and not seed.isdecimal():
        raise MtkitError(
            f"SACREBLEU_SEED={seed}: write a whole number from 0 on, or none for another one each "
            "time"
        )


def split_compounds(tokenised: str) -> str:
    """Compounds as the paper scored them: `rich-text` becomes `rich ##AT##-##AT## text`.

    Perl's ``s/(\\S)-(\\S)/$1 ##AT##-##AT## $2/g``. Matches do not overlap: of `a-b-c` the first
    hyphen is split. Perl works on bytes here, so of `vis-à-vis` both are: the à is two bytes, one
    for each match.
    """
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", tokenised.encode()).decode()


def first_shift(short: Sequence[int], long: Sequence[int]) -> int | None:
    """Where the shorter of two files lacks lines, all in one place, by the characters per line.

    Returns the number of lines before the place where the lengths agree best, or None if the lines
    are probably missing at the end.
    """
    gap = len(long) - len(short)

    def mismatch(a: int, b: int) -> float:
        return abs(math.log((a + 1) / (b + 1)))

    aligned = [mismatch(a, b) for a, b in zip(short, long, strict=False)]
    moved = [mismatch(a, b) for a, b in zip(short, long[gap:], strict=True)]
    # The cost of the lines after each place if they are shifted, minus the cost if they are not.
    gains = list(accumulate(m - a for a, m in zip(aligned[::-1], moved[::-1], strict=True)))
    # For newstest2014 without its last lines, one excerpt in seven gains something by a shift of
    # one or two lines, one in 250 as much as this.
    if min(gains, default=0.0) > -0.5:
        return None
    # The last of equal places, which shifts the fewest lines.
    tail = gains.index(min(gains)) + 1
    index = len(short) - tail
    # Lengths of translations vary by about a third; chance alone does not halve the mismatch.
    return index if sum(moved[index:]) < 0.7 * sum(aligned[index:]) else None


def refuse_unequal(name: str, lines: Sequence[str], other: str, others: Sequence[str]) -> None:
    """Refuse two texts of different length, with the first place where they look shifted."""
    if len(lines) == len(others):
        return
    shortest, longest = sorted((lines, others), key=len)
    lacking = name if lines is shortest else other
    gap = len(longest) - len(shortest)
    index = first_shift(list(map(len, shortest)), list(map(len, longest)))
    where = "its end"
    if index is not None:
        where = f"line {index + 1}, from where on the lengths look shifted"
    raise MtkitError(
        f"{name} has {in_words(len(lines))} and {other} has "
        f"{len(others):,}; {lacking} seems to lack {'a line' if gap == 1 else f'{gap:,} lines'} at "
        f"{where}; line n of one must belong to line n of the other"
    )


@functools.cache
def _paper_tokenizer(tgt_lang: str) -> _PaperTokenizer:
    from sacremoses.corpus import NonbreakingPrefixes

    if tgt_lang not in NonbreakingPrefixes().available_langs:
        log.warning("the Moses tokeniser has no abbreviations for %s; English is used", tgt_lang)
    return _PaperTokenizer(tgt_lang)


class _PaperTokenizer:
    """The tokeniser of the paper's BLEU, with the interface of sacreBLEU's tokenisers.

    sacremoses keeps the full stop on a last word such as `26.`, as tokenizer.perl did at the time
    of the paper; the Perl program separates it since 2018 (mosesdecoder, pull request 204).
    """

    def __init__(self, tgt_lang: str) -> None:
        import sacremoses

        self._signature = f"moses-{tgt_lang}-sacremoses-{sacremoses.__version__}-atat"
        moses = sacremoses.MosesTokenizer(lang=tgt_lang)
        # A cache, because references are tokenised once for every system.
        self._tokenize = functools.lru_cache(2**18)(
            lambda line: split_compounds(moses.tokenize(line, return_str=True))
        )

    def signature(self) -> str:
        return self._signature

    def __call__(self, line: str) -> str:
        return self._tokenize(line)
