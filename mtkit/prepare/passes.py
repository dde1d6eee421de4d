"""The three passes over a corpus: filter the pairs, learn the vocabulary, encode."""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import logging
import operator
import os
import time
import zlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from tqdm import tqdm

from mtkit.base.errors import MtkitError, one_line
from mtkit.base.processes import malloc_trim, ordered_map
from mtkit.base.words import WordCounts, count_words
from mtkit.prepare.blocks import (
    BlockEncoder,
    PairBlock,
    as_bytes,
    block_encoders,
    check_block,
    count_block,
    model_texts,
    taken,
)
from mtkit.prepare.cached_encoder import CachedEncoder
from mtkit.prepare.corpus import Corpus
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
)
from mtkit.prepare.held_out import (
    HeldOut,
    count_in_training,
    read_held_out,
    sentence_keys,
    warnings_about,
)
from mtkit.prepare.language_check import LanguageCheck, findings
from mtkit.prepare.line_facts import SAMPLED, LineCounts
from mtkit.prepare.misalignment import find_misaligned
from mtkit.prepare.noise import Noise
from mtkit.prepare.results import (
    CheckResult,
    EncodeResult,
    Report,
    Sample,
    read_stage,
    write_stage,
)
from mtkit.prepare.source import Block, Source
from mtkit.prepare.tokenizer_from import ExistingVocabularies
from mtkit.prepare.treebank import Linearisation
from mtkit.prepare.vocabularies import (
    DirectionWords,
    language_odds,
    learn_vocabularies,
    words_to_learn,
)
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
# Memory for the words of one side, of all directions.
_WORDS_BYTES = 32 << 20


def _empty(source: Source) -> str:
    return f"{source.name}: has no {'trees' if source.unit == 'tree' else 'sentence pairs'}"


