"""Learning the vocabularies of a corpus, and how its sides differ in subwords."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from mtkit.base.errors import MtkitError
from mtkit.data import IntArray
from mtkit.prepare.corpus import Corpus
from mtkit.prepare.filters import LanguageOdds
from mtkit.prepare_config import PrepareConfig
from mtkit.tokenizer import Tokenizer, Vocabularies

log = logging.getLogger(__name__)

# The number of most frequent words of a side that the subwords are counted in, and how many are
# encoded at a time.
_TELLING = 100_000
_AT_A_TIME = 10_000


class DirectionWords(NamedTuple):
    """The words of a direction with their counts, as they are, and of its pairs with noise."""

    src: Mapping[str, int]
    tgt: Mapping[str, int]
    noisy_src: Mapping[str, int]
    noisy_tgt: Mapping[str, int]


def _weighted_sum(
    side: int, words: Sequence[DirectionWords], factors: Sequence[float]
) -> Mapping[str, int]:
    """The words of a side, with and without noise; the counts of each direction are multiplied."""
    parts = [
        (of_text, factor)
        for of_direction, factor in zip(words, factors, strict=True)
        for of_text in (of_direction[side], of_direction[side + 2])
        if of_text
    ]
    if len(parts) == 1:  # of the largest direction, whose factor is 1
        return parts[0][0]
    summed: Counter[str] = Counter()
    for of_text, factor in parts:
        for word, count in of_text.items():
            summed[word] += math.ceil(count * factor)
    return summed


def learn_vocabularies(
    words: Sequence[DirectionWords], factors: Sequence[float], config: PrepareConfig, corpus: Corpus
) -> Vocabularies:
    """Learn the vocabularies from the words of each direction, whose counts have these factors.

    The target vocabulary of a parser has a subword for each bracket, unless it has a size of its
    own. Raises as `Tokenizer.learn_from_counts`.
    """
    src, tgt = (_weighted_sum(side, words, factors) for side in (0, 1))
    log.info(
        "learning subwords%s from %s different words",
        "" if config.shared_vocab else " of each side",
        f"{len(src.keys() | tgt.keys()):,}",
    )
    languages: dict[str, Any] = {"languages": corpus.tagged_languages}
    languages |= {"scheme": corpus.tags or "source"}
    tags = {**languages, "corpus_tags": corpus.corpus_tags}
    if config.shared_vocab:
        both = Counter(src)
        both.update(tgt)
        return Vocabularies.joint(_learn(both, config.vocab_size, config, tags))
    tgt_size = config.tgt_vocab_size or (None if corpus.is_parsing else config.vocab_size)
    return Vocabularies(
        _learn(src, config.src_vocab_size or config.vocab_size, config, tags, "src"),
        _learn(tgt, tgt_size, config, languages if corpus.tags == "both" else {}, "tgt"),
    )


def _learn(
    words: Mapping[str, int],
    size: int | None,
    config: PrepareConfig,
    tags: Mapping[str, Any],
    side: Literal["src", "tgt"] | None = None,
) -> Tokenizer:
    """The vocabulary of a side, or of both; without a size, a subword for each word."""
    try:
        return Tokenizer.learn_from_counts(
            words.items(),
            size,
            model_type="bpe" if size is None else config.model_type,
            symbols=config.user_defined_symbols,
            **tags,
        )
    except MtkitError as error:
        message = str(error)
        if side is not None:
            message = f"{'source' if side == 'src' else 'target'} side: {message}"
            if getattr(config, f"{side}_vocab_size") is not None:
                message = message.replace("--vocab-size ", f"--set {side}_vocab_size=")
        raise MtkitError(message) from error


def language_odds(
    vocabularies: Vocabularies, src: Mapping[str, int], tgt: Mapping[str, int]
) -> tuple[LanguageOdds, LanguageOdds]:
    """The odds of the subwords of each side, from the words of both sides and their counts."""
    # Both sides segmented with each vocabulary; a joint vocabulary is the same for both.
    counts = {
        tokenizer: [piece_counts(tokenizer, words) for words in (src, tgt)]
        for tokenizer in vocabularies.distinct
    }
    src_odds, tgt_odds = (
        LanguageOdds.from_counts(counts[tokenizer][side], counts[tokenizer][1 - side])
        for side, tokenizer in enumerate(vocabularies)
    )
    return src_odds, tgt_odds


def piece_counts(tokenizer: Tokenizer, words: Mapping[str, int]) -> IntArray:
    """(V,): how often each subword occurs, given the counts of the words."""
    counts = np.zeros(len(tokenizer))
    # Rare words are included, because frequent words consist of few subwords and rarely contain the
    # short ones. But not the hundreds of thousands of words of a large corpus.
    rest = iter(heapq.nsmallest(_TELLING, words.items(), key=lambda item: (-item[1], item[0])))
    while part := list(itertools.islice(rest, _AT_A_TIME)):
        ids = tokenizer.encode_batch([word for word, _ in part])
        weights = np.repeat([count for _, count in part], [len(of_word) for of_word in ids])
        counts += np.bincount(
            list(itertools.chain.from_iterable(ids)), weights, minlength=len(tokenizer)
        )
    return counts.astype(np.int64)
