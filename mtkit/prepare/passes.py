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
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from tqdm import tqdm

from mtkit.base.errors import MtkitError, one_line
from mtkit.base.files import Record, read_record, write_record
from mtkit.base.processes import malloc_trim, ordered_map
from mtkit.prepare.counting import (
    ChosenPairs,
    DirectionWords,
    count_block,
    count_pairs,
    words_to_learn,
)
from mtkit.prepare.encoding import (
    BlockEncoding,
    CheckedBlock,
    Place,
    as_bytes,
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
    reason_code,
    salted,
)
from mtkit.prepare.held_out import (
    HeldOut,
    Pair,
    as_block,
    count_in_training,
    read_held_out,
    sentence_keys,
    warnings_about,
)
from mtkit.prepare.language_check import LanguageCheck, LanguageCounts, findings
from mtkit.prepare.line_facts import SAMPLED, LineCounts
from mtkit.prepare.links import LinkLines
from mtkit.prepare.misalignment import find_misaligned
from mtkit.prepare.noise import Noise
from mtkit.prepare.report import Report, Sample
from mtkit.prepare.source import Block, Source
from mtkit.prepare.sources import Corpus
from mtkit.prepare.text_to_ids import CachedEncoder
from mtkit.prepare.tokenizer_from import ExistingVocabularies
from mtkit.prepare.vocabularies import language_odds, learn_vocabularies
from mtkit.prepare.writer import PreparedWriter
from mtkit.prepare_config import PrepareConfig
from mtkit.tokenizer import Vocabularies

log = logging.getLogger(__name__)


PairOdds = tuple[LanguageOdds, LanguageOdds]

# Pairs that are sent to a process at a time.
BLOCK = 10_000
# Blocks that are saved together, so that a run that resumes need not repeat them.
PART = 20
# Samples of dropped pairs for each reason.
_SAMPLES = 12
_SAMPLE_CHARS = 300
# If more than one in this many pairs is not UTF-8, the file has another encoding.
_UNDECODABLE = 10


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
        languages: from `LanguageCheck`.
        in_training: as in `Report`.
    """

    pairs: list[int]
    digests: list[list[str]]
    blocks: list[list[str]]
    fixed: list[dict[str, int]]
    overlaps: list[int]
    misaligned: list[list[Any]]
    languages: list[LanguageCounts] = field(default_factory=list)
    in_training: dict[str, int] = field(default_factory=dict)


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
        noise: as in `Report`.
        lines: of translations, what the training lines are like.
    """

    blocks: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=lambda: [0, 0])
    samples: dict[str, list[list[Any]]] = field(default_factory=dict)
    noise: dict[str, int] = field(default_factory=dict)
    lines: LineCounts = field(default_factory=LineCounts)


def _empty(source: Source) -> str:
    return f"{source.name}: has no {'trees' if source.unit == 'tree' else 'sentence pairs'}"


