"""Teacher forcing and exposure bias, measured on a run.

    python exposure.py RUN DATA [--lines N]

In training the decoder reads the beginning of the right translation, however it would have begun
itself: this is teacher forcing. So all positions can be trained at the same time. In translation
it reads the beginning that it wrote, with its mistakes, which it never saw in training: this is
exposure bias.

The references of the test set of DATA are cut into two halves. The model continues the right first
half, and its own translation cut after as many words. The table has the loss of the right second
half after both beginnings (-ln p per subword, EOS included), and the BLEU of what the model writes
there. The difference is at most what exposure bias costs: an own beginning may be right in other
words, and then the second half of the reference does not fit either.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mtkit import DecodeConfig, Translator
from mtkit.base.errors import MtkitError
from mtkit.data import PreparedData
from mtkit.score import score


def rest(text: str, words: int) -> str:
    """What follows the first `words` words."""
    return " ".join(text.split()[words:])


def losses(
    translator: Translator, sources: Sequence[str], begun: Sequence[str], rests: Sequence[str]
) -> float:
    """-ln p per subword of the rest of each translation, given how it was begun."""
    tokenizer = translator.vocabularies.tgt
    whole = [" ".join(filter(None, pair)) for pair in zip(begun, rests, strict=True)]
    given = translator.score_given(sources, whole)
    after = [
        scored.log_probs[len(tokenizer.encode(beginning)) :]
        for scored, beginning in zip(given, begun, strict=True)
    ]
    return -sum(map(sum, after)) / sum(map(len, after))


def main() -> None:
    """Translate, continue and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--lines", type=int, default=500)
    options = parser.parse_args()
    src, tgt = (side[: options.lines] for side in PreparedData.open(options.data).text("test"))
    greedy = DecodeConfig(beam_size=1, split_sentences=False, copy_numbers=False)
    with Translator.load(options.run, config=greedy) as translator:
        halves = [len(text.split()) // 2 for text in tgt]
        rests = [rest(text, words) for text, words in zip(tgt, halves, strict=True)]
        print("| beginning | loss of the rest | BLEU of the rest |\n|---|---|---|")
        for name, texts in (("gold", tgt), ("own", [*translator.translate(src)])):
            pairs = list(zip(texts, halves, strict=True))
            begun = [" ".join(text.split()[:words]) for text, words in pairs]
            written = translator.translate(src, prefixes=begun)
            ends = [rest(text, words) for text, words in zip(written, halves, strict=True)]
            result = score(ends, [rests])
            loss = losses(translator, src, begun, rests)
            print(f"| {name} | {loss:.3f} | {result.value:.1f} |")
        print(f"\n{result.signature}")


if __name__ == "__main__":
    try:
        main()
    except MtkitError as error:
        sys.exit(f"exposure.py: {error}")
