"""Guided alignment: one attention head learns the word alignments of the training pairs.

The alignments come from an aligner (`mtkit prepare --alignments`). A head of cross-attention gets
one more loss: the cross-entropy of its weights against the links of the word it reads (Chen et al.
2016, https://arxiv.org/abs/1607.01628; Garg et al. 2019, https://aclanthology.org/D19-1453). The
head is read where the target subword is the decoder's input, so it knows the word that it aligns
(Chen et al. 2020, https://aclanthology.org/2020.emnlp-main.42).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtkit.batches import Batch
from mtkit.config import Config
from mtkit.data import IntArray, SentencePairs
from mtkit.errors import MtkitError
from mtkit.tokenizer import UNK_ID, Vocabularies


class GuidedAlignment:
    """The loss of the guided head of a run.

    Args:
        config: of the run.
        vocabularies: of its data.

    Attributes:
        weight: of the loss, beside that of the translation.
        layer: of the decoder, from 1; its first head is trained.
    """

    def __init__(self, config: Config, vocabularies: Vocabularies) -> None:
        self.weight = config.train.guided_alignment
        self.layer = config.guided_layer
        self._begins = [tokenizer.begins_word for tokenizer in vocabularies]

    @classmethod
    def of(
        cls, config: Config, pairs: SentencePairs, vocabularies: Vocabularies
    ) -> GuidedAlignment | None:
        """That of a run; None if its configuration has none.

        Raises:
            MtkitError: if the data has no word alignments.
        """
        if not config.train.guided_alignment:
            return None
        if pairs.links is None:
            raise MtkitError(
                "train.guided_alignment: the data was prepared without word alignments; set it to "
                "0, or prepare the data with --alignments"
            )
        return cls(config, vocabularies)

    def targets(self, batch: Batch, pairs: SentencePairs, indices: IntArray) -> Tensor:
        """What the head should attend to at each position of the decoder's input.

        Args:
            batch: on the CPU, of these pairs.
            pairs: with links.
            indices: of the pairs of the batch.

        Returns:
            (B, T, S): the subwords of all source words that the word of a position is linked with,
            in equal parts; zeros for BOS, padding, and words without links.
        """
        assert pairs.links is not None
        src_words, tgt_words = (
            _words(ids.numpy(), begins)
            for ids, begins in zip((batch.src, batch.tgt_in), self._begins, strict=True)
        )
        numbers, lengths = pairs.links.select(indices)
        of_pair = np.repeat(np.arange(len(indices)), lengths // 2)
        # One row and one column more, for what is not a word: -1 is their index.
        linked = np.zeros(
            (len(indices), tgt_words.max(initial=-1) + 2, src_words.max(initial=-1) + 2), np.float32
        )
        linked[of_pair, numbers[1::2], numbers[::2]] = 1.0
        place = np.arange(len(indices))[:, None, None]
        found = linked[place, tgt_words[:, :, None], src_words[:, None, :]]
        found /= np.maximum(found.sum(-1, keepdims=True), 1.0)
        return torch.from_numpy(found)


def _words(ids: IntArray, begins: npt.NDArray[np.bool_]) -> IntArray:
    """The number of the word of each subword of (B, length) ids; -1 for special ids."""
    words: IntArray = np.maximum(np.cumsum(begins[ids], axis=1) - 1, 0)
    words[ids <= UNK_ID] = -1
    return words


def alignment_loss(log_weights: Tensor, targets: Tensor) -> Tensor:
    """The summed cross-entropy of attention against links.

    Args:
        log_weights: (B, T, S), the logarithms of the weights of a head.
        targets: (B, T, S), as from `GuidedAlignment.targets`.
    """
    return -(log_weights * targets).sum()
