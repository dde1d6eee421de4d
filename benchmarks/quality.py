"""What the checks of `mtkit check` and `mtkit translate --check` find, and what they cost.

    python benchmarks/quality.py planted --pairs test.en test.de [--run RUN] [--third other.fr]
    python benchmarks/quality.py forecast --pairs test.en test.de --run RUN
    python benchmarks/quality.py cost --input test.en --run RUN
    python benchmarks/quality.py speed --pairs train.en train.de

`planted` plants faults in pairs of lines that are right, and counts how many are found; and it
counts how many of the pairs are marked as they are. Without `--run` the checks learn what is usual
from these pairs, as `mtkit check` does. `forecast` translates, and compares the confidence of each
line with its sentence chrF by sacreBLEU. `cost` and `speed` run the commands, and measure their
processor time, that of their processes included. Neither the training of the run nor the
development of the checks may have used the pairs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common import markdown, spread, versions
from faults import Fault, Pair, faults, planted, with_placeholder
from prepare import MIB, Taken, watched

from mtkit.base.text import read_lines

# Findings that are right in a text of another kind than the training data.
_OF_THE_DOMAIN = frozenset({"length", "unknown"})
_COVERAGE = frozenset({"omission", "addition"})
SEED = 1


def read_pairs(paths: Sequence[Path]) -> list[Pair]:
    """The pairs of one or several pairs of files: SRC TGT SRC TGT …"""
    if len(paths) % 2:
        sys.exit("--pairs needs a source and a translation: SRC TGT [SRC TGT …]")
    texts = [list(read_lines(path)) for path in paths]
    all_pairs: list[Pair] = []
    for src, tgt in zip(texts[::2], texts[1::2], strict=True):
        all_pairs += zip(src, tgt, strict=True)
    return all_pairs


def percent(part: int, whole: int) -> str:
    """A share of lines."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


# ---------------------------------------------------------------------------------------------
# Planted faults


@dataclass
class Marked:
    """The kinds of findings of some pairs.

    Attributes:
        kinds: of each pair.
        rows: of each pair, what was planted, the findings, source and translation, for
            `--examples`.
    """

    kinds: list[frozenset[str]] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)

    def count(
        self, *, of: frozenset[str] | None = None, without: frozenset[str] = frozenset()
    ) -> int:
        """The pairs with a finding, of these kinds only."""
        return sum(bool((kinds if of is None else kinds & of) - without) for kinds in self.kinds)


Check = Callable[[str, str], Sequence[tuple[str, str]]]


def check_of(run: Path | None, pairs: Sequence[Pair], languages: Sequence[str]) -> Check:
    """Returns kind and reason of each finding of a pair."""
    from mtkit.check import Checker, PairFacts, language_of, load_checker
    from mtkit.run_folder import Run

    if run is not None:
        checker = load_checker(Run.open(run))
    else:
        sides = zip(*pairs, strict=True)
        src_lang, tgt_lang = languages or [language_of(list(side)) for side in sides]
        checker = Checker(PairFacts.learn(pairs, src_lang=src_lang, tgt_lang=tgt_lang))

    def check(source: str, translation: str) -> list[tuple[str, str]]:
        return [
            (finding.kind, finding.reason)
            for finding in checker.check(source, translation).findings
        ]

    return check


def marked(check: Check, pairs: Sequence[Pair], what: str) -> Marked:
    """Check pairs."""
    result = Marked()
    for source, translation in pairs:
        findings = check(source, translation)
        result.kinds.append(frozenset(kind for kind, _ in findings))
        reasons = "; ".join(f"{kind}: {reason}" for kind, reason in findings) or "nothing"
        result.rows.append("\t".join((what, reasons, source, translation)))
    return result


def measure_planted(arguments: argparse.Namespace) -> Iterator[str]:
    """Tables of the faults that are found, and of the untouched pairs that are marked."""
    pairs = read_pairs(arguments.pairs)
    check = check_of(arguments.run, pairs, arguments.languages)
    examples: list[str] = []
    if not arguments.untouched:
        third = list(read_lines(arguments.third)) if arguments.third else []
        rows = []
        for fault in faults(pairs, third):
            cells, result = recall(fault, pairs, check, arguments.count)
            rows.append(cells)
            examples += (
                row
                for row, kinds in zip(result.rows, result.kinds, strict=True)
                if not kinds & fault.expected
            )
        yield markdown(["fault", "lines", "found", "by its own kind", "own kind"], rows)
    untouched = marked(check, pairs, "untouched")
    examples += (row for row, kinds in zip(untouched.rows, untouched.kinds, strict=True) if kinds)
    yield markdown(["untouched pairs", "lines", "marked"], shares(untouched))
    if not arguments.untouched:
        choose = random.Random(SEED)
        both = [with_placeholder(pair, choose)[0] for pair in pairs]
        extra = marked(check, both, "placeholder on both sides")
        kinds = frozenset({"placeholders", "markup"})
        yield (
            f"With a placeholder or tags on both sides, {extra.count()} of {len(pairs):,} pairs "
            f"are marked, {extra.count(of=kinds)} of them for these."
        )
    if arguments.examples:
        arguments.examples.write_text("".join(f"{row}\n" for row in examples), encoding="utf-8")


