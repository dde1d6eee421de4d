"""What an output of the search must and must not contain, whatever the model finds probable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]


class TokenMask(Protocol):
    """Which tokens may follow in the hypotheses of one sentence.

    A hypothesis has a state, of any type, which is never changed: the hypotheses that continue it
    share it.
    """

    def start(self) -> Any:
        """The state of a hypothesis without tokens."""

    def advance(self, state: Any, token: int) -> Any:
        """The state after one more token, which was allowed; EOS never comes here."""

    def allowed(self, state: Any) -> Array:
        """(V,): whether each token may follow."""


@dataclass(frozen=True)
class Constraints:
    """Constraints on outputs; the reported probabilities are still the model's.

    Attributes:
        min_length: minimum number of tokens before EOS.
        no_repeat_ngram: no n-gram of this size occurs twice in an output; 0 allows all.
        prefixes: per sentence, the tokens that the output begins with; None for no prefix.
        masks: per sentence, which tokens may follow, regardless of the other constraints; None to
            allow all.
        forbidden: tokens that are never in an output.
    """

    min_length: int = 0
    no_repeat_ngram: int = 0
    prefixes: Sequence[Sequence[int]] | None = None
    masks: Sequence[TokenMask] | None = None
    forbidden: Sequence[int] = ()
