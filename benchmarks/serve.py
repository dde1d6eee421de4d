"""Measure `mtkit serve`: equal texts, processor time, speed, waiting times, memory.

    python benchmarks/serve.py --run RUN --input SRC [--requests 5000] [--clients 64]
    python benchmarks/serve.py --run RUN --input SRC --precisions fp32 int8 \\
        --only mtkit ctranslate2 ctranslate2-parallel --threads 2
    python benchmarks/serve.py --run RUN --input SRC --soak 200000
    python benchmarks/serve.py --run RUN --hostile 10000
    python benchmarks/serve.py --run RUN --input SRC --glossary 200

A request has one line of the input, or a paragraph of up to five. `mtkit translate` translates the
same lines first, and every text of the server must be equal to the byte. Processor time is that of
the process, without what it needs to start. Waiting times are those of requests at random moments
(a Poisson process), counted from the moment when a request was to be sent, at a share of the
requests a second that all clients together have reached.

With `--glossary`, so many short requests are sent at random moments, alone and then beside one
with a glossary at the limits, 20 texts with 100 terms each, which is sent again when it ends.

With `--only`, a server with CTranslate2 in it (serve_ctranslate2.py) gets the same requests, with
the model of `mtkit export`, the same precision, beam and number of threads. The servers take turns:
A B, B A. The shares are those of the highest rate of mtkit for all of them. The clients compute on
the same machine. CTranslate2 has another length penalty, so some texts differ.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from common import markdown, spread, versions

TICKS = os.sysconf("SC_CLK_TCK")
SIZES = (1, 1, 1, 1, 1, 1, 2, 3, 5)
# Requests before which the memory of a server still grows: of its threads, batches and caches.
WARM_UP = 5000
SHARES = (0.25, 0.5, 0.9)
# What a server is, by its name in `--only`.
SERVERS = {
    "mtkit": "mtkit",
    "ctranslate2": "CTranslate2, one call at a time",
    "ctranslate2-parallel": "CTranslate2, a call in each thread",
}


class Served:
    """A server in a process of its own, which says its address when it is ready."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            print(line.strip(), file=sys.stderr)
            if " at http://127.0.0.1:" in line:
                self.port = int(line.split("127.0.0.1:")[1].split(";")[0])
                break
        else:
            sys.exit(f"the server has not started; exit status {self.process.wait()}")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """End it, and check that it ended as it should."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(120)
        assert kind is not None or status == 0

    def cpu(self) -> float:
        """Seconds of processor time."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> tuple[float, float]:
        """MiB of the process and of its descendants: resident, and with shared pages divided."""
        kilobytes = {"Rss": 0, "Pss": 0}
        for process in family(self.process.pid):
            # One may have ended.
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                    name, _, rest = line.partition(":")
                    if name in kilobytes:
                        kilobytes[name] += int(rest.split()[0])
        return kilobytes["Rss"] / 1024, kilobytes["Pss"] / 1024

    def client(self) -> Callable[[str], str]:
        """Translates texts over a connection that stays open."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

        def translate(text: str) -> str:
            body = json.dumps({"q": text, "source": "en", "target": "de"})
            for attempt in (1, 2):
                try:
                    connection.request(
                        "POST", "/translate", body, {"Content-Type": "application/json"}
                    )
                    reply = connection.getresponse()
                    content = reply.read()
                    break
                except (ConnectionError, http.client.HTTPException):
                    # The server has closed a connection that was idle for long.
                    connection.close()
                    if attempt == 2:
                        raise
            if reply.status != 200:
                raise OSError(f"{reply.status}: {content!r}")
            translation: str = json.loads(content)["translatedText"]
            return translation

        return translate


def family(process: int) -> Iterator[int]:
    """A process and its descendants."""
    yield process
    with contextlib.suppress(FileNotFoundError):
        for file in Path(f"/proc/{process}/task").glob("*/children"):
            for child in file.read_text().split():
                yield from family(int(child))


def by_command(
    run: Path, lines: Sequence[str], options: Sequence[str]
) -> tuple[list[str], float | None]:
    """The translations of `mtkit translate`, and its processor time without that of its start."""

    def translate(given: Sequence[str]) -> tuple[list[str], float]:
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
            source.write("".join(f"{line}\n" for line in given).encode())
            source.seek(0)
            command = mtkit_command("translate", run, options)
            before = os.times()
            subprocess.run(command, stdin=source, stdout=target, check=True)
            after = os.times()
            target.seek(0)
            text = target.read().decode()
        spent = after.children_user + after.children_system
        return text.split("\n")[:-1], spent - before.children_user - before.children_system

    _, start = translate(["a"])
    texts, whole = translate(lines)
    return texts, without_start(start, whole)


def without_start(start: float, whole: float) -> float | None:
    """The seconds of the work alone; None if they are fewer than those of the start.

    The start takes a little longer each time, or a little less: the difference of two times that
    are nearly equal says nothing, and may be zero.
    """
    return whole - start if whole > 2 * start else None


@dataclass
class Answers:
    """What requests got.

    Attributes:
        texts: the translations; empty where there was an error.
        seconds: until each was there.
        whole: the seconds until all were.
        errors: what went wrong.
    """

    texts: list[str]
    seconds: list[float]
    whole: float = 0.0
    errors: list[Exception] = field(default_factory=list)

    def times(self) -> str:
        """How long requests took."""
        return ", ".join(f"p{p} {percentile(self.seconds, p / 100):.3f} s" for p in (50, 95, 99))


def ask(
    server: Served,
    texts: Sequence[str],
    clients: int,
    due: Sequence[float] | None = None,
    *,
    may_fail: bool = False,
) -> Answers:
    """Have texts translated by so many clients at a time.

    Args:
        due: when each is sent, in seconds from the start; at once if it is not given.
        may_fail: whether to go on after an error, and not to raise it.
    """
    answers = Answers([""] * len(texts), [0.0] * len(texts))
    waiting = iter(range(len(texts)))
    lock = threading.Lock()
    started = time.perf_counter()

    def work() -> None:
        translate = server.client()
        while may_fail or not answers.errors:
            with lock:
                i = next(waiting, None)
            if i is None:
                return
            begun = time.perf_counter()
            if due is not None:
                begun = started + due[i]
                time.sleep(max(0.0, begun - time.perf_counter()))
            try:
                answers.texts[i] = translate(texts[i])
            except Exception as error:
                answers.errors.append(error)
            answers.seconds[i] = time.perf_counter() - begun

    threads = [threading.Thread(target=work) for _ in range(min(clients, len(texts)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.whole = time.perf_counter() - started
    if answers.errors and not may_fail:
        raise answers.errors[0]
    return answers


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def paragraphs(lines: Sequence[str], count: int) -> list[list[str]]:
    """The lines of so many requests."""
    choose = random.Random(1)
    texts_of_requests, at = [], 0
    for _ in range(count):
        size = choose.choice(SIZES)
        texts_of_requests.append([lines[(at + k) % len(lines)] for k in range(size)])
        at += size
    return texts_of_requests


@dataclass
class Row:
    """What is known of a server.

    Attributes:
        rates: of each turn, the requests per second of all clients together.
        cpu: of each turn, the milliseconds of processor time a line.
        texts: the answers of the last turn.
        loads: the seconds of the requests of all turns, by the share of the highest rate of mtkit.
    """

    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    loads: dict[float, list[float]] = field(default_factory=dict)


def speed(arguments: argparse.Namespace, lines: Sequence[str], precision: str) -> None:
    """Compare texts and processor time with `mtkit translate`, and then servers."""
    requests = paragraphs(lines, arguments.requests)
    texts = ["\n".join(of_request) for of_request in requests]
    options = ["--precision", precision, *of_mtkit(arguments)]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Served(mtkit_command("serve", arguments.run, options)))
        ask(server, texts[:200], arguments.clients)
        rate = against_the_command(server, arguments, requests, options)
        servers = {name: server for name in arguments.only if name == "mtkit"}
        if others := [name for name in arguments.only if name != "mtkit"]:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model"
            commands = of_ctranslate2(arguments, folder, precision)
            for name in others:
                servers[name] = stack.enter_context(Served(commands[name]))
                ask(servers[name], texts[:200], arguments.clients)
        compare(servers, arguments, requests[: arguments.compared], rate)


def against_the_command(
    server: Served,
    arguments: argparse.Namespace,
    requests: Sequence[Sequence[str]],
    options: Sequence[str],
) -> float:
    """Compare with `mtkit translate`; the requests per second of all clients together."""
    texts = ["\n".join(of_request) for of_request in requests]
    flat = [line for of_request in requests for line in of_request]
    expected, of_command = by_command(arguments.run, flat, options)
    rest = iter(expected)
    wanted = ["\n".join(next(rest) for _ in of_request) for of_request in requests]
    cpu = server.cpu()
    answers = ask(server, texts, arguments.clients)
    of_server = server.cpu() - cpu
    wrong = sum(answer != other for answer, other in zip(answers.texts, wanted, strict=True))
    print(f"{len(texts):,} requests with {len(flat):,} lines, {wrong} with another text")
    print(f"server: {1000 * of_server / len(flat):.3f} ms of processor time a line")
    if of_command is None:
        print("mtkit translate: too few lines to measure its processor time")
    else:
        print(
            f"mtkit translate: {1000 * of_command / len(flat):.3f} ms of processor time a line; "
            f"server: {of_server / of_command:.2f} times that"
        )
    rate = len(texts) / answers.whole
    print(
        f"{arguments.clients} clients: {rate:.1f} requests/s, "
        f"{len(flat) / answers.whole:.1f} lines/s, {answers.times()}"
    )
    few = texts[: max(50, len(texts) // 20)]
    answers = ask(server, few, 1)
    single = len(few) / answers.whole
    print(f"one request at a time: {single:.1f} requests/s, {answers.times()}")
    print(f"gain: {rate / single:.2f}", flush=True)
    return rate


def compare(
    servers: dict[str, Served],
    arguments: argparse.Namespace,
    requests: Sequence[Sequence[str]],
    rate: float,
) -> None:
    """Print a table: what servers do with all clients together, and with less than that.

    Args:
        rate: the highest one of mtkit, if it is alone and therefore not measured here.
    """
    texts = ["\n".join(of_request) for of_request in requests]
    lines = sum(map(len, requests))
    rows = {name: Row() for name in servers}
    turns = [*servers, *reversed(servers)] if len(servers) > 1 else [*servers]
    for name in turns if len(servers) > 1 else ():
        cpu = servers[name].cpu()
        answers = ask(servers[name], texts, arguments.clients)
        rows[name].cpu.append(1000 * (servers[name].cpu() - cpu) / lines)
        rows[name].rates.append(len(texts) / answers.whole)
        rows[name].texts = answers.texts
    if ours := rows["mtkit"].rates:
        rate = sum(ours) / len(ours)
    choose = random.Random(2)
    for share in SHARES:
        due, at = [], 0.0
        for _ in range(arguments.timed):
            at += choose.expovariate(share * rate)
            due.append(at)
        some = [texts[i % len(texts)] for i in range(len(due))]
        for name in turns:
            rows[name].loads.setdefault(share, []).extend(
                ask(servers[name], some, 256, due).seconds
            )
    print()
    print(
        markdown(
            [
                *("server", "requests/s", "ms of processor time a line"),
                *(f"p50, p95, p99 in s at {share * rate:.1f} requests/s" for share in SHARES),
                *("MiB", "texts as mtkit's"),
            ],
            [
                [
                    SERVERS[name],
                    spread(row.rates, ".1f"),
                    spread(row.cpu, ".2f"),
                    *(
                        ", ".join(
                            f"{percentile(row.loads[share], p):.3f}" for p in (0.5, 0.95, 0.99)
                        )
                        for share in SHARES
                    ),
                    f"{servers[name].memory()[0]:.0f}",
                    f"{sum(map(str.__eq__, row.texts, rows['mtkit'].texts))} of {len(row.texts)}",
                ]
                for name, row in rows.items()
            ],
        ),
        flush=True,
    )


def mtkit_command(name: str, run: Path, options: Sequence[str]) -> list[str]:
    """The command line of a command of mtkit."""
    port = ["--port", "0"] if name == "serve" else []
    return [sys.executable, "-m", "mtkit", name, "--run", str(run), *port, *options]


def of_mtkit(arguments: argparse.Namespace) -> list[str]:
    """The options of `mtkit serve` and `mtkit translate`, but for the precision."""
    given = {
        "--workers": arguments.threads,
        "--batch-tokens": arguments.batch_tokens,
        "--beam-size": arguments.beam_size,
    }
    return [word for name, value in given.items() if value for word in (name, str(value))]


def of_ctranslate2(
    arguments: argparse.Namespace, folder: Path, precision: str
) -> dict[str, list[str]]:
    """Export the run to a folder; the commands of the servers with that model."""
    from mtkit.convert.export_record import power_penalty
    from mtkit.run_folder import Run

    form = "int8" if precision == "int8" else "float32"
    command = [sys.executable, "-m", "mtkit", "-q", "export", str(arguments.run), str(folder)]
    command += ["--format", "ctranslate2", "--quantization", form, "--check", str(arguments.input)]
    subprocess.run(command, check=True)
    decode = Run.open(arguments.run).config.decode
    server = [sys.executable, str(Path(__file__).with_name("serve_ctranslate2.py")), str(folder)]
    server += ["--precision", precision, "--threads", str(arguments.threads)]
    server += ["--beam-size", str(arguments.beam_size or decode.beam_size)]
    server += ["--length-penalty", str(power_penalty(decode))]
    server += ["--extra-length", str(decode.max_extra_length)]
    return {"ctranslate2": server, "ctranslate2-parallel": [*server, "--parallel"]}


def soak(arguments: argparse.Namespace, lines: Sequence[str], precision: str) -> None:
    """Print the memory of the server while it answers many short requests, and errors."""
    texts = [line[: 20 + 10 * (i % 7)] for i, line in enumerate(lines)]
    options = ["--precision", precision, *of_mtkit(arguments)]
    with Served(mtkit_command("serve", arguments.run, options)) as server:
        warm_up = min(WARM_UP, arguments.soak // 2)
        part = max(1, (arguments.soak - warm_up) // 20)
        done, spent, errors = 0, 0.0, Counter[str]()
        first: tuple[float, float] | None = None
        while done < arguments.soak:
            count = min(arguments.soak - done, part) if done else warm_up
            some = [texts[(done + i) % len(texts)] for i in range(count)]
            answers = ask(server, some, arguments.clients, may_fail=True)
            done += count
            spent += answers.whole
            errors.update(map(repr, answers.errors))
            now = server.memory()
            first = first or now
            print(f"{done:,} requests: {now[0]:.1f} MiB, shared pages divided {now[1]:.1f} MiB",
                  flush=True)  # fmt: skip
    assert first is not None
    growth = [100 * (after / before - 1) for before, after in zip(first, now, strict=True)]
    print(
        f"after {warm_up:,} requests, memory has grown by {growth[0]:.2f} %, with shared pages "
        f"divided by {growth[1]:.2f} %; {sum(errors.values())} errors; "
        f"{done / spent:.1f} requests/s"
    )
    for what, number in errors.most_common(5):
        print(f"{number} times {what[:200]}")


def hostile(arguments: argparse.Namespace) -> None:
    """Send broken requests; each must be answered, and none with an error of the server."""
    choose = random.Random(3)
    good = b'{"q": "A man", "source": "en", "target": "de", "format": "html", "alternatives": 1}'
    kinds = ["application/json", "application/x-www-form-urlencoded", "text/plain",
             "multipart/form-data; boundary=x", "", "application/json; charset=utf-7"]  # fmt: skip
    counts: Counter[int] = Counter()
    with Served(mtkit_command("serve", arguments.run, of_mtkit(arguments))) as server:
        before, _ = server.memory()
        for _ in range(arguments.hostile):
            body = bytearray(good)
            for _ in range(choose.randint(0, 6)):
                at = choose.randrange(len(body))
                body[at : at + choose.randint(0, 3)] = choose.choice(
                    [b"", b"{", b"}", b"[" * 500, b'"', b"\\", b"\\ud800", b"\0", b"\xff", b"1e999",
                     b"9" * 300, b"<b>" * 50, b"null", choose.randbytes(5)]
                )  # fmt: skip
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            path = choose.choice(["/translate", "/detect", "/v2/translate", "/languages", "/x"])
            connection.request("POST", path, bytes(body), {"Content-Type": choose.choice(kinds)})
            reply = connection.getresponse()
            reply.read()
            connection.close()
            counts[reply.status] += 1
        print(dict(sorted(counts.items())), f"{before:.1f} to {server.memory()[0]:.1f} MiB")
    assert max(counts) < 500


def with_glossary(arguments: argparse.Namespace, lines: Sequence[str], precision: str) -> None:
    """Print the waiting times of short requests, alone and beside a request with a glossary."""
    words = list(dict.fromkeys(word for line in lines for word in line.split() if word.isalpha()))
    terms = {word: f"{word}er" for word in words[:100]}
    body = {"q": [" ".join(terms)] * 20, "source": "en", "target": "de", "glossary": terms}
    choose, due, at = random.Random(4), [], 0.0
    for _ in range(arguments.glossary):
        at += choose.expovariate(10)
        due.append(at)
    texts = [lines[i % len(lines)] for i in range(arguments.glossary)]
    statuses, stop = Counter[int](), threading.Event()
    options = ["--precision", precision, *of_mtkit(arguments)]
    with Served(mtkit_command("serve", arguments.run, options)) as server:

        def ask_with_terms() -> None:
            while not stop.is_set():
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
                kind = {"Content-Type": "application/json"}
                connection.request("POST", "/translate", json.dumps(body), kind)
                statuses[connection.getresponse().status] += 1
                connection.close()

        ask(server, texts[:50], 4)
        alone = ask(server, texts, 64, due)
        beside = threading.Thread(target=ask_with_terms)
        beside.start()
        time.sleep(5)
        together = ask(server, texts, 64, due, may_fail=True)
        slow = percentile(together.seconds, 0.95) / percentile(alone.seconds, 0.95)
        print(f"{len(texts)} short requests alone: {alone.times()}")
        print(f"beside one with a glossary: {together.times()}, {len(together.errors)} errors")
        print(f"p95 is {slow:.2f} times as long", flush=True)
        stop.set()
        beside.join()
    print(f"the others: {dict(sorted(statuses.items()))}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--input", type=Path, help="source text, a sentence on each line")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--timed", type=int, default=1000, help="requests for waiting times")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=SERVERS, default=["mtkit"])
    parser.add_argument("--compared", type=int, default=1000, help="requests for the highest rates")
    parser.add_argument("--soak", type=int, help="short requests for memory alone")
    parser.add_argument("--hostile", type=int, help="broken requests alone")
    parser.add_argument("--glossary", type=int, help="short requests beside one with a glossary")
    parser.add_argument("--precisions", nargs="+", choices=["auto", "fp32", "bf16", "int8"],
                        default=["auto"], help="as for mtkit translate")  # fmt: skip
    parser.add_argument("--threads", type=int, help="default: one per core")
    parser.add_argument("--beam-size", type=int, help="default: that of the run")
    parser.add_argument("--batch-tokens", help="of the server and of mtkit translate")
    arguments = parser.parse_args()
    if arguments.hostile:
        hostile(arguments)
        return
    if arguments.input is None:
        parser.error("--input is required")
    if arguments.only != ["mtkit"]:
        if not {"fp32", "int8"}.issuperset(arguments.precisions):
            parser.error("CTranslate2 has --precisions fp32 and int8")
        if "mtkit" not in arguments.only or not arguments.threads:
            parser.error("to compare, give --threads, and mtkit in --only")
    from mtkit.base.text import read_lines

    lines = [line for line in read_lines(arguments.input) if line.strip()]
    print(versions())
    for precision in arguments.precisions:
        print(f"\nprecision {precision}")
        measure = soak if arguments.soak else with_glossary if arguments.glossary else speed
        measure(arguments, lines, precision)


if __name__ == "__main__":
    main()
