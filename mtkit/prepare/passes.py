"""The three passes over a corpus: filter the pairs, learn the vocabulary, encode."""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import logging
import os
import time
import zlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from tqdm import tqdm

from mtkit.config import PrepareConfig
from mtkit.data import PreparedWriter, Split
from mtkit.errors import MtkitError, one_line
from mtkit.files import Record, read_record, write_record
from mtkit.prepare.encoding import (
    BlockEncoding,
    CheckedBlock,
    Place,
    block_encoders,
    model_texts,
    taken,
)
from mtkit.prepare.filters import (
    KEPT,
    REASONS,
    Cleaner,
    LanguageOdds,
    PairChecks,
    PairRecords,
    ReasonCodes,
    checksum_of,
    find_repeats,
    keys_of,
    reason_code,
)
from mtkit.prepare.links import LinkFile, LinkLines
from mtkit.prepare.misalignment import find_misaligned
from mtkit.prepare.source import Block, Source
from mtkit.prepare.treebank import Linearisation
from mtkit.prepare.vocabularies import language_odds, learn_vocabularies
from mtkit.processes import malloc_trim, ordered_map
from mtkit.text import not_utf8
from mtkit.tokenizer import Vocabularies
from mtkit.words import WordCounts, count_words

log = logging.getLogger(__name__)


Pair = tuple[str, str]
_BlockWithLinks = tuple[Block, LinkLines | None]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

# Pairs that are sent to a process at a time.
BLOCK = 10_000
# Blocks that are saved together, so that a run that resumes need not repeat them.
PART = 20
# Memory for the words of one side.
_WORDS_BYTES = 32 << 20
# Samples of dropped pairs for each reason.
_SAMPLES = 12
_SAMPLE_CHARS = 300
# If more than one in this many pairs is not UTF-8, the file has another encoding.
_UNDECODABLE = 10


@dataclass(frozen=True)
class Sources:
    """The training, validation and test sources of a prepared folder.

    Attributes:
        src_lang, tgt_lang: language codes.
        train, valid, test: the sources.
        links: files of word alignments, for each training source; empty if there are none.
        linearisation: of the trees on the target side; None for translations.
    """

    src_lang: str
    tgt_lang: str
    train: Sequence[Source]
    valid: Source
    test: Source | None = None
    links: Sequence[LinkFile] = ()
    linearisation: Linearisation | None = None

    @property
    def has_links(self) -> bool:
        """Whether the training pairs have links."""
        return bool(self.links) or self.linearisation is not None

    def blocks(
        self, number: int, blocks: Generator[Block, None, None]
    ) -> Iterator[_BlockWithLinks]:
        """The blocks of a training source, with the links of their pairs if there are any."""
        if not self.links:
            return zip(blocks, itertools.repeat(None))
        return self.links[number].beside(blocks, of=self.train[number].name)

    def facts(self, split: Split) -> list[dict[str, Any]]:
        """The entries of the sources of a split in the manifest."""
        of_split = [source.facts() for source in self.of(split)]
        if split == "train":
            for facts, links in zip(of_split, self.links, strict=False):
                facts["alignments"] = links.facts()
        return of_split

    def of(self, split: Split) -> list[Source]:
        """The sources of a split."""
        if split == "train":
            return list(self.train)
        source = self.valid if split == "valid" else self.test
        return [source] if source else []


@dataclass(frozen=True)
class Sample:
    """A sample of a dropped pair; long sides are cut, and the file's name is one line."""

    reason: str
    file: str
    line: int
    src: str
    tgt: str


@dataclass(frozen=True)
class Report:
    """The result of `prepare`.

    Attributes:
        path: the prepared folder.
        pairs: number of pairs read, by split.
        dropped: number of training pairs dropped, by reason.
        overlaps: number of training pairs whose source, target, or both are in the validation or
            test set, dropped or not.
        fixed: number of lines that were fixed, by kind.
        misaligned: segments whose sides are misaligned: source, first and last line, and offset.
        samples: some dropped pairs for each reason, from all parts of the corpus.
        vocab_sizes: vocabulary size, of both sides together or of each.
        tokens: source and target tokens of the kept training pairs, with EOS.
        seconds: wall time of each stage; 0 for the parts that a stopped run had finished.
    """

    path: Path
    pairs: dict[Split, int]
    dropped: dict[str, int]
    overlaps: tuple[int, int, int]
    fixed: dict[str, int]
    misaligned: list[tuple[str, int, int, int]]
    samples: list[Sample]
    vocab_sizes: tuple[int, ...]
    tokens: tuple[int, int]
    seconds: dict[str, float]


