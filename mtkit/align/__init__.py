"""Word alignments. `links` is plain text and numbers; the aligner loads PyTorch on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

if TYPE_CHECKING:
    from mtkit.align.aligner import (
        Aligner,
        Alignment,
        AlignmentHead,
        AlignmentSettings,
        Spans,
        all_heads,
        choose_heads,
        default_heads,
        heads_of,
    )
    from mtkit.align.attention_weights import LayerWeights, weights_of_pairs
    from mtkit.align.links import (
        METHODS,
        AlignmentScore,
        Gold,
        Link,
        Links,
        Method,
        alignment_score,
        parse_gold,
        parse_links,
        swapped,
        word_spans,
        words_of_subwords,
    )

__all__ = [
    "METHODS",
    "Aligner",
    "Alignment",
    "AlignmentHead",
    "AlignmentScore",
    "AlignmentSettings",
    "Gold",
    "LayerWeights",
    "Link",
    "Links",
    "Method",
    "Spans",
    "alignment_score",
    "all_heads",
    "choose_heads",
    "default_heads",
    "heads_of",
    "parse_gold",
    "parse_links",
    "swapped",
    "weights_of_pairs",
    "word_spans",
    "words_of_subwords",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Aligner": "mtkit.align.aligner",
        "Alignment": "mtkit.align.aligner",
        "AlignmentHead": "mtkit.align.aligner",
        "AlignmentScore": "mtkit.align.links",
        "AlignmentSettings": "mtkit.align.aligner",
        "Gold": "mtkit.align.links",
        "LayerWeights": "mtkit.align.attention_weights",
        "Link": "mtkit.align.links",
        "Links": "mtkit.align.links",
        "METHODS": "mtkit.align.links",
        "Method": "mtkit.align.links",
        "Spans": "mtkit.align.aligner",
        "alignment_score": "mtkit.align.links",
        "all_heads": "mtkit.align.aligner",
        "choose_heads": "mtkit.align.aligner",
        "default_heads": "mtkit.align.aligner",
        "heads_of": "mtkit.align.aligner",
        "parse_gold": "mtkit.align.links",
        "parse_links": "mtkit.align.links",
        "swapped": "mtkit.align.links",
        "weights_of_pairs": "mtkit.align.attention_weights",
        "word_spans": "mtkit.align.links",
        "words_of_subwords": "mtkit.align.links",
    },
)
