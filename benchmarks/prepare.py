"""Preparing a corpus: time and memory of `mtkit prepare` beside the other toolkits' own way.

Each toolkit makes of the same plain text files what it trains from, with a joint BPE of the same
size, on the same cores. Where a toolkit learns no subwords itself, or does not apply them,
SentencePiece does: the learning reads the files as its command line does, the applying uses all
cores. What is measured is everything from text to the toolkit's own files; the steps are told
apart in the notes. Memory is that of all processes of a step together: their proportional set
sizes, so that what several share counts once, sampled while they run.

    python benchmarks/prepare.py --src train.en --tgt train.fr --valid-src dev.en --valid-tgt dev.fr

`--growth N` prepares the same pairs N times over instead, with variations, by mtkit alone: memory
must not grow with the corpus.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
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

from peers import TOOLKITS, LeftOutError, processor, python_of, spread, version_of

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
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for task in (Path("/proc") / str(parent) / "task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


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
        LeftOutError: if it fails.
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
        raise LeftOutError(f"{Path(command[0]).name} ended with status {status}; see {log}")
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


@dataclass
class Way:
    """The steps of a toolkit, each a name and a command, and what they do to the pairs."""

    title: str
    steps: list[tuple[str, list[str | Path]]]
    does: str


def way(name: str, corpus: Corpus, folder: Path, peers: Path) -> Way:
    """How a toolkit prepares the corpus in a folder.

    Raises:
        LeftOutError: if it cannot be installed.
    """
    python = python_of(name, peers)
    cores = str(corpus.cores)
    pieces = ["train.src", "train.tgt", "valid.src", "valid.tgt"]
    texts = [corpus.src, corpus.tgt, corpus.valid_src, corpus.valid_tgt]
    subwords: list[tuple[str, list[str | Path]]] = [
        (
            "learn",
            [sys.executable, "-c", LEARN, corpus.src, corpus.tgt, str(corpus.vocab_size), cores],
        ),
        (
            "apply",
            [
                sys.executable,
                "-c",
                APPLY,
                cores,
                *(f"{text}={piece}" for text, piece in zip(texts, pieces, strict=True)),
            ],
        ),
    ]
    bin_folder = python.parent
    if name == "mtkit":
        command: list[str | Path] = [sys.executable, "-m", "mtkit", "-q", "prepare", "corpus"]
        command += ["--src-lang", "en", "--tgt-lang", "fr", "--out", folder / "out"]
        command += ["--train", corpus.src, corpus.tgt]
        command += ["--valid", corpus.valid_src, corpus.valid_tgt]
        command += ["--vocab-size", str(corpus.vocab_size), "--workers", cores]
        return Way(
            "mtkit", [("prepare", command)], "checks, cleans, counts overlap, hashes, encodes"
        )
    if name == "fairseq":
        preprocess: list[str | Path] = [python, "-W", "ignore", "-c", BINARISE]
        preprocess += ["--source-lang", "src", "--target-lang", "tgt", "--joined-dictionary"]
        preprocess += ["--trainpref", "train", "--validpref", "valid", "--destdir", "out"]
        preprocess += ["--workers", cores]
        return Way(
            "SentencePiece, fairseq-preprocess", [*subwords, ("binarise", preprocess)], "encodes"
        )
    if name == "sockeye":
        prepare: list[str | Path] = [bin_folder / "sockeye-prepare-data"]
        prepare += ["-s", "train.src", "-t", "train.tgt", "--shared-vocab", "-o", "out"]
        prepare += ["--max-processes", cores, "--max-seq-len", "256"]
        return Way(
            "SentencePiece, sockeye-prepare-data", [*subwords, ("shards", prepare)], "encodes"
        )
    if name == "eole":
        settings = {
            "data": {"corpus": {"path_src": str(corpus.src), "path_tgt": str(corpus.tgt)}},
            "transforms": ["sentencepiece"],
            "transforms_configs": {
                "sentencepiece": {
                    "src_subword_model": str(folder / "spm.model"),
                    "tgt_subword_model": str(folder / "spm.model"),
                }
            },
            "save_data": str(folder / "out"),
            "src_vocab": str(folder / "vocab.src"),
            "tgt_vocab": str(folder / "vocab.tgt"),
            "share_vocab": True,
            "n_sample": -1,
            "num_threads": corpus.cores,
        }
        (folder / "eole.json").write_text(json.dumps(settings))
        count: list[str | Path] = [bin_folder / "eole", "build_vocab", "-config", "eole.json"]
        return Way(
            "SentencePiece, eole build_vocab",
            [subwords[0], ("count", count)],
            "counts pieces; encodes in training",
        )
    raise LeftOutError("prepares nothing: it cuts text into subwords while it trains")


# ---------------------------------------------------------------------------------------------
# Measuring


@dataclass
class Result:
    """What a way took, round by round."""

    title: str
    does: str
    taken: list[list[Taken]]
    steps: list[str]

    @property
    def seconds(self) -> list[float]:
        """Of all steps together, of each round."""
        return [sum(step.seconds for step in one) for one in self.taken]

    @property
    def peak_mib(self) -> list[float]:
        """The most of any step, of each round."""
        return [max(step.peak_bytes for step in one) / MIB for one in self.taken]


def compare(
    names: Sequence[str], corpus: Corpus, *, rounds: int, peers: Path, folder: Path
) -> tuple[dict[str, Result], dict[str, str]]:
    """All ways in turn, round after round; and why some were left out."""
    results: dict[str, Result] = {}
    left_out: dict[str, str] = {}
    for number in range(rounds):
        for name in names:
            if name in left_out:
                continue
            place = folder / name
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            log = folder / f"{name}.log"
            try:
                of_name = way(name, corpus, place, peers)
                taken = []
                for step, command in of_name.steps:
                    print(f"round {number + 1}: {name}: {step}", file=sys.stderr)
                    taken.append(measured(command, cores=corpus.cores, cwd=place, log=log))
            except LeftOutError as error:
                left_out[name] = str(error)
                results.pop(name, None)
                continue
            finally:
                shutil.rmtree(place, ignore_errors=True)
            steps = [step for step, _ in of_name.steps]
            result = results.setdefault(name, Result(of_name.title, of_name.does, [], steps))
            result.taken.append(taken)
    return results, left_out


def table(results: dict[str, Result], pairs: int) -> str:
    """Rows of Markdown."""
    rows = [
        "| way | seconds | pairs/s | times mtkit's | peak MiB | steps | does |",
        "|---|---|---|---|---|---|---|",
    ]
    ours = results["mtkit"].seconds
    for result in results.values():
        ratios = [theirs / mine for theirs, mine in zip(result.seconds, ours, strict=True)]
        steps = ", ".join(
            f"{step} {statistics.median(one[index].seconds for one in result.taken):.1f} s"
            for index, step in enumerate(result.steps)
        )
        cells = [
            result.title,
            spread(result.seconds, ".1f"),
            f"{pairs / statistics.median(result.seconds):,.0f}",
            spread(ratios, ".2f"),
            spread(result.peak_mib, ",.0f"),
            steps,
            result.does,
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


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
    parser.add_argument("--toolkits", nargs="+", default=["mtkit", "fairseq", "sockeye", "eole"])
    parser.add_argument("--peers", type=Path, default=Path("peers"), help="environments")
    parser.add_argument("--work", type=Path, help="folder for files, some GB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as scratch:
        folder = Path(scratch)
        given = (options.src, options.tgt, options.valid_src, options.valid_tgt)
        texts = [plain(path, folder) for path in given]
        corpus = Corpus(*texts, options.vocab_size, options.threads)
        with corpus.src.open("rb") as lines:
            pairs = sum(1 for _ in lines)
        if options.growth:
            corpus = grown(corpus, options.growth, folder)
            pairs *= options.growth
        names = ["mtkit"] if options.growth else options.toolkits
        peers = options.peers.absolute()
        results, left_out = compare(
            names, corpus, rounds=options.rounds, peers=peers, folder=folder
        )
        machine = f"{processor()}, Python {platform.python_version()}"
        print(f"{pairs:,} pairs, {options.threads} threads, {machine}")
        for name in names:
            package = TOOLKITS[name].package
            print(f"{name} {package.partition('==')[2] if package else version_of(name)}", end="; ")
        print(f"sentencepiece {importlib.metadata.version('sentencepiece')}\n")
        print(table(results, pairs))
        for name, reason in left_out.items():
            print(f"\nleft out: {name}: {reason}")
            log = folder / f"{name}.log"
            if log.exists():
                print(log.read_text(errors="replace")[-2000:], file=sys.stderr)


if __name__ == "__main__":
    main()
