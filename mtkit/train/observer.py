"""Collects the facts about a run that `diagnostics` needs."""

from __future__ import annotations

from collections.abc import Sequence

from mtkit.config import Config
from mtkit.data import SentencePairs
from mtkit.tokenizer import Vocabularies
from mtkit.train.diagnostics import Trained, Validated, findings, frequency_loss
from mtkit.train.flops import TrainingCost
from mtkit.train.validation import Validation


class Observer:
    """Collects the facts that `diagnostics` needs, the expensive ones only once.

    Args:
        config: of the run.
        vocabularies: of both sides.
        pairs: that it trains on.
        valid_pairs, valid_text: of the validation set; the text is sources and references.
    """

    def __init__(
        self,
        config: Config,
        vocabularies: Vocabularies,
        pairs: SentencePairs,
        valid_pairs: SentencePairs,
        valid_text: tuple[Sequence[str], Sequence[str]],
    ) -> None:
        self._config = config
        self._vocabularies = vocabularies
        self._pairs = pairs
        self._valid_pairs = valid_pairs
        self._valid_text = valid_text
        self._counted: tuple[int, float] | None = None

    def findings(
        self,
        validation: Validation,
        earlier: Sequence[float],
        *,
        step: int,
        cost: TrainingCost,
        losses: Sequence[float],
        initial: float | None,
    ) -> list[str]:
        """The problems after a validation, in sentences; see `diagnostics.findings`.

        Args:
            validation: the newest validation.
            earlier: losses of the validations before, oldest first.
            step: updates so far.
            cost: the cost of the updates.
            losses: recent training losses per target token, oldest first.
            initial: the validation loss at step 0, where training starts from another run.
        """
        share_matrix = self._config.model.shared_embedding
        if self._counted is None:
            self._counted = count_subwords(
                self._pairs, self._vocabularies, share_matrix=share_matrix
            )
        unseen, by_frequency = self._counted
        trained = Trained(
            steps=step,
            mean_tokens_per_update=cost.tokens / step,
            epochs=cost.tokens / self._pairs.epoch_tokens(),
            unseen_pieces=unseen,
            vocab_size=len(self._vocabularies.tgt),
            src_vocab_size=None if share_matrix else self._vocabularies.own_src_size,
            losses=losses,
            valid_loss=validation.loss,
            earlier_valid_losses=earlier,
            frequency_loss=by_frequency,
            initial_valid_loss=initial,
        )
        src, tgt = self._valid_text
        limit = self._config.decode.max_source_tokens
        validated = Validated(
            src=src,
            tgt=tgt,
            hyp=[translation.text for translation in validation.translations],
            cut=[not translation.finished for translation in validation.translations],
            cut_src=int((self._valid_pairs.src.lengths > limit).sum()),
        )
        return findings(self._config, trained, validated)


def count_subwords(
    pairs: SentencePairs, vocabularies: Vocabularies, *, share_matrix: bool
) -> tuple[int, float]:
    """Count the subwords of the training data.

    Args:
        pairs: the training data.
        vocabularies: of both sides.
        share_matrix: whether two vocabularies have the same rows of one embedding,
            `model.shared_embedding`.

    Returns:
        The number of subwords that never occur, without special and byte subwords; and the loss of
        guessing target tokens by frequency, see `frequency_loss`.
    """
    src_counts = pairs.src.counts(len(vocabularies.src))
    tgt_counts = pairs.tgt.counts(len(vocabularies.tgt))
    counts = [(vocabularies.src, src_counts), (vocabularies.tgt, tgt_counts)]
    if vocabularies.is_joint or share_matrix:
        counts = [(vocabularies.tgt, src_counts + tgt_counts)]
    unseen = sum(int((count[tokenizer.fixed_pieces :] == 0).sum()) for tokenizer, count in counts)
    return unseen, frequency_loss(tgt_counts)