class Passes:
    """The passes of one preparation; `existing` vocabularies are used instead of learning them."""

    def __init__(
        self,
        corpus: Corpus,
        config: PrepareConfig,
        writer: PreparedWriter,
        workers: int,
        existing: ExistingVocabularies | None,
    ) -> None:
        self._corpus = corpus
        self._config = config
        self._writer = writer
        self._workers = workers
        self._existing = existing
        self._seconds: dict[str, float] = {}
        self._linearisation = Linearisation(config.tree_tags) if corpus.is_parsing else None
        symbols = config.user_defined_symbols
        self._noise = Noise(config.noise, symbols) if config.noise.is_on else None

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
                # Refused before hours of work.
                valid = model_texts(of_direction["valid"].texts, self._linearisation)
                words = map(count_words, valid)
                self._existing.refuse_unseen(*words, where=direction.valid.name)
        with self._timed("checking"):
            check = self._checked(held_out, origins["train"])
        # Warned of before hours of work.
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
        pairs = dict.fromkeys(origins, 0) | {"train": sum(check.pairs)}
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
        self._writer.describe(
            sources=origins,
            counts={
                "pairs": pairs,
                "kept": sum(encode.kept),
                "dropped": dropped,
                "overlap": dict(zip(("src", "tgt", "both"), check.overlaps, strict=True)),
                "in_training": check.in_training,
                "tokens": dict(zip(("src", "tgt"), encode.tokens, strict=True)),
                **({"noise": encode.noise} if encode.noise else {}),
            },
            **({} if self._linearisation else {"lines": encode.lines.facts()}),
            misaligned=[
                {"source": source, "first": first, "last": last, "offset": offset}
                for source, first, last, offset in check.misaligned
            ],
        )
        return Report(
            path=out,
            pairs=pairs,
            dropped=dropped,
            overlaps=check.overlaps,
            fixed=dict(sum(map(Counter, check.fixed), Counter())),
            misaligned=check.misaligned,
            samples=[
                Sample(reason, *facts)
                for reason in dropped
                for _, *facts in sorted(encode.samples[reason])
            ],
            vocab_sizes=vocabularies.sizes,
            tokens=encode.tokens,
            seconds=self._seconds,
            shares=shares,
            noise=encode.noise,
            warnings=warnings,
            in_training=check.in_training,
            tags=self._corpus.tag_counts(encode.kept),
        )

    def _describe_directions(
        self, held_out: list[HeldOut], origins: list[dict[str, Any]], encode: EncodeResult
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
        shares = zip(kept.tolist(), (of_epoch / of_epoch.sum()).tolist(), strict=True)
        return dict(zip((one.name for one in corpus.directions), shares, strict=True))

    # -- Check

    def _checked(self, held_out: list[HeldOut], origins: list[dict[str, Any]]) -> CheckResult:
        saved = self._writer.scratch / "check.json"
        if (found := read_stage(saved)) is not None:
            return CheckResult(**found)
        sources = self._corpus.train
        check = CheckResult([0] * len(sources), [], [], [], [0, 0, 0], [])
        cleaners = [
            Cleaner(self._config, direction.src_lang, direction.tgt_lang, keys)
            for direction, keys in zip(
                self._corpus.directions, sentence_keys(self._corpus, held_out), strict=True
            )
        ]
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
        write_stage(saved, check)
        return check

    def _checks(
        self, cleaners: list[Cleaner], check: CheckResult, languages: LanguageCheck
    ) -> Iterator[PairChecks]:
        """The checks of all blocks; fills in `check` and `languages` meanwhile."""
        undecodable = [0] * len(self._corpus.train)
        first_undecodable: dict[int, int] = {}

        def blocks() -> Iterator[PairBlock]:
            for number, source in enumerate(self._corpus.train):
                digests = [hashlib.sha256(), hashlib.sha256()]
                check.blocks.append([])
                for block in self._source_blocks(number, source.blocks(BLOCK)):
                    for digest, text in zip(digests, _block_texts(block.pairs), strict=True):
                        digest.update(text)
                    check.blocks[-1].append(_checksum(block))
                    yield block
                check.digests.append([digest.hexdigest() for digest in digests])
                check.fixed.append(dict(source.reading.found))

        def refuse_encoding(number: int) -> None:
            source, count = self._corpus.train[number], check.pairs[number]
            if undecodable[number] * _UNDECODABLE > count:
                raise MtkitError(
                    f"{source.name}: {undecodable[number]:,} of the first {count:,} pairs are not "
                    f"UTF-8, as in {source.unit} {first_undecodable[number]}; convert it, with "
                    "iconv for example"
                )

        with _bar("checking") as bar:
            function = functools.partial(check_block, cleaners)
            for block, checks in ordered_map(function, blocks(), workers=self._workers):
                number = block.source
                source = self._corpus.train[number]
                (bad,) = np.nonzero(checks.codes == reason_code("not UTF-8"))
                if len(bad):
                    first_undecodable.setdefault(number, check.pairs[number] + int(bad[0]) + 1)
                    undecodable[number] += len(bad)
                languages.add(number, check.pairs[number], block.pairs, checks)
                check.pairs[number] += len(checks.codes)
                # After a few blocks, because all damaged lines may be at the beginning.
                if check.pairs[number] >= PART * BLOCK:
                    refuse_encoding(number)
                check.overlaps = list(map(operator.add, check.overlaps, checks.overlaps))
                yield checks
                if number == len(self._corpus.train) - 1 and (share := source.reading.progress):
                    bar.total = sum(check.pairs[:-1]) + round(check.pairs[-1] / share)
                bar.update(len(checks.codes))
        for number in range(len(self._corpus.train)):
            refuse_encoding(number)

    # -- Learn

    def _learned(self, check: CheckResult) -> tuple[Vocabularies, list[PairOdds]]:
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
                self._corpus,
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

    def _counted(self, check: CheckResult) -> tuple[list[DirectionWords], list[float]]:
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
        directions = range(len(self._corpus.directions))
        sizes = [0.0 for _ in directions]

        def chosen() -> Iterator[PairBlock]:
            seen = 0
            for block in self._blocks(check, records):
                kept = block.kept
                sizes[block.direction] += len(kept) * self._corpus.train[block.source].weight
                yield block.select(kept[-seen % stride :: stride])
                seen += len(kept)

        # Of source and target, and then of both with noise.
        most = _WORDS_BYTES // len(directions)
        counts = [[WordCounts(max_bytes=most) for _ in range(4)] for _ in directions]
        count = functools.partial(count_block, self._linearisation, self._noise)
        with _bar("counting words", total=-(-kept // stride)) as bar:
            for block, words in ordered_map(count, chosen(), workers=self._workers):
                for side, of_side in zip(counts[block.direction], words, strict=True):
                    side.add(of_side)
                bar.update(len(block))
        found = []
        for of_direction in counts:
            src, tgt, noisy_src, noisy_tgt = (dict(side.items()) for side in of_direction)
            found.append(DirectionWords((src, tgt), (noisy_src, noisy_tgt)))
        return found, sizes

    # -- Encode

    def _encoded(
        self, check: CheckResult, vocabularies: Vocabularies, odds: list[PairOdds]
    ) -> EncodeResult:
        saved = self._writer.scratch / "encode.json"
        kinds = [kind for kind, share in self._config.noise.probabilities.items() if share]
        done = EncodeResult(kept=[0] * len(self._corpus.train), noise=dict.fromkeys(kinds, 0))
        if (found := read_stage(saved)) is not None:
            done = EncodeResult(**found | {"lines": LineCounts(**found.get("lines", {}))})
        self._writer.back_to(done.sizes)
        records = PairRecords(self._writer.scratch)
        dtype = self._writer.token_type
        prefixes = self._corpus.train_prefixes(vocabularies.src)
        encoder = BlockEncoder(
            vocabularies,
            odds,
            self._config,
            dtype,
            self._linearisation,
            [as_bytes(prefix, dtype) for prefix in prefixes],
            self._noise,
        )
        rest = itertools.islice(self._blocks(check, records), done.blocks, None)
        stride = -(-len(records) // SAMPLED)
        with _bar("encoding", total=len(records)) as bar:
            bar.update(min(done.blocks * BLOCK, len(records)))
            for block, encoded in ordered_map(encoder, rest, workers=self._workers):
                for kind, count in encoded.noise.items():
                    done.noise[kind] += count
                self._writer.add_pairs("train", encoded.src, encoded.tgt)
                if self._corpus.has_links:
                    self._writer.add_links("train", encoded.links)
                self._list_dropped(done, block, encoded.codes)
                if self._linearisation is None:
                    language = self._corpus.directions[block.direction].src_lang
                    kept = taken(block.pairs, np.flatnonzero(encoded.codes == KEPT).tolist())
                    done.lines.add(kept, every=stride, language=language)
                done.kept[block.source] += len(encoded.src)
                for side, sentences in enumerate((encoded.src, encoded.tgt)):
                    size = sum(map(len, sentences))
                    done.tokens[side] += size // dtype.itemsize
                done.blocks += 1
                bar.update(len(block))
                if done.blocks % PART == 0:
                    done.sizes = self._writer.end_part()
                    write_stage(saved, done)
        if not sum(done.kept):
            raise _nothing_left(done.dropped)
        for kind in [kind for kind, count in done.noise.items() if not count]:
            log.warning("noise.%s: no training pair got it; none could, or there are few", kind)
        return done

    def _list_dropped(self, done: EncodeResult, block: PairBlock, codes: ReasonCodes) -> None:
        name = self._corpus.labels[block.source]
        for index in np.flatnonzero(codes).tolist():
            reason, line = REASONS[codes[index]], int(block.lines[index])
            done.dropped[reason] = done.dropped.get(reason, 0) + 1
            self._writer.drop(name, line, reason)
            # The pairs with the smallest hashes are an even sample.
            samples = done.samples.setdefault(reason, [])
            chance = zlib.crc32(f"{name}\t{line}".encode("utf-8", "surrogatepass"))
            if len(samples) < _SAMPLES or chance < samples[-1][0]:
                texts = [_shown(lines[index]) for lines in block.pairs]
                bisect.insort(samples, [chance, one_line(name), line, *texts])
                del samples[_SAMPLES:]

    def _add_held_out(self, held_out: list[HeldOut], vocabularies: Vocabularies) -> None:
        dtype = self._writer.token_type
        encoders = block_encoders(vocabularies, dtype)
        prefixes = self._corpus.direction_prefixes(vocabularies.src)
        texts: dict[str, tuple[list[str], list[str]]] = {}
        for prefix, of_direction in zip(prefixes, held_out, strict=True):
            for split, found in of_direction.items():
                for side, more in zip(texts.setdefault(split, ([], [])), found.texts, strict=True):
                    side += more
                if split == "test":
                    continue
                # As training pairs, so that both are encoded in the same way.
                lines = model_texts(found.texts, self._linearisation)
                src, tgt = map(CachedEncoder.encode, encoders, lines)
                before = as_bytes(prefix, dtype)
                self._writer.add_pairs(split, [before + ids for ids in src], tgt)
        for split, (src_lines, tgt_lines) in texts.items():
            if src_lines:
                self._writer.add_text(split, src_lines, tgt_lines)

    # -- All stages

    def _source_blocks(
        self, number: int, blocks: Generator[Block, None, None]
    ) -> Iterator[PairBlock]:
        """The blocks of a training source, with their links; nothing is dropped yet."""
        direction, first = self._corpus.direction_of[number], 1
        for pairs, links in self._corpus.blocks(number, blocks):
            lines = np.arange(first, first + len(pairs[0]))
            codes = np.full(len(lines), KEPT, np.uint8)
            yield PairBlock(direction, number, lines, pairs, links, codes)
            first += len(lines)

    def _blocks(self, check: CheckResult, records: PairRecords) -> Iterator[PairBlock]:
        """The blocks of all training sources in order, with the reason codes of the first stage.

        Each block is first compared with the one that the first stage read.

        Raises:
            MtkitError: if a source has changed since then.
        """
        start = 0
        for number, (source, checksums) in enumerate(
            zip(self._corpus.train, check.blocks, strict=True)
        ):
            # Not held by a name: after an error its files are closed at once.
            for block, checksum in itertools.zip_longest(
                self._source_blocks(number, _read_again(source)), checksums
            ):
                if block is None or _checksum(block) != checksum:
                    raise _changed(source)
                yield replace(block, codes=records.read("codes", start, len(block)))
                start += len(block)

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


def _checksum(block: PairBlock) -> str:
    texts = _block_texts(block.pairs)
    if block.links is not None:
        texts.append("\n".join(block.links.lines).encode())
    return checksum_of(texts)


def _block_texts(pairs: Block) -> list[bytes]:
    """Both sides as text; their lines contain no newline, so the text is unambiguous."""
    return [b"\n".join(lines) + b"\n" for lines in pairs]


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


def _bar(title: str, *, total: int | None = None) -> tqdm[NoReturn]:
    """Progress in pairs, on a terminal."""
    return tqdm(total=total, desc=title, unit=" pairs", unit_scale=True, leave=False, disable=None)
