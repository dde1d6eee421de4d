from .public_test_sets import ScoredText as ScoredText, find_test_set as find_test_set
from .scores import (
    METRIC_NAMES as METRIC_NAMES,
    Metric as Metric,
    PAPER_NOTE as PAPER_NOTE,
    Score as Score,
    System as System,
    TextMetric as TextMetric,
    check_seed as check_seed,
    first_shift as first_shift,
    mutual_chrf as mutual_chrf,
    note_tokenised as note_tokenised,
    note_unspaced as note_unspaced,
    refuse_unequal as refuse_unequal,
    score as score,
    sentence_chrf as sentence_chrf,
    split_compounds as split_compounds,
)
from .segment_scores import (
    SegmentMetric as SegmentMetric,
    SegmentScore as SegmentScore,
    parse_scores as parse_scores,
)
