"""From a corpus name or files to a prepared folder: fetch, check, clean, learn BPE, encode.

The corpus is read three times, a line at a time: once to check and count it, so that bad input
stops everything before any work is done; once to learn the subwords; once to encode. Only the
learning of the subwords holds text in memory, at most `LEARN_FROM_LINES` of it.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

import mtkit
from mtkit.config import PrepareConfig
from mtkit.corpora import Corpus, HubSplit, fetch, find_corpus
from mtkit.data import PreparedData, PreparedWriter, Split, open_binary, read_lines, sha256_of
from mtkit.demo import demo_corpus
from mtkit.errors import MtkitError
from mtkit.tokenizer import SENTENCEPIECE_VERSION, Tokenizer

log = logging.getLogger(__name__)

Pair = tuple[str, str]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

# SentencePiece holds its training text in memory; more than this adds nothing to the merges.
LEARN_FROM_LINES = 10_000_000
# Pairs that are encoded together, on all cores.
ENCODE_PAIRS = 10_000


@dataclass(frozen=True)
class Source:
    """Sentence pairs from one place, which can be read more than once.

    Attributes:
        name: what a dropped pair is reported under.
        read: the pairs, in order.
        facts: what the manifest says of the place.
    """

    name: str
    read: Callable[[], Iterable[Pair]]
    facts: dict[str, Any]


@dataclass(frozen=True)
class Sources:
    """Everything a prepared folder is made from."""

    src_lang: str
    tgt_lang: str
    train: list[Source]
    valid: list[Source]
    test: list[Source] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """What `prepare` did.

    Attributes:
        path: the prepared folder.
        pairs: number of pairs read, by split.
        dropped: number of training pairs left out, by reason.
        vocab_size: pieces learned; so many for each side if their vocabularies are not joint.
        tokens: source and target tokens of the training pairs kept, EOS counted.
    """

    path: Path
    pairs: dict[Split, int]
    dropped: dict[str, int]
    vocab_size: int
    tokens: tuple[int, int]


def prepare_corpus(
    name: str, out: Path, *, vocab_size: int | None = None, force: bool = False
) -> Report:
    """Prepare a corpus of the catalogue.

    Args:
        name: such as `wmt14-en-de`.
        out: the folder to write.
        vocab_size: pieces to learn; by default as the catalogue says.
        force: replace the folder if it exists.

    Raises:
        MtkitError: for an unknown name, a hub that cannot be reached, a folder that cannot be
            written, or a vocabulary larger than the text supports.
    """
    corpus = find_corpus(name)
    settings = PrepareConfig(vocab_size=vocab_size or corpus.vocab_size)
    with PreparedData.create(out, force=force) as writer:
        writer.describe(name=name, licence=corpus.licence)
        return _prepare(_catalogue_sources(corpus), settings, writer, out)


def prepare_files(
    name: str,
    out: Path,
    *,
    src_lang: str,
    tgt_lang: str,
    train: list[tuple[Path, Path]],
    valid: tuple[Path, Path],
    test: tuple[Path, Path] | None = None,
    vocab_size: int | None = None,
    shared_vocab: bool = True,
    force: bool = False,
) -> Report:
    """Prepare own files, plain or compressed, a sentence a line.

    Args:
        name: what the data is called.
        out: the folder to write.
        src_lang, tgt_lang: language codes.
        train: pairs of source and target files.
        valid, test: likewise one pair each.
        vocab_size: pieces to learn; by default the paper's 37,000.
        shared_vocab: learn them from both sides; False learns so many from each.
        force: replace the folder if it exists.

    Raises:
        MtkitError: naming the file, and the line where there is one, that must be mended.
    """
    settings = PrepareConfig(
        vocab_size=vocab_size or PrepareConfig().vocab_size, shared_vocab=shared_vocab
    )
    sources = Sources(
        src_lang,
        tgt_lang,
        train=[_file_source(*pair) for pair in train],
        valid=[_file_source(*valid)],
        test=[_file_source(*test)] if test else [],
    )
    with PreparedData.create(out, force=force) as writer:
        writer.describe(name=name)
        return _prepare(sources, settings, writer, out)


def _prepare(
    sources: Sources, settings: PrepareConfig, writer: PreparedWriter, out: Path
) -> Report:
    pairs = {split: _check(split, getattr(sources, split)) for split in SPLITS}
    for split in SPLITS[:2]:
        if not pairs[split]:
            raise MtkitError(f"{getattr(sources, split)[0].name}: no {split} pairs in it")
    src_tokenizer, tgt_tokenizer = _learn(sources.train, pairs["train"], settings)
    writer.add_tokenizers(src_tokenizer, tgt_tokenizer)
    tokenizers = src_tokenizer, tgt_tokenizer or src_tokenizer
    dropped: Counter[str] = Counter()
    tokens = [0, 0]

    def kept() -> Iterator[tuple[list[int], list[int]]]:
        for source in sources.train:
            encoded = _encode(source.read(), tokenizers, total=source.facts["pairs"])
            for line, (src, tgt) in enumerate(encoded, start=1):
                if reason := _reason_to_drop(src, tgt, settings):
                    dropped[reason] += 1
                    writer.drop(source.name, line, reason)
                    continue
                tokens[0] += len(src) + 1
                tokens[1] += len(tgt) + 1
                yield src, tgt

    if not writer.add_pairs("train", kept()):
        raise MtkitError(
            "every training pair was dropped: "
            + ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
        )
    for split in SPLITS[1:]:
        text = [_on_one_line(pair) for source in getattr(sources, split) for pair in source.read()]
        if text:
            writer.add_text(split, text)
        if split == "valid":
            writer.add_pairs(split, _encode(text, tokenizers))
    writer.describe(
        src_lang=sources.src_lang,
        tgt_lang=sources.tgt_lang,
        sources={split: [source.facts for source in getattr(sources, split)] for split in SPLITS},
        counts={
            "pairs": pairs,
            "kept": pairs["train"] - sum(dropped.values()),
            "dropped": dict(sorted(dropped.items())),
            "tokens": {"src": tokens[0], "tgt": tokens[1]},
        },
        # Joint is what folders are that do not say it.
        settings=settings.model_dump(exclude={"shared_vocab"} if settings.shared_vocab else None),
        versions={"mtkit": mtkit.__version__, "sentencepiece": SENTENCEPIECE_VERSION},
    )
    return Report(
        out, pairs, dict(sorted(dropped.items())), len(src_tokenizer), (tokens[0], tokens[1])
    )


def _reason_to_drop(src: list[int], tgt: list[int], settings: PrepareConfig) -> str | None:
    """Why a training pair, encoded without EOS, teaches nothing; None if it does."""
    if not src or not tgt:
        return "empty"
    # With EOS, as the model sees them.
    longer, shorter = max(len(src), len(tgt)) + 1, min(len(src), len(tgt)) + 1
    if longer > settings.max_tokens:
        return "too long"
    if longer > settings.max_ratio * shorter:
        return "length ratio"
    return None


def _check(split: Split, sources: list[Source]) -> int:
    """Read all pairs once, so that bad input is found before any work is done; count them."""
    total = 0
    for source in sources:
        count = 0
        digest = hashlib.sha256()
        for pair in _bar(source.read(), f"checking {split}", unit="pairs"):
            count += 1
            digest.update("\0".join(pair).encode() + b"\n")
        source.facts["pairs"] = count
        # Of the pairs as they were read, whatever they were wrapped in.
        source.facts["sha256"] = digest.hexdigest()
        total += count
    return total


def _learn(
    sources: list[Source], pairs: int, settings: PrepareConfig
) -> tuple[Tokenizer, Tokenizer | None]:
    """The joint subwords alone, or those of the source and of the target."""
    # Every n-th pair, so that a sample covers the whole corpus evenly.
    stride = max(1, -(-2 * pairs // LEARN_FROM_LINES))

    def sample() -> Iterator[Pair]:
        everything = itertools.chain.from_iterable(source.read() for source in sources)
        return itertools.islice(everything, 0, None, stride)

    log.info(
        "learning %s pieces from %s pairs", f"{settings.vocab_size:,}", f"{-(-pairs // stride):,}"
    )
    size = settings.vocab_size
    if settings.shared_vocab:
        return Tokenizer.learn((side for pair in sample() for side in pair), size), None
    src = Tokenizer.learn((src for src, _ in sample()), size)
    return src, Tokenizer.learn((tgt for _, tgt in sample()), size)


def _encode(
    pairs: Iterable[Pair], tokenizers: tuple[Tokenizer, Tokenizer], *, total: int | None = None
) -> Iterator[tuple[list[int], list[int]]]:
    threads = os.cpu_count() or 1
    iterator = iter(pairs)
    with tqdm(
        total=total, desc="encoding", unit=" pairs", unit_scale=True, disable=_no_bar(total)
    ) as bar:
        while chunk := list(itertools.islice(iterator, ENCODE_PAIRS)):
            sides = zip(*chunk, strict=True)
            src, tgt = (
                tokenizer.encode_batch(side, threads=threads)
                for tokenizer, side in zip(tokenizers, sides, strict=True)
            )
            yield from zip(src, tgt, strict=True)
            bar.update(len(chunk))


def _no_bar(total: int | None) -> bool | None:
    """tqdm's `disable`: None leaves the bar off where standard error is no terminal."""
    return True if total is None else None


