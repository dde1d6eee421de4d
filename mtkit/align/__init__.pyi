from .aligner import (
    Aligner as Aligner,
    AlignmentHead as AlignmentHead,
    AlignmentSettings as AlignmentSettings,
    PairAttention as PairAttention,
    all_heads as all_heads,
    choose_heads as choose_heads,
    default_heads as default_heads,
    heads_of as heads_of,
)
from .attention_weights import (
    LayerWeights as LayerWeights,
    TorchAttention as TorchAttention,
    weights_of_pairs as weights_of_pairs,
)
from .links import (
    METHODS as METHODS,
    Alignment as Alignment,
    AlignmentScore as AlignmentScore,
    Gold as Gold,
    Link as Link,
    Links as Links,
    Method as Method,
    Spans as Spans,
    alignment_score as alignment_score,
    index_doubt as index_doubt,
    parse_links as parse_links,
    refuse_words as refuse_words,
    score_links as score_links,
    swapped as swapped,
    unit_spans as unit_spans,
    word_spans as word_spans,
    words_of_subwords as words_of_subwords,
)