class Passes:
    """The passes of one preparation.

    Args:
        corpus: the sources of the pairs.
        config: of filters and subwords.
        writer: of the prepared folder.
        workers: number of processes.
        existing: vocabularies to use instead of learning them.
    """

    def __init__(
        self,
        corpus: Corpus,
        config: PrepareConfig,
        writer: PreparedWriter,
        workers: int,
        existing: ExistingVocabularies | None = None,
    ) -> None:
        self._corpus = corpus
        self._config = config
        self._writer = writer
        self._workers = workers
        self._existing = existing
        self._seconds: dict[str, float] = {}

    def run(self, out: Path, origins: dict[str, list[dict[str, Any]]]) -> Report:
        """Run all stages, and give the writer the contents of the manifest."""
        held_out = read_held_out(self._corpus)
        for split in origins.keys() - {"train"}:
            self._refuse_changed(split, origins[split])
        for direction, of_direction in zip(self._corpus.directions, held_out, strict=True):
            for split, source in direction.held_out.items():
                if source is not None and split != "test" and not of_direction[split]:
                    raise MtkitError(f"{_empty(source)}; the validation set needs some")
            if self._existing is not None:
                # Before hours of work.
                words = count_block(direction.linearisation, as_block(of_direction["valid"]))
                self._existing.refuse_unseen(*words, where=direction.valid.name)
        with self._timed("checking"):
            check = self._checked(held_out, origins["train"])
        # Before hours of work.
        warnings = findings(self._corpus, check.languages)
        warnings += warnings_about(check.in_training, held_out)
        for warning in warnings:
            log.warning("%s", warning)
        # With existing subwords nothing is learned.
        with self._timed("learning") if self._existing is None else nullcontext():
            vocabularies, odds = self._learned(check)
        with self._timed("encoding"):
            encode = self._encoded(check, vocabularies, odds)
            self._add_held_out(held_out, vocabularies)
        pairs = {"train": sum(check.pairs)} | dict.fromkeys(origins.keys() - {"train"}, 0)
        pairs = {split: pairs[split] for split in origins}
        for direction, of_direction in zip(self._corpus.directions, held_out, strict=True):
            for split, texts in of_direction.items():
                pairs[split] += len(texts)
                if direction.held_out[split] is not None:
                    # Those of a split are in the order of the directions.
                    facts = next(one for one in origins[split] if "pairs" not in one)
                    facts["pairs"] = len(texts)
        for number, facts in enumerate(origins["train"]):
            src, tgt = check.digests[number]
            facts |= {"pairs": check.pairs[number], "kept": encode.kept[number]}
            facts |= {"fixed": check.fixed[number], "text_sha256": {"src": src, "tgt": tgt}}
            facts |= {"languages": check.languages[number]}
        shares = self._describe_directions(held_out, origins["train"], encode)
        dropped = {reason: encode.dropped[reason] for reason in REASONS if reason in encode.dropped}
        src_overlap, tgt_overlap, both_overlap = check.overlaps
        self._writer.describe(
            sources=origins,
            counts={
                "pairs": pairs,
                "kept": sum(encode.kept),
                "dropped": dropped,
                "overlap": {"src": src_overlap, "tgt": tgt_overlap, "both": both_overlap},
                "in_training": check.in_training,
                "tokens": {"src": encode.tokens[0], "tgt": encode.tokens[1]},
                **({"noise": encode.noise} if encode.noise else {}),
            },
            **({} if self._corpus.linearisation else {"lines": encode.lines.facts()}),
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
            shares=shares,
            noise=encode.noise,
            warnings=warnings,
            in_training=check.in_training,
            tags=self._corpus.tag_counts(encode.kept),
        )

    def _describe_directions(
        self, held_out: list[HeldOut], origins: list[dict[str, Any]], encode: _Encode
    ) -> dict[str, tuple[int, float]]:
        """Weight the directions of multilingual data; returns `Report.shares`."""
        corpus = self._corpus
        if not corpus.is_multilingual:
            return {}
        self._writer.describe(
            directions=[
                {
                    "src_lang": one.src_lang,
                    "tgt_lang": one.tgt_lang,
                    "valid": len(texts["valid"]),
                    "test": len(texts["test"]),
                    "also": list(one.valid_also),
                }
                for one, texts in zip(corpus.directions, held_out, strict=True)
            ]
        )
        kept = np.zeros(len(corpus.directions), np.int64)
        sizes = np.zeros(len(corpus.directions))
        for number, source, count in zip(
            corpus.direction_of, corpus.train, encode.kept, strict=True
        ):
            kept[number] += count
            sizes[number] += count * source.weight
        factors = corpus.factors(sizes.tolist())
        for number, facts in zip(corpus.direction_of, origins, strict=True):
            facts["weight"] *= factors[number]
        of_epoch = sizes * factors
        names = [one.name for one in corpus.directions]
        shares = (of_epoch / of_epoch.sum()).tolist()
        return dict(zip(names, zip(kept.tolist(), shares, strict=True), strict=True))

    # -- Check

    def _checked(self, held_out: list[HeldOut], origins: list[dict[str, Any]]) -> _Check:
        saved = self._writer.scratch / "check.json"
        if (found := _read_stage(saved)) is not None:
            return _Check(**found)
        sources = self._corpus.train
        check = _Check([0] * len(sources), [], [], [], [0, 0, 0], [])
        cleaners = self._cleaners(held_out)
        languages = LanguageCheck(self._corpus)
        checks = self._checks(cleaners, check, languages)
        records = PairRecords.write(self._writer.scratch, checks)
        # Before the record is written, so that no run resumes with data of a changed source.
        self._refuse_changed("train", origins)
        if not len(records):
            raise MtkitError(f"{_empty(sources[0])}; training needs some")
        check.languages = languages.found()
        start = 0
        for label, count in zip(self._corpus.labels, check.pairs, strict=True):
            if self._config.drop_misaligned:
                for segment in find_misaligned(records, start, start + count):
                    records.drop("misaligned", np.arange(segment.start, segment.end))
                    first, last = segment.start - start + 1, segment.end - start
                    check.misaligned.append([one_line(label), first, last, segment.offset])
            start += count
        with _bar("looking for repeats", total=len(records)) as bar:
            find_repeats(records, self._config, advance=bar.update)
        check.in_training = count_in_training(records, held_out)
        _write_stage(saved, check)
        return check

    def _cleaners(self, held_out: list[HeldOut]) -> list[Cleaner]:
        """The filters of the pairs of each direction."""
        return [
            Cleaner(self._config, direction.src_lang, direction.tgt_lang, keys)
            for direction, keys in zip(
                self._corpus.directions, sentence_keys(self._corpus, held_out), strict=True
            )
        ]

    def _checks(
        self, cleaners: list[Cleaner], check: _Check, languages: LanguageCheck
    ) -> Iterator[PairChecks]:
        """The checks of all blocks; fills in `check` and `languages` meanwhile."""
        undecodable = [0] * len(self._corpus.train)
        first_undecodable: dict[int, int] = {}

        def blocks() -> Iterator[_Numbered]:
            for number, source in enumerate(self._corpus.train):
                digests = [hashlib.sha256(), hashlib.sha256()]
                check.blocks.append([])
                for block, links in self._corpus.blocks(number, source.blocks(BLOCK)):
                    texts = _block_texts(block)
                    for digest, text in zip(digests, texts, strict=True):
                        digest.update(text)
                    check.blocks[-1].append(_checksum(block, links))
                    yield _Numbered(self._corpus.direction_of[number], number, block, links)
                check.digests.append([digest.hexdigest() for digest in digests])
                check.fixed.append(dict(source.fixed))

        def refuse_encoding(number: int) -> None:
            source, count = self._corpus.train[number], check.pairs[number]
            if undecodable[number] * _UNDECODABLE > count:
                raise MtkitError(
                    f"{source.name}: {undecodable[number]:,} of the first {count:,} pairs are not "
                    f"UTF-8, as in {source.unit} {first_undecodable[number]}; convert it, with "
                    "iconv for example"
                )

        with _bar("checking") as bar:
            check_block = functools.partial(_check_block, cleaners)
            for (_, number, block, _), checks in ordered_map(
                check_block, blocks(), workers=self._workers
            ):
                source = self._corpus.train[number]
                (bad,) = np.nonzero(checks.codes == reason_code("not UTF-8"))
                if len(bad):
                    first_undecodable.setdefault(number, check.pairs[number] + int(bad[0]) + 1)
                    undecodable[number] += len(bad)
                languages.add(number, check.pairs[number], block, checks)
                check.pairs[number] += len(checks.codes)
                # After a few blocks, because all damaged lines may be at the beginning.
                if check.pairs[number] >= PART * BLOCK:
                    refuse_encoding(number)
                check.overlaps = [
                    a + b for a, b in zip(check.overlaps, checks.overlaps, strict=True)
                ]
                yield checks
                if number == len(self._corpus.train) - 1 and (share := source.progress):
                    bar.total = sum(check.pairs[:-1]) + round(check.pairs[-1] / share)
                bar.update(len(checks.codes))
        for number in range(len(self._corpus.train)):
            refuse_encoding(number)

    # -- Learn

    def _learned(self, check: _Check) -> tuple[Vocabularies, list[PairOdds]]:
        """The vocabularies, and the odds of the two sides of each direction."""
        saved = self._writer.scratch / "odds.npz"
        if saved.is_file():
            with np.load(saved) as arrays:
                found = list(map(LanguageOdds, arrays.values()))
            return self._writer.tokenizers(), list(zip(found[::2], found[1::2], strict=True))
        counts, sizes = self._counted(check)
        if self._existing is None:
            vocabularies = learn_vocabularies(
                *words_to_learn(counts, self._corpus.factors(sizes)),
                self._config,
                writes_trees=self._corpus.linearisation is not None,
                languages=self._corpus.tagged_languages,
                corpus_tags=self._corpus.corpus_tags,
            )
        else:
            for direction, words in zip(self._corpus.directions, counts, strict=True):
                where = "the training text"
                if self._corpus.is_multilingual:
                    where += f" of {direction.name}"
                self._existing.refuse_unseen(*words.clean, where=where)
            vocabularies = self._existing.vocabularies
        self._writer.add_tokenizers(vocabularies)
        odds = [language_odds(vocabularies, *words.clean) for words in counts]
        malloc_trim()
        with (self._writer.scratch / "odds.partial").open("wb") as file:
            np.savez(file, *(side.log_odds for pair in odds for side in pair))
        os.replace(file.name, saved)
        return vocabularies, odds

    def _counted(self, check: _Check) -> tuple[list[DirectionWords], list[float]]:
        """The words of each direction, and the number of its kept pairs.

        The words have their counts in the kept pairs; a pair counts as often as its weight.
        """
        records = PairRecords(self._writer.scratch)
        by_reason = records.counts()
        kept = by_reason.get(REASONS[KEPT], 0)
        if not kept:
            raise _nothing_left(by_reason)
        # Every n-th pair, so that a sample covers the whole corpus evenly.
        stride = -(-kept // self._config.learn_from_pairs)
        sizes = [0.0] * len(self._corpus.directions)

        def chosen() -> Iterator[ChosenPairs]:
            seen = 0
            for place, block, codes, _ in self._blocks(check, records):
                (indices,) = np.nonzero(codes == KEPT)
                sizes[place.direction] += len(indices) * self._corpus.train[place.source].weight
                of_sample = indices[-seen % stride :: stride]
                yield ChosenPairs(place, taken(block, of_sample.tolist()), of_sample)
                seen += len(indices)

        with _bar("counting words", total=-(-kept // stride)) as bar:
            words = count_pairs(
                chosen(),
                directions=len(sizes),
                linearisation=self._corpus.linearisation,
                noises=self._noises(),
                workers=self._workers,
                advance=bar.update,
            )
        return words, sizes

    def _noises(self) -> list[Noise]:
        """The noise of each direction; empty if there is none."""
        config = self._config
        if not config.noise.is_on:
            return []
        return [Noise(config.noise, config.user_defined_symbols) for _ in self._corpus.directions]

    # -- Encode

    def _encoded(self, check: _Check, vocabularies: Vocabularies, odds: list[PairOdds]) -> _Encode:
        saved = self._writer.scratch / "encode.json"
        kinds = [kind for kind, share in self._config.noise.probabilities.items() if share]
        done = _Encode(kept=[0] * len(self._corpus.train), noise=dict.fromkeys(kinds, 0))
        if (found := _read_stage(saved)) is not None:
            done = _Encode(**found | {"lines": LineCounts(**found.get("lines", {}))})
        self._writer.back_to(done.sizes)
        records = PairRecords(self._writer.scratch)
        encoding = BlockEncoding(
            vocabularies,
            odds,
            self._config,
            self._writer.token_type,
            self._corpus.linearisation,
            self._corpus.train_prefixes(vocabularies.src),
            self._noises(),
        )
        rest = itertools.islice(self._blocks(check, records), done.blocks, None)
        stride = -(-len(records) // SAMPLED)
        with _bar("encoding", total=len(records)) as bar:
            bar.update(min(done.blocks * BLOCK, len(records)))
            for (place, block, *_), (src, tgt, links, codes, noise) in ordered_map(
                encoding, rest, workers=self._workers
            ):
                for kind, count in noise.items():
                    done.noise[kind] += count
                self._writer.add_pairs("train", src, tgt)
                if self._corpus.has_links:
                    self._writer.add_links("train", links)
                self._list_dropped(done, place, block, codes)
                if self._corpus.linearisation is None:
                    language = self._corpus.directions[place.direction].src_lang
                    kept = taken(block, np.flatnonzero(codes == KEPT).tolist())
                    done.lines.add(kept, every=stride, language=language)
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
        for kind in [kind for kind, count in done.noise.items() if not count]:
            log.warning("noise.%s: no training pair got it; none could, or there are few", kind)
        return done

    def _list_dropped(self, done: _Encode, place: Place, block: Block, codes: ReasonCodes) -> None:
        name = self._corpus.labels[place.source]
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

    def _add_held_out(self, held_out: list[HeldOut], vocabularies: Vocabularies) -> None:
        dtype = self._writer.token_type
        encoders = block_encoders(vocabularies, dtype)
        prefixes = self._corpus.direction_prefixes(vocabularies.src)
        texts: dict[str, list[Pair]] = {}
        for prefix, of_direction in zip(prefixes, held_out, strict=True):
            for split, pairs in of_direction.items():
                texts.setdefault(split, []).extend(pairs)
                if split == "test":
                    continue
                # As training pairs, so that both are encoded in the same way.
                lines = model_texts(as_block(pairs), self._corpus.linearisation)
                src, tgt = map(CachedEncoder.encode, encoders, lines)
                before = as_bytes(prefix, dtype)
                self._writer.add_pairs(split, [before + ids for ids in src], tgt)
        for split, pairs in texts.items():
            if pairs:
                src_lines, tgt_lines = map(list, zip(*pairs, strict=True))
                self._writer.add_text(split, src_lines, tgt_lines)

    # -- All stages

    def _blocks(self, check: _Check, records: PairRecords) -> Iterator[CheckedBlock]:
        """The blocks of all training sources in order, with the reason codes of the first stage.

        Each block is first compared with the one that the first stage read.

        Raises:
            MtkitError: if a source has changed since then.
        """
        start = 0
        for number, (source, checksums) in enumerate(
            zip(self._corpus.train, check.blocks, strict=True)
        ):
            first = 1
            # Not held by a name: after an error its files are closed at once.
            for found, checksum in itertools.zip_longest(
                self._corpus.blocks(number, _read_again(source)), checksums
            ):
                if found is None or _checksum(*found) != checksum:
                    raise _changed(source)
                block, links = found
                codes = records.read("codes", start, len(block[0]))
                place = Place(number, first, self._corpus.direction_of[number])
                yield CheckedBlock(place, block, codes, links)
                first += len(block[0])
                start += len(block[0])

    def _refuse_changed(self, split: str, origins: Sequence[dict[str, Any]]) -> None:
        """Refuse sources that have changed since `origins` was recorded."""
        corpus = self._corpus
        for source, now, facts in zip(
            corpus.sources()[split], corpus.facts(split), origins, strict=True
        ):
            if now != facts:
                raise _changed(source)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._seconds[stage] = time.perf_counter() - started


class _Numbered(NamedTuple):
    """A block with its links, if any, and the numbers of its direction and training source."""

    direction: int
    source: int
    block: Block
    links: LinkLines | None


def _check_block(cleaners: list[Cleaner], numbered: _Numbered) -> PairChecks:
    if numbered.links is not None:
        numbered.links.check(numbered.block)
    checks = cleaners[numbered.direction](numbered.block)
    # The same sentence in another direction is not a repetition.
    src_keys, tgt_keys = (
        salted(keys, numbered.direction) for keys in (checks.src_keys, checks.tgt_keys)
    )
    return replace(checks, src_keys=src_keys, tgt_keys=tgt_keys)


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
