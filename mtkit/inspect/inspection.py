"""All that a model computes for one source and its translation, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from mtkit.align import Alignment, LayerWeights, weights_of_pairs
from mtkit.base.errors import MtkitError
from mtkit.batches import pad_ids
from mtkit.parsing import Parsing, Tree, linearise
from mtkit.tokenizer import BOS_ID, EOS_ID, Tokenizer
from mtkit.translate import Translator, Window

FloatArray = npt.NDArray[np.floating[Any]]
StackName = Literal["encoder", "decoder", "cross"]

# So many of the most probable subwords are shown at each position.
ALTERNATIVES = 5


@dataclass(frozen=True)
class Stack:
    """The attention of one stack: of the encoder, of the decoder to itself, or to the source.

    Attributes:
        queries, keys: the subwords of the rows and columns. A query of the decoder is its input.
        weights: (layers, H, queries, keys); rows sum to 1.
        sizes: (layers, H), how much each head adds to the output of its layer: the Euclidean norm,
            on average over the queries.
    """

    queries: list[str]
    keys: list[str]
    weights: FloatArray
    sizes: FloatArray

    @property
    def entropies(self) -> FloatArray:
        """(layers, H): the entropy of the weights in bits, on average over the queries.

        0 bits: each query attends to one key alone. log2(n) bits: to n keys alike.
        """
        w = self.weights
        bits = -np.where(w > 0, w * np.log2(np.where(w > 0, w, 1)), 0).sum(-1)
        mean: FloatArray = bits.mean(-1)
        return mean


@dataclass(frozen=True)
class Prediction:
    """The subword at one position of the translation, and the most probable ones there.

    Probabilities are those given the source and the subwords before.
    """

    subword: str
    probability: float
    alternatives: list[tuple[str, float]]


@dataclass(frozen=True)
class Inspection:
    """What a model computes for one pair.

    Attributes:
        predictions: for each subword of the translation, and for its end.
        positions: (positions, D), the position encoding, as far as the longer line goes.
        positions_kind: `sinusoidal`, `learned`, `words` or `none`.
        cut: subwords of source and translation that are left out, because a line is too long.
        tree: of a parser, the tree whose linearised form is the translation.
        aligned: layer and head, from 1, of the decoder's attention to the source that agrees most
            with the heads that align words.
    """

    source: str
    translation: str
    stacks: dict[StackName, Stack]
    predictions: list[Prediction]
    alignment: Alignment
    positions: FloatArray
    positions_kind: str
    cut: tuple[int, int]
    tree: Tree | None = None
    aligned: tuple[int, int] = (1, 1)

    def as_dict(self) -> dict[str, Any]:
        """All numbers, for JSON."""
        return {
            "source": self.source,
            "translation": self.translation,
            **({} if self.tree is None else {"tree": str(self.tree)}),
            "attention": {
                name: {
                    "queries": stack.queries,
                    "keys": stack.keys,
                    "weights": _rounded(stack.weights),
                    "sizes": _rounded(stack.sizes),
                    "entropies": _rounded(stack.entropies),
                }
                for name, stack in self.stacks.items()
            },
            "predictions": [
                {
                    "subword": prediction.subword,
                    "probability": round(prediction.probability, 6),
                    "alternatives": [[text, round(p, 6)] for text, p in prediction.alternatives],
                }
                for prediction in self.predictions
            ],
            "alignment": self.alignment.as_dict(),
            "positions": {"kind": self.positions_kind, "encoding": _rounded(self.positions)},
            "subwords_left_out": {"source": self.cut[0], "translation": self.cut[1]},
        }


def _rounded(values: FloatArray) -> list[Any]:
    rounded: list[Any] = np.round(values.astype(np.float64), 6).tolist()
    return rounded


@torch.no_grad()
def inspect_pair(
    translator: Translator, source: str, translation: str | None = None, *, number: int = 1
) -> Inspection:
    """Inspect a sentence and its translation.

    Of a parser, the source is then its words and the translation is the linearised tree.

    Args:
        translator: with one model.
        source: a line of the source language.
        translation: of the source, for a parser a tree in brackets; by default that of the model.
        number: of the line, for warnings and samples.

    Raises:
        MtkitError: if the source is blank, or a tree is malformed or not of this sentence.
        ValueError: for an ensemble.
    """
    if len(translator.models) > 1:
        raise ValueError("translator: has several models; inspect one of them")
    if not source.strip():
        raise MtkitError("the source is blank")
    model = translator.model
    if translation is None:
        ((_, ((best, *_),)),) = translator.translate_windows([Window(number, [source])])
        translation = best.text
    tree = None
    if isinstance(task := translator.task, Parsing):
        tree = task.tree(source, translation)
        source, translation = task.source_text(source), linearise(tree, tags=task.tags)
    src_tokenizer, tgt_tokenizer = translator.vocabularies
    limit = translator.runs.source_limit[0] - 1
    src_whole = [*translator.src_prefix, *src_tokenizer.encode(source)]
    tgt_whole = [*translator.runs.tgt_prefix, *tgt_tokenizer.encode(translation)]
    src, tgt = src_whole[:limit], tgt_whole[:limit]
    src_in = pad_ids([[*src, EOS_ID]]).to(translator.device)
    tgt_in = pad_ids([[BOS_ID, *tgt]]).to(translator.device)
    decoder_layers = range(model.config.decoder_layers)
    attention = weights_of_pairs(
        model,
        src_in,
        tgt_in,
        encoder=range(model.config.encoder_layers),
        decoder=decoder_layers,
        cross=decoder_layers,
        sizes=True,
    )
    src_pieces = [*map(src_tokenizer.piece, src), "</s>"]
    tgt_pieces = ["<s>", *map(tgt_tokenizer.piece, tgt)]
    # Of the heads that align words; without the end of the source, which heads attend to that have
    # nothing to align.
    heads = sorted({(head.layer, head.head) for head in translator.aligner().heads})
    stacks: dict[StackName, Stack] = {
        "encoder": _stack(attention.encoder, src_pieces, src_pieces),
        "decoder": _stack(attention.decoder, tgt_pieces, tgt_pieces),
        "cross": _stack(attention.cross, tgt_pieces, src_pieces),
    }
    cross = stacks["cross"].weights
    weights = np.stack([cross[layer - 1, head - 1, :, :-1] for layer, head in heads])
    probabilities = model(src_in, tgt_in)[0].float().softmax(-1).cpu()
    (alignment,) = translator.aligner().align([source], [translation], numbers=[number])
    longest = max(src_in.shape[1], tgt_in.shape[1])
    positions = model.positions(0, longest, like=model.embedding.weight)
    return Inspection(
        source,
        translation,
        stacks,
        _predictions(tgt_tokenizer, [*tgt, EOS_ID], probabilities),
        alignment,
        positions.float().cpu().numpy(),
        model.config.positions,
        (len(src_whole) - len(src), len(tgt_whole) - len(tgt)),
        tree,
        heads[int((weights * weights.mean(0)).sum((1, 2)).argmax())],
    )


def _stack(layers: dict[int, LayerWeights], queries: list[str], keys: list[str]) -> Stack:
    in_order = [layer for _, layer in sorted(layers.items())]
    weights = [layer.weights[0].cpu().numpy() for layer in in_order]
    sizes = [layer.sizes[0].mean(-1).cpu().numpy() for layer in in_order if layer.sizes is not None]
    return Stack(queries, keys, np.stack(weights), np.stack(sizes))


def _predictions(
    tokenizer: Tokenizer, ids: Sequence[int], probabilities: torch.Tensor
) -> list[Prediction]:
    """The prediction of each id, from probabilities (T, V)."""
    count = min(ALTERNATIVES, probabilities.shape[-1])
    best = probabilities.topk(count, dim=-1)
    return [
        Prediction(
            tokenizer.piece(token),
            float(row[token]),
            [(tokenizer.piece(i), value) for i, value in zip(places, values, strict=True)],
        )
        for token, row, places, values in zip(
            ids, probabilities, best.indices.tolist(), best.values.tolist(), strict=True
        )
    ]
