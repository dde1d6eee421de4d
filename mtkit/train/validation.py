"""The result of a validation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mtkit.translate import Translation


@dataclass(frozen=True)
class Validation:
    """The scores and translations of the validation set.

    Attributes:
        loss: natural-logarithm cross-entropy per target token, without smoothing.
        bleu, chrf: of the greedy translations, on detokenised text.
        translations: of every line.
    """

    loss: float
    bleu: float
    chrf: float
    translations: list[Translation]

    @property
    def perplexity(self) -> float:
        """e to the loss, per subword."""
        return math.exp(min(self.loss, 700.0))

    def row(self) -> dict[str, float]:
        """Its row of metrics, without the step."""
        return {
            "valid_loss": self.loss,
            "valid_perplexity": self.perplexity,
            "valid_bleu": self.bleu,
            "valid_chrf": self.chrf,
        }
