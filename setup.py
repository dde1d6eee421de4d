"""Compile the native engine where a C++20 compiler is; pyproject.toml has everything else.

Without a compiler, or where it fails, the installation goes on: mtkit then computes with PyTorch.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError, CompileError

ENGINE = "mtkit.native._engine"
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
        # A library of earlier sources must not stay where the compiler fails.
        Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
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

    def copy_extensions_to_source(self) -> None:
        """Put the library of an editable installation among the sources."""
        # The same here; a process that uses the old file keeps it.
        Path(self.get_ext_filename(ENGINE)).unlink(missing_ok=True)
        super().copy_extensions_to_source()


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
