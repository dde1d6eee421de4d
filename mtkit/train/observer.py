"""The facts about a run that `diagnostics` judges."""

from __future__ import annotations

from collections.abc import Sequence

from mtkit.config import Config
from mtkit.data import PreparedData, SentencePairs
from mtkit.tokenizer import Tokenizer
from mtkit.train.diagnostics import Trained, Validated, findings, frequency_loss
from mtkit.train.flops import Spent
from mtkit.train.validation import Validation


class Observer:
    """Collects the facts that `diagnostics` judges, the expensive ones once.

    Args:
        config: of the run.
        data: that it trains on.
    """

    def __init__(self, config: Config, data: PreparedData) -> None:
        self._config = config
        self._pairs = data.pairs("train")
        self._tokenizers = data.tokenizers()
        self._valid_pairs = data.pairs("valid")
        self._valid_text = data.text("valid")
        self._counted: tuple[int, float] | None = None

    def findings(
        self,
        validation: Validation,
        earlier: Sequence[float],
        *,
        step: int,
        spent: Spent,
        losses: Sequence[float],
    ) -> list[str]:
        """What stands out after a validation, in plain sentences; see `diagnostics.findings`.

        Args:
            validation: the newest.
            earlier: losses of the validations before, oldest first.
            step: updates so far.
            spent: what they cost.
            losses: recent training losses per target token, oldest first.
        """
        if self._counted is None:
            self._counted = count_subwords(self._pairs, self._tokenizers)
        unseen, by_frequency = self._counted
        src_tokenizer, tokenizer = self._tokenizers
        trained = Trained(
            steps=step,
            mean_tokens_per_update=spent.tokens / step,
            epochs=spent.tokens / self._pairs.epoch_tokens(),
            unseen_pieces=unseen,
            vocab_size=len(tokenizer),
            src_vocab_size=None if src_tokenizer is tokenizer else len(src_tokenizer),
            losses=losses,
            valid_loss=validation.loss,
            earlier_valid_losses=earlier,
            frequency_loss=by_frequency,
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
    pairs: SentencePairs, tokenizers: tuple[Tokenizer, Tokenizer]
) -> tuple[int, float]:
    """Count the subwords of the training data.

    Returns:
        How many subwords of the vocabularies never occur, without special and byte pieces, which
        need not; and what guessing target tokens by their frequency scores, see `frequency_loss`.
    """
    src_tokenizer, tokenizer = tokenizers
    src_counts = pairs.src.counts(len(src_tokenizer))
    tgt_counts = pairs.tgt.counts(len(tokenizer))
    counts = (
        [(tokenizer, src_counts + tgt_counts)]
        if src_tokenizer is tokenizer
        else [(src_tokenizer, src_counts), (tokenizer, tgt_counts)]
    )
    unseen = sum(int((count[of.fixed_pieces :] == 0).sum()) for of, count in counts)
    return unseen, frequency_loss(tgt_counts)