# ---------------------------------------------------------------------------------------------
# The stages


@dataclass
class _Check:
    """The result of the first stage besides its `PairRecords`; lists have an entry for each source.

    Attributes:
        pairs: number of pairs.
        digests: SHA-256 of the source side and of the target side, as lines of text.
        blocks: checksums of the blocks, to detect a source that changes later.
        fixed: number of lines that were fixed, by kind.
        overlaps, misaligned: as in `Report`.
    """

    pairs: list[int]
    digests: list[list[str]]
    blocks: list[list[str]]
    fixed: list[dict[str, int]]
    overlaps: list[int]
    misaligned: list[list[Any]]


@dataclass
class _Encode:
    """The progress of the third stage; lists have an entry for each source.

    Attributes:
        blocks: number of finished blocks.
        sizes: sizes of the files so far.
        kept: number of kept pairs.
        dropped: number of dropped pairs, by reason.
        tokens: tokens of source and target side, with EOS.
        samples: dropped pairs, by reason, each with the number that selected it.
    """

    blocks: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=lambda: [0, 0])
    samples: dict[str, list[list[Any]]] = field(default_factory=dict)


def _empty(source: Source) -> str:
    return f"{source.name}: has no {'trees' if source.unit == 'tree' else 'sentence pairs'}"


