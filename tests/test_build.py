"""What `pip install` builds: a wheel with the engine, or without it where no compiler is."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from conftest import slow

from mtkit import native

ROOT = Path(__file__).parents[1]
ENGINE = "mtkit/native/_engine.so"

pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="mtkit is installed alone")


def test_the_engine_is_there_after_an_installation_with_a_compiler():
    if "MTKIT_NATIVE_LIBRARY" in os.environ:
        pytest.skip("MTKIT_NATIVE_LIBRARY names another library")
    installed = json.loads(distribution("mtkit").read_text("direct_url.json") or "{}")
    is_editable = installed.get("dir_info", {}).get("editable", False)
    if not is_editable or installed["url"] != ROOT.as_uri():
        pytest.skip("mtkit was not installed with pip install --editable from this folder")
    compiler = shutil.which("c++")
    check = [compiler or "", "-std=c++20", "-fsyntax-only", "-x", "c++", os.devnull]
    if compiler is None or subprocess.run(check, capture_output=True).returncode:
        pytest.skip("no compiler of C++20 is installed as c++")
    assert native.available() == "", "install it again: make clean, make test"


# A compiler that writes down each call, and what it "compiles" into: its own version.
COMPILER = """\
#!/bin/sh
case "$*" in *--version*) echo "compiler 1"; exit;; esac
echo "$*" >> "$CALLS"
for last; do test "$before" = -o && echo "made by $0" > "$last"; before=$last; done
"""


class Builds:
    """Builds of the engine from a few small sources, with a compiler that takes no time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache, self.calls = folder, folder / "cache", folder / "calls"
        self.compiler = folder / "c++"
        self.compiler.write_text(COMPILER)
        self.compiler.chmod(0o755)
        (folder / "mtkit/native/src").mkdir(parents=True)
        for name in ("one.cpp", "two.cpp", "all.h"):
            (folder / "mtkit/native/src" / name).write_text(f"// {name}")
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, folder)

    def build(self, **environment: str) -> tuple[int, str]:
        """Build a library; returns how often the compiler was called, and what was printed."""
        pytest.importorskip("setuptools", "77")
        self.calls.write_text("")
        shutil.rmtree(self.folder / "build", ignore_errors=True)
        given = {"CC": str(self.compiler), "CXX": str(self.compiler), "CALLS": str(self.calls)}
        given |= {"MTKIT_ENGINE_CACHE": str(self.cache), **environment}
        done = subprocess.run(
            [sys.executable, "setup.py", "-v", "build_ext", "--build-lib", "build/lib"],
            cwd=self.folder,
            env={**os.environ, **given},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        made = self.folder / "build/lib" / ENGINE
        assert made.read_text() == f"made by {environment.get('CXX', self.compiler)}\n"
        return len(self.calls.read_text().splitlines()), done.stdout + done.stderr


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path)


def test_a_library_is_compiled_once_and_a_line_says_so(builds):
    count, printed = builds.build()
    assert count == 3  # two files, and the library
    assert "compiling the native engine, 2 files of C++" in printed
    count, printed = builds.build()
    assert count == 0
    assert "compiling" not in printed
    assert f"the native engine was compiled before: {builds.cache}" in printed


@pytest.mark.parametrize(
    "change",
    [
        lambda builds: (builds.folder / "mtkit/native/src/one.cpp").write_text("// other"),
        slow(lambda builds: (builds.folder / "mtkit/native/src/all.h").write_text("// other")),
        lambda builds: (builds.folder / "mtkit/native/src/three.h").write_text("// new"),
        slow(
            lambda builds: (builds.folder / "setup.py").write_text(
                (ROOT / "setup.py").read_text() + "#"
            )
        ),
        lambda builds: builds.compiler.write_text(COMPILER.replace("compiler 1", "compiler 2")),
        slow(lambda _: {"CFLAGS": "-O0"}),
        lambda _: {"CFLAGS": "-march=native"},
        slow(lambda _: {"LDFLAGS": "-static"}),
        slow(lambda _: {"MTKIT_ENGINE_CACHE": ""}),
        slow(lambda builds: {"MTKIT_ENGINE_CACHE": str(builds.folder / "other")}),
        slow(lambda builds: {"MTKIT_ENGINE_CACHE": str(builds.folder / "README.md")}),
        # What was damaged, or could have been written by others.
        lambda builds: [path.write_bytes(b"cut") for path in builds.cache.iterdir()],
        lambda builds: builds.cache.chmod(0o777),
    ],
)
def test_a_library_of_anything_else_is_not_taken(change, builds):
    builds.build()
    changed = change(builds)
    environment = changed if isinstance(changed, dict) else {}
    count, _ = builds.build(**environment)
    assert count == 3


