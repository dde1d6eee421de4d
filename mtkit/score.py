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
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np

from mtkit.base.errors import MtkitError

log = logging.getLogger(__name__)

Metric = Literal["bleu", "chrf", "ter", "paper"]

PAPER_NAME = "BLEU-paper"
# Why the two kinds of BLEU differ (Section 6.1 does not say which it uses). The difference depends
# on the text: for three models on Multi30k it was from 1.0 less to 0.05 more.
PAPER_NOTE = (
    "BLEU-paper counts words of the Moses tokeniser with compounds split at hyphens, so more "
    "n-grams match where compounds do: 0.7 to 1.5 points above BLEU (13a) on newstest2014 "
    "English-German, and up to a point below where they do not; the paper's references also had "
    "their quotes normalised by hand, which is not done here"
)

_TOKENISED_LINES = 100


@dataclass(frozen=True)
class Score:
    """A score that can be compared with others of the same signature.

    Attributes:
        value: in points, from 0 to 100.
        signature: everything that the value depends on besides the text.
        mean: mean score of the bootstrap samples; this and the rest only from `compare`.
        interval: half the width of the 95 % confidence interval.
        p_bootstrap: p-value of the difference to the baseline, by paired bootstrap resampling;
            None for the baseline itself.
        p_randomisation: the same, by approximate randomisation.
    """

    name: str
    value: float
    signature: str
    mean: float | None = None
    interval: float | None = None
    p_bootstrap: float | None = None
    p_randomisation: float | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} {self.signature}"


class System(NamedTuple):
    """A named set of translations of one test set."""

    name: str
    translations: Sequence[str]


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    metric: Metric = "bleu",
    tgt_lang: str | None = None,
) -> Score:
    """Score detokenised translations.

    Args:
        hypotheses: one per sentence.
        references: one or more whole sets of references, each as long as `hypotheses`.
        metric: BLEU is cased and tokenises as WMT does (13a); chrF and TER are sacreBLEU's
            defaults; `paper` is the paper's BLEU.
        tgt_lang: language of the text, for `paper`.

    Raises:
        MtkitError: if the numbers of lines differ, or there are none.
    """
    _check(hypotheses, references)
    scorer = _scorer(metric, tgt_lang)
    result = scorer.corpus_score(list(hypotheses), [list(r) for r in references])
    return _score(metric, result.name, result.score, str(scorer.get_signature()))


def sentence_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    metric: Metric = "bleu",
    tgt_lang: str | None = None,
) -> list[Score]:
    """The score of every sentence by itself.

    A sentence shorter than four words has no four-grams; its BLEU is over the orders it has
    (`eff:yes` in the signature).
    """
    _check(hypotheses, references)
    scorer = _scorer(metric, tgt_lang, sentences=True)
    results = [
        scorer.sentence_score(hypothesis, list(of_line))
        for hypothesis, *of_line in zip(hypotheses, *references, strict=True)
    ]
    signature = str(scorer.get_signature())
    return [_score(metric, result.name, result.score, signature) for result in results]


def _score(metric: Metric, name: str, value: Any, signature: str, **compared: Any) -> Score:
    return Score(PAPER_NAME if metric == "paper" else name, float(value), signature, **compared)


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
    from sacrebleu.metrics.helpers import extract_all_char_ngrams

    if len(texts) < 2:
        return [100.0] * len(texts)
    distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    ngrams = [extract_all_char_ngrams(text, CHRF.CHAR_ORDER) for text in distinct]
    # Sums over the n-gram orders that both texts have, of text i (rows) against text j.
    precision, recall, orders = np.zeros((3, len(distinct), len(distinct)))
    for of_order in zip(*ngrams, strict=True):
        columns = {ngram: column for column, ngram in enumerate(set().union(*of_order))}
        counts = np.zeros((len(distinct), len(columns)), dtype=np.int32)
        for row, counter in zip(counts, of_order, strict=True):
            row[[columns[ngram] for ngram in counter]] = list(counter.values())
        lengths = counts.sum(1)
        matches = np.stack([np.minimum(row, counts).sum(1) for row in counts])
        precision += matches / np.maximum(lengths, 1)[:, None]
        recall += matches / np.maximum(lengths, 1)
        orders += (lengths[:, None] > 0) & (lengths > 0)
    # Texts without common n-grams have 0.
    precision, recall = (total / np.maximum(orders, 1) for total in (precision, recall))
    factor = CHRF.BETA**2
    weighted = np.maximum(factor * precision + recall, np.finfo(float).tiny)
    scores = 100 * (1 + factor) * precision * recall / weighted
    rows = [distinct[text] for text in texts]
    # A text is not one of its own references.
    totals = (scores @ np.bincount(rows) - scores.diagonal()) / (len(texts) - 1)
    return [float(total) for total in totals[rows]]


