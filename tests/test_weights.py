"""Weights that are read and averaged as NumPy arrays, against PyTorch and safetensors."""

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mtkit import native, weights
from mtkit.base.errors import MtkitError
from mtkit.translate import Translator
from mtkit.weights import WeightFile, Weights

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def written(folder: Path, count: int) -> list[Path]:
    """Files with the same tensors of every type, and random numbers of very different sizes."""
    generator = torch.Generator().manual_seed(count)
    paths = []
    for number in range(count):
        scale = torch.exp(4 * torch.randn(7, 5, generator=generator))
        numbers = (scale * torch.randn(7, 5, generator=generator)).clamp(-6e4, 6e4)
        tensors = {str(kind): numbers.to(kind) for kind in TYPES}
        tensors |= {"mask": numbers > 0, "empty": torch.zeros(0, 3), "one": numbers[0, 0].clone()}
        paths.append(folder / f"{number}.safetensors")
        save_file(tensors, paths[-1], metadata={"format": "pt"})
    return paths


@pytest.mark.parametrize("block", [4, 2**18])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_mean_of_files_has_the_bits_of_the_mean_that_pytorch_computes(
    count, block, tmp_path, monkeypatch
):
    monkeypatch.setattr(weights, "_BLOCK", block)
    paths = written(tmp_path, count)
    files = [load_file(path) for path in paths]
    means = Weights(list(map(WeightFile, paths)))
    assert means.keys() == files[0].keys()
    assert len(means) == len(files[0])
    for name, tensor in files[0].items():
        mean = torch.stack([file[name].double() for file in files]).sum(0) / count
        wanted = mean.to(tensor.dtype)
        wanted = wanted if tensor.dtype == torch.bool else wanted.float()
        assert means[name].dtype == wanted.numpy().dtype
        assert means[name].shape == tuple(tensor.shape)
        assert means[name].tobytes() == wanted.numpy().tobytes(), name


def _header(**changes: Any) -> Callable[[bytes], bytes]:
    """A damage: the header of the tensor `w` has other entries."""

    def damage(content: bytes) -> bytes:
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        header["w"] |= changes
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[start:]

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: b"\xff" * 8 + content[8:],
        lambda content: content[:8] + b"[" * (len(content) - 8),
        _header(data_offsets=[4, 28]),
        _header(data_offsets=[0, 2**70]),
        _header(data_offsets=[float("inf"), 24]),
        _header(data_offsets=None),
        _header(shape=[-2, -3]),
        _header(shape=[2**40, 2**40]),
        _header(dtype="I4"),
        _header(dtype=[]),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(damage, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"w": torch.ones(2, 3)}, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(MtkitError, match=r"w\.safetensors: is not a safetensors file of weights$"):
        WeightFile(path)


def test_files_with_other_tensors_have_no_mean(tmp_path):
    for name, shape in (("a", (2, 3)), ("b", (3, 2))):
        save_file({"w": torch.ones(shape)}, tmp_path / name)
    with pytest.raises(MtkitError, match=r"b: has other tensors than .*a$"):
        Weights([WeightFile(tmp_path / name) for name in "ab"])


def test_a_tensor_is_read_from_its_place_in_blocks(tmp_path):
    numbers = torch.arange(100.0)
    save_file({"before": torch.ones(3), "w": numbers.bfloat16()}, tmp_path / "w")
    blocks = [block.tolist() for block in WeightFile(tmp_path / "w").blocks("w", 30)]
    assert [len(block) for block in blocks] == [30, 30, 30, 10]
    assert list(itertools.chain(*blocks)) == list(range(100))


def test_a_file_that_becomes_shorter_while_it_is_read_is_refused(tmp_path):
    save_file({"w": torch.ones(100)}, tmp_path / "w")
    file = WeightFile(tmp_path / "w")
    os.truncate(tmp_path / "w", file.path.stat().st_size - 4)
    with pytest.raises(MtkitError, match=r"w: has become shorter while it was read$"):
        Weights([file])["w"]


@pytest.mark.skipif(native.available() != "", reason="needs the native engine")
@pytest.mark.parametrize("which", ["last", "average:2"])
def test_a_translator_reads_each_tensor_of_each_checkpoint_once(which, tiny_run, monkeypatch):
    read: Counter[tuple[Path, str]] = Counter()
    blocks = WeightFile.blocks

    def counted(file: WeightFile, name: str, most: int) -> Iterator[weights.Array]:
        read[file.path, name] += 1
        return blocks(file, name, most)

    monkeypatch.setattr(WeightFile, "blocks", counted)
    Translator.load(tiny_run, checkpoint=which, device="cpu", workers=1).close()
    assert len({path for path, _ in read}) == (2 if which == "average:2" else 1)
    assert set(read.values()) == {1}