NO_HOME = """
import os, pwd
for name in {"HOME", "XDG_CACHE_HOME", "MTKIT_ENGINE_CACHE"} & os.environ.keys():
    del os.environ[name]
def getpwuid(number):
    raise KeyError(number)
pwd.getpwuid = getpwuid
"""


def test_without_a_home_folder_the_engine_is_compiled_and_not_kept(builds):
    (builds.folder / "sitecustomize.py").write_text(NO_HOME)
    assert builds.build(PYTHONPATH=str(builds.folder))[0] == 3


def test_only_the_newest_libraries_are_kept_and_nothing_half_written(builds):
    for number in range(6):
        (builds.folder / "mtkit/native/src/one.cpp").write_text(f"// {number}")
        assert builds.build()[0] == 3
    assert len(list(builds.cache.iterdir())) == 4
    assert builds.build()[0] == 0


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of what a wheel is built from; a build writes into it."""
    folder = tmp_path / "sources"
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "mtkit", folder / "mtkit", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(sources: Path, **environment: str) -> tuple[zipfile.ZipFile, str]:
    """Build a wheel; returns it and what was printed."""
    pytest.importorskip("setuptools", "77")
    folder = sources / "wheels"
    options = ["--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-v", *options, str(sources)],
        env={**os.environ, "MTKIT_ENGINE_CACHE": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel), done.stdout


@pytest.mark.slow
def test_a_wheel_has_the_engine_for_every_python_of_its_platform(sources):
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler is installed")
    wheel, _ = build(sources)
    assert "-py3-none-" in str(wheel.filename)
    assert not str(wheel.filename).endswith("-any.whl")
    assert ENGINE in wheel.namelist()
    assert not [name for name in wheel.namelist() if name.endswith((".cpp", ".h"))]
    assert ctypes.CDLL(wheel.extract(ENGINE, sources)).mtkit_abi() > 0


@pytest.mark.slow
def test_without_a_compiler_a_wheel_is_built_without_the_engine_and_one_line_says_so(sources):
    wheel, printed = build(sources, CC="/missing/cc", CXX="/missing/c++")
    assert str(wheel.filename).endswith("-py3-none-any.whl")
    assert ENGINE not in wheel.namelist()
    assert "mtkit/native/library.py" in wheel.namelist()
    (line,) = (line for line in printed.splitlines() if "PyTorch" in line)
    assert "/missing/c++" in line


@pytest.mark.slow
def test_a_wheel_has_every_file_of_the_package_but_the_sources_of_the_engine(sources):
    files = (file for file in (sources / "mtkit").rglob("*") if file.is_file())
    expected = {file.relative_to(sources).as_posix() for file in files}
    expected -= {name for name in expected if name.startswith("mtkit/native/src/")}
    wheel, _ = build(sources, CC="/missing/cc", CXX="/missing/c++")
    assert {name for name in wheel.namelist() if name.startswith("mtkit/")} == expected


@pytest.mark.slow
def test_a_library_of_earlier_sources_is_not_in_a_wheel_whose_sources_do_not_compile(sources):
    built = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    stale = sources / "build" / built / ENGINE
    stale.parent.mkdir(parents=True)
    stale.touch()
    (source, *_) = sorted((sources / "mtkit/native/src").glob("*.cpp"))
    source.write_text("not C++")
    wheel, _ = build(sources)
    assert ENGINE not in wheel.namelist()


@pytest.mark.slow
def test_the_source_distribution_has_every_file_of_the_package(sources):
    code = "from setuptools import build_meta; print(build_meta.build_sdist('dist'))"
    subprocess.run([sys.executable, "-c", code], cwd=sources, check=True, capture_output=True)
    (archive,) = (sources / "dist").glob("*.tar.gz")
    shutil.unpack_archive(archive, sources / "unpacked")
    (unpacked,) = (sources / "unpacked").iterdir()
    expected, packed = (
        {file.relative_to(top) for file in (top / "mtkit").rglob("*") if file.is_file()}
        for top in (sources, unpacked)
    )
    assert packed == expected
    names = {"setup.py", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO"}
    assert {file.name for file in unpacked.iterdir()} >= names
