"""Preparing a corpus: time and memory of `mtkit prepare` beside SentencePiece and fairseq.

Both make of the same plain text files what they train from, with a joint BPE of the same size, on
the same cores. For fairseq SentencePiece learns the subwords, from the files as its command line
does, and applies them on all cores. What is measured is everything from text to the toolkit's own
files. Memory is that of all processes of a step together: their proportional set sizes, so that
what several share counts once, sampled while they run.

    python benchmarks/prepare.py --src train.en --tgt train.fr --valid-src dev.en --valid-tgt dev.fr

`--growth N` prepares the same pairs N times over instead, with variations, by mtkit alone: memory
must not grow with the corpus.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from common import LeftOutError, markdown, python_of, spread, version_of, versions

MIB = 1 << 20


# ---------------------------------------------------------------------------------------------
# What a command takes


@dataclass
class Taken:
    """Wall time, and the most memory of a command and all that it starts."""

    seconds: float = 0.0
    peak_bytes: int = 0


@contextmanager
def watched(process: subprocess.Popen[bytes], taken: Taken) -> Iterator[None]:
    """Measure a process and its descendants as long as it runs."""
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.05):
            taken.peak_bytes = max(taken.peak_bytes, sum(map(shared_bytes, family(process.pid))))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    processes = [pid]
    for parent in processes:
        with suppress(OSError):
            for task in (Path("/proc") / str(parent) / "task").iterdir():
                processes += map(int, (task / "children").read_text().split())
    return processes


def shared_bytes(pid: int) -> int:
    """Memory of a process, what it shares with others divided by their number."""
    with suppress(OSError):
        for line in (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def measured(command: Sequence[str | Path], *, cores: int, cwd: Path, log: Path) -> Taken:
    """Run a command on so many cores.

    Raises:
        LeftOutError: if it fails, with the end of what it printed.
    """
    taken = Taken()
    mine = set(sorted(os.sched_getaffinity(0))[-cores:])
    with log.open("ab") as output:
        output.write(f"$ {' '.join(map(str, command))}\n".encode())
        output.flush()
        started = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"OMP_NUM_THREADS": str(cores)},
            preexec_fn=lambda: os.sched_setaffinity(0, mine),
        )
        with watched(process, taken):
            status = process.wait()
        taken.seconds = time.perf_counter() - started
    if status:
        raise LeftOutError(f"status {status}: {log.read_text(errors='replace')[-2000:]}")
    return taken


# ---------------------------------------------------------------------------------------------
# The toolkits' ways

LEARN = """
import sys, sentencepiece
src, tgt, size, threads = sys.argv[1:]
sentencepiece.SentencePieceTrainer.train(
    input=f"{src},{tgt}", model_prefix="spm", model_type="bpe", vocab_size=int(size),
    character_coverage=1 - 1e-6, byte_fallback=True, num_threads=int(threads),
    minloglevel=1)
"""

APPLY = """
import itertools, sys, sentencepiece
threads, *files = sys.argv[1:]
model = sentencepiece.SentencePieceProcessor(model_file="spm.model")
for name in files:
    source, target = name.split("=")
    with open(source, encoding="utf-8", newline="\\n") as lines, open(target, "w") as output:
        while block := [line.rstrip("\\n") for line in itertools.islice(lines, 20_000)]:
            for pieces in model.encode(block, out_type=str, num_threads=int(threads)):
                output.write(" ".join(pieces) + "\\n")