def compare(
    systems: Sequence[System],
    references: Sequence[Sequence[str]],
    *,
    metric: Metric = "bleu",
    tgt_lang: str | None = None,
) -> list[Score]:
    """Compare every system with the first, by sacreBLEU's two paired tests and its defaults.

    1,000 bootstrap samples, 10,000 randomisation trials, and the seed 12345 unless SACREBLEU_SEED
    is set: the same p-values as its command line with `--paired-bs` and `--paired-ar`.
    """
    if len(systems) < 2:
        raise ValueError("a comparison takes a baseline and at least one other system")
    check_seed()
    from sacrebleu.significance import PairedTest

    for system in systems:
        _check(system.translations, references)
    found: dict[str, list[Any]] = {}
    signatures = []
    for test in ("bs", "ar"):
        scorer = _scorer(metric, tgt_lang)
        # Its constructor would do this before the paper's tokeniser is in place.
        scorer._ref_cache = scorer._cache_references([list(one) for one in references])
        by_name, results = PairedTest(list(systems), {metric: scorer}, None, test_type=test)()
        ((name, described),) = by_name.items()
        found[test] = results[name]
        signatures.append(str(described))
    # The signatures differ in the kind and number of samples.
    parts = zip(*(text.split("|") for text in signatures), strict=True)
    signature = "|".join(one if one == other else f"{one}|{other}" for one, other in parts)
    return [
        _score(
            metric,
            name,
            bootstrap.score,
            signature,
            mean=float(bootstrap.mean),
            interval=float(bootstrap.ci),
            p_bootstrap=bootstrap.p_value,
            p_randomisation=randomisation.p_value,
        )
        for bootstrap, randomisation in zip(found["bs"], found["ar"], strict=True)
    ]


def note_twins(systems: Sequence[System]) -> None:
    """Warn of systems identical to the baseline, for which sacreBLEU's p-values are wrong."""
    first, *others = systems
    for one in others:
        if list(one.translations) == list(first.translations):
            log.warning("%s is the same text as %s; p-values mean nothing", one.name, first.name)


def note_tokenised(name: str, lines: Sequence[str]) -> None:
    """Warn of text that looks tokenised, by sacreBLEU's rule: a hundred lines end so."""
    count = sum(line.endswith(" .") for line in lines)
    if count >= _TOKENISED_LINES:
        log.warning(
            "%s looks tokenised: %d lines end in ' .'; BLEU is for detokenised text", name, count
        )


def check_seed() -> None:
    """Refuse a SACREBLEU_SEED that sacreBLEU cannot use."""
    seed = os.environ.get("SACREBLEU_SEED", "none")
    if seed.lower() != "none" and not seed.isdecimal():
        raise MtkitError(
            f"SACREBLEU_SEED={seed}: write a number, or none for another one each time"
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
        f"{name} has {len(lines)} lines and {other} has {len(others)}; {lacking} seems to lack "
        f"{'a line' if gap == 1 else f'{gap} lines'} at {where}; line n of one must belong to line "
        "n of the other"
    )


def _check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    for reference in references:
        if len(reference) != len(hypotheses):
            raise MtkitError(
                f"{len(hypotheses)} translations do not line up with {len(reference)} references"
            )
    if not hypotheses:
        raise MtkitError("there is nothing to score: 0 translations")


def _scorer(metric: Metric, tgt_lang: str | None, *, sentences: bool = False) -> Any:
    """sacreBLEU's object for a metric."""
    # Imported here, because `mtkit translate` needs none of it.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if metric == "chrf":
        return CHRF()
    if metric == "ter":
        return TER()
    # `force` silences a warning of three lines that text looks tokenised: see `note_tokenised`.
    if metric == "bleu":
        return BLEU(effective_order=sentences, force=True)
    if tgt_lang is None:
        raise ValueError("the paper's BLEU needs the language, for its tokeniser")
    # multi-bleu.perl does not smooth.
    smooth = "exp" if sentences else "none"
    scorer = BLEU(tokenize="none", smooth_method=smooth, effective_order=sentences, force=True)
    scorer.tokenizer = _paper_tokenizer(tgt_lang)
    scorer.tokenizer_signature = scorer.tokenizer.signature()
    return scorer


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
