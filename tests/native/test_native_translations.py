"""The native engine as a library: large settings, and the memory of models and batches."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.program import printed

from mtkit.model import Transformer
from mtkit.native import NativeModel
from mtkit.search_settings import Constraints, Sampling, SearchSettings, uniforms
from mtkit.tokenizer import BOS_ID, EOS_ID

Draw = Callable[..., Transformer]
ToNative = Callable[..., NativeModel]
SENTENCES = [[5, 6, 7, EOS_ID], [8, EOS_ID], [EOS_ID], [9, 4, 4, 10, 11, 5, EOS_ID]]
LIMIT = 25
SETTINGS = SearchSettings([LIMIT] * len(SENTENCES), BOS_ID, EOS_ID, 0.6)


@pytest.mark.parametrize("large", [2**31, 2**32 + 1, 10**18])
def test_settings_above_32_bits_mean_what_less_that_is_enough_means(large, draw, to_native):
    native = to_native(draw())
    random = uniforms(1, range(len(SENTENCES)), n_samples=2, steps=LIMIT)

    def found(number: int) -> list[object]:
        repeats, long = (
            replace(SETTINGS, constraints=constraints)
            for constraints in (Constraints(no_repeat_ngram=number), Constraints(min_length=number))
        )
        sampling = Sampling(top_k=number)
        return [
            native.translate(SENTENCES, repeats),
            native.translate(SENTENCES, long, beam_size=3),
            native.translate(SENTENCES, SETTINGS, sampling=sampling, uniforms=random),
        ]

    assert found(large) == found(native.vocab_size)


# A program that holds two models and drops one of them.
HOLDING = """
import random
from support.hostile_engine import V, small_config, weights_of
from mtkit import native
from mtkit.native.library import library
free = library().mtkit_free
library().mtkit_free = lambda model: (free(model), print("freed", flush=True))
config = small_config(random.Random(1))
models = [native.NativeModel(weights_of(config, random.Random(1)), config, V) for _ in range(2)]
decoding = models[0].start([[1]], 1)
models.pop()
print("end", flush=True)
"""


def test_a_model_is_freed_when_it_is_dropped_but_not_at_exit():
    """A daemon thread may still be in the engine then."""
    assert printed("-c", HOLDING) == "freed\nend\n"


# A program that encodes batches in a thread; it prints the memory (KiB) that it needed at most, and
# what it holds at the end, both above what it holds after a small batch.
ENCODING = """
import random
from concurrent.futures import ThreadPoolExecutor
from support.hostile_engine import V, small_config, weights_of
from mtkit import native
def memory(file, name):
    lines = open(f"/proc/self/{file}").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
config = small_config(random.Random(1))
model = native.NativeModel(weights_of(config, random.Random(1)), config, V)
def encode(count):
    model.start([[5] * 20 + [1]] * count, 4)
held = []
with ThreadPoolExecutor(1) as pool:
    for count in (10, 500, 1000, 2000, 4000, 4000, 500):
        pool.submit(encode, count).result()
        held.append(memory("smaps_rollup", "Rss:"))
print(memory("status", "VmHWM:") - held[0], held[-1] - held[0])
"""


def test_a_thread_does_not_keep_the_memory_of_its_largest_batch():
    most, held = map(int, printed("-c", ENCODING).split())
    assert most > 30_000
    assert held < most / 10


def test_a_limit_above_32_bits_is_too_much_memory_or_no_limit(draw: Draw, to_native: ToNative):
    # It ends at once: no token is possible.
    nothing = Constraints(forbidden=range(70))
    settings = replace(SETTINGS, max_lengths=[10**18], constraints=nothing)
    with contextlib.suppress(MemoryError):
        assert to_native(draw()).translate([[EOS_ID]], settings) == [[]]
