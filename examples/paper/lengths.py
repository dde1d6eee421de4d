"""Sinusoids may extrapolate, and learned positions are nearly as good (Section 3.5): measured.

    python lengths.py DATA OUT [--config FILE] [--set KEY=VALUE ...]

Trains a model with each kind of positions on the pairs of DATA, a prepared folder, that have at
most 20 subwords on either side. All then translate pairs that were not trained on, from short to
60 subwords, and the table has their BLEU by the length of the source. Text, data and runs go to
OUT. A run that is finished is not trained again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from mtkit import Translator
from mtkit.base.errors import MtkitError
from mtkit.config import load_config
from mtkit.data import PreparedData, is_prepared
from mtkit.prepare import prepare_files
from mtkit.score import score

Texts = list[tuple[str, str]]


def split(data: PreparedData, options: argparse.Namespace) -> tuple[Texts, dict[str, Texts]]:
    """Pairs to train on, and pairs to score for each range of source lengths."""
    pairs, vocabularies = data.pairs("train"), data.tokenizers()
    src, tgt = np.asarray(pairs.src.lengths), np.asarray(pairs.tgt.lengths)
    order = np.random.default_rng(1).permutation(len(pairs))

    def texts(indices: list[int]) -> Texts:
        return [
            (vocabularies.src.decode(pairs.src[i]), vocabularies.tgt.decode(pairs.tgt[i]))
            for i in indices
        ]

    scored: dict[str, Texts] = {}
    left = set(order.tolist())
    for first in range(1, options.longest + 1, options.step):
        last = first + options.step - 1
        longest_target = options.short if last <= options.short else options.longest
        fits = (src >= first) & (src <= last) & (tgt <= longest_target)
        chosen = order[fits[order]][: options.lines].tolist()
        if chosen:
            scored[f"{first} to {last}"] = texts(chosen)
            left -= set(chosen)
    short = [i for i in sorted(left) if max(src[i], tgt[i]) <= options.short]
    return texts(short), scored


def prepared(data: PreparedData, short: Texts, valid: Texts, out: Path) -> PreparedData:
    """The short pairs as data, with the subwords of all."""
    if not is_prepared(out / "data"):
        out.mkdir(parents=True, exist_ok=True)
        for name, texts in (("train", short), ("valid", valid)):
            for side, file in enumerate(text_files(out, name)):
                lines = "".join(f"{pair[side]}\n" for pair in texts)
                file.write_text(lines, encoding="utf-8", newline="\n")
        prepare_files(
            "short",
            out / "data",
            src_lang=data.src_lang,
            tgt_lang=data.tgt_lang,
            train=[text_files(out, "train")],
            valid=text_files(out, "valid"),
            tokenizer_from=data.path,
        )
    return PreparedData.open(out / "data")


def text_files(out: Path, name: str) -> tuple[Path, Path]:
    """The two files of a text."""
    return out / f"{name}.src", out / f"{name}.tgt"


def train(options: argparse.Namespace, data: PreparedData, folder: Path, kind: str) -> None:
    """Train a run with one kind of positions; if that fails or is stopped, end with its status."""
    command = [sys.executable, "-m", "mtkit", "train", "--config", options.config]
    command += ["--data", str(data.path), "--run", str(folder)]
    for change in (*options.set, f"model.positions={kind}"):
        command += ["--set", change]
    with subprocess.Popen(command) as process:
        try:
            status = process.wait()
        except KeyboardInterrupt:  # both get it; mtkit saves the run and ends
            status = process.wait()
    if status:
        sys.exit(status)


def main() -> None:
    """Split, train, translate and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path, help="prepared folder")
    parser.add_argument("out", type=Path, help="folder for text, data and runs")
    example = str(Path(__file__).with_name("multi30k.yaml"))
    parser.add_argument("--config", default=example, help="preset or file; default: multi30k.yaml")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting"
    )
    parser.add_argument(
        "--positions", nargs="+", default=["sinusoidal", "learned"],
        help="sinusoidal, learned, none; default: the first two",
    )  # fmt: skip
    parser.add_argument("--short", type=int, default=20, help="longest pairs in training")
    parser.add_argument("--longest", type=int, default=60, help="longest pairs that are scored")
    parser.add_argument("--step", type=int, default=10, help="lengths that share a row")
    parser.add_argument("--lines", type=int, default=200, help="pairs scored for each row")
    options = parser.parse_args()
    decode = load_config(options.config, options.set).decode
    # Each line is translated as a whole, however long it is.
    decode = decode.model_copy(update={"split_sentences": False})
    data = PreparedData.open(options.data)
    short, scored = split(data, options)
    if not short:
        raise MtkitError(f"{data.path}: has no pairs of at most {options.short} subwords to train")
    # Runs of other pairs are not mistaken for these.
    sizes = (options.short, options.longest, options.step, options.lines)
    out = options.out / "-".join(map(str, sizes))
    data = prepared(data, short, next(iter(scored.values())), out)
    columns = {}
    for kind in options.positions:
        folder = out / "runs" / kind
        train(options, data, folder, kind)
        with Translator.load(folder, config=decode) as translator:
            columns[kind] = [
                score([*translator.translate([src for src, _ in texts])], [[t for _, t in texts]])
                for texts in scored.values()
            ]
    print(f"Trained on {len(short):,} pairs of at most {options.short} subwords.\n")
    print(f"| subwords of the source | pairs | {' | '.join(columns)} |")
    print("|---|---|" + "---|" * len(columns))
    for row, (name, texts) in enumerate(scored.items()):
        cells = " | ".join(f"{column[row].value:.1f}" for column in columns.values())
        print(f"| {name} | {len(texts)} | {cells} |")
    print(f"\n{next(iter(columns.values()))[0].signature}")


if __name__ == "__main__":
    try:
        main()
    except MtkitError as error:
        sys.exit(f"lengths.py: {error}")