"""

# Python 3.11 refuses what this version of fairseq has as defaults of its settings.
BINARISE = """
import dataclasses, functools, torch
dataclasses.dataclass = functools.partial(dataclasses.dataclass, unsafe_hash=True)
import numpy
numpy.float, numpy.int, numpy.bool = float, int, bool
from fairseq_cli.preprocess import cli_main
cli_main()
"""


@dataclass
class Corpus:
    """The files of one measurement."""

    src: Path
    tgt: Path
    valid_src: Path
    valid_tgt: Path
    vocab_size: int
    cores: int


def steps(name: str, corpus: Corpus, peers: Path) -> dict[str, list[str | Path]]:
    """The commands with which a toolkit prepares the corpus in the current folder.

    Raises:
        LeftOutError: if it cannot be installed.
    """
    python, cores = python_of(name, peers), str(corpus.cores)
    if name == "mtkit":
        command: list[str | Path] = [python, "-m", "mtkit", "-q", "prepare", "corpus"]
        command += ["--src-lang", "en", "--tgt-lang", "fr", "--out", "out"]
        command += ["--train", corpus.src, corpus.tgt]
        command += ["--valid", corpus.valid_src, corpus.valid_tgt]
        command += ["--vocab-size", str(corpus.vocab_size), "--workers", cores]
        return {"prepare": command}
    texts = {"train.src": corpus.src, "train.tgt": corpus.tgt}
    texts |= {"valid.src": corpus.valid_src, "valid.tgt": corpus.valid_tgt}
    learn = [sys.executable, "-c", LEARN, corpus.src, corpus.tgt, str(corpus.vocab_size), cores]
    apply = [sys.executable, "-c", APPLY, cores, *(f"{texts[file]}={file}" for file in texts)]
    binarise: list[str | Path] = [python, "-W", "ignore", "-c", BINARISE]
    binarise += ["--source-lang", "src", "--target-lang", "tgt", "--joined-dictionary"]
    binarise += ["--trainpref", "train", "--validpref", "valid", "--destdir", "out"]
    return {"learn": learn, "apply": apply, "binarise": [*binarise, "--workers", cores]}


# ---------------------------------------------------------------------------------------------
# Measuring


def compare(
    names: Sequence[str], corpus: Corpus, *, rounds: int, peers: Path, folder: Path
) -> dict[str, list[dict[str, Taken]]]:
    """What each step of each toolkit took, in every round; the toolkits take turns."""
    results: dict[str, list[dict[str, Taken]]] = {name: [] for name in names}
    for number in range(rounds):
        for name in list(results):
            place = folder / name
            place.mkdir()
            taken = {}
            try:
                for step, command in steps(name, corpus, peers).items():
                    print(f"round {number + 1}: {name}: {step}", file=sys.stderr)
                    log = folder / f"{name}.log"
                    taken[step] = measured(command, cores=corpus.cores, cwd=place, log=log)
                results[name].append(taken)
            except LeftOutError as error:
                print(f"left out: {name}: {error}", file=sys.stderr)
                del results[name]
            finally:
                shutil.rmtree(place)
    return results


def table(results: dict[str, list[dict[str, Taken]]], pairs: int) -> str:
    """Rows of Markdown."""
    rows = []
    seconds = {
        name: [sum(step.seconds for step in taken.values()) for taken in rounds]
        for name, rounds in results.items()
    }
    for name, rounds in results.items():
        ratios = [a / b for a, b in zip(seconds[name], seconds["mtkit"], strict=True)]
        peaks = [max(step.peak_bytes for step in taken.values()) / MIB for taken in rounds]
        of_steps = {step: statistics.median(r[step].seconds for r in rounds) for step in rounds[0]}
        rows.append(
            [
                f"{name} {version_of(name)}" if name == "mtkit" else f"SentencePiece, {name}",
                spread(seconds[name], ".1f"),
                f"{pairs / statistics.median(seconds[name]):,.0f}",
                spread(ratios, ".2f"),
                spread(peaks, ",.0f"),
                ", ".join(f"{step} {median:.1f} s" for step, median in of_steps.items()),
            ]
        )
    return markdown(["way", "seconds", "pairs/s", "times mtkit's", "peak MiB", "steps"], rows)


def grown(corpus: Corpus, times: int, folder: Path) -> Corpus:
    """The same pairs so many times, a third of them with a new name at the end of both sides."""
    rng = random.Random(1)
    ends = ("a", "e", "i", "o", "u", "an", "er", "is")
    syllables = [first + end for first in "bdfgklmnprstvz" for end in ends]
    src, tgt = folder / "grown.src", folder / "grown.tgt"
    with src.open("w") as src_file, tgt.open("w") as tgt_file:
        for copy in range(times):
            with (
                corpus.src.open(encoding="utf-8", newline="\n") as src_lines,
                corpus.tgt.open(encoding="utf-8", newline="\n") as tgt_lines,
            ):
                for number, pair in enumerate(zip(src_lines, tgt_lines, strict=True)):
                    # No two copies of a pair are the same.
                    mark = f" [{copy}.{number % 89}]" if copy else ""
                    if copy and rng.random() < 1 / 3:
                        name = "".join(rng.choices(syllables, k=rng.randint(2, 4)))
                        mark = f" {name.title()}{mark}"
                    for line, file in zip(pair, (src_file, tgt_file), strict=True):
                        file.write(line.rstrip("\n") + mark + "\n")
    return replace(corpus, src=src, tgt=tgt)


def plain(path: Path, folder: Path) -> Path:
    """A file as plain text, which all toolkits read."""
    if path.suffix != ".gz":
        return path.absolute()
    target = folder / path.stem
    with target.open("wb") as output:
        subprocess.run(["gzip", "-dc", str(path)], stdout=output, check=True)
    return target


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("src", "tgt", "valid-src", "valid-tgt"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", type=int, default=0, metavar="N")
    parser.add_argument("--toolkits", nargs="+", default=["mtkit", "fairseq"])
    parser.add_argument("--peers-dir", type=Path, default=Path("build/peers"))
    parser.add_argument("--work", type=Path, help="folder for files, some GB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as scratch:
        folder = Path(scratch)
        given = (options.src, options.tgt, options.valid_src, options.valid_tgt)
        texts = [plain(path, folder) for path in given]
        corpus = Corpus(*texts, options.vocab_size, options.threads)
        if options.growth:
            corpus = grown(corpus, options.growth, folder)
        with corpus.src.open("rb") as lines:
            pairs = sum(1 for _ in lines)
        names = ["mtkit"] if options.growth else options.toolkits
        peers = options.peers_dir.absolute()
        results = compare(names, corpus, rounds=options.rounds, peers=peers, folder=folder)
    print(f"{pairs:,} pairs, {options.threads} threads. {versions()}\n")
    print(table(results, pairs))


if __name__ == "__main__":
    main()
