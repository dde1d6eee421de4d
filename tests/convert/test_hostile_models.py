"""Folders that were made to do harm: `mtkit import` answers in one line, without much memory.

Each case is a kind of content in a place of a model. They run one after the other in a process of
their own, with limits on its memory and processor time, which a case cannot survive that needs
much, hangs or crashes.
"""

import contextlib
import importlib.util
import io
import json
import os
import pickle
import resource
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import slow
from safetensors.torch import load_file
from sentencepiece import sentencepiece_model_pb2
from support.forked import Forked
from support.marian import edit_npz, write_marian, write_npz

pytest.importorskip("transformers")

MEGABYTE = 2**20
# Beyond what the program has when it begins, and of the processor for all cases of a place.
MAX_MEMORY, MAX_SECONDS = 240 * MEGABYTE, 200
MANY = 100_000
TRANSFORMERS = ("config.json", "vocab.json", "tokenizer_config.json")
TRANSFORMERS += ("generation_config.json", "special_tokens_map.json", "export.json")

Case = Callable[[Path], None]


def aliases(levels: int) -> str:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join([*lines, f"license: *a{levels - 1}"])


# What is neither the text of a model's file, nor YAML or JSON that could be read as one.
TEXTS: dict[str, bytes] = {
    "brackets": b"[" * MANY,
    "braces": b"{" * MANY,
    "lists": b"- " * MANY,
    "keys": b"? " * MANY,
    "values": b"a: " * MANY,
    "objects of JSON": b'{"a":' * MANY,
    "lists of 900 levels": b'{"model_type":' + b"[" * 900 + b"]" * 900 + b"}",
    "aliases": aliases(9).encode(),
    "a list in itself": b"license: &a [*a, *a]\n",
    "tags": b"license: !!python/object/apply:os.system ['touch executed']\n",
    "a new type": b"!!python/object/new:os.system [touch executed]\n",
    "a number": b"9" * 5_000,
    "a real number": b"1e999999999",
    "no number": b"NaN",
    "zeros": b"\0" * MANY,
    "spaces": b" " * 20 * MEGABYTE,
    "one word": b"a" * 20 * MEGABYTE,
    "open quotes": b'"' + b"a" * MANY,
    "escapes": b'"' + b"\\u0041" * MANY + b'"',
    "lone surrogates": b'{"\\ud800": "\\udfff"}',
    "list items": b"[" + b"[]," * MANY + b"[]]",
    "not UTF-8": b"\xff\xfe\x80" * 100,
    "UTF-16": "license: mit\n".encode("utf-16"),
    "a NUL": b'{"a": "\0"}',
    "nothing": b"",
    "comment": b"# nothing\n",
    "separators": "\u2028\u0085\ufeff".encode() * MANY,
}
# What a folder of another user can have in the place of a file.
FILES: dict[str, Case] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "no end": lambda file: file.symlink_to("/dev/zero"),
    "a link to itself": lambda file: file.symlink_to(file.name),
}


def text_cases(place: str) -> Iterator[tuple[str, Case]]:
    """Every kind of text as the file of this name, or in the place that is named."""
    for kind, text in TEXTS.items():
        yield kind, partial(put, place=place, text=text)
    if "." in place and place != "special:model.yml":
        yield from file_cases(place)


def put(folder: Path, place: str, text: bytes) -> None:
    if place == "front matter":
        replace(folder / "README.md", lambda file: file.write_bytes(b"---\n" + text + b"\n---\n"))
    elif place == "licence":
        put(folder, "front matter", b"license: " + text)
    elif place == "code":
        block = b"```\n" + text + b"\n```bibtex\n@a{" + text
        (folder / "README.md").write_bytes(b"```" + text + block)
    elif place == "special:model.yml":
        edit_npz(folder / "model.npz", **{place: np.frombuffer(text or b"\0", dtype=np.int8)})
    else:
        replace(folder / place, lambda file: file.write_bytes(text))


def replace(file: Path, make: Callable[[Path], Any]) -> None:
    file.unlink(missing_ok=True)
    make(file)


