"""A file that is not the native engine of this machine is named; it never ends the process."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtkit import native
from mtkit.base.errors import MtkitError
from mtkit.native.library import library

pytestmark = pytest.mark.skipif(
    native.available() != "" or sys.platform != "linux", reason="needs a built engine for Linux"
)

ASK = "from mtkit import native; print(native.available())"
# Offsets of fields in the header of an ELF file, and values, of the System V ABI.
CLASS, ENDIANNESS, MACHINE, SECTIONS, SECTION_COUNT = 4, 5, 18, 40, 60
BIT_32, BIG_ENDIAN = b"\1", b"\2"
AARCH64, X86_64, RISC_V = 183, 62, 243
OTHER_MACHINE = {"x86_64": AARCH64}.get(os.uname().machine, X86_64)


def changed(at: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda whole: whole[:at] + value + whole[at + len(value) :]


def kept(size: float) -> Callable[[bytes], bytes]:
    """The beginning: a share of the file, or so many bytes; -1 is all but the last byte."""
    return lambda whole: whole[: int(size * len(whole)) if 0 < size < 1 else int(size)]


def without_sections(whole: bytes) -> bytes:
    """As `sstrip` leaves it: only the segments are known."""
    return changed(SECTIONS, bytes(8))(changed(SECTION_COUNT, bytes(2))(whole))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (kept(0.9), "is cut off"),
        (kept(0.5), "is cut off"),
        (kept(0.01), "is cut off"),
        (kept(-1), "is cut off"),
        (kept(4096), "is cut off"),
        (kept(64), "is cut off"),
        (lambda whole: without_sections(whole)[:300_000], "is cut off"),
        (kept(63), "is not a library for Linux"),
        (kept(4), "is not a library for Linux"),
        (kept(0), "is not a library for Linux"),
        (lambda _: b"a text\n" * 100, "is not a library for Linux"),
        (lambda _: b"version https://git-lfs.github.com/spec/v1\n", "is not a library for Linux"),
        (changed(MACHINE, struct.pack("<H", OTHER_MACHINE)), "is for another kind of CPU"),
        (changed(MACHINE, struct.pack("<H", RISC_V)), "is for another kind of CPU"),
        (changed(CLASS, BIT_32), "is for another kind of CPU"),
        (changed(ENDIANNESS, BIG_ENDIAN), "is for another kind of CPU"),
        (changed(0, b"\xcf\xfa\xed\xfe"), "is not a library for Linux"),
    ],
)
def test_a_file_that_is_not_an_engine_of_this_machine_is_named(
    damage: Callable[[bytes], bytes], expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "_engine.so"
    file.write_bytes(damage(Path(library()._name).read_bytes()))
    assert f"{file} {expected}" in answered(file)


@pytest.mark.parametrize("kind", ["folder", "pipe", "missing", "broken link"])
def test_what_is_no_file_is_named(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "_engine.so"
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "broken link":
        file.symlink_to(tmp_path / "nowhere")
    expected = "is not a file" if kind in ("folder", "pipe") else "No such file or directory"
    assert expected in answered(file)
    assert str(file) in answered(file)


def answered(file: Path) -> str:
    """What another process says of an engine; a library that ends it must not end this one."""
    environment = {**os.environ, "MTKIT_NATIVE_LIBRARY": str(file)}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("the native engine cannot be loaded: ")
    return line


@pytest.mark.parametrize("name", ["foo", "AVX2", "avx512", "avx2,vnni", " plain", "ünknown"])
def test_kernels_that_do_not_exist_are_refused_with_a_list_of_those_that_do(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTKIT_KERNELS", name)
    with pytest.raises(MtkitError) as caught:
        native.kernels("fp32")
    message = str(caught.value)
    assert message.startswith(f"MTKIT_KERNELS: this CPU or this build has no kernels named {name}")
    assert "; it has plain" in message
    assert message.endswith(" (all there are: amx, vnni, avx2, neon, plain)")
