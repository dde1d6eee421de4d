"""A file that is not the native engine of this machine is named; it never ends the process."""

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.engine_builds import ask
from support.forked import PIPE, Forked

from mtkit import native
from mtkit.base.errors import MtkitError
from mtkit.native.library import library

pytestmark = pytest.mark.skipif(
    native.available() != "" or sys.platform != "linux", reason="needs a built engine for Linux"
)

# Offsets of fields in the header of an ELF file, and values, of the System V ABI.
CLASS, ENDIANNESS, MACHINE, SECTIONS, SECTION_COUNT = 4, 5, 18, 40, 60
BIT_32, BIG_ENDIAN = b"\1", b"\2"
AARCH64, X86_64, RISC_V = 183, 62, 243
OTHER_MACHINE = {"x86_64": AARCH64}.get(os.uname().machine, X86_64)


def changed(at: int, value: bytes, most: int | None = None) -> Callable[[bytes], bytes]:
    return lambda whole: (whole[:at] + value + whole[at + len(value) :])[:most]


CUT = [-1, -2000, 65_536, 4096, 64]
NO_LIBRARY = [b"", b"\x7fELF", b"a text\n" * 100, b"\xcf\xfa\xed\xfe" * 99]
OTHER_CPU = {MACHINE: struct.pack("<H", OTHER_MACHINE), CLASS: BIT_32, ENDIANNESS: BIG_ENDIAN}


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        *((changed(0, b"", most), "is cut off") for most in CUT),
        (lambda whole: without_sections(whole)[:65_536], "is cut off"),
        *((lambda _, text=text: text, "is not a library for Linux") for text in NO_LIBRARY),
        *((changed(*field), "is for another kind of CPU") for field in OTHER_CPU.items()),
        (changed(MACHINE, struct.pack("<H", RISC_V)), "is for another kind of CPU"),
    ],
)
def test_a_file_that_is_not_an_engine_of_this_machine_is_named(damage, expected, tmp_path):
    file = tmp_path / "_engine.so"
    file.write_bytes(damage(Path(library()._name).read_bytes()))
    assert f"{file} {expected}" in answered(file)


def without_sections(whole: bytes) -> bytes:
    """As `sstrip` leaves it: only the segments are known."""
    return changed(SECTIONS, bytes(8))(changed(SECTION_COUNT, bytes(2))(whole))


@pytest.mark.parametrize("kind", ["folder", "pipe", "missing", "broken link"])
def test_what_is_no_file_is_named(kind: str, tmp_path: Path):
    file = tmp_path / "_engine.so"
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "broken link":
        file.symlink_to(tmp_path / "nowhere")
    expected = "is not a file" if kind in ("folder", "pipe") else "No such file or directory"
    answer = answered(file)
    assert expected in answer
    assert str(file) in answer


def answered(file: Path) -> str:
    """What another process says of an engine; a library that ends it must not end this one."""
    given = {"MTKIT_NATIVE_LIBRARY": str(file)}
    with Forked(ask, environment=given, stdout=PIPE, stderr=PIPE) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    (line,) = out.decode().splitlines()
    assert line.startswith("the native engine cannot be loaded: ")
    return line


@pytest.mark.parametrize("name", ["foo", "AVX2", "avx512", "avx2,vnni", " plain", "ünknown"])
def test_kernels_that_do_not_exist_are_refused_with_a_list_of_those_that_do(name, monkeypatch):
    monkeypatch.setenv("MTKIT_KERNELS", name)
    with pytest.raises(MtkitError) as caught:
        native.kernels("fp32")
    message = str(caught.value)
    assert message.startswith(f"MTKIT_KERNELS: this CPU or this build has no kernels named {name}")
    assert "; it has plain" in message
    assert message.endswith(" (all there are: amx, avx512bf16, vnni, avx2, neon, plain)")