def recall(
    fault: Fault, pairs: Sequence[Pair], check: Check, count: int
) -> tuple[list[str], Marked]:
    """The row of a fault: how many are found."""
    wrong = [pair for _, pair in planted(fault, pairs, count=count, seed=SEED)]
    result = marked(check, wrong, fault.name)
    cells = [
        fault.name,
        f"{len(wrong):,}",
        percent(result.count(), len(wrong)),
        percent(result.count(of=fault.expected), len(wrong)),
        " or ".join(sorted(fault.expected)),
    ]
    return cells, result


def shares(untouched: Marked) -> list[list[str]]:
    """Rows of how many pairs are marked: in all, and by kind."""
    number = len(untouched.kinds)
    by_kind = Counter(itertools.chain.from_iterable(untouched.kinds))
    counts = {
        "all kinds": untouched.count(),
        "all kinds without length and unknown": untouched.count(without=_OF_THE_DOMAIN),
        "without omission and addition too": untouched.count(without=_OF_THE_DOMAIN | _COVERAGE),
        "omission or addition": untouched.count(of=_COVERAGE),
        **dict(by_kind.most_common()),
    }
    return [
        [name, f"{number:,}", f"{count} ({100 * count / number:.2f} %)"]
        for name, count in counts.items()
    ]


# ---------------------------------------------------------------------------------------------
# Forecasts


@dataclass(frozen=True)
class Translated:
    """A translation: its forecast, its sentence chrF, and the mean log-probability of a token."""

    source: str
    text: str
    forecast: float
    chrf: float
    log_prob: float
    reference: str


def translated(run: Path, pairs: Sequence[Pair], *, beam: int, thorough: bool) -> list[Translated]:
    """Translate the sources, without those that are blank."""
    from sacrebleu.metrics import CHRF

    from mtkit.check import Prober, load_checker
    from mtkit.run_folder import Run
    from mtkit.translate import Translator

    opened, chrf, results = Run.open(run), CHRF(), []
    checker = load_checker(opened, thorough=thorough)
    config = opened.config.decode.model_copy(update={"beam_size": beam})
    with (
        Translator.load(opened, device="cpu", config=config) as translator,
        Prober(translator, checker, with_samples=thorough, of_own=True) as prober,
    ):
        lines = [source for source, _ in pairs]
        translations = [best for best, *_ in translator.translate_nbest(lines, n_best=1)]
        for (source, reference), best, decoded in zip(
            pairs, translations, prober.decoded(lines, translations), strict=True
        ):
            forecast = checker.check(source, best.text, decoded).confidence
            if not best.log_probs:
                continue
            if forecast is None:
                sys.exit(f"{run}: has no forecast")
            true = chrf.sentence_score(best.text, [reference]).score
            mean = statistics.fmean(best.log_probs)
            results.append(Translated(source, best.text, forecast, true, mean, reference))
    return results


