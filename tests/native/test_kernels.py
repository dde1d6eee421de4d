"""The native kernels against numpy in float64, and against each other to the last bit.

The plain kernels are C++ without vector instructions; the others must give the same bits.
"""

import ctypes
import itertools
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.engine_builds import ENGINE, compiled

from mtkit.native.library import library

FLOAT32, INT8, BF16 = 0, 1, 2
NONE, RELU, SILU = 0, 1, 2
NAMES = ["plain", "avx2", "vnni", "avx512bf16", "amx", "neon"]
HEADS = [(4, 16, 16), (2, 32, 32), (3, 48, 48), (2, 64, 64), (2, 24, 24), (2, 20, 40)]
Floats = NDArray[np.float32]


def pointer(array: NDArray[Any] | None) -> ctypes.c_void_p:
    if array is None:
        return ctypes.c_void_p()
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)


def room(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


class Parts:
    """The functions of parts.cpp with arrays, by one table of kernels."""

    def __init__(self, functions: ctypes.CDLL, name: str):
        self.functions = functions
        self.name = name
        self.kernels = ctypes.c_void_p(library().mtkit_find_kernels(name.encode()))

    def _call(self, function: str, *arguments: Any) -> None:
        assert getattr(self.functions, function)(self.kernels, *arguments) == 0

    def packed(self, weight: Floats, bias: Floats | None, precision: int) -> ctypes.c_void_p:
        out, into = weight.shape
        matrix = self.functions.part_pack(pointer(weight), pointer(bias), out, into, precision)
        assert matrix
        return ctypes.c_void_p(matrix)

    def unpacked(self, weight: Floats, precision: int) -> Floats:
        matrix = self.packed(weight, None, precision)
        rows = np.empty_like(weight)
        for i, row in enumerate(rows):
            assert self.functions.part_unpack(matrix, i, pointer(row)) == 0
        self.functions.part_free(matrix)
        return rows

    def linear(
        self,
        x: Floats,
        weight: Floats,
        bias: Floats | None = None,
        *,
        precision: int = FLOAT32,
        activation: int = NONE,
        added_to: Floats | None = None,
    ) -> Floats:
        matrix = self.packed(weight, bias, precision)
        y = np.full((len(x), len(weight)), np.nan, np.float32)
        if added_to is not None:
            y[:] = added_to
        add = int(added_to is not None)
        self._call("part_linear", matrix, pointer(x), len(x), activation, add, pointer(y), 1)
        self.functions.part_free(matrix)
        return y

    def layer_norm(self, x: Floats, width: int, gain: Floats, bias: Floats) -> Floats:
        y = np.empty_like(x)
        self._call(
            "part_layer_norm",
            *(pointer(x), len(x), width, pointer(gain), pointer(bias)),
            *(ctypes.c_float(1e-5), pointer(y)),
        )
        return y

    def attend_shared(
        self, sizes: tuple[int, int, int], q: Floats, keys: Floats, values: Floats, window: int = -1
    ) -> Floats:
        out = np.full((len(q), values.shape[1]), np.nan, np.float32)
        self._call(
            "part_attend_shared",
            *(*sizes, pointer(q), len(q), pointer(keys), pointer(values), len(keys)),
            *(window, pointer(out), 1),
        )
        return out

    def attend_own(
        self, sizes: tuple[int, int, int], q: Floats, keys: Floats, values: Floats
    ) -> Floats:
        rows = np.concatenate((keys, values), axis=1)
        out = np.full(values.shape[1], np.nan, np.float32)
        self._call(
            "part_attend_own", *(*sizes, pointer(q), pointer(rows), len(keys)), *(pointer(out), 1)
        )
        return out

    def log_probs(
        self,
        states: Floats,
        weight: Floats,
        bias: Floats,
        width: int,
        *,
        count: int = 0,
        forbidden: list[list[int]] | None = None,
        precision: int = FLOAT32,
    ) -> tuple[Floats, NDArray[np.int32]]:
        """The best `count` and their ids; all log-probabilities if `count` is 0."""
        matrix = self.packed(weight, bias, precision)
        n = len(states)
        best = np.full((n, count), np.nan, np.float32)
        ids = np.full((n, count), -1, np.int32)
        every = None if count else np.full((n, width), np.nan, np.float32)
        lists = forbidden or [[]] * n
        ends = np.cumsum([len(ids) for ids in lists], dtype=np.int64)
        flat = np.array([i for ids in lists for i in ids], np.int32)
        self._call(
            "part_log_probs",
            *(matrix, pointer(states), n, width, pointer(flat), pointer(ends)),
            *(count, pointer(best), pointer(ids), pointer(every), 1),
        )
        self.functions.part_free(matrix)
        return (best if every is None else every), ids


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions of parts.cpp, each of which calls a kernel."""
    parts = Path(__file__).with_name("parts.cpp")
    functions = compiled(tmp_path_factory.mktemp("parts"), parts, ENGINE / "pack.cpp")
    functions.part_pack.restype = ctypes.c_void_p
    functions.part_peak.restype = ctypes.c_double
    return functions


def resident_memory() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


@pytest.mark.parametrize("size", [1, 524_272, 524_273, 524_280, 524_288, 524_289])
def test_arrays_are_zeros_and_are_freed(size: int, functions: ctypes.CDLL):
    """524,288 numbers are 2 MiB, a large page, which the system gives instead of malloc."""
    held = []
    for _ in range(2):
        # The address sanitizer keeps 256 MiB that were freed.
        assert functions.part_arrays(size, 200) == 0
        held.append(resident_memory())
    assert held[1] < held[0] + 50 * 2**20


@pytest.fixture(params=NAMES)
def parts(request: pytest.FixtureRequest, functions: ctypes.CDLL) -> Parts:
    parts = Parts(functions, request.param)
    if parts.kernels.value is None:
        pytest.skip(f"this CPU or this build has no {request.param} kernels")
    return parts


@pytest.fixture
def plain(functions: ctypes.CDLL) -> Parts:
    return Parts(functions, "plain")


@pytest.fixture
def normal() -> Callable[..., Floats]:
    random = np.random.default_rng(5)

    def draw(*shape):
        return random.standard_normal(shape).astype(np.float32)

    return draw


def equal_bits(a: Floats, b: Floats) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def softmax(x: NDArray[Any]) -> NDArray[Any]:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_softmax(x: NDArray[Any]) -> NDArray[Any]:
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def rounded_to_bytes(x: Floats) -> NDArray[np.float64]:
    """Each row rounded to 255 values, computed in another way than the kernels do."""
    scale = np.abs(x.astype(np.float64)).max(axis=1, keepdims=True) / 127
    return np.rint(x / np.where(scale == 0, 1, scale)) * scale


def rounded_to_bf16(x: Floats) -> Floats:
    import torch

    return torch.from_numpy(x).bfloat16().float().numpy()


ROUNDED = {FLOAT32: lambda x: x, INT8: rounded_to_bytes, BF16: rounded_to_bf16}


@pytest.mark.parametrize("rows", [*range(1, 14), 40, 129])
@pytest.mark.parametrize("precision", ROUNDED)
def test_linear_is_a_product_of_rounded_numbers(parts, normal, precision, rows):
    rounded = ROUNDED[precision]
    x, weight, bias = normal(rows, 128), normal(64, 128), normal(64)
    if precision == INT8:
        x[0] *= 100
    expected = rounded(x).astype(np.float64) @ rounded(weight).T.astype(np.float64) + bias
    y = parts.linear(x, weight, bias, precision=precision)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=2e-4 if precision == INT8 else 5e-5)


def test_int8_is_exact_at_its_limits(parts: Parts):
    # Sums of pairs of products of 127 · 127 would overflow 16 bits if an input could be 128.
    signs = np.array(list(itertools.product((-127, 127), repeat=4)), np.float32)
    x, weight = np.tile(signs, (4, 64)), np.tile(signs, (4, 64))
    for rows in (x, x[:2]):
        assert (parts.linear(rows, weight, precision=INT8) == rows @ weight.T).all()


def test_rows_and_columns_of_zeros_stay_zero_in_int8(parts: Parts, normal: Any):
    x, weight = normal(3, 64), normal(64, 64)
    x[1] = 0
    weight[5] = 0
    y = parts.linear(x, weight, precision=INT8)
    assert not y[1].any()
    assert not y[:, 5].any()


@pytest.mark.parametrize("precision", [FLOAT32, INT8, BF16])
def test_linear_applies_an_activation_and_adds(parts: Parts, normal: Any, precision: int):
    x, weight, bias, before = normal(7, 64), normal(128, 64), normal(128), normal(7, 128)
    y = parts.linear(x, weight, bias, precision=precision)
    relu = parts.linear(x, weight, bias, precision=precision, activation=RELU)
    assert equal_bits(relu, np.maximum(y, 0))
    silu = parts.linear(x * 9, weight, bias, precision=precision, activation=SILU)
    wide = parts.linear(x * 9, weight, bias, precision=precision).astype(np.float64)
    np.testing.assert_allclose(silu, wide / (1 + np.exp(-wide)), rtol=1e-6, atol=1e-30)
    added = parts.linear(x, weight, bias, precision=precision, added_to=before)
    assert equal_bits(added, before + y)


def test_silu_of_very_negative_numbers_is_almost_zero(parts: Parts):
    weight = np.eye(64, dtype=np.float32)
    x = np.tile(np.float32([[-1000], [-89], [1000]]), 64)
    y = parts.linear(x, weight, activation=SILU)
    assert np.isfinite(y).all()
    assert (np.abs(y[:2]) < 1e-30).all()
    assert (y[2] == 1000).all()


# Rows of products in bf16 by tiles have other bits than those without.
@pytest.mark.parametrize("precision", [FLOAT32, INT8, BF16])
@pytest.mark.parametrize(("rows", "out", "into"), [(40, 128, 192), (150, 64, 1088), (3, 320, 64)])
def test_products_have_the_bits_of_plain_kernels(parts, plain, normal, precision, rows, out, into):
    if precision == BF16 and parts.name == "amx":
        pytest.skip("bf16 by tiles is added in another order")
    x, weight, bias = normal(rows, into), normal(out, into), normal(out)
    for activation in (NONE, SILU):
        assert equal_bits(
            parts.linear(x, weight, bias, precision=precision, activation=activation),
            plain.linear(x, weight, bias, precision=precision, activation=activation),
        )


@pytest.mark.parametrize("precision", [FLOAT32, INT8, BF16])
def test_a_row_has_the_same_bits_alone_and_among_others(parts: Parts, normal: Any, precision: int):
    x, weight, bias = normal(40, 128), normal(192, 128), normal(192)
    given = {"weight": weight, "bias": bias, "precision": precision}
    alone = np.concatenate([parts.linear(row[None], **given) for row in x])
    for rows in range(1, 41):
        together = parts.linear(x[:rows], **given)
        assert equal_bits(together, alone[:rows]), rows


@pytest.mark.parametrize("width", [1, 16, 63, 64, 65, 100, 512])
def test_layer_norm(parts: Parts, plain: Parts, normal: Any, width: int):
    padded = room(width, 64)
    x, gain, bias = (np.zeros(shape, np.float32) for shape in [(5, padded), (padded,), (padded,)])
    x[:, :width], gain[:width], bias[:width] = normal(5, width) + 3, normal(width), normal(width)
    y = parts.layer_norm(x, width, gain, bias)
    real = x[:, :width].astype(np.float64)
    real = real - real.mean(axis=1, keepdims=True)
    expected = real / np.sqrt((real**2).mean(axis=1, keepdims=True) + 1e-5)
    expected = expected * gain[:width] + bias[:width]
    np.testing.assert_allclose(y[:, :width], expected, rtol=1e-5, atol=3e-6)
    assert not y[:, width:].any()
    assert equal_bits(y, plain.layer_norm(x, width, gain, bias))


def padded_heads(x: Floats, heads: int, width: int) -> Floats:
    """Rows (.., heads * width) with every head padded to a multiple of 16, the row to 64."""
    n = len(x)
    rows = np.zeros((n, heads, room(width, 16)), np.float32)
    rows[:, :, :width] = x.reshape(n, heads, width)
    rows = rows.reshape(n, -1)
    return np.pad(rows, ((0, 0), (0, room(rows.shape[1], 64) - rows.shape[1])))


def attention(
    sizes: tuple[int, int, int], q: Floats, keys: Floats, values: Floats, seen: NDArray[Any]
) -> Floats:
    """Attention of rows without padding in float64; `seen` is (rows, positions)."""
    heads, key_width, value_width = sizes
    q, keys = (x.astype(np.float64).reshape(len(x), heads, key_width) for x in (q, keys))
    v = values.astype(np.float64).reshape(len(values), heads, value_width)
    scores = np.einsum("rhk,shk->hrs", q, keys) * key_width**-0.5
    weights = softmax(np.where(seen, scores, -np.inf))
    return np.einsum("hrs,shv->rhv", weights, v).reshape(len(q), -1)


@pytest.mark.parametrize(
    ("sizes", "window"), [*itertools.product(HEADS, [-1, 0, 1, 5]), (HEADS[0], 2**31 - 1)]
)
def test_attention_to_shared_and_to_own_positions(parts, plain, normal, sizes, window):
    heads, key_width, value_width = sizes
    some_positions = [*range(1, 40), 47, 48, 49, 63, 64, 65, 70]
    for positions in range(1, 71) if window < 0 else some_positions:
        rows = positions % 9 + 1 if window < 0 else positions
        q, keys = normal(rows, heads * key_width), normal(positions, heads * key_width)
        values = normal(positions, heads * value_width)
        seen = np.ones((rows, positions), bool)
        if window >= 0:
            at = np.arange(positions)
            seen = np.abs(at[:, None] - at) <= window
        padded_q, padded_keys = (padded_heads(x, heads, key_width) for x in (q, keys))
        padded_values = padded_heads(values, heads, value_width)
        out = parts.attend_shared(sizes, padded_q, padded_keys, padded_values, window)
        expected = padded_heads(attention(sizes, q, keys, values, seen), heads, value_width)
        written = heads * room(value_width, 16)
        np.testing.assert_allclose(out[:, :written], expected[:, :written], rtol=1e-5, atol=3e-6)
        reference = plain.attend_shared(sizes, padded_q, padded_keys, padded_values, window)
        assert equal_bits(out, reference)
        if window < 0:
            for r in range(rows):
                alone = parts.attend_shared(sizes, padded_q[r : r + 1], padded_keys, padded_values)
                assert equal_bits(alone[0], out[r])
            own, reference = (
                kernels.attend_own(sizes, padded_q[0], padded_keys, padded_values)[:written]
                for kernels in (parts, plain)
            )
            np.testing.assert_allclose(own, expected[0, :written], rtol=1e-5, atol=3e-6)
            assert equal_bits(own, reference)
        if 0 < window < positions:
            # A row has the same bits whatever the rows after it are.
            fewer = padded_q[: positions // 2]
            some = parts.attend_shared(sizes, fewer, padded_keys, padded_values, window)
            assert equal_bits(some, out[: positions // 2])


@pytest.mark.parametrize("width", [1, 7, 64, 100, 255, 256, 257, 1000])
@pytest.mark.parametrize("precision", [FLOAT32, INT8])
def test_log_probs(parts: Parts, plain: Parts, normal: Any, width: int, precision: int):
    states, bias = normal(9, 64) * 2, np.zeros(room(width, 64), np.float32)
    weight = np.zeros((room(width, 64), 64), np.float32)
    weight[:width], bias[:width] = normal(width, 64), normal(width)
    every, _ = parts.log_probs(states, weight, bias, width, precision=precision)
    logits = parts.linear(states, weight, bias, precision=precision)[:, :width]
    np.testing.assert_allclose(every, log_softmax(logits.astype(np.float64)), rtol=1e-7, atol=1e-6)
    plain_every, _ = plain.log_probs(states, weight, bias, width, precision=precision)
    assert equal_bits(every, plain_every)
    count = min(8, width)
    best, ids = parts.log_probs(states, weight, bias, width, count=count, precision=precision)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    assert (ids == order).all()
    assert equal_bits(best, np.take_along_axis(every, order, axis=1))
    for row, row_best, row_ids in zip(states, best, ids, strict=True):
        how = {"count": count, "precision": precision}
        alone, alone_ids = parts.log_probs(row[None], weight, bias, width, **how)
        assert equal_bits(alone[0], row_best)
        assert (alone_ids[0] == row_ids).all()


@pytest.mark.parametrize("impossible", [-1e9, -np.inf])
@pytest.mark.parametrize("size", [1, 100])  # of the logits
def test_impossible_columns_change_no_bit_of_the_others(parts, normal, impossible, size):
    states, weight, bias = normal(9, 64) * size, normal(1024, 64), normal(1024)
    left = np.random.default_rng(1).permutation(np.arange(300, 1000))[:448]
    left.sort()
    every, _ = parts.log_probs(states, weight[left], bias[left], len(left))
    bias[np.setdiff1d(np.arange(1024), left)] = impossible
    of_all, _ = parts.log_probs(states, weight, bias, 1000)
    assert equal_bits(of_all[:, left], every)


def test_the_lowest_of_equally_probable_ids_is_first(parts: Parts, normal: Any):
    states, weight = normal(3, 64), normal(320, 64)
    weight[[3, 17, 40, 270, 301]] = 0
    bias = np.zeros(320, np.float32)
    bias[[3, 17, 40, 270, 301]] = 1000
    bias[200] = 2000
    _, ids = parts.log_probs(states, weight, bias, 320, count=5)
    assert ids.tolist() == [[200, 3, 17, 40, 270]] * 3


def test_logits_that_round_to_one_log_probability_change_only_the_order_of_equals(parts, normal):
    # The log-probabilities are near -6, where numbers are further apart than these logits.
    states, weight, bias = normal(20, 64) * 1e-3, normal(448, 64) * 1e-3, np.zeros(448, np.float32)
    every, _ = parts.log_probs(states, weight, bias, 400)
    best, ids = parts.log_probs(states, weight, bias, 400, count=30)
    order = np.argsort(-every, axis=1, kind="stable")[:, :30]
    assert (ids != order).any()
    assert equal_bits(best, np.take_along_axis(every, order, axis=1))
    assert equal_bits(best, np.take_along_axis(every, ids, axis=1))


def test_forbidden_ids_count_in_the_sum_but_are_not_among_the_best(parts: Parts, normal: Any):
    states, weight, bias = normal(3, 64), normal(576, 64), normal(576)
    every, _ = parts.log_probs(states, weight, bias, 570)
    order = np.argsort(-every, axis=1, kind="stable")
    # The first row may not have its best two, the second all but two ids, the third any id.
    forbidden = [sorted(order[0, :2].tolist()), [i for i in range(570) if i not in (7, 500)], []]
    best, ids = parts.log_probs(states, weight, bias, 570, count=4, forbidden=forbidden)
    assert ids[0].tolist() == order[0, 2:6].tolist()
    assert equal_bits(best[0], every[0, order[0, 2:6]])
    allowed = sorted((7, 500), key=lambda i: -every[1, i])
    assert ids[1, :2].tolist() == allowed
    assert best[1].tolist() == [*every[1, allowed].tolist(), -np.inf, -np.inf]
    assert ids[2].tolist() == order[2, :4].tolist()


def test_a_packed_matrix_gives_its_rows_back(plain: Parts, normal: Any):
    weight = normal(128, 64)
    assert equal_bits(plain.unpacked(weight, FLOAT32), weight)
    assert equal_bits(plain.unpacked(weight, BF16), rounded_to_bf16(weight))


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(),
    reason="needs /proc/cpuinfo",
)
def test_kernels_are_those_of_the_instructions_that_linux_lists():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    listed = set(next(line for line in lines if line.startswith("flags")).split())
    needed = {"avx2": {"avx2", "fma"}}
    avx512 = {f"avx512{part}" for part in ("f", "bw", "dq", "vl", "_vnni")}
    needed["vnni"] = needed["avx2"] | avx512
    needed["avx512bf16"] = needed["vnni"] | {"avx512_bf16"}
    needed["amx"] = needed["vnni"] | {"amx_tile", "amx_int8", "amx_bf16"}
    for name, flags in needed.items():
        assert (library().mtkit_find_kernels(name.encode()) is not None) == (flags <= listed)
