"""Batches: every pair once in an epoch, in an order that seed and lengths decide."""

import itertools
import json
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mtkit import batch_plan
from mtkit.base.errors import MtkitError
from mtkit.batch_plan import plan_batches
from mtkit.batches import TokenBatches, make_batch, pad_ids, split
from mtkit.data import IntArray, PreparedData, SentencePairs, TokenArray, Weighted

PAD, BOS, EOS = 0, 1, 2


def sentence_pairs(src: list[int], tgt: list[int]) -> SentencePairs:
    """Pairs of these lengths; every token of the pair i is 4 + i, but for the ends."""

    def side(lengths):
        ids = [[4 + i] * (length - 1) + [EOS] for i, length in enumerate(lengths)]
        flat = np.array([token for sentence in ids for token in sentence], np.uint16)
        return TokenArray(flat, np.array(lengths, np.uint32))

    return SentencePairs(side(src), side(tgt))


def random_pairs(count: int, seed: int = 0) -> SentencePairs:
    src, tgt = np.random.default_rng(seed).integers(2, 30, (2, count))
    return sentence_pairs(src.tolist(), tgt.tolist())


def weighted(pairs: SentencePairs, *sources: tuple[int, float]) -> SentencePairs:
    """The pairs, from sources of so many and of such weights."""
    return SentencePairs(
        pairs.src, pairs.tgt, tuple(Weighted(kept=kept, weight=weight) for kept, weight in sources)
    )


def take(batches: TokenBatches, count: int) -> list[list[list[int]]]:
    """The pairs of the next updates, batch by batch."""
    return [[indices.tolist() for indices in update] for update in itertools.islice(batches, count)]


def epoch_of(batches: TokenBatches) -> list[list[int]]:
    """The batches of an epoch, where every update has one."""
    assert batches.per_update == 1
    return [update[0] for update in take(batches, int(batches.updates_in_epoch))]


def test_a_batch_is_what_it_is_by_hand():
    src = TokenArray(np.array([5, 6, EOS, 7, EOS], np.uint16), np.array([3, 2]))
    tgt = TokenArray(np.array([8, EOS, 9, 10, 11, EOS], np.uint16), np.array([2, 4]))
    batch = make_batch(SentencePairs(src, tgt), np.array([1, 0]))
    assert batch.src.tolist() == [[7, EOS, PAD], [5, 6, EOS]]
    assert batch.tgt_in.tolist() == [[BOS, 9, 10, 11], [BOS, 8, PAD, PAD]]
    assert batch.tgt_out.tolist() == [[9, 10, 11, EOS], [8, EOS, PAD, PAD]]
    assert batch.num_tokens == 6
    assert {t.dtype for t in (batch.src, batch.tgt_in, batch.tgt_out)} == {torch.int64}


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=70), data=st.data())
def test_every_sentence_is_found_wherever_it_is(lengths, data):
    ids = np.arange(100, 100 + sum(lengths), dtype=np.uint16)
    array = TokenArray(ids, np.array(lengths, np.uint32))
    sentences = [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]
    assert [array[i] for i in range(len(array))] == sentences
    some = data.draw(st.lists(st.sampled_from(range(len(lengths))), max_size=9))
    widest = max((lengths[i] for i in some), default=0)
    expected = [sentences[i] + [PAD] * (widest - lengths[i]) for i in some]
    assert array.padded(np.array(some, np.int64)).tolist() == expected


def test_ids_are_padded_to_the_longest_sentence():
    assert pad_ids([[5, 6], [], [7, 8, 9]]).tolist() == [[5, 6, 0], [0, 0, 0], [7, 8, 9]]
    assert pad_ids([[]]).shape == (1, 0)


def test_lengths_are_read_where_they_lie():
    lengths = np.full(1000, 3, np.uint32)
    array = TokenArray(np.zeros(3000, np.uint16), lengths)
    assert np.shares_memory(array.lengths, lengths)
    # Differences of them must have a sign.
    assert (array.lengths[:1] - array.lengths[:1] - 1).tolist() == [-1]


LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=120)


def plainly_planned(
    src: IntArray, tgt: IntArray, budget: int, rng: np.random.Generator | None
) -> list[list[int]]:
    """What `plan_batches` is to give, one pair at a time."""
    order = list(range(len(src)) if rng is None else rng.permutation(len(src)).tolist())

    def key(i):
        longest, difference = max(src[i], tgt[i]), src[i] - tgt[i]
        return longest, difference if longest % 2 else -difference

    batches: list[list[int]] = []
    for i in sorted(order, key=key):
        if not batches or (len(batches[-1]) + 1) * key(i)[0] > budget:
            batches.append([])
        batches[-1].append(i)
    return batches if rng is None else [batches[i] for i in rng.permutation(len(batches))]