class Passes:
    """The passes of one preparation."""

    def __init__(
        self, sources: Sources, config: PrepareConfig, writer: PreparedWriter, workers: int
    ) -> None:
        self._sources = sources
        self._config = config
        self._writer = writer
        self._workers = workers
        self._seconds: dict[str, float] = {}

    def run(self, out: Path, origins: dict[Split, list[dict[str, Any]]]) -> Report:
        """Run all stages, and give the writer the contents of the manifest."""
        held_out: dict[Split, list[Pair]] = {
            split: [pair for source in self._sources.of(split) for pair in _texts(source)]
            for split in SPLITS[1:]
        }
        for split in SPLITS[1:]:
            self._refuse_changed(split, origins[split])
        if not held_out["valid"]:
            raise MtkitError(f"{_empty(self._sources.valid)}; the validation set needs some")
        with self._timed("checking"):
            check = self._checked(held_out, origins["train"])
        with self._timed("learning"):
            vocabularies, odds = self._learned(check)
        with self._timed("encoding"):
            encode = self._encoded(check, vocabularies, odds)
            self._add_held_out(held_out, vocabularies)
        pairs: dict[Split, int] = {"train": sum(check.pairs)}
        pairs |= {split: len(texts) for split, texts in held_out.items()}
        for split in SPLITS[1:]:
            for facts in origins[split]:
                facts["pairs"] = pairs[split]
        for facts, count, kept, (src, tgt), fixed in zip(
            origins["train"], check.pairs, encode.kept, check.digests, check.fixed, strict=True
        ):
            facts |= {"pairs": count, "kept": kept, "fixed": fixed}
            facts |= {"text_sha256": {"src": src, "tgt": tgt}}
        dropped = {reason: encode.dropped[reason] for reason in REASONS if reason in encode.dropped}
        src_overlap, tgt_overlap, both_overlap = check.overlaps
        self._writer.describe(
            sources=origins,
            counts={
                "pairs": pairs,
                "kept": sum(encode.kept),
                "dropped": dropped,
                "overlap": {"src": src_overlap, "tgt": tgt_overlap, "both": both_overlap},
                "tokens": {"src": encode.tokens[0], "tgt": encode.tokens[1]},
            },
            misaligned=[
                {"source": source, "first": first, "last": last, "offset": offset}
                for source, first, last, offset in check.misaligned
            ],
        )
        return Report(
            path=out,
            pairs=pairs,
            dropped=dropped,
            overlaps=(src_overlap, tgt_overlap, both_overlap),
            fixed=dict(sum(map(Counter, check.fixed), Counter())),
            misaligned=[
                (source, first, last, offset) for source, first, last, offset in check.misaligned
            ],
            samples=[
                Sample(reason, *facts)
                for reason in dropped
                for _, *facts in sorted(encode.samples[reason])
            ],
            vocab_sizes=vocabularies.sizes,
            tokens=(encode.tokens[0], encode.tokens[1]),
            seconds=self._seconds,
        )

    # -- Check

    def _checked(self, held_out: dict[Split, list[Pair]], origins: list[dict[str, Any]]) -> _Check:
        saved = self._writer.scratch / "check.json"
        if (found := _read_stage(saved)) is not None:
            return _Check(**found)
        texts = [
            [pair[side].encode() for pairs in held_out.values() for pair in pairs]
            for side in range(2)
        ]
        cleaner = Cleaner(
            self._config,
            self._sources.src_lang,
            self._sources.tgt_lang,
            (np.unique(keys_of(texts[0])), np.unique(keys_of(texts[1]))),
        )
        sources = self._sources.train
        check = _Check([0] * len(sources), [], [], [], [0, 0, 0], [])
        records = PairRecords.write(self._writer.scratch, self._checks(cleaner, check))
        # Before the record is written, so that no run resumes with data of a changed source.
        self._refuse_changed("train", origins)
        if not len(records):
            raise MtkitError(f"{_empty(sources[0])}; training needs some")
        start = 0
        for source, count in zip(sources, check.pairs, strict=True):
            if self._config.drop_misaligned:
                for segment in find_misaligned(records, start, start + count):
                    records.drop("misaligned", np.arange(segment.start, segment.end))
                    first, last = segment.start - start + 1, segment.end - start
                    check.misaligned.append([one_line(source.name), first, last, segment.offset])
            start += count
        with _bar("looking for repeats", total=len(records)) as bar:
            find_repeats(records, self._config, advance=bar.update)
        _write_stage(saved, check)
        return check

    def _checks(self, cleaner: Cleaner, check: _Check) -> Iterator[PairChecks]:
        """The checks of all blocks; fills in `check` meanwhile."""
        undecodable = [0] * len(self._sources.train)
        first_undecodable: dict[int, int] = {}

        def blocks() -> Iterator[_Numbered]:
            for number, source in enumerate(self._sources.train):
                digests = [hashlib.sha256(), hashlib.sha256()]
                check.blocks.append([])
                for block, links in self._sources.blocks(number, source.blocks(BLOCK)):
                    texts = _block_texts(block)
                    for digest, text in zip(digests, texts, strict=True):
                        digest.update(text)
                    check.blocks[-1].append(_checksum(block, links))
                    yield _Numbered(number, block, links)
                check.digests.append([digest.hexdigest() for digest in digests])
                check.fixed.append(dict(source.fixed))

        def refuse_encoding(number: int) -> None:
            source, count = self._sources.train[number], check.pairs[number]
            if undecodable[number] * _UNDECODABLE > count:
                raise MtkitError(
                    f"{source.name}: {undecodable[number]:,} of the first {count:,} pairs are not "
                    f"UTF-8, as in {source.unit} {first_undecodable[number]}; convert it, with "
                    "iconv for example"
                )

        with _bar("checking") as bar:
            check_block = functools.partial(_check_block, cleaner)
            for (number, *_), checks in ordered_map(check_block, blocks(), workers=self._workers):
                source = self._sources.train[number]
                (bad,) = np.nonzero(checks.codes == reason_code("not UTF-8"))
                if len(bad):
                    first_undecodable.setdefault(number, check.pairs[number] + int(bad[0]) + 1)
                    undecodable[number] += len(bad)
                check.pairs[number] += len(checks.codes)
                # After a few blocks, because all damaged lines may be at the beginning.
                if check.pairs[number] >= PART * BLOCK:
                    refuse_encoding(number)
                check.overlaps = [
                    a + b for a, b in zip(check.overlaps, checks.overlaps, strict=True)
                ]
                yield checks
                if number == len(self._sources.train) - 1 and (share := source.progress):
                    bar.total = sum(check.pairs[:-1]) + round(check.pairs[-1] / share)
                bar.update(len(checks.codes))
        for number in range(len(self._sources.train)):
            refuse_encoding(number)

    # -- Learn

    def _learned(self, check: _Check) -> tuple[Vocabularies, list[LanguageOdds]]:
        saved = self._writer.scratch / "odds.npz"
        if saved.is_file():
            with np.load(saved) as arrays:
                return self._writer.tokenizers(), [
                    LanguageOdds(arrays[side]) for side in ("src", "tgt")
                ]
        src, tgt = self._counted(check)
        vocabularies = learn_vocabularies(
            src, tgt, self._config, writes_trees=self._sources.linearisation is not None
        )
        self._writer.add_tokenizers(vocabularies)
        odds = language_odds(vocabularies, src, tgt)
        malloc_trim()
        with (self._writer.scratch / "odds.partial").open("wb") as file:
            np.savez(file, src=odds[0].log_odds, tgt=odds[1].log_odds)
        os.replace(file.name, saved)
        return vocabularies, odds

    def _counted(self, check: _Check) -> tuple[dict[str, int], dict[str, int]]:
        """The words of the source and target side, with their counts in the kept pairs."""
        records = PairRecords(self._writer.scratch)
        by_reason = records.counts()
        kept = by_reason.get(REASONS[KEPT], 0)
        if not kept:
            raise _nothing_left(by_reason)
        # Every n-th pair, so that a sample covers the whole corpus evenly.
        stride = -(-kept // self._config.learn_from_pairs)

        def chosen() -> Iterator[Block]:
            seen = 0
            for _, block, codes, _ in self._blocks(check, records):
                (indices,) = np.nonzero(codes == KEPT)
                yield taken(block, indices[-seen % stride :: stride].tolist())
                seen += len(indices)

        counts = [WordCounts(max_bytes=_WORDS_BYTES) for _ in range(2)]
        count = functools.partial(_count_block, self._sources.linearisation)
        with _bar("counting words", total=-(-kept // stride)) as bar:
            for block, of_sides in ordered_map(count, chosen(), workers=self._workers):
                for side, of_side in zip(counts, of_sides, strict=True):
                    side.add(of_side)
                bar.update(len(block[0]))
        src, tgt = (dict(side.items()) for side in counts)
        return src, tgt

    # -- Encode

    def _encoded(
        self, check: _Check, vocabularies: Vocabularies, odds: list[LanguageOdds]
    ) -> _Encode:
        saved = self._writer.scratch / "encode.json"
        done = _Encode(kept=[0] * len(self._sources.train))
        if (found := _read_stage(saved)) is not None:
            done = _Encode(**found)
        self._writer.back_to(done.sizes)
        records = PairRecords(self._writer.scratch)
        encoding = BlockEncoding(
            vocabularies, odds, self._config, self._writer.token_type, self._sources.linearisation
        )
        rest = itertools.islice(self._blocks(check, records), done.blocks, None)
        with _bar("encoding", total=len(records)) as bar:
            bar.update(min(done.blocks * BLOCK, len(records)))
            for (place, block, *_), (src, tgt, links, codes) in ordered_map(
                encoding, rest, workers=self._workers
            ):
                self._writer.add_pairs("train", src, tgt)
                if self._sources.has_links:
                    self._writer.add_links("train", links)
                self._list_dropped(done, place, block, codes)
                done.kept[place.source] += len(src)
                for side, sentences in enumerate((src, tgt)):
                    size = sum(map(len, sentences))
                    done.tokens[side] += size // self._writer.token_type.itemsize
                done.blocks += 1
                bar.update(len(codes))
                if done.blocks % PART == 0:
                    done.sizes = self._writer.end_part()
                    _write_stage(saved, done)
        if not sum(done.kept):
            raise _nothing_left(done.dropped)
        return done

    def _list_dropped(self, done: _Encode, place: Place, block: Block, codes: ReasonCodes) -> None:
        name = self._sources.train[place.source].name
        for index in np.flatnonzero(codes).tolist():
            reason, line = REASONS[codes[index]], place.first + index
            done.dropped[reason] = done.dropped.get(reason, 0) + 1
            self._writer.drop(name, line, reason)
            # The pairs with the smallest hashes are an even sample.
            samples = done.samples.setdefault(reason, [])
            chance = zlib.crc32(f"{name}\t{line}".encode("utf-8", "surrogatepass"))
            if len(samples) < _SAMPLES or chance < samples[-1][0]:
                texts = [_shown(lines[index]) for lines in block]
                bisect.insort(samples, [chance, one_line(name), line, *texts])
                del samples[_SAMPLES:]

    def _add_held_out(self, held_out: dict[Split, list[Pair]], vocabularies: Vocabularies) -> None:
        for split, pairs in held_out.items():
            if pairs:
                self._writer.add_text(split, pairs)
        # As training pairs, so that both are encoded in the same way.
        block = tuple([pair[side].encode() for pair in held_out["valid"]] for side in (0, 1))
        encoders = block_encoders(vocabularies, self._writer.token_type)
        src, tgt = (
            encoder.encode(lines)
            for encoder, lines in zip(
                encoders,
                model_texts((block[0], block[1]), self._sources.linearisation),
                strict=True,
            )
        )
        self._writer.add_pairs("valid", src, tgt)

    # -- All stages

    def _blocks(self, check: _Check, records: PairRecords) -> Iterator[CheckedBlock]:
        """The blocks of all training sources in order, with the reason codes of the first stage.

        Each block is first compared with the one that the first stage read.

        Raises:
            MtkitError: if a source has changed since then.
        """
        start = 0
        for number, (source, checksums) in enumerate(
            zip(self._sources.train, check.blocks, strict=True)
        ):
            first = 1
            # Not held by a name: after an error its files are closed at once.
            for found, checksum in itertools.zip_longest(
                self._sources.blocks(number, _read_again(source)), checksums
            ):
                if found is None or _checksum(*found) != checksum:
                    raise _changed(source)
                block, links = found
                codes = records.read("codes", start, len(block[0]))
                yield CheckedBlock(Place(number, first), block, codes, links)
                first += len(block[0])
                start += len(block[0])

    def _refuse_changed(self, split: Split, origins: Sequence[dict[str, Any]]) -> None:
        """Refuse sources that have changed since `origins` was recorded."""
        sources = self._sources
        for source, now, facts in zip(
            sources.of(split), sources.facts(split), origins, strict=True
        ):
            if now != facts:
                raise _changed(source)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._seconds[stage] = time.perf_counter() - started


class _Numbered(NamedTuple):
    """A block with its links, if there are any, and the number of its training source."""

    source: int
    block: Block
    links: LinkLines | None


def _check_block(cleaner: Cleaner, numbered: _Numbered) -> PairChecks:
    if numbered.links is not None:
        numbered.links.check(numbered.block)
    return cleaner(numbered.block)


def _count_block(
    linearisation: Linearisation | None, block: Block
) -> tuple[Counter[str], Counter[str]]:
    src, tgt = map(count_words, model_texts(block, linearisation))
    return src, tgt


def _checksum(block: Block, links: LinkLines | None) -> str:
    texts = _block_texts(block)
    if links is not None:
        texts.append("\n".join(links.lines).encode())
    return checksum_of(texts)


def _block_texts(block: Block) -> list[bytes]:
    """Both sides as text; their lines contain no newline, so the text is unambiguous."""
    return [b"\n".join(lines) + b"\n" for lines in block]


def _read_again(source: Source) -> Generator[Block, None, None]:
    """The blocks of a source that was read to its end before."""
    try:
        yield from source.blocks(BLOCK)
    except MtkitError as error:
        raise _changed(source, f" ({error})") from error


def _changed(source: Source, why: str = "") -> MtkitError:
    return MtkitError(
        f"{source.name}: changed while it was being prepared; run the same command again{why}"
    )


def _texts(source: Source) -> Iterator[Pair]:
    """The pairs of a validation or test set."""
    line = 0
    for block in source.blocks(BLOCK):
        for pair in zip(*block, strict=True):
            line += 1
            try:
                src, tgt = (side.decode() for side in pair)
            except UnicodeDecodeError as error:
                raise not_utf8(f"{source.name}, {source.unit} {line}", error) from None
            yield src, tgt


def _shown(line: bytes) -> str:
    text = line[: 4 * _SAMPLE_CHARS].decode("utf-8", "replace")
    return text if len(text) <= _SAMPLE_CHARS else text[: _SAMPLE_CHARS - 1] + "…"


def _nothing_left(dropped: Mapping[str, int]) -> MtkitError:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items()))
    return MtkitError(f"every training pair was dropped: {reasons}")


class _StageRecord(Record):
    """The record of a finished stage, for a run that resumes."""

    content: dict[str, Any]


def _write_stage(path: Path, value: _Check | _Encode) -> None:
    write_record(path, _StageRecord(content=asdict(value)))


def _read_stage(path: Path) -> dict[str, Any] | None:
    """The record that a stopped run left; None if there is none, or it is damaged."""
    if not path.is_file():
        return None
    try:
        return read_record(path, _StageRecord, advice="this stage is repeated").content
    except MtkitError as error:
        log.warning("%s", error)
        return None


def _bar(title: str, *, total: int | None = None) -> tqdm[NoReturn]:
    """Progress in pairs, on a terminal."""
    return tqdm(total=total, desc=title, unit=" pairs", unit_scale=True, leave=False, disable=None)
