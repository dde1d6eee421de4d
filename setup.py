"""Compile the native engine where a C++20 compiler is; pyproject.toml has everything else.

Without a compiler, or where it fails, the installation goes on: mtkit then computes with PyTorch.
A compiled library is kept, so that the next installation from the same sources need not compile.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import secrets
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError, CompileError

ENGINE = "mtkit.native._engine"
# How many libraries are kept, each of some sources, flags and compiler: about 1 MB each.
KEPT = 4
# `-ffp-contract=off`: results have the same bits whichever compiler is used.
FLAGS = ["-O3", "-g0", "-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-fvisibility=hidden"]


class BuildEngine(build_ext):
    """Build a library for `ctypes`: it does not depend on the version of Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """The name of the library, without a version of Python in it."""
        return f"{fullname.replace('.', os.sep)}.so"

    def run(self) -> None:
        """Build, or make this a distribution without anything of its platform."""
        compilers = [sysconfig.get_config_var("CXX") or "", "c++", "g++", "clang++"]
        found = [name for name in compilers if shutil.which(name.partition(" ")[0])]
        if found:
            # What Python was built with need not be on this machine.
            os.environ.setdefault("CXX", found[0])
        super().run()
        if not Path(self.get_ext_fullpath(ENGINE)).exists():
            self.distribution.ext_modules = []
            self.get_finalized_command("bdist_wheel").root_is_pure = True

    def build_extension(self, ext: Extension) -> None:
        """Compile the sources in parallel. `CompileError` becomes a warning of one line."""
        library = Path(self.get_ext_fullpath(ext.name))
        # A library of earlier sources must not stay where the compiler fails.
        library.unlink(missing_ok=True)
        kept = KeptLibraries.of(self.compiler, ext)
        if kept is not None and (content := kept.read()) is not None:
            library.parent.mkdir(parents=True, exist_ok=True)
            library.write_bytes(content)
            library.chmod(0o755)
            self.announce(f"the native engine was compiled before: {kept.folder}", logging.INFO)
            return
        self.announce(
            f"compiling the native engine, {len(ext.sources)} files of C++ on {os.cpu_count()} "
            "cores: about a minute, and several if other programs use them",
            logging.INFO,
        )
        compile_in_order = self.compiler.compile

        def compile_in_parallel(sources: list[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                each = threads.map(lambda source: compile_in_order([source], **options), sources)
                return [name for names in each for name in names]

        self.compiler.compile = compile_in_parallel
        try:
            super().build_extension(ext)
        except (CCompilerError, BaseError) as error:
            raise CompileError(f"{error}; mtkit computes with PyTorch without it") from error
        if kept is not None and library.exists():
            kept.write(library.read_bytes())

    def copy_extensions_to_source(self) -> None:
        """Put the library of an editable installation among the sources."""
        # The same here; a process that uses the old file keeps it.
        Path(self.get_ext_filename(ENGINE)).unlink(missing_ok=True)
        super().copy_extensions_to_source()


class KeptLibraries:
    """Compiled libraries in the user's cache folder, under the hashes of what they were made of.

    The name of a file also has the hash of its content, which is checked before it is used.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        self._key = key

    @classmethod
    def of(cls, compiler: object, ext: Extension) -> KeptLibraries | None:
        """Those for the compiler, its flags and the sources; None if none may be kept.

        `MTKIT_ENGINE_CACHE` names another folder; if it is empty, none is kept.
        """
        commands = {name: getattr(compiler, name) for name in sorted(compiler.executables)}
        made_of = [str(commands), str(FLAGS), sysconfig.get_platform(), str(platform.libc_ver())]
        try:
            folder = os.environ.get("MTKIT_ENGINE_CACHE")
            if folder is None:
                folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "mtkit")
            version = [commands["compiler_so_cxx"][0], "--version"]
            made_of.append(subprocess.check_output(version, text=True))
            for name in sorted([*ext.sources, *ext.depends, "setup.py"]):
                made_of.append(f"{name} {hashlib.sha256(Path(name).read_bytes()).hexdigest()}")
        # There may be no home folder (RuntimeError).
        except (KeyError, OSError, RuntimeError, subprocess.SubprocessError):
            return None
        # A library for this CPU alone must not come to another that shares the folder.
        if not folder or "=native" in made_of[0]:
            return None
        return cls(Path(folder), hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:32])

    def read(self) -> bytes | None:
        """The library; None if there is none, or if another user could have written it."""
        with contextlib.suppress(OSError):
            if self._is_own():
                for path in self.folder.glob(f"{self._key}-*.so"):
                    content = path.read_bytes()
                    if path.stem.partition("-")[2] == hashlib.sha256(content).hexdigest():
                        path.touch()
                        return content
                    path.unlink()
        return None

    def write(self, content: bytes) -> None:
        """Keep a library, and delete the oldest ones; without room for it nothing is kept."""
        partial = self.folder / f".{secrets.token_hex(8)}.partial"
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self._is_own():
                return
            try:
                partial.write_bytes(content)
                digest = hashlib.sha256(content).hexdigest()
                partial.replace(self.folder / f"{self._key}-{digest}.so")
            finally:
                partial.unlink(missing_ok=True)
            kept = sorted(self.folder.glob("*-*.so"), key=lambda path: path.stat().st_mtime)
            for old in kept[:-KEPT]:
                old.unlink()

    def _is_own(self) -> bool:
        """Whether the folder is this user's, and nobody else may write there."""
        status = self.folder.stat()
        return status.st_uid == os.geteuid() and not status.st_mode & 0o022


class WheelOfPlatform(bdist_wheel):
    """A wheel for one platform and every Python, or for every platform without the engine."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform."""
        return ("py3", "none", super().get_tag()[2])


setup(
    ext_modules=[
        Extension(
            ENGINE,
            sources=sorted(glob("mtkit/native/src/*.cpp")),
            depends=sorted(glob("mtkit/native/src/**/*.h", recursive=True)),
            language="c++",
            extra_compile_args=FLAGS,
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildEngine, "bdist_wheel": WheelOfPlatform},
)
