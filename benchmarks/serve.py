"""Measure `mtkit serve`: equal texts, processor time, speed, waiting times, memory.

    python benchmarks/serve.py --run RUN --input SRC [--requests 5000] [--clients 64]
    python benchmarks/serve.py --run RUN --input SRC --memory 200000
    python benchmarks/serve.py --run RUN --hostile 10000

A request has one line of the input, or a paragraph of up to five. `mtkit translate` translates the
same lines first, and every text of the server must be equal to the byte. Processor time is that of
the process, without what it needs to start. Waiting times are those of requests at random moments
(a Poisson process), counted from the moment when a request was to be sent, at a share of the
requests a second that all clients together have reached.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Sequence
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
SIZES = (1, 1, 1, 1, 1, 1, 2, 3, 5)


class Served:
    """A server in a process of its own."""

    def __init__(self, run: Path, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", "mtkit", "serve", "--run", str(run), "--port", "0"]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            print(line.strip(), file=sys.stderr)
            if " at http://127.0.0.1:" in line:
                self.port = int(line.split("127.0.0.1:")[1].split(";")[0])
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def stop(self) -> None:
        """End it, and check that it ended as it should."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0

    def cpu(self) -> float:
        """Seconds of processor time."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> int:
        """Resident bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise OSError("no VmRSS")

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
                except ConnectionError:
                    # The server has closed a connection that was idle for long.
                    connection.close()
                    if attempt == 2:
                        raise
            if reply.status != 200:
                raise OSError(f"{reply.status}: {content!r}")
            found: str = json.loads(content)["translatedText"]
            return found

        return translate


def by_command(run: Path, lines: Sequence[str], options: Sequence[str]) -> tuple[list[str], float]:
    """The translations of `mtkit translate`, and its processor time without that of its start."""

    def translate(given: Sequence[str]) -> tuple[list[str], float]:
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
            source.write("".join(f"{line}\n" for line in given).encode())
            source.seek(0)
            command = [sys.executable, "-m", "mtkit", "-q", "translate", "--run", str(run)]
            before = os.times()
            subprocess.run([*command, *options], stdin=source, stdout=target, check=True)
            after = os.times()
            target.seek(0)
            text = target.read().decode()
        spent = after.children_user + after.children_system
        return text.split("\n")[:-1], spent - before.children_user - before.children_system

    _, start = translate(["a"])
    found, whole = translate(lines)
    return found, whole - start


def all_at_once(
    server: Served, texts: Sequence[str], clients: int, due: Sequence[float] | None = None
) -> tuple[list[str], list[float], float]:
    """The translations, the seconds until each was there, and those until all were.

    Args:
        due: when each is sent, in seconds from the start; at once if it is not given.
    """
    found, taken = [""] * len(texts), [0.0] * len(texts)
    failures: list[BaseException] = []
    waiting = iter(range(len(texts)))
    lock = threading.Lock()
    started = time.perf_counter()

    def work() -> None:
        translate = server.client()
        while not failures:
            with lock:
                i = next(waiting, None)
            if i is None:
                return
            begun = time.perf_counter()
            if due is not None:
                begun = started + due[i]
                time.sleep(max(0.0, begun - time.perf_counter()))
            try:
                found[i] = translate(texts[i])
            except BaseException as error:
                failures.append(error)
            taken[i] = time.perf_counter() - begun

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return found, taken, time.perf_counter() - started


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def paragraphs(lines: Sequence[str], count: int) -> list[list[str]]:
    """The lines of so many requests."""
    choose = random.Random(1)
    found, at = [], 0
    for _ in range(count):
        size = choose.choice(SIZES)
        found.append([lines[(at + k) % len(lines)] for k in range(size)])
        at += size
    return found


