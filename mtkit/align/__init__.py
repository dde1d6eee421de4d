"""Word alignments. `links` is plain text and numbers; the aligner loads PyTorch on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtkit.base.lazy import lazy_names

if TYPE_CHECKING:
    from mtkit.align.aligner import (
        Aligner,
        AlignmentHead,
        AlignmentSettings,
        all_heads,
        choose_heads,
        default_heads,
        heads_of,
    )
    from mtkit.align.attention_weights import LayerWeights, weights_of_pairs
    from mtkit.align.links import (
        METHODS,
        Alignment,
        AlignmentScore,
        Gold,
        Link,
        Links,
        Method,
        Spans,
        alignment_score,
        index_doubt,
        parse_links,
        read_golds,
        refuse_words,
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
    "index_doubt",
    "parse_links",
    "read_golds",
    "refuse_words",
    "swapped",
    "weights_of_pairs",
    "word_spans",
    "words_of_subwords",
]

# The aligner loads PyTorch, so it is last.
__getattr__ = lazy_names(__name__, __all__, "links", "attention_weights", "aligner")