def raw_array(header: str, body: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header.encode() + body


def shaped(shape: str, descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n"


ARRAYS: dict[str, bytes] = {
    "4 billion numbers": raw_array(shaped("(4000000000,)")),
    "more numbers than can be counted": raw_array(shaped("(4611686018427387904, 4)")),
    "less than no numbers": raw_array(shaped("(-3, 4)"), b"1" * 48),
    "numbers of no size": raw_array(shaped("(10000000000,)", "'|S0'")),
    "objects": raw_array(shaped("(1,)", "'|O'"), pickle.dumps([1])),
    "a record": raw_array(shaped("(1,)", "[('a', '<f4'), ('b', '|O')]"), b"1" * 12),
    "a shape that is a word": raw_array(shaped("'many'")),
    "a header of parentheses": raw_array("(" * 60_000),
    "a header of signs": raw_array("-" * 900 + "1"),
    "a long header": raw_array(shaped("(" + "1," * 20_000 + ")")),
    "a header of code": raw_array("__import__('os').system('touch executed')\n"),
    "another version": raw_array(shaped("(1,)"), b"1" * 4, version=b"\3\0"),
    "no header": b"\x93NUMPY",
    "other text": b"any text",
    "complex numbers": raw_array(shaped("(1, 1)", "'<c8'"), b"1" * 8),
    "texts": raw_array(shaped("(1, 1)", "'<U1'"), b"1" * 4),
}


def with_member(folder: Path, content: bytes, name: str = "Wemb.npy", **how: Any) -> None:
    """Put an array into the place of another."""
    file = folder / "model.npz"
    with zipfile.ZipFile(file) as old:
        members = {member: old.read(member) for member in old.namelist()}
    with zipfile.ZipFile(file, "w", **how) as new:
        for member, old_content in members.items():
            new.writestr(member, content if member == name else old_content)


def bomb(folder: Path) -> None:
    size = 300 * MEGABYTE
    body = bytes(size)
    array = raw_array(shaped(f"({size // 4},)"), body)
    with_member(folder, array, compression=zipfile.ZIP_DEFLATED)


def said_sizes(folder: Path, said: int) -> None:
    """The size of the first array that the directory says."""
    file = folder / "model.npz"
    content = bytearray(file.read_bytes())
    entry = content.index(b"PK\1\2")
    content[entry + 24 : entry + 28] = struct.pack("<I", said)
    file.write_bytes(content)


def many_members(folder: Path) -> None:
    with zipfile.ZipFile(folder / "model.npz", "w") as archive:
        for number in range(110_000):
            archive.writestr(f"{number}.npy", b"")


def array_cases() -> Iterator[tuple[str, Case]]:
    for kind, content in ARRAYS.items():
        yield kind, lambda folder, content=content: with_member(folder, content)
    yield "arrays that are small when compressed", bomb
    yield "a directory that says too much", lambda folder: said_sizes(folder, 2**32 - 2)
    yield "a directory that says too little", lambda folder: said_sizes(folder, 1)
    yield "many arrays", many_members
    yield from cut_cases("model.npz")
    yield from file_cases("model.npz")


def cut(file: Path, share: int) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * share // 10])


def cut_cases(name: str) -> Iterator[tuple[str, Case]]:
    for share in range(1, 10):
        kind = f"the first {share} of ten parts"
        yield kind, lambda folder, share=share: cut(folder / name, share)


def file_cases(name: str) -> Iterator[tuple[str, Case]]:
    for kind, make in FILES.items():
        yield kind, lambda folder, make=make: replace(folder / name, make)


def varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def changed(folder: Path, change: Callable[[Any], None]) -> None:
    file = folder / "source.spm"
    message = sentencepiece_model_pb2.ModelProto.FromString(file.read_bytes())
    change(message)
    file.write_bytes(message.SerializeToString())


def charsmap(change: Callable[[bytes], bytes]) -> Case:
    def damage(message: Any) -> None:
        spec = message.normalizer_spec
        spec.precompiled_charsmap = change(spec.precompiled_charsmap)

    return lambda folder: changed(folder, damage)


def piece(text: str = "a", score: float = 0.0, kind: int = 1, times: int = 1) -> Case:
    def add(message: Any) -> None:
        for _ in range(times):
            message.pieces.add(piece=text, score=score, type=kind)

    return lambda folder: changed(folder, add)


def sentencepiece_cases() -> Iterator[tuple[str, Case]]:
    raw = {
        "a number without an end": b"\x08" + b"\x80" * MANY,
        "a length beyond the end": b"\x0a" + varint(2**62) + b"a",
        "groups": b"\x0b" * MANY,
        "messages": b"\x0a\x02\x0a\x00" * MANY,
        "empty subwords": b"\x0a\x00" * 1_400_000,
        "too many bytes": bytes(6 * MEGABYTE),
        "not UTF-8": b"\x0a\x04\x0a\x02\xff\xfe",
        "an unknown type": b"\x0a\x05\x0a\x01a\x18\x63",
        "nothing": b"",
    }
    for kind, content in raw.items():
        yield kind, partial(put, place="source.spm", text=content)
    yield from cut_cases("source.spm")
    yield "a long subword", piece("a" * 3_000_000)
    yield "a subword twice", piece(times=2)
    yield "two unknown tokens", piece("<other>", kind=2)
    yield "a control that is empty", piece("", kind=3)
    ones = b"\xff" * 4
    yield "a table of characters that is cut off", charsmap(lambda table: table[:1_000])
    yield "a table of characters with a wrong size", charsmap(lambda table: ones + table[4:])
    outside = b"\xff\xfb\xff\x7f"
    points = charsmap(lambda table: table[:4] + outside * ((len(table) - 4) // 4))
    yield "a table of characters that points outside", points

    def texts(table: bytes) -> bytes:
        return table[:4] + ones * (struct.unpack("<I", table[:4])[0] // 4) + table[-64:]

    yield "a table of characters with texts outside", charsmap(texts)
    yield from file_cases("target.spm")


def safetensors(header: bytes, body: bytes = b"", size: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if size is None else size) + header + body


def entry(shape: str, end: int, begin: int = 0, kind: str = "F32") -> str:
    return f'{{"dtype":"{kind}","shape":{shape},"data_offsets":[{begin},{end}]}}'


def bias(shape: str, end: int, kind: str = "F32") -> bytes:
    """A file whose one tensor is said to be so."""
    header = f'{{"final_logits_bias":{entry(shape, end, kind=kind)}}}'
    return safetensors(header.encode(), b"1" * min(max(end, 0), 8))


def safetensors_cases() -> Iterator[tuple[str, Case]]:
    inner = f'{{"final_logits_bias":{entry("[1,2]", 8)},"b":{entry("[1,1]", 8, 4)}}}'
    files = {
        "a header beyond the end": safetensors(b"{}", size=2**40),
        "a header of 64 bits": safetensors(b"{}", size=2**64 - 1),
        "a header of brackets": safetensors(b"[" * MANY),
        "a header of objects": safetensors(b'{"a":' * MANY),
        "a long header": safetensors(b" " * MEGABYTE + b"{}"),
        "a list": safetensors(b"[]"),
        "no tensors": safetensors(b"{}"),
        "a tensor beyond the end": bias("[1,999]", 3996),
        "a shape that is too large": bias("[4294967296,4294967296]", 8),
        "a shape of no numbers": bias("[0,9223372036854775807]", 0),
        "tensors in each other": safetensors(inner.encode(), b"1" * 8),
        "numbers below zero": bias("[-1]", -4),
        "a type that does not exist": bias("[1]", 4, "F99"),
        "numbers of eight bits": bias("[1,4]", 4, "F8_E4M3"),
        "numbers of four bits": bias("[1,8]", 4, "F4"),
        "whole numbers": bias("[1]", 4, "I32"),
        "many names": safetensors(
            b"{" + b",".join(f'"{i}":{entry("[0]", 0)}'.encode() for i in range(15_000)) + b"}"
        ),
        "other text": b"any text, but no header",
        "nothing": b"",
    }
    for kind, content in files.items():
        yield kind, partial(put, place="model.safetensors", text=content)
    yield from file_cases("model.safetensors")


class Called:
    """A function that is called when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> Any:
        return self._reduced


def saved(folder: Path, change: Callable[[dict[str, Any]], Any], **how: Any) -> Path:
    """Write the weights as a file of PyTorch, with changes."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(change(weights) or weights, folder / "pytorch_model.bin", **how)
    return folder / "pytorch_model.bin"


def repacked(folder: Path, change: Callable[[str, bytes], bytes], **how: Any) -> None:
    """Write the weights, and change the files inside."""
    file = saved(folder, lambda weights: None)
    with zipfile.ZipFile(file) as old:
        members = {member: old.read(member) for member in old.namelist()}
    with zipfile.ZipFile(file, "w", **how) as new:
        for member, content in members.items():
            new.writestr(member, change(member, content))


def pickled(content: bytes) -> Case:
    def data(name: str, old: bytes) -> bytes:
        return content if name.endswith("data.pkl") else old

    return lambda folder: repacked(folder, data)


def expanded(weights: dict[str, Any]) -> None:
    weights["model.shared.weight"] = torch.zeros(1).expand(2**22, 2**20)


def shared(weights: dict[str, Any]) -> None:
    numbers = torch.zeros(64, 64)
    weights |= {f"model.encoder.layers.{i}.fc1.weight": numbers for i in range(1_000)}


def only_pickle(folder: Path, make: Case) -> None:
    (folder / "model.safetensors").unlink()
    make(folder / "pytorch_model.bin")


def pytorch_cases() -> Iterator[tuple[str, Case]]:
    bias = "final_logits_bias"
    values: dict[str, Callable[[dict[str, Any]], Any]] = {
        "code": lambda weights: weights | {bias: Called(os.system, "touch executed")},
        "a builtin": lambda weights: weights | {bias: Called(eval, "open('executed', 'w')")},
        "one number in the place of many": expanded,
        "tensors that share their numbers": shared,
        "a number as a name": lambda weights: weights | {1: torch.zeros(1)},
        "a list": lambda weights: [*weights.values()],
        "a number": lambda weights: 9**99,
        "sparse numbers": lambda weights: weights | {bias: torch.zeros(3, 3).to_sparse()},
        "no memory": lambda weights: weights | {bias: torch.zeros(3, device="meta")},
        "complex numbers": lambda weights: weights | {bias: torch.zeros(1, dtype=torch.complex64)},
        "numbers of eight bits": lambda weights: (
            weights | {bias: torch.zeros(1, dtype=torch.float8_e4m3fn)}
        ),
    }
    old = {"_use_new_zipfile_serialization": False}
    for kind, change in values.items():
        yield kind, partial(saved, change=change)
        if kind in ("code", "one number in the place of many"):
            yield f"{kind}, in the old format", partial(saved, change=change, **old)

    def short(name: str, content: bytes) -> bytes:
        return content[:4] if "/data/" in name else content

    def same(_: str, content: bytes) -> bytes:
        return content

    yield "storages that are smaller than is said", partial(repacked, change=short)
    packed = zipfile.ZIP_DEFLATED
    yield "compressed storages", partial(repacked, change=same, compression=packed)
    yield "brackets", pickled(b"\x80\x02" + b"]" * MANY + b"a" * (MANY - 1) + b".")
    # Two times the tuple before, in a tuple.
    chain = b"".join(b"q" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(60))
    yield "a name of 2^60 parts", pickled(b"\x80\x02}K\x01\x85" + chain + b"Ns.")
    hidden = b"".join(b"(uq" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(60))
    yield "a hidden name of 2^60 parts", pickled(b"\x80\x02}K\x01\x85" + hidden + b"Ns.")
    yield "a long pickle", pickled(b"\x80\x02}" + b"K\x01K\x01s" * MANY * 2 + b".")
    yield "an empty pickle", pickled(b"")
    yield "other text", pickled(b"any text")
    yield "a pickle without an end", pickled(b"\x80\x02}q\0")
    yield "a long number", pickled(b"\x80\x02\x8b" + struct.pack("<I", 2**30) + b"1.")

    def cut_off(folder: Path, share: int, **how: Any) -> None:
        cut(saved(folder, lambda weights: None, **how), share)

    for share in range(1, 10, 2):
        kind = f"the first {share} of ten parts"
        yield kind, partial(cut_off, share=share)
        yield f"{kind}, in the old format", partial(cut_off, share=share, **old)
    for kind, make in FILES.items():
        yield kind, partial(only_pickle, make=make)


PLACES: dict[str, tuple[str, Callable[[], Iterator[tuple[str, Case]]]]] = {
    **{
        name: ("transformers", lambda name=name: text_cases(name))
        for name in ("front matter", "licence", "code", "README.md", *TRANSFORMERS)
    },
    **{
        name: ("npz", lambda name=name: text_cases(name))
        for name in ("decoder.yml", "vocab.yml", "special:model.yml")
    },
    "model.npz": ("npz", array_cases),
    "source.spm": ("transformers", sentencepiece_cases),
    "model.safetensors": ("transformers", safetensors_cases),
    "pytorch_model.bin": ("transformers", pytorch_cases),
}
# A card cannot stop an import, and the rest is no harm.
HARMLESS_PLACES = {"front matter", "licence", "code", "README.md"}
HARMLESS = {
    *((name, "lone surrogates") for name in TRANSFORMERS[2:]),
    *((name, "a link to itself") for name in TRANSFORMERS[2:]),
    # The vocabulary beside the model is found without it.
    *(("decoder.yml", kind) for kind in ("lone surrogates", *FILES)),
}


def run_cases(places: list[str], step: int, models: Path, folder: Path, results: Path) -> None:
    """Import every `step`th case of places, with limits; two lines of results for each."""
    from mtkit.cli import main

    importlib.import_module("mtkit.convert")
    # Code that is executed would write there.
    os.chdir(folder)
    torch.set_num_threads(1)
    # What is refused is refused before the comparison, which takes most of the time.
    importlib.util.find_spec = lambda name, package=None: None
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MAX_MEMORY
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    with results.open("w") as file:
        for place, kind, model, make in cases_of(places, step):
            source, out = folder / "source", folder / "out"
            shutil.copytree(models / model, source)
            make(source)
            print(json.dumps([place, kind]), file=file, flush=True)
            sys.argv = ["mtkit", "-q", "import", str(source), str(out)]
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
            status, printed = None, io.StringIO()
            with contextlib.redirect_stderr(printed):
                try:
                    main()
                except SystemExit as ended:
                    status = ended.code
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            print(json.dumps([status, printed.getvalue()]), file=file, flush=True)
            shutil.rmtree(source)
            shutil.rmtree(out, ignore_errors=True)


def cases_of(places: list[str], step: int) -> Iterator[tuple[str, str, str, Case]]:
    for number, place in enumerate(places):
        model, cases = PLACES[place]
        for kind, make in islice(cases(), number % step, None, step):
            yield place, kind, model, make


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    write_marian(folder / "transformers")
    write_npz(folder / "npz", folder / "transformers")
    return folder


@pytest.mark.parametrize(
    ("places", "step"),
    # Of every 16 one, so that the code in a file of PyTorch is among them.
    [([*PLACES], 16), *(slow([place], 1) for place in PLACES)],
    ids=["some of all", *PLACES],
)
def test_a_hostile_file_is_one_line_and_takes_little_memory(places, step, models, tmp_path):
    results = tmp_path / "results"
    with Forked(run_cases, places, step, models, tmp_path, results) as process:
        status = process.wait(600)
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert status == 0, f"the process ended with {status} in {lines[-1]}"
    assert len(lines) == 2 * len(list(cases_of(places, step)))
    assert not (tmp_path / "executed").exists()
    for (place, kind), (code, printed) in zip(lines[::2], lines[1::2], strict=True):
        if place in HARMLESS_PLACES or (place, kind) in HARMLESS:
            assert code == 0, (place, kind, printed)
        else:
            assert code == 1, (place, kind, printed)
            assert printed.startswith("mtkit: error: "), (place, kind, printed)
            assert printed.count("\n") == 1, (place, kind, printed)
            assert "out of memory" not in printed, (place, kind, printed)
