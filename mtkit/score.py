"""Scores with their signatures, on sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mtkit.errors import MtkitError

Metric = Literal["bleu", "chrf", "ter"]


@dataclass(frozen=True)
class Score:
    """A score that can be compared with others of the same signature.

    Attributes:
        name: of the metric, as sacreBLEU writes it.
        value: in points of 100.
        signature: everything that the value depends on besides the text.
    """

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} {self.signature}"


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    metric: Metric = "bleu",
) -> Score:
    """Score detokenised translations.

    Args:
        hypotheses: one per sentence.
        references: one or more whole sets of references, each as long as `hypotheses`.
        metric: BLEU is cased and tokenises as WMT does (13a); chrF and TER are sacreBLEU's
            defaults.

    Raises:
        MtkitError: if the numbers of lines differ, or there are none.
    """
    for reference in references:
        if len(reference) != len(hypotheses):
            raise MtkitError(
                f"{len(hypotheses)} translations do not line up with {len(reference)} references"
            )
    if not hypotheses:
        raise MtkitError("there is nothing to score: 0 translations")
    # Imported here, because `mtkit translate` needs none of it.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    scorer = {"bleu": BLEU, "chrf": CHRF, "ter": TER}[metric]()
    result = scorer.corpus_score(list(hypotheses), [list(r) for r in references])
    return Score(result.name, float(result.score), str(scorer.get_signature()))
