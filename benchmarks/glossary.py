r"""What a glossary costs: BLEU, the share of its terms that are there, and CPU time.

    python benchmarks/glossary.py --run runs/multi30k-small \
        --test test_2016_flickr.en.gz test_2016_flickr.de.gz [--lines 500] [--rounds 3]

Terms are taken from the reference, so they are right, and BLEU should rise: the words of the
reference with at least four letters that the word alignment of the model links to one source word,
and that source word to no other. The longest ones of each sentence are its terms. Sentences without
as many are left out.

Each sentence is translated without terms and with them, in turns, in this process. CPU time is the
median of the rounds, of one thread unless --threads says otherwise.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

import mtkit
from mtkit.align.aligner import Alignment
from mtkit.base.text import read_lines
from mtkit.run_folder import Run
from mtkit.score import score
from mtkit.tokenizer import Tokenizer
from mtkit.translate import Glossary, Translation, Translator
from mtkit.translate.terms import Demand

SHORTEST = 4


class OfLine(Glossary):
    """Terms that are demanded of one line each."""

    def __init__(self, terms: dict[str, dict[str, str]]) -> None:
        super().__init__({})
        self._terms = {line: Glossary(of_line) for line, of_line in terms.items()}

    def demands(
        self, line: str, tokenizer: Tokenizer, *, prefix: Sequence[int] = ()
    ) -> list[Demand]:
        """The terms of a line."""
        return self._terms[line].demands(line, tokenizer, prefix=prefix)


def aligned_words(line: str, reference: str, alignment: Alignment) -> dict[str, str]:
    """The words of a reference that are linked one to one, the longest first, by source word."""
    sources, targets = (Counter(column) for column in zip(*alignment.links, strict=True))
    words = {}
    for i, j in sorted(alignment.links):
        source, target = (
            text[slice(*span)].strip(".,;:!?\"'()")
            for text, span in ((line, alignment.src_words[i]), (reference, alignment.tgt_words[j]))
        )
        is_word = source.isalpha() and target.isalpha() and len(target) >= SHORTEST
        is_alone = sources[i] == targets[j] == 1 and line.casefold().count(source.casefold()) == 1
        if is_alone and is_word:
            words[source] = target
    return dict(sorted(words.items(), key=lambda item: -len(item[1])))


def share_of_terms(texts: list[str], terms: list[list[str]]) -> float:
    """Per cent of the terms that are words of their translation."""
    there = [
        term in "".join(c if c.isalpha() else " " for c in text).split()
        for text, demanded in zip(texts, terms, strict=True)
        for term in demanded
    ]
    return 100 * sum(there) / len(there)


def translated(translator: Translator, lines: list[str]) -> tuple[float, list[Translation]]:
    """Seconds of CPU time, and the best translation of each line."""
    started = time.process_time()
    found = [best for best, *_ in translator.translate_nbest(lines, n_best=1)]
    return time.process_time() - started, found


def measure(options: argparse.Namespace, beam_size: int, count: int) -> None:
    """Print a row for some beam size and number of terms."""
    run = Run.open(options.run)
    config = run.config.decode.model_copy(update={"beam_size": beam_size})
    plain = Translator.load(run, config=config, device="cpu")
    pairs = list(zip(*map(list, map(read_lines, options.test)), strict=True))
    alignments = plain.align(*map(list, zip(*pairs, strict=True)))
    chosen: dict[str, tuple[str, dict[str, str]]] = {}
    for (line, reference), alignment in zip(pairs, alignments, strict=True):
        words = aligned_words(line, reference, alignment) if alignment.links else {}
        if len(words) >= count and len(chosen) < options.lines:
            chosen.setdefault(line, (reference, dict(list(words.items())[:count])))
    lines, references = list(chosen), [reference for reference, _ in chosen.values()]
    terms = {line: words for line, (_, words) in chosen.items()}
    held = Translator.load(run, config=config, device="cpu", glossary=OfLine(terms))
    times: dict[Translator, list[float]] = {plain: [], held: []}
    texts: dict[Translator, list[str]] = {}
    for number in range(options.rounds):
        for translator in (plain, held) if number % 2 == 0 else (held, plain):
            seconds, found = translated(translator, lines)
            times[translator].append(seconds)
            texts[translator] = [one.text for one in found]
    median = {translator: statistics.median(seconds) for translator, seconds in times.items()}
    targets = [list(words.values()) for words in terms.values()]
    shares = [share_of_terms(texts[one], targets) for one in (plain, held)]
    bleu = [score(texts[one], [references]).value for one in (plain, held)]
    each = [one / other for other, one in zip(times[plain], times[held], strict=True)]
    print(
        f"| {beam_size} | {count} | {len(lines)} | {shares[0]:.1f} | {shares[1]:.1f} "
        f"| {bleu[0]:.2f} | {bleu[1]:.2f} | {median[plain]:.1f} | {median[held]:.1f} "
        f"| {median[held] / median[plain]:.2f} ({min(each):.2f} to {max(each):.2f}) |",
        flush=True,
    )


def main() -> None:
    """Measure every combination, and report."""
    parser = argparse.ArgumentParser(description="Measure what a glossary costs.")
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--test", type=Path, nargs=2, required=True, metavar=("SRC", "REF"))
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--terms", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--beams", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"mtkit {mtkit.__version__}, torch {torch.__version__}, Python "
        f"{platform.python_version()}; {torch.cpu.get_capabilities().get('cpu_name', '?')}, "
        f"{options.threads} thread(s), {options.rounds} rounds: {' '.join(sys.argv)}\n"
    )
    print(
        "| beam | terms | sentences | present without, % | with, % | BLEU without | with "
        "| seconds without | with | times as long |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for beam_size in options.beams:
        for count in options.terms:
            measure(options, beam_size, count)


if __name__ == "__main__":
    main()
