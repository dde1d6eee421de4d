"""Measure what texts that nobody writes cost: processor time before translation, and `/health`.

    python benchmarks/hostile_texts.py [--size 50000] [--step "split en"]
    python benchmarks/hostile_texts.py --run RUN [--texts 200] [--clients 16]

Each text is one of `UNITS`, repeated and never cut inside a unit. The first line prints the
processor time of each step that reads texts, for a text of about `--size` characters and for that
text twice: of steps that take more than `MIN_SECONDS`, the ratio should not be above 2.3. The
second line sends `--texts` of them to a server, as plain text and as HTML, and prints how long
`/health` took meanwhile.
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
from common import markdown
from serve import Served, mtkit_command, percentile

# Quotation marks, brackets, tags, digits, entities, placeholders, scripts without spaces, marks.
UNITS = (
    *"`\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb\u2039\"'\u300c\u300e\uff08(\u300a\u3010[{<",
    *("a \u201c", "a. \u201cb ", "\u201ca. b.", "it's ", "(a. ", "\u300c\u4f60\u597d\u3002"),
    *("1", "1.", "1. ", "1,000,", "1/2 ", "12:", "\u0663", "\u4e07", "ten ", "a1"),
    *("<b>", "</b>", "<b></b>", "<i>a <b>a", "<p>a", "<a href='", "<a b=c ", "<!--", "<![CDATA["),
    *("<script>", "<pre>", "<br>a", "a<img>", "< ", "<a\n", "<ul><li>", "<p>a<b>b</p>", "</p>"),
    *("&", "&lt;", "&#60;", "&#9999999999;", "&am", "{", "{a}", "{{", "${", "%", "%s", "%(", "{a,"),
    *("{n, plural, one {", "\u4f60\u597d", "\u0e2a\u0e27", "\u0915\u0964", "\u1780", "a\u0301"),
    *("\u0301", "\u200d", "\U0001f600", "\u202e", "\ufdfa", "\ufffd", "word ", "a"),
    *(".", "... ", "?! ", "A. ", "Dr. ", "[1] "),
    *(" ", "\u2028", "\n", "a\n", "\r", "http://a.b/ ", "a@", "www.a.", "a-", "\u00ad"),
)  # fmt: skip
MAX_RATIO = 2.3
MIN_SECONDS = 0.05


def steps() -> dict[str, Callable[[str], Any]]:
    """What is done with a text before and after it is translated, by its name."""
    from mtkit.align import Alignment, word_spans
    from mtkit.base.sentences import split
    from mtkit.check import Checker, PairFacts
    from mtkit.serve.languages import detect
    from mtkit.tokenizer import Tokenizer
    from mtkit.translate import (
        MarkupPairs,
        MarkupRules,
        Translation,
        Window,
        markup_steps,
        markup_text,
    )
    from mtkit.translate.glossary.terms import Glossary, missing_terms

    checker = Checker(PairFacts.learn([], src_lang="en", tgt_lang="de"))
    glossary = Glossary({"a": "b", "ten ten": "c", "1": "2"})
    words = ["the", "old", "woman", "buys", "umbrella", "\u4f60\u597d", "ten", "word"]
    tokenizer = Tokenizer.learn(words * 20, 300)

    def in_lines(text: str, language: str) -> None:
        """Split each line, and keep no result: that would measure new memory."""
        for line in text.split("\n"):
            split(line, language)

    def in_markup(text: str, rules: MarkupRules) -> None:
        """Read it, and put the tags into a translation that is the text."""
        running: Any = markup_steps(text.split("\n"), rules=rules)
        answer: Any = None
        while True:
            try:
                wanted = running.send(answer)
            except StopIteration:
                return
            if isinstance(wanted, Window):
                answer = [[Translation(line)] for line in wanted.lines]
            else:
                assert isinstance(wanted, MarkupPairs)
                spans = [word_spans(source) for source in wanted.sources]
                links = [{(i, i): 1.0 for i in range(len(some))} for some in spans]
                answer = list(map(Alignment, links, spans, spans))

    return {
        "split en": lambda text: in_lines(text, "en"),
        "split ja": lambda text: in_lines(text, "ja"),
        "HTML": lambda text: in_markup(text, MarkupRules()),
        "XML": lambda text: in_markup(text, MarkupRules(is_xml=True)),
        "plain text of HTML": markup_text,
        "subwords": lambda text: tokenizer.encode_batch([text]),
        "spans of subwords": lambda text: tokenizer.encode_with_spans([text]),
        "language": lambda text: detect([text], ["en", "de"]),
        "terms": glossary.demanded,
        "missing terms": lambda text: missing_terms(["a", "b c", "1"], text),
        "check": lambda text: checker.check(text, f"7 ab {text[:-9]} 77"),
    }


def repeated(unit: str, size: int) -> str:
    """A unit, repeated as often as it fits into `size` characters."""
    return unit * (size // len(unit))


def seconds_of(step: Callable[[str], Any], text: str) -> float:
    """Seconds of processor time of this thread."""
    begun = time.thread_time()
    step(text)
    return time.thread_time() - begun


class Growth:
    """How a step's time grows from a text to that text twice.

    Both are read in turn, and the least time of each counts, because another program may have
    disturbed some of them.
    """

    def __init__(self, step: Callable[[str], Any], unit: str, size: int) -> None:
        """Measure each three times, and six times more where the ratio is too high."""
        self.unit = unit
        self.step, self.text = step, repeated(unit, size)
        self.seconds, self.twice = math.inf, math.inf
        self.measure(3)
        if self.ratio > MAX_RATIO:
            self.measure(6)

    def measure(self, turns: int) -> None:
        """Read both texts `turns` times more."""
        for _ in range(turns):
            self.seconds = min(self.seconds, seconds_of(self.step, self.text))
            self.twice = min(self.twice, seconds_of(self.step, self.text * 2))

    @property
    def ratio(self) -> float:
        """How many times as long the step takes for twice the text; 0 where it takes no time."""
        return self.twice / max(self.seconds, 1e-9) if self.twice > MIN_SECONDS else 0.0


def time_steps(size: int, names: list[str]) -> None:
    """Print the steps and units whose time grows faster than the text, and the slowest ones."""
    rows = []
    for name, step in steps().items():
        if names and name not in names:
            continue
        step("a")
        units = [Growth(step, unit, size) for unit in UNITS]
        # A busy moment of the machine may last longer than all measurements of a unit.
        for growth in units:
            if growth.ratio > MAX_RATIO:
                growth.measure(9)
        steepest = max(units, key=lambda growth: growth.ratio)
        slowest = max(units, key=lambda growth: growth.twice)
        is_steep = " !" if steepest.ratio > MAX_RATIO else ""
        rows.append(
            [
                name,
                f"{steepest.ratio:.2f}{is_steep}",
                ascii(steepest.unit),
                f"{slowest.twice:.2f}",
                ascii(slowest.unit),
            ]
        )
        print(*rows[-1], file=sys.stderr)
    head = ["step", "highest ratio", "of", f"most seconds for {2 * size:,} characters", "of"]
    print(markdown(head, rows))


def ask_for_health(port: int, stop: threading.Event, seconds: list[float]) -> None:
    """Ask whether a server is well, again and again."""
    while not stop.wait(0.1):
        begun = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
        seconds.append(time.perf_counter() - begun)


def time_health(run: Path, count: int, size: int, clients: int) -> None:
    """Send texts to a server, and print how long `/health` took meanwhile."""
    texts = [repeated(UNITS[i % len(UNITS)], size) for i in range(count)]
    waiting = iter(range(count))
    statuses, seconds, stop = Counter[int](), list[float](), threading.Event()
    with Served(mtkit_command("serve", run, [])) as server:

        def work() -> None:
            for i in waiting:
                body = {"q": texts[i], "source": "en", "target": "de"}
                body |= {"format": "html"} if i % 2 else {}
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
                kind = {"Content-Type": "application/json"}
                connection.request("POST", "/translate", json.dumps(body), kind)
                reply = connection.getresponse()
                reply.read()
                connection.close()
                statuses[reply.status] += 1

        asking = threading.Thread(target=ask_for_health, args=(server.port, stop, seconds))
        asking.start()
        cpu, begun = server.cpu(), time.perf_counter()
        threads = [threading.Thread(target=work) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cpu, whole = server.cpu() - cpu, time.perf_counter() - begun
        stop.set()
        asking.join()
    print(f"{count} texts of {size:,} characters: {dict(sorted(statuses.items()))}")
    print(f"{whole:.1f} s, {cpu:.1f} s of processor time")
    print(
        f"{len(seconds)} times /health: p50 {percentile(seconds, 0.5):.3f} s, p95 "
        f"{percentile(seconds, 0.95):.3f} s, longest {max(seconds):.3f} s"
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", type=Path, help="measure a server with it")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--size", type=int, default=50_000, help="characters of a text")
    parser.add_argument("--step", action="append", default=[], help="measure only this step")
    parser.add_argument("--clients", type=int, default=16)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.run is None:
        time_steps(arguments.size, arguments.step)
    else:
        time_health(arguments.run, arguments.texts, arguments.size, arguments.clients)


if __name__ == "__main__":
    main()
