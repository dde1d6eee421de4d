"""Updates that a thread prepares are those of the stream, in its order."""

import threading

import numpy as np
import pytest

from mtkit.batches import TokenBatches
from mtkit.data import PreparedData
from mtkit.train.prefetch import Prefetcher


def stream(data: PreparedData) -> TokenBatches:
    return TokenBatches(data.pairs("train"), budget=200, per_update=2, seed=1)


def test_the_updates_are_those_of_the_stream_with_its_positions(tiny_data: PreparedData):
    plain = stream(tiny_data)
    steps = []

    def prepare(batches, step):
        steps.append(step)
        return [(step, list(batches))]

    # Some epochs.
    with Prefetcher(stream(tiny_data), prepare, done=3, last=43) as updates:
        for step in range(4, 44):
            update, wanted = updates.next(), next(plain)
            assert update.position == plain.state_dict()
            assert len(update.batches) == len(wanted)
            assert all(map(np.array_equal, update.batches, wanted))
            assert update.own == [(step, update.batches)]
    assert plain.epoch > 1
    assert steps == list(range(4, 44))


def test_an_error_does_not_wait_for_the_thread(tiny_data: PreparedData):
    begun, released, ended = threading.Event(), threading.Event(), threading.Event()

    def prepare(batches, step):
        if step == 2:
            begun.set()
            released.wait(600)
            ended.set()
        return []

    with (  # noqa: PT012 - the context must end while the thread works
        pytest.raises(KeyboardInterrupt),
        Prefetcher(stream(tiny_data), prepare, done=0, last=3) as updates,
    ):
        updates.next()
        assert begun.wait(600)
        raise KeyboardInterrupt
    assert not ended.is_set()
    released.set()
    assert ended.wait(600)


def test_an_update_is_prepared_while_the_one_before_it_is_computed(tiny_data: PreparedData):
    prepared = [threading.Event() for _ in range(4)]

    def prepare(batches, step):
        prepared[step].set()
        return []

    with Prefetcher(stream(tiny_data), prepare, done=0, last=3) as updates:
        updates.next()
        assert prepared[2].wait(60)
        updates.next()
        assert prepared[3].wait(60)


def test_an_error_in_preparing_is_raised_where_the_update_is_taken(tiny_data: PreparedData):
    def prepare(batches, step):
        if step == 2:
            raise MemoryError("no room")
        return []

    with Prefetcher(stream(tiny_data), prepare, done=0, last=3) as updates:
        updates.next()
        with pytest.raises(MemoryError, match="no room"):
            updates.next()
