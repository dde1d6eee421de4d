"""The benchmark of the server, all parts of it, with a small run."""

import importlib.util
import re

import pytest
from support.benchmarks import BENCHMARKS
from support.program import printed

from mtkit.run_folder import Run

BENCHMARK = BENCHMARKS / "serve.py"


def measured(run: Run, *options: str) -> list[str]:
    return printed(BENCHMARK, "--run", run.path, "--clients", "3", *options).splitlines()


@pytest.mark.slow
def test_the_memory_of_a_server_is_compared_before_and_after_many_requests(ending_run, tiny_text):
    *lines, last = measured(ending_run, "--input", str(tiny_text.train[0]), "--soak", "50")
    memory = [line for line in lines if re.fullmatch(r"\d+ requests: [\d.]+ MiB, .* MiB", line)]
    # Half of so few are for the warm-up, and the others are sent one after another.
    assert [int(line.split()[0]) for line in memory] == list(range(25, 51))
    assert re.fullmatch(
        r"after 25 requests, memory has grown by \S+ %, with shared pages divided by \S+ %; "
        r"0 errors; \S+ requests/s",
        last,
    )


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("ctranslate2") is None, reason="ctranslate2 is not installed"
)
def test_a_server_with_ctranslate2_is_measured_with_the_same_requests(ending_run, tiny_text):
    lines = measured(
        ending_run,
        *("--input", str(tiny_text.train[0]), "--precisions", "fp32"),
        *("--only", "mtkit", "ctranslate2", "ctranslate2-parallel", "--threads", "1"),
        *("--requests", "20", "--compared", "10", "--timed", "10", "--beam-size", "1"),
    )
    assert [line for line in lines if line.endswith(", 0 with another text")]
    _, _, *rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    names = ["mtkit", "CTranslate2, one call at a time", "CTranslate2, a call in each thread"]
    assert [row[0] for row in rows] == names
    assert rows[0][-1] == "10 of 10"
    # Greedy search is the same everywhere, but for ties, and for the maximum length, which is that
    # of the longest line of a text there.
    assert all(int(row[-1].split()[0]) >= 4 for row in rows)
