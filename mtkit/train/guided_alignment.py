"""Guided alignment: one attention head learns the word alignments of the training pairs.

The alignments come from an aligner, or from the trees of a treebank.
A head of cross-attention gets one more loss: the cross-entropy of its weights against the links of
the word it reads (Chen et al. 2016, https://arxiv.org/abs/1607.01628; Garg et al. 2019,
https://aclanthology.org/D19-1453). The head is read where the target subword is the decoder's
input, so it knows the word that it aligns (Chen et al. 2020,
https://aclanthology.org/2020.emnlp-main.42).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.batches import Batch
from mtkit.config import Config
from mtkit.data import IntArray, SentencePairs
from mtkit.model import CrossAttention, Transformer
from mtkit.packing import Mask, each_batch
from mtkit.tokenizer import EOS_ID, UNK_ID, Vocabularies

# The log-weights of the guided head that a thread has computed; None if it records none.
_recorded: ContextVar[list[Tensor] | None] = ContextVar("_recorded", default=None)


class GuidedAlignment:
    """The loss of the guided head of a run: the first head of the layer `config.guided_layer`.

    Raises:
        MtkitError: if the pairs have no word alignments.
    """

    def __init__(self, config: Config, pairs: SentencePairs, vocabularies: Vocabularies) -> None:
        if pairs.links is None:
            raise MtkitError(
                "train.guided_alignment: the data was prepared without word alignments; set it to "
                "0, or prepare the data with alignments"
            )
        self._layer = config.guided_layer
        self._begins = [torch.from_numpy(tokenizer.begins_word) for tokenizer in vocabularies]
        self._tags = [
            torch.tensor(tokenizer.tag_ids, dtype=torch.int64) for tokenizer in vocabularies
        ]

    def observe(self, model: Transformer) -> None:
        """Choose the model whose guided head `losses` is about."""
        attention = model.decoder_layers()[self._layer - 1].cross_attention
        attention.register_forward_pre_hook(self._record)

    def losses(
        self, compute: Callable[[], Tensor], targets: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The result of `compute`, a forward pass in this thread, and the loss of the guided head.

        The latter is (2,): the summed cross-entropy of the head's weights against `targets`,
        (B, T, S) of each batch, and the number of target subwords that it is summed over.
        """
        recorded: list[Tensor] = []
        before = _recorded.set(recorded)
        try:
            loss = compute()
        finally:
            _recorded.reset(before)
        of_batches = [
            torch.stack((-(log_weights * wanted).sum(), wanted.sum()))
            for log_weights, wanted in zip(recorded, targets, strict=True)
        ]
        return loss, sum(of_batches[1:], of_batches[0])

    def _record(
        self, attention: CrossAttention, args: tuple[Tensor, tuple[Tensor, Tensor], Mask]
    ) -> None:
        """Note the log-weights (B, T, S) of the head in each batch; they are finite everywhere."""
        if (recorded := _recorded.get()) is None:
            return
        x, (keys, _), mask = args
        wide = torch.promote_types(x.dtype, torch.float32)
        width = attention.q_width // attention.n_heads
        scale = attention.query_factor * width**-0.5
        # Small products of many shapes: in bfloat16 oneDNN would compile a kernel for each.
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = attention.q_proj.weight[:width], attention.q_proj.bias[:width]
            q = F.linear(x.to(wide), weight.to(wide), bias.to(wide))
            for (queries, k), own in each_batch(mask, q.unsqueeze(1), keys[:, :1].to(wide)):
                scores = torch.bmm(queries[:, 0], k[:, 0].transpose(1, 2)) * scale
                if own is not None:
                    scores = scores.masked_fill(~own[:, 0], torch.finfo(wide).min / 2)
                recorded.append(scores.log_softmax(-1))

    def targets(self, batch: Batch, pairs: SentencePairs, indices: IntArray) -> Tensor:
        """What the head should attend to at each position of the decoder's input: (B, T, S).

        The subwords of a linked word attend to all subwords of its source words, in equal parts;
        the subwords of a word without links attend to EOS, because an alignment then gives the word
        no partner. Rows sum to 1, or to 0 at BOS, at padding, and in a pair without any link.
        """
        assert pairs.links is not None
        src_words, tgt_words = (
            _words(ids, begins, tags)
            for ids, begins, tags in zip(
                (batch.src, batch.tgt_in), self._begins, self._tags, strict=True
            )
        )
        (B, T), S = tgt_words.shape, src_words.shape[1]
        numbers, lengths = pairs.links.select(indices)
        pair = np.repeat(np.arange(B), lengths // 2)
        # One more row and column than there can be words: for what is not a word.
        place = (pair * (T + 1) + numbers[1::2]) * (S + 1) + numbers[::2]
        linked = torch.zeros(B * (T + 1) * (S + 1))
        linked[torch.from_numpy(place)] = 1.0
        wanted = linked.view(B, T + 1, S + 1)[
            torch.arange(B)[:, None, None], tgt_words[:, :, None], src_words[:, None, :]
        ]
        has_links = torch.from_numpy(lengths > 0)[:, None]
        alone = has_links & (tgt_words < T) & ~wanted.any(-1)
        wanted += alone[:, :, None] * (batch.src == EOS_ID)[:, None, :]
        return wanted / wanted.sum(-1, keepdim=True).clamp_min(1.0)


def _words(ids: Tensor, begins: Tensor, tags: Tensor) -> Tensor:
    """The number of the word of each of (B, length) ids; `length` for special ids and tags."""
    words = (begins[ids].cumsum(1) - 1).clamp_min(0)
    return words.masked_fill((ids <= UNK_ID) | torch.isin(ids, tags), ids.shape[1])
