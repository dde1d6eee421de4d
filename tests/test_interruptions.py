"""Preparing that is killed, stopped, short of space or not alone: all or nothing, and one line."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import TinyText, number_pairs, write_pairs
from support.command_line import prepare_arguments
from support.program import python
from support.runs import contents

from mtkit.__main__ import interrupt_between_imports

SUPPORT = Path(__file__).parent / "support"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def some_text(tmp_path_factory: pytest.TempPathFactory) -> TinyText:
    """Thousands of pairs, of which some are dropped, in whole blocks and in none."""
    folder = tmp_path_factory.mktemp("some-text")
    pairs = number_pairs(4000, seed=1)
    for line in [*range(500, 560), 1234, 3999]:
        pairs[line] = pairs[0] if line % 2 else ("", "null")
    return TinyText(
        folder,
        train=write_pairs(folder, "train", pairs),
        valid=write_pairs(folder, "valid", number_pairs(20, seed=2)),
        test=write_pairs(folder, "test", number_pairs(20, seed=3)),
    )


@pytest.mark.parametrize(
    ("how", "times", "seed", "workers"),
    [
        ("SIGKILL", 2, 1, "1"),
        ("SIGINT", 2, 2, "1"),
        pytest.param("SIGKILL", 20, 3, "1", marks=pytest.mark.slow),
        pytest.param("SIGKILL", 10, 4, "2", marks=pytest.mark.slow),
        pytest.param("SIGINT", 10, 5, "2", marks=pytest.mark.slow),
        pytest.param("SIGTERM", 10, 7, "2", marks=pytest.mark.slow),
    ],
)
def test_what_is_stopped_at_any_moment_ends_with_the_same_bytes(
    how: str, times: int, seed: int, workers: str, some_text: TinyText, tmp_path: Path
):
    arguments = [*prepare_arguments(some_text), "--workers", workers]
    stopped = python(SUPPORT / "stopped.py", how, times, seed, *arguments, cwd=tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    if how != "SIGKILL" or workers == "1":
        # A worker whose parent is killed while it starts is not found by anybody else.
        assert "Traceback" not in stopped.stderr
    done: dict[str, Any] = json.loads(stopped.stdout)
    assert done["statuses"] == [-signal.SIGKILL if how == "SIGKILL" else 130] * times
    names = [f"finished-{number}" for number in range(1, done["finished"] + 1)]
    undisturbed = contents(tmp_path / "undisturbed")
    assert undisturbed.keys() >= {"manifest.json", "train.src.bin", "dropped.tsv.gz"}
    for name in names:
        assert contents(tmp_path / name) == undisturbed
    # And nothing else beside it.
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "undisturbed"])


def started(arguments: list[str], place: Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mtkit", "-q", *arguments],
        cwd=place,
        env=ONE_THREAD,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_of_two_that_write_one_folder_at_once_one_does(tiny_text: TinyText, tmp_path: Path):
    both = [started(prepare_arguments(tiny_text), tmp_path) for _ in range(2)]
    ended = [(*process.communicate(timeout=600), process.returncode) for process in both]
    assert sorted(status for *_, status in ended) == [0, 1]
    for _, errors, status in ended:
        if status == 1:
            (line,) = errors.splitlines()
            assert "is being written by process" in line or "exists already" in line
    assert [path.name for path in tmp_path.rglob("*tiny*")] == ["tiny"]
    alone = started([*prepare_arguments(tiny_text), "--out", "alone"], tmp_path)
    assert alone.communicate(timeout=600) == ("", "")
    assert contents(tmp_path / "data" / "tiny") == contents(tmp_path / "alone")


# In the first stage, while subwords are kept, and in the last.
@pytest.mark.parametrize("size", [100, 5_000, 20_000])
def test_a_full_disk_is_one_line_and_leaves_nothing(size: int, some_text: TinyText, tmp_path: Path):
    full = started(
        [*prepare_arguments(some_text), "--workers", "1"],
        tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    out, errors = full.communicate(timeout=600)
    assert (full.returncode, out) == (1, "")
    (line,) = errors.splitlines()
    assert "File too large" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written_is_refused(tiny_text: TinyText, tmp_path: Path):
    tmp_path.chmod(0o555)
    refused = started(prepare_arguments(tiny_text), tmp_path)
    _, errors = refused.communicate(timeout=600)
    tmp_path.chmod(0o755)
    assert refused.returncode == 1
    assert "no file can be created in" in errors


MEMORY = """
import resource
from pathlib import Path
from mtkit.prepare import Corpus, DirectionSources, PrepareOptions, parallel_files, passes, prepare
if __name__ == "__main__":
    passes.BLOCK = 1000
    train, valid = (parallel_files(f"{split}.en", f"{split}.de") for split in ("train", "valid"))
    corpus = Corpus("large", [DirectionSources("en", "de", [train], valid)])
    prepare(corpus, Path("out"), PrepareOptions({"vocab_size": 1000}, workers=1))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_eight_times_as_many_pairs_take_no_more_memory(tmp_path: Path):
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(3000)]
    peaks = []
    for count in (5_000, 40_000):
        place = tmp_path / str(count)
        place.mkdir()
        for split, size in (("train", count), ("valid", 10)):
            pairs = [
                (" ".join(text), " ".join(reversed(text)))
                for text in (rng.choices(words, k=rng.randint(3, 30)) for _ in range(size))
            ]
            write_pairs(place, split, pairs)
        peaks.append(int(python("-c", MEMORY, cwd=place).stdout))
    assert peaks[1] < 1.2 * peaks[0], peaks


def test_a_second_interrupt_does_not_disturb_what_follows_the_first() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupt_between_imports(signal.SIGINT, None)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        interrupt_between_imports(signal.SIGINT, None)