def speed(arguments: argparse.Namespace, lines: Sequence[str], options: list[str]) -> None:
    """Compare texts and processor time, and time requests."""
    requests = paragraphs(lines, arguments.requests)
    texts = ["\n".join(of_request) for of_request in requests]
    flat = [line for of_request in requests for line in of_request]
    expected, of_command = by_command(arguments.run, flat, options)
    rest = iter(expected)
    wanted = ["\n".join(next(rest) for _ in of_request) for of_request in requests]
    print(f"mtkit translate: {1000 * of_command / len(flat):.3f} ms of processor time a line")
    server = Served(arguments.run, options)
    all_at_once(server, texts[:200], arguments.clients)
    cpu = server.cpu()
    found, taken, seconds = all_at_once(server, texts, arguments.clients)
    of_server = server.cpu() - cpu
    wrong = sum(one != other for one, other in zip(found, wanted, strict=True))
    print(f"{len(texts):,} requests with {len(flat):,} lines, {wrong} with another text")
    print(
        f"server: {1000 * of_server / len(flat):.3f} ms of processor time a line, "
        f"{of_server / of_command:.2f} times that of mtkit translate"
    )
    rate = len(texts) / seconds
    print(
        f"{arguments.clients} clients: {rate:.1f} requests/s, {len(flat) / seconds:.1f} lines/s, "
        f"p50 {percentile(taken, 0.5):.3f} s, p99 {percentile(taken, 0.99):.3f} s"
    )
    few = texts[: max(50, len(texts) // 20)]
    _, taken, seconds = all_at_once(server, few, 1)
    single = len(few) / seconds
    print(f"one request at a time: {single:.1f} requests/s, p50 {percentile(taken, 0.5):.3f} s")
    print(f"gain: {rate / single:.2f}")
    choose = random.Random(2)
    for share in (0.25, 0.5, 0.9):
        due, at = [], 0.0
        for _ in range(arguments.timed):
            at += choose.expovariate(share * rate)
            due.append(at)
        _, taken, _ = all_at_once(server, texts[: len(due)], 256, due)
        times = ", ".join(f"p{p} {percentile(taken, p / 100):.3f} s" for p in (50, 95, 99))
        print(f"at {share:.0%} of that, {share * rate:.1f} requests/s: {times}")
    server.stop()


def memory(arguments: argparse.Namespace, lines: Sequence[str], options: list[str]) -> None:
    """Print the memory of the server while it answers many requests."""
    server = Served(arguments.run, options)
    texts = [line[: 20 + 10 * (i % 7)] for i, line in enumerate(lines)]
    part = max(1, arguments.memory // 20)
    for done in range(0, arguments.memory, part):
        some = [texts[(done + i) % len(texts)] for i in range(part)]
        all_at_once(server, some, arguments.clients)
        print(f"{done + part:,} requests: {server.memory() / 2**20:.1f} MiB", flush=True)
    server.stop()


def hostile(arguments: argparse.Namespace, options: list[str]) -> None:
    """Send broken requests; each must be answered, and none with an error of the server."""
    server = Served(arguments.run, options)
    choose = random.Random(3)
    good = b'{"q": "A man", "source": "en", "target": "de", "format": "html", "alternatives": 1}'
    kinds = ["application/json", "application/x-www-form-urlencoded", "text/plain",
             "multipart/form-data; boundary=x", "", "application/json; charset=utf-7"]  # fmt: skip
    counts: Counter[int] = Counter()
    before = server.memory()
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
    print(
        dict(sorted(counts.items())), f"{before / 2**20:.1f} to {server.memory() / 2**20:.1f} MiB"
    )
    assert max(counts) < 500
    server.stop()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--input", type=Path, help="source text, a sentence on each line")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--timed", type=int, default=1000, help="requests for waiting times")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--memory", type=int, help="requests for memory alone")
    parser.add_argument("--hostile", type=int, help="broken requests alone")
    parser.add_argument("--precision", help="as for mtkit translate")
    parser.add_argument("--batch-tokens", help="of the server and of mtkit translate")
    arguments = parser.parse_args()
    options = [
        word
        for name in ("precision", "batch_tokens")
        if (value := getattr(arguments, name))
        for word in (f"--{name.replace('_', '-')}", value)
    ]
    if arguments.hostile:
        hostile(arguments, options)
        return
    lines = arguments.input.read_text(encoding="utf-8").splitlines()
    if arguments.memory:
        memory(arguments, lines, options)
    else:
        speed(arguments, lines, options)


if __name__ == "__main__":
    main()
