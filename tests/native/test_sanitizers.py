"""The native tests with an engine that checks every address and every operation of C++."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.engine_builds import sanitized
from support.program import python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

SUITES = ("test_kernels.py", "test_step.py", "test_native_search.py")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return sanitized(tmp_path_factory.mktemp("sanitized"))


@pytest.mark.parametrize("suite", SUITES)
def test_the_native_tests_pass_with_sanitizers(suite: str, environment: dict[str, str]):
    tests = Path(__file__).with_name(suite)
    # What a sanitizer reports must not be captured by a process that it ends.
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "--capture", "sys"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--timeout", "2500", str(tests)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tests.parents[2],
    )
    assert done.returncode == 0, done.stdout[-10000:]
    assert " passed" in done.stdout


def test_the_sanitizers_find_a_read_past_the_end(environment: dict[str, str]):
    # Otherwise the tests above could pass without them.
    code = (
        "import numpy; from mtkit.native.library import Shape, address, library;"
        "short = numpy.ones(3, numpy.int32);"
        "library().mtkit_new(Shape.from_address(address(short)), 0)"
    )
    done = python("-c", code, **environment)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