def _bar(pairs: Iterable[Pair], title: str, *, unit: str) -> Iterable[Pair]:
    bar: Iterable[Pair] = tqdm(
        pairs, desc=title, unit=f" {unit}", unit_scale=True, leave=False, disable=None
    )
    return bar


def _on_one_line(pair: Pair) -> Pair:
    """A pair of the hub may hold line breaks; in a text file it would be two lines."""
    src, tgt = (re.sub(r"[\r\n]+", " ", side) for side in pair)
    return src, tgt


def _file_source(src: Path, tgt: Path) -> Source:
    for path in (src, tgt):
        # Before it is opened: a pipe would block, and it can be read only once.
        if path.exists() and not path.is_file():
            raise MtkitError(f"{path}: not a regular file, and it must be read more than once")
        open_binary(path).close()
    facts = {
        "src": str(src),
        "tgt": str(tgt),
        "src_sha256": sha256_of(src),
        "tgt_sha256": sha256_of(tgt),
    }
    return Source(f"{src} and {tgt}", lambda: _file_pairs(src, tgt), facts)


def _file_pairs(src: Path, tgt: Path) -> Iterator[Pair]:
    """The lines of two files in step.

    Raises:
        MtkitError: with both counts, if one file has more lines than the other.
    """
    lines = [read_lines(src), read_lines(tgt)]
    for count in itertools.count():
        pair = [next(side, None) for side in lines]
        if pair[0] is None and pair[1] is None:
            return
        if pair[0] is None or pair[1] is None:
            counts = [
                count + (line is not None) + sum(1 for _ in side)
                for line, side in zip(pair, lines, strict=True)
            ]
            raise MtkitError(
                f"{src} has {counts[0]} lines and {tgt} has {counts[1]}; "
                "line n of one must translate line n of the other"
            )
        yield pair[0], pair[1]


def _catalogue_sources(corpus: Corpus) -> Sources:
    if corpus.built_in:
        demo = demo_corpus()
        forwards = corpus.src_lang == "en"

        def built_in(split: str) -> list[Source]:
            pairs = getattr(demo, split)
            turned = pairs if forwards else tuple((tgt, src) for src, tgt in pairs)
            return [Source(f"{corpus.name} {split}", lambda: turned, {"source": corpus.source})]

        splits = {split: built_in(split) for split in SPLITS}
    else:
        log.info("fetching %s from %s", corpus.name, corpus.source)
        hub = fetch(corpus)

        def fetched(split: HubSplit) -> list[Source]:
            name = f"{split.source.repository} {split.source.split}"
            return [Source(name, lambda: map(_on_one_line, split), asdict(split.source))]

        splits = {split: fetched(getattr(hub, split)) for split in SPLITS}
    return Sources(corpus.src_lang, corpus.tgt_lang, **splits)