@given(
    lengths=LENGTHS,
    budget=st.integers(40, 400),
    seed=st.none() | st.integers(0, 9),
    dtype=st.sampled_from([np.int32, np.int64]),
    # As if numbers had so few bits that a key and a place need two of them.
    bits=st.sampled_from([64, 8]),
)
def test_a_plan_is_the_plain_one_to_the_last_pair(lengths, budget, seed, dtype, bits):
    src, tgt = np.array(lengths, dtype).reshape(-1, 2).T
    ours, plain = (None if seed is None else np.random.default_rng(seed) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_plan, "_KEY_BITS", bits)
        # So that there are several blocks.
        patch.setattr(batch_plan, "_BLOCK", 16)
        plan = plan_batches(src, tgt, budget=budget, rng=ours)
    expected = plainly_planned(src, tgt, budget, plain)
    assert [batch.tolist() for batch in plan] == expected
    assert [batch.tolist() for batch in list(plan)[1::2]] == expected[1::2]
    if ours is not None and plain is not None:
        assert ours.bit_generator.state == plain.bit_generator.state


def test_a_plan_takes_sixteen_bytes_a_pair_and_keeps_four():
    count = 500_000
    src, tgt = (side.astype(np.int32) for side in realistic_lengths(count))
    tracemalloc.start()
    try:
        plan = plan_batches(src, tgt, budget=3125, rng=np.random.default_rng(1))
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Besides a few bytes for each batch, and what a block takes.
    assert kept <= 4.2 * count
    assert most <= 16 * count + 8 * 2**20
    assert sum(map(len, plan)) == count