def measure_forecast(arguments: argparse.Namespace) -> Iterator[str]:
    """Tables of how good the forecasts are."""
    pairs = read_pairs(arguments.pairs)
    lines = translated(arguments.run, pairs, beam=arguments.beam, thorough=arguments.thorough)
    chrf = [line.chrf for line in lines]
    forecasts = [line.forecast for line in lines]
    with_forecast = spearman(forecasts, chrf)
    with_mean = spearman([line.log_prob for line in lines], chrf)
    size = max(1, len(lines) // 10)
    worst = set(sorted(range(len(lines)), key=chrf.__getitem__)[:size])
    by_forecast = sorted(range(len(lines)), key=forecasts.__getitem__)
    by_mean = sorted(range(len(lines)), key=lambda index: lines[index].log_prob)
    error = statistics.fmean(abs(line.forecast - line.chrf) for line in lines)
    tenths = []
    for part in range(10):
        some = by_forecast[part * len(lines) // 10 : (part + 1) * len(lines) // 10]
        differences = [forecasts[index] - chrf[index] for index in some]
        tenths.append(
            (
                statistics.fmean(forecasts[index] for index in some),
                statistics.fmean(chrf[index] for index in some),
                statistics.stdev(differences) / len(some) ** 0.5,
            )
        )
    largest = max(abs(forecast - true) for forecast, true, _ in tenths)
    yield markdown(
        ["what", "result"],
        [
            ["lines", f"{len(lines):,}"],
            ["mean chrF", f"{statistics.fmean(chrf):.1f}"],
            ["correlation of chrF with the forecast", f"{with_forecast:.3f}"],
            ["correlation with the mean log-probability of a token", f"{with_mean:.3f}"],
            ["difference of these", f"{with_forecast - with_mean:+.3f}"],
            [
                "of the tenth with the lowest chrF, in the tenth with the lowest forecasts",
                percent(len(worst & set(by_forecast[:size])), size),
            ],
            ["the same by mean log-probability", percent(len(worst & set(by_mean[:size])), size)],
            ["mean absolute error of a forecast", f"{error:.1f}"],
            ["largest difference in a tenth", f"{largest:.1f}"],
        ],
    )
    yield markdown(
        ["tenth by forecast", "mean forecast", "mean chrF", "difference ± standard error"],
        [
            [str(number), f"{forecast:.1f}", f"{true:.1f}", f"{forecast - true:+.1f} ± {error:.1f}"]
            for number, (forecast, true, error) in enumerate(tenths, 1)
        ],
    )
    if arguments.examples:
        rows = [
            f"{line.forecast:.1f}\t{line.chrf:.1f}\t{line.log_prob:.3f}\t{line.source}\t{line.text}"
            f"\t{line.reference}\n"
            for line in lines
        ]
        arguments.examples.write_text("".join(rows), encoding="utf-8")


def spearman(values: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation."""
    return statistics.correlation(ranks(values), ranks(other))


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value; the mean rank for equal values."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result, start = [0.0] * len(values), 0
    for _, group in itertools.groupby(order, key=values.__getitem__):
        indices = list(group)
        for index in indices:
            result[index] = start + (len(indices) - 1) / 2
        start += len(indices)
    return result


# ---------------------------------------------------------------------------------------------
# Costs


@dataclass
class Spent(Taken):
    """What a command took, with the processor time of all its processes."""

    cpu_seconds: float = 0.0


def spent(command: Sequence[str | Path], *, code: Path | None = None) -> Spent:
    """Run mtkit, in another version if `code` is the folder of its sources."""
    environment = os.environ | ({"PYTHONPATH": str(code)} if code else {})
    taken, before, started = Spent(), os.times(), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "mtkit", "-q", *map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    with watched(process, taken):
        status = process.wait()
    if status:
        sys.exit(f"mtkit {command[0]}: exit status {status}")
    after = os.times()
    taken.seconds = time.perf_counter() - started
    taken.cpu_seconds = after.children_user + after.children_system
    taken.cpu_seconds -= before.children_user + before.children_system
    return taken


def measure_cost(arguments: argparse.Namespace) -> Iterator[str]:
    """A table of the processor time of translating, with and without checks, in turns."""
    lines = list(itertools.islice(read_lines(arguments.input), arguments.lines))
    with tempfile.TemporaryDirectory() as scratch:
        whole, single = Path(scratch) / "whole", Path(scratch) / "one"
        whole.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        single.write_text(f"{lines[0]}\n", encoding="utf-8")
        command = ["translate", "--run", arguments.run, "--beam-size", arguments.beam]
        command += ["--device", "cpu"]
        ways: dict[str, Callable[[Path], Spent]] = {
            "translate": lambda path: spent([*command, "--input", path]),
            "translate --check": lambda path: spent([*command, "--check", "--input", path]),
            "with --thorough": lambda path: spent(
                [*command, "--check", "--thorough", "--input", path]
            ),
        }
        if arguments.before:
            ways["translate, version before"] = lambda path: spent(
                [*command, "--input", path], code=arguments.before
            )
        results: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            names = list(ways)
            for name in names if number % 2 == 0 else reversed(names):
                times = ways[name](whole).cpu_seconds, ways[name](single).cpu_seconds
                results[name].append(times)
    rows = []
    for name, rounds in results.items():
        paired = list(zip(rounds, results["translate"], strict=True))
        rows.append(
            [
                name,
                spread([all_ for all_, _ in rounds], ".2f"),
                spread([start for _, start in rounds], ".2f"),
                spread([mine[0] / base[0] for mine, base in paired], ".3f"),
                spread([(mine[0] - mine[1]) / (base[0] - base[1]) for mine, base in paired], ".3f"),
            ]
        )
    yield f"{len(lines):,} lines, beam {arguments.beam}, {arguments.rounds} rounds; CPU seconds."
    yield markdown(
        ["command", "all lines", "one line (start)", "times translate", "without the start"], rows
    )


def measure_speed(arguments: argparse.Namespace) -> Iterator[str]:
    """A table of the speed and the memory of `mtkit check`, for several numbers of pairs."""
    pairs = read_pairs(arguments.pairs)
    options: list[str | Path] = ["--workers", str(arguments.workers)]
    if arguments.run:
        options += ["--run", arguments.run]
    rows = []
    with tempfile.TemporaryDirectory(dir=arguments.work) as scratch:
        src, tgt, table = (Path(scratch) / name for name in ("src", "tgt", "findings.tsv"))
        for size in arguments.sizes:
            for path, side in ((src, 0), (tgt, 1)):
                with path.open("w", encoding="utf-8") as file:
                    lines = (f"{pair[side]}\n" for pair in itertools.cycle(pairs))
                    file.writelines(itertools.islice(lines, size))
            for name, more in (("check", []), ("check --findings", ["--findings", table])):
                print(f"{size:,} pairs: {name}", file=sys.stderr)
                taken = spent(["check", src, tgt, *options, *more])
                rows.append(
                    [
                        name,
                        f"{size:,}",
                        f"{taken.seconds:.1f}",
                        f"{size / taken.seconds:,.0f}",
                        f"{1e6 * taken.cpu_seconds / size:.1f}",
                        f"{arguments.workers * size / taken.cpu_seconds:,.0f}",
                        f"{taken.peak_bytes / MIB:,.0f}",
                    ]
                )
    yield f"{len(pairs):,} pairs, repeated; {arguments.workers} processes."
    cpu_speed = f"pairs/s if {arguments.workers} cores are free"
    yield markdown(
        ["command", "pairs", "seconds", "pairs/s", "CPU µs a pair", cpu_speed, "peak MiB"], rows
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = result.add_subparsers(dest="command", required=True)

    def command(
        name: str, measure: Callable[[argparse.Namespace], Iterator[str]], run: bool
    ) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=(measure.__doc__ or "").partition("\n")[0])
        subparser.set_defaults(measure=measure)
        subparser.add_argument("--run", type=Path, required=run, help="run folder")
        return subparser

    def with_pairs(subparser: argparse.ArgumentParser) -> None:
        subparser.add_argument(
            "--pairs", nargs="+", type=Path, required=True, metavar="SRC TGT", help="files of text"
        )

    def with_examples(subparser: argparse.ArgumentParser, help_: str) -> None:
        subparser.add_argument("--examples", type=Path, metavar="FILE", help=help_)

    subparser = command("planted", measure_planted, run=False)
    with_pairs(subparser)
    subparser.add_argument("--third", type=Path, metavar="FILE", help="text of a third language")
    subparser.add_argument("--count", type=int, default=1000, help="faults of each kind")
    subparser.add_argument(
        "--languages", nargs=2, default=[], metavar="L", help="instead of identified"
    )
    subparser.add_argument("--untouched", action="store_true", help="plant nothing")
    with_examples(
        subparser, "file for the faults that are missed and the untouched pairs that are marked"
    )
    subparser = command("forecast", measure_forecast, run=True)
    with_pairs(subparser)
    subparser.add_argument("--beam", type=int, default=4)
    subparser.add_argument(
        "--thorough", action="store_true", help="with samples and training pairs"
    )
    with_examples(subparser, "file for forecast, chrF, mean log-probability and texts of each line")
    subparser = command("cost", measure_cost, run=True)
    subparser.add_argument("--input", type=Path, required=True)
    subparser.add_argument("--lines", type=int, default=1000)
    subparser.add_argument("--beam", type=int, default=4)
    subparser.add_argument("--rounds", type=int, default=5)
    subparser.add_argument(
        "--before", type=Path, help="sources of an older version, to compare with"
    )
    subparser = command("speed", measure_speed, run=False)
    with_pairs(subparser)
    subparser.add_argument("--sizes", nargs="+", type=int, default=[200_000, 1_000_000])
    subparser.add_argument("--workers", type=int, default=2)
    subparser.add_argument("--work", type=Path, help="folder for files")
    return result


def main() -> None:
    """Measure, and print tables."""
    arguments = parser().parse_args()
    print(f"{versions()}\n")
    for part in arguments.measure(arguments):
        print(f"{part}\n", flush=True)


if __name__ == "__main__":
    main()