def realistic_lengths(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths as in news text: 26 tokens on average, the sides within some 20 % of each other."""
    rng = np.random.default_rng(5)
    src = np.clip(rng.gamma(2.6, 10.0, count).astype(np.int64) + 2, 2, 256)
    return src, np.clip((src * rng.lognormal(0.03, 0.2, count)).astype(np.int64) + 1, 2, 256)


@pytest.mark.parametrize(("count", "budget"), [(50_000, 1500), (100_000, 3125), (300_000, 3125)])
def test_nearly_all_slots_hold_tokens_on_both_sides(count, budget):
    src, tgt = realistic_lengths(count)
    plan = plan_batches(src, tgt, budget=budget, rng=np.random.default_rng(1))
    for lengths in (src, tgt):
        slots = sum(len(indices) * lengths[indices].max() for indices in plan)
        assert lengths.sum() >= 0.97 * slots
    # And the batches are about as large as they may be.
    longest = np.maximum(src, tgt)
    slots = sum(len(indices) * longest[indices].max() for indices in plan)
    assert slots >= 0.97 * budget * len(plan)


def test_a_pair_occurs_in_an_epoch_as_often_as_the_weight_of_its_source_says():
    pairs = weighted(random_pairs(15), (4, 1.0), (3, 2.0), (0, 7.0), (8, 0.25))
    batches = TokenBatches(pairs, budget=60, seed=1)
    chosen = set()
    for epoch in range(30):
        assert batches.epoch == epoch
        seen = Counter(itertools.chain.from_iterable(epoch_of(batches)))
        assert [seen[i] for i in range(7)] == [1, 1, 1, 1, 2, 2, 2]
        few = tuple(i for i in seen if i >= 7)
        assert [seen[i] for i in few] == [1, 1]
        chosen.update(few)
    # Each in its turn.
    assert chosen == set(range(7, 15))


SOURCES = st.lists(st.tuples(st.integers(0, 30), st.floats(0.05, 3.0)), min_size=1, max_size=4)


@given(sources=SOURCES, seed=st.integers(0, 9))
def test_weights_are_kept_to_the_pair(sources, seed):
    count = sum(pairs for pairs, _ in sources)
    expected = [int(w) * n + round((w - int(w)) * n) for n, w in sources]
    pairs = weighted(random_pairs(count), *sources)
    if sum(expected) == 0:
        with pytest.raises(MtkitError, match=r"no training pairs|weights"):
            TokenBatches(pairs, budget=90, seed=seed)
        return
    seen = Counter(
        itertools.chain.from_iterable(epoch_of(TokenBatches(pairs, budget=90, seed=seed)))
    )
    start = 0
    for (n, weight), occurrences in zip(sources, expected, strict=True):
        own = [seen[i] for i in range(start, start + n)]
        assert sum(own) == occurrences
        assert {*own} <= {int(weight), int(weight) + 1}
        start += n


def test_weights_of_one_change_nothing():
    pairs = random_pairs(150)
    ones = weighted(pairs, (100, 1.0), (50, 1.0))
    plain, same = (take(TokenBatches(p, budget=120, seed=1), 60) for p in (pairs, ones))
    assert plain == same


def test_tokens_of_an_epoch_count_as_often_as_they_occur():
    pairs = sentence_pairs([5, 5, 5, 5], [2, 3, 7, 9])
    assert pairs.epoch_tokens() == 21
    assert weighted(pairs, (2, 3.0), (2, 0.5)).epoch_tokens() == 3 * 5 + 16 // 2


def test_the_weights_of_prepared_data_are_known_and_make_it_other_data(tiny_data):
    count = len(tiny_data.pairs("train"))

    def data(*sources):
        manifest = tiny_data.manifest.model_copy(update={"sources": {"train": list(sources)}})
        return PreparedData(tiny_data.path, manifest)

    # Prepared before there were weights, or before sources knew what was kept of them.
    for old in (data(), data({"pairs": 9}), data({"weight": 1.0}, {"pairs": 9, "kept": 3})):
        assert old.pairs("train").sources == ()
        assert old.fingerprint == tiny_data.fingerprint
    new = data({"kept": 30, "weight": 2.5}, {"kept": count - 30, "weight": 1.0})
    assert new.pairs("train").sources == (
        Weighted(kept=30, weight=2.5),
        Weighted(kept=count - 30, weight=1.0),
    )
    assert new.pairs("valid").sources == ()
    other = data({"kept": 30, "weight": 2.0}, {"kept": count - 30, "weight": 1.0})
    assert len({new.fingerprint, other.fingerprint, tiny_data.fingerprint}) == 3


@pytest.mark.parametrize("per_update", [1, 3])
def test_every_pair_appears_once_in_an_epoch_and_again_in_the_next(per_update):
    batches = TokenBatches(random_pairs(200), budget=120, per_update=per_update, seed=1)
    stream = itertools.chain.from_iterable(batches)
    for _ in range(3):
        seen: Counter[int] = Counter()
        while seen.total() < 200:
            seen.update(next(stream).tolist())
        assert seen == Counter(range(200))


def test_an_update_has_its_batches_even_where_an_epoch_ends_within_it():
    pairs = random_pairs(150)
    alone = itertools.chain.from_iterable(TokenBatches(pairs, budget=120, seed=1))
    for update in itertools.islice(TokenBatches(pairs, budget=120, per_update=4, seed=1), 60):
        assert [batch.tolist() for batch in update] == [next(alone).tolist() for _ in range(4)]


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), parts=st.integers(1, 12))
def test_split_batches_have_the_same_pairs_in_parts_of_about_one_size(sizes, parts):
    ends = np.cumsum([0, *sizes])
    batches = [np.arange(start, end) for start, end in itertools.pairwise(ends)]
    split_batches = split(batches, parts)
    assert len(split_batches) == parts * len(batches)
    assert np.concatenate(split_batches).tolist() == list(range(sum(sizes)))
    for place, batch in enumerate(batches):
        own = [len(part) for part in split_batches[place * parts : (place + 1) * parts]]
        assert sum(own) == len(batch)
        assert max(own) - min(own) <= 1


@given(lengths=LENGTHS.filter(bool), fits=st.integers(40, 200))
def test_parts_fit_and_one_fewer_would_not(lengths, fits):
    src, tgt = (list(side) for side in zip(*lengths, strict=True))
    batches = TokenBatches(sentence_pairs(src, tgt), budget=200, seed=1)
    longest = np.maximum(src, tgt)

    def largest(parts):
        plan = batches._plan
        return max(-(-len(indices) // parts) * longest[indices].max() for indices in plan)

    parts = batches.parts_that_fit(fits)
    assert largest(parts) <= fits
    assert parts == 1 or largest(parts - 1) > fits


def test_another_epoch_has_another_order_and_other_neighbours():
    batches = TokenBatches(random_pairs(150), budget=120, seed=1)
    first, second = epoch_of(batches), epoch_of(batches)
    assert batches.epoch == 2
    assert first != second
    assert {tuple(sorted(b)) for b in first} != {tuple(sorted(b)) for b in second}


@pytest.mark.parametrize("sources", [[], [(20, 1.7), (40, 0.6)]])
@pytest.mark.parametrize("per_update", [1, 3])
def test_a_stream_resumes_exactly_wherever_it_was_stopped(per_update, sources):
    pairs = weighted(random_pairs(60), *sources)

    def stream():
        return TokenBatches(pairs, budget=100, per_update=per_update, seed=3)

    epoch = int(stream().updates_in_epoch) + 1
    whole = take(stream(), 4 * epoch)
    # Every place of the first two epochs: the start, and both sides of the edge, among them.
    for stop in range(2 * epoch + 1):
        stopped = stream()
        assert take(stopped, stop) == whole[:stop]
        state = json.loads(json.dumps(stopped.state_dict()))
        resumed = stream()
        take(resumed, 2)
        resumed.load_state_dict(state)
        assert take(resumed, epoch) == whole[stop : stop + epoch]


@pytest.mark.parametrize("parts", [1, 3, 40])
def test_the_largest_part_is_the_largest_of_the_epoch(parts):
    pairs = random_pairs(150)
    batches = TokenBatches(pairs, budget=120, seed=1)

    def slots(batch):
        sides = (pairs.src, pairs.tgt)
        return len(batch) * sum(int(side.lengths[batch].max(initial=0)) for side in sides)

    largest = batches.largest(parts)
    epoch = [np.array(batch) for batch in epoch_of(batches)]
    assert slots(largest) == max(map(slots, split(epoch, parts)))


def test_every_id_is_counted():
    ids = np.random.default_rng(1).integers(0, 50, 5_000_000).astype(np.uint16)
    array = TokenArray(ids, np.array([len(ids)]))
    assert array.counts(60).tolist() == np.bincount(ids, minlength=60).tolist()
