"""The three passes over a corpus: filter the pairs, learn the vocabulary, encode."""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import logging
import operator
import os
import zlib
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from tqdm import tqdm

from mtkit.base.errors import MtkitError, one_line
from mtkit.base.processes import malloc_trim, ordered_map
from mtkit.base.text import encoding_fault
from mtkit.base.words import WordCounts, count_words
from mtkit.prepare import blocks, filters, held_out, results
from mtkit.prepare.corpus import Corpus
from mtkit.prepare.kept_pairs import Finder, PairNumbers, check_kept_pairs, finder_of_kinds
from mtkit.prepare.misalignment import (
    BLOCK_PAIRS,
    WORD_PAIRS,
    Misalignment,
    find_misaligned,
    find_unrelated,
    is_right,
)
from mtkit.prepare.noise import Noise
from mtkit.prepare.source import INVISIBLE, Block, Source, repaired
from mtkit.prepare.source_languages import LanguageCheck, findings
from mtkit.prepare.text_faults import FaultCounts, faulty_pairs
from mtkit.prepare.tokenizer_from import ExistingVocabularies, settings_of
from mtkit.prepare.treebank import Linearisation
from mtkit.prepare.vocabularies import DirectionWords, language_odds, learn_vocabularies
from mtkit.prepare.writer import PreparedWriter
from mtkit.prepare_config import PrepareConfig
from mtkit.tokenizer import Vocabularies

log = logging.getLogger(__name__)


PairOdds = tuple[filters.LanguageOdds, filters.LanguageOdds]

# Pairs that are sent to a process at a time.
BLOCK = 10_000
# Blocks that are saved together, so that a run that resumes need not repeat them.
PART = 20
# Samples of dropped pairs for each reason.
_SAMPLES = 12
_SAMPLE_CHARS = 300
# The share of parts of a corpus with unrelated lengths above which there is a warning.
_MAX_UNRELATED = 0.01
# If more than one in this many pairs is not UTF-8, the file has another encoding.
_UNDECODABLE = 10
# Memory for the words of one side, of all directions.
_WORDS_BYTES = 32 << 20


def _empty(source: Source) -> str:
    return f"{source.name}: has no {'trees' if source.unit == 'tree' else 'sentence pairs'}"


@dataclass
class Passes:
    """The passes of one preparation.

    Attributes:
        existing: vocabularies that are used instead of learning them.
        check_path: a file for what is found in the kept pairs, if they are to be checked.
        origins: the entries of the sources in the manifest, by split; here they get their counts.
    """

    corpus: Corpus
    config: PrepareConfig
    writer: PreparedWriter
    workers: int
    existing: ExistingVocabularies | None
    origins: dict[str, list[dict[str, Any]]]
    check_path: Path | None = None

    def __post_init__(self) -> None:
        # Of the first stage, for the others.
        self._records = filters.PairRecords(self.writer.scratch)
        config, symbols = self.config, self.config.user_defined_symbols
        self._linearisation = Linearisation(config.tree_tags) if self.corpus.is_parsing else None
        self._noise = Noise(config.noise, symbols) if config.noise.is_on else None

    def run(self, out: Path) -> results.Report:
        """Run all stages, and give the writer the contents of the manifest."""
        self._sets = held_out.read_sets(self.corpus)
        for split in self.origins.keys() - {"train"}:
            self._refuse_changed(split)
        for direction, of_direction in zip(self.corpus.directions, self._sets, strict=True):
            for split, source in direction.held_out.items():
                if split != "test" and not of_direction[split][0]:
                    raise MtkitError(f"{_empty(source)}; the validation set needs some")
            if self.existing is not None and not self.existing.adds_characters:
                # Refused before hours of work.
                valid = blocks.model_texts(of_direction["valid"], self._linearisation)
                words = map(count_words, valid)
                self.existing.refuse_unseen(*words, where=direction.valid.name)
        check = self._check()
        # Warned of before hours of work.
        warnings = check.warnings + held_out.warnings_about(
            check.in_training, self._sets, held_out.IN_TRAINING
        )
        for warning in warnings:
            log.warning("%s", warning)
        vocabularies, odds = self._learn(check)
        if self.existing is not None:
            # With characters that were added.
            config = self.config.model_copy(update=settings_of(vocabularies))
            self.writer.describe(settings=config.model_dump())
        encode = self._encode(check, vocabularies, odds)
        self._add_held_out(vocabularies)
        near = self._list_near_duplicates(encode)
        warnings += held_out.warnings_about(near, self._sets, held_out.NEARLY_IN_TRAINING)
        marked = None
        if self.check_path is not None:
            with _bar("checking kept pairs") as bar:
                marked = check_kept_pairs(
                    functools.partial(self._blocks, check),
                    self.corpus,
                    self.check_path,
                    kept=encode.kept,
                    workers=self.workers,
                    advance=bar.update,
                )
            warnings += marked.silences
        counts = self._counts(check, encode) | {"near_duplicates": near}
        shares = self._weight_directions(encode.kept)
        segment = "source", "first", "last", "offset"
        self.writer.describe(
            sources=self.origins,
            counts={key: value for key, value in counts.items() if key != "noise" or value},
            **({} if self._linearisation else {"lines": encode.lines.facts()}),
            misaligned=[dict(zip(segment, values, strict=True)) for values in check.misaligned],
        )
        return results.Report(
            path=out,
            **counts,
            fixed=dict(sum(map(Counter, check.fixed), Counter())),
            misaligned=check.misaligned,
            samples=[
                results.Sample(reason, *facts)
                for reason in counts["dropped"]
                for _, *facts in encode.samples[reason]
            ],
            vocab_sizes=vocabularies.sizes,
            shares=shares,
            tags=self.corpus.tag_counts(encode.kept),
            warnings=warnings,
            marked=marked,
        )

    def _list_near_duplicates(self, encode: results.EncodeResult) -> dict[str, int]:
        """List them; returns the number of each split, without pairs that are the same."""
        near, labels = sorted(encode.near.values()), self.corpus.labels
        self.writer.list_near_duplicates(
            [(split, line, labels[source], *rest) for split, line, source, *rest in near]
        )
        return dict(Counter(split for split, *_, similarity in near if similarity < 100))

    def _counts(self, check: results.CheckResult, encode: results.EncodeResult) -> dict[str, Any]:
        """The counts in the manifest; those of each source are added to `origins`."""
        sizes = {
            split: [len(texts[split][0]) for texts in self._sets if split in texts]
            for split in self.origins
        }
        sizes["train"] = check.pairs
        for split, of_split in sizes.items():
            for facts, size in zip(self.origins[split], of_split, strict=True):
                facts["pairs"] = size
        for number, facts in enumerate(self.origins["train"]):
            facts |= {"kept": encode.kept[number], "fixed": check.fixed[number]}
            facts |= {"text_sha256": check.digests[number], "languages": check.languages[number]}
        dropped = encode.dropped
        return {
            "pairs": {split: sum(of_split) for split, of_split in sizes.items()},
            "kept": sum(encode.kept),
            "dropped": {reason: dropped[reason] for reason in filters.REASONS if reason in dropped},
            "overlap": dict(zip(("src", "tgt", "both"), check.overlap, strict=True)),
            "in_training": check.in_training,
            "tokens": encode.tokens,
            "noise": encode.noise,
        }

    def _weight_directions(self, kept: list[int]) -> dict[str, tuple[int, float]]:
        """Weight the directions of multilingual data; returns `Report.shares`."""
        corpus = self.corpus
        if not corpus.is_multilingual:
            return {}
        self.writer.describe(
            directions=[
                {
                    "src_lang": direction.src_lang,
                    "tgt_lang": direction.tgt_lang,
                    "valid": len(of_direction["valid"][0]),
                    "test": len(of_direction["test"][0]) if "test" in of_direction else 0,
                    "also": list(direction.valid_also),
                }
                for direction, of_direction in zip(corpus.directions, self._sets, strict=True)
            ]
        )
        weights = [source.weight for source in corpus.train]
        pairs = np.bincount(corpus.direction_of, kept).astype(np.int64)
        sizes = np.bincount(corpus.direction_of, np.multiply(kept, weights))
        factors = corpus.factors(sizes.tolist())
        for number, facts in zip(corpus.direction_of, self.origins["train"], strict=True):
            facts["weight"] *= factors[number]
        of_epoch = sizes * factors
        shares = zip(pairs.tolist(), (of_epoch / of_epoch.sum()).tolist(), strict=True)
        return dict(zip((direction.name for direction in corpus.directions), shares, strict=True))

    # -- Check

    def _check(self) -> results.CheckResult:
        saved = self.writer.scratch / "check.json"
        if (check := results.read_stage(saved, results.CheckResult)) is not None:
            return check
        check = results.CheckResult([0] * len(self.corpus.train))
        languages = LanguageCheck(self.corpus)
        records = filters.PairRecords.write(self.writer.scratch, self._checks(check, languages))
        # Before the record is written, so that no run resumes with data of a changed source.
        self._refuse_changed("train")
        if not len(records):
            raise MtkitError(f"{_empty(self.corpus.train[0])}; training needs some")
        check.languages, faults = languages.found(), languages.faults()
        starts = np.cumsum([0, *check.pairs]).tolist()
        sources = list(zip(self.corpus.labels, self.corpus.train, starts, starts[1:], strict=False))
        for label, source, start, end in sources if self.config.drop_misaligned else ():
            segments = find_misaligned(records, start, end)
            for segment in _without_right(segments, source, start):
                records.drop("misaligned", np.arange(segment.start, segment.end))
                first, last = segment.start - start + 1, segment.end - start
                check.misaligned.append([one_line(label), first, last, segment.offset])
        with _bar("looking for repeats", total=len(records)) as bar:
            filters.find_repeats(records, self.config, advance=bar.update)
        self._drop_marked(check, faults)
        check.warnings = findings(self.corpus, check.languages, faults, self._sets, self.config)
        for label, _, start, end in sources:
            check.warnings += _unrelated(records, label, start, end)
        check.in_training = held_out.count_in_training(records, self._sets)
        results.write_stage(saved, check)
        return check

    def _drop_marked(self, check: results.CheckResult, faults: Sequence[FaultCounts]) -> None:
        """Drop pairs with the faults that samples have, or with the findings of `drop_findings`."""
        finders: list[Finder] = []
        # Sources without faults are not read again.
        read = {number for number, sample in enumerate(faults) if sample.dropped(self.config)}
        if read:
            finders.append(functools.partial(faulty_pairs, faults, self.config))
        if self.config.drop_findings:
            starts = np.cumsum([0, *check.pairs[:-1]]).tolist()
            codes = map(self._records.read, itertools.repeat("codes"), starts, check.pairs)
            kept = [int((of_source == filters.KEPT).sum()) for of_source in codes]
            kinds, read = self.config.drop_findings, set(range(len(check.pairs)))
            finders.append(finder_of_kinds(self._blocks(check), self.corpus, kinds, kept=kept))
        if not finders:
            return
        find = functools.partial(_reasons_of, finders)
        given = self._blocks(check, read)
        with _bar("looking for findings", total=sum(check.pairs[i] for i in read)) as bar:
            for block, reasons in ordered_map(find, given, workers=self.workers):
                for reason, numbers in reasons:
                    self._records.drop(reason, numbers)
                bar.update(len(block))

    def _checks(
        self, check: results.CheckResult, languages: LanguageCheck
    ) -> Iterator[filters.PairChecks]:
        """The checks of all blocks; fills in `check` and `languages` meanwhile."""
        undecodable, invisible = ([0] * len(self.corpus.train) for _ in range(2))
        first_undecodable: dict[int, tuple[int, list[bytes]]] = {}

        def all_blocks() -> Iterator[blocks.PairBlock]:
            for number, source in enumerate(self.corpus.train):
                digests = {"src": hashlib.sha256(), "tgt": hashlib.sha256()}
                check.blocks.append([])
                for block in self._source_blocks(number, source.blocks(BLOCK)):
                    for digest, text in zip(digests.values(), _texts(block.pairs), strict=True):
                        digest.update(text)
                    check.blocks[-1].append(_checksum(block))
                    yield block
                check.digests.append({side: digest.hexdigest() for side, digest in digests.items()})
                check.fixed.append(dict(source.reading.found))

        def refuse_encoding(number: int) -> None:
            source, count = self.corpus.train[number], check.pairs[number]
            if undecodable[number] * _UNDECODABLE > count:
                line, sides = first_undecodable[number]
                faults = (encoding_fault(side, is_escaped=source.is_escaped) for side in sides)
                raise MtkitError(
                    f"{source.name}: {undecodable[number]:,} of the first {count:,} pairs are not "
                    f"valid text; {source.unit} {line}: {next(filter(None, faults))}"
                )

        keys = held_out.sentence_keys(self.corpus, self._sets)
        cleaners = [
            filters.Cleaner(self.config, *languages_of, of_sets)
            for languages_of, of_sets in zip(self.corpus.language_pairs, keys, strict=True)
        ]
        with _bar("checking") as bar:
            function = functools.partial(blocks.check_block, cleaners)
            for block, checks in ordered_map(function, all_blocks(), workers=self.workers):
                number = block.source
                source = self.corpus.train[number]
                bad = np.flatnonzero(checks.codes == filters.reason_code("not UTF-8"))
                if len(bad):
                    first = int(block.lines[bad[0]]), [side[bad[0]] for side in block.pairs]
                    first_undecodable.setdefault(number, first)
                    undecodable[number] += len(bad)
                languages.add(block, checks)
                check.pairs[number] += len(checks.codes)
                invisible[number] += checks.invisible
                # After a few blocks, because all damaged lines may be at the beginning.
                if check.pairs[number] >= PART * BLOCK:
                    refuse_encoding(number)
                check.overlap = list(map(operator.add, check.overlap, checks.overlaps))
                yield checks
                if number == len(self.corpus.train) - 1 and (share := source.reading.progress):
                    bar.total = sum(check.pairs[:-1]) + round(check.pairs[-1] / share)
                bar.update(len(checks.codes))
        for number, count in enumerate(invisible):
            refuse_encoding(number)
            check.fixed[number] |= {INVISIBLE: count} if count else {}

    # -- Learn

    def _learn(self, check: results.CheckResult) -> tuple[Vocabularies, list[PairOdds]]:
        """The vocabularies, and the odds of the two sides of each direction."""
        saved = self.writer.scratch / "odds.npz"
        if saved.is_file():
            with np.load(saved) as arrays:
                of_sides = list(map(filters.LanguageOdds, arrays.values()))
            return self.writer.tokenizers(), list(zip(of_sides[::2], of_sides[1::2], strict=True))
        counts, sizes = self._counted(check)
        if self.existing is None:
            factors = self.corpus.factors(sizes)
            vocabularies = learn_vocabularies(counts, factors, self.config, self.corpus)
        else:
            if self.existing.adds_characters:
                self.existing = self.existing.with_characters(counts)
            for direction, words in zip(self.corpus.directions, counts, strict=True):
                where = f"the training text of {direction.name}"
                self.existing.refuse_unseen(words.src, words.tgt, where=where)
            vocabularies = self.existing.vocabularies
        self.writer.add_tokenizers(vocabularies)
        odds = [language_odds(vocabularies, words.src, words.tgt) for words in counts]
        malloc_trim()
        with (self.writer.scratch / "odds.partial").open("wb") as file:
            np.savez(file, *(side.log_odds for pair in odds for side in pair))
        os.replace(file.name, saved)
        return vocabularies, odds

    def _counted(self, check: results.CheckResult) -> tuple[list[DirectionWords], list[float]]:
        """The words of each direction, and the number of its kept pairs.

        The words have their counts in the kept pairs; a pair counts as often as its weight.
        """
        by_reason = self._records.counts()
        kept = by_reason.get(filters.REASONS[filters.KEPT], 0)
        if not kept:
            raise _nothing_left(by_reason)
        # Every n-th pair, so that a sample covers the whole corpus evenly.
        stride = -(-kept // self.config.learn_from_pairs)
        directions = range(len(self.corpus.directions))
        sizes = [0.0 for _ in directions]

        def chosen() -> Iterator[blocks.PairBlock]:
            seen = 0
            for block in self._blocks(check):
                kept = block.kept
                sizes[block.direction] += len(kept) * self.corpus.train[block.source].weight
                yield block.select(kept[-seen % stride :: stride])
                seen += len(kept)

        # Of source and target, and then of both with noise.
        most = _WORDS_BYTES // len(directions)
        counts = [[WordCounts(max_bytes=most) for _ in range(4)] for _ in directions]
        count = functools.partial(blocks.count_block, self._linearisation, self._noise)
        with _bar("counting words", total=-(-kept // stride)) as bar:
            for block, of_block in ordered_map(count, chosen(), workers=self.workers):
                for side, of_side in zip(counts[block.direction], of_block, strict=True):
                    side.add(of_side)
                bar.update(len(block))
        words = [DirectionWords(*(dict(side.items()) for side in sides)) for sides in counts]
        return words, sizes

    # -- Encode

    def _encode(
        self, check: results.CheckResult, vocabularies: Vocabularies, odds: list[PairOdds]
    ) -> results.EncodeResult:
        saved = self.writer.scratch / "encode.json"
        kinds = [kind for kind, share in self.config.noise.probabilities.items() if share]
        done = results.read_stage(saved, results.EncodeResult) or results.EncodeResult(
            [0] * len(self.corpus.train), dict.fromkeys(kinds, 0)
        )
        self.writer.back_to(done.sizes)
        dtype = self.writer.token_type
        prefixes = self.corpus.train_prefixes(vocabularies)
        encoder = blocks.BlockEncoder(
            vocabularies,
            odds,
            self.config,
            dtype,
            self._linearisation,
            [blocks.as_bytes(prefix, dtype) for prefix in prefixes],
            self._noise,
        )
        # Trees are not compared.
        grams = None if self._linearisation else held_out.grams_of(self._sets)
        function = functools.partial(_encoded, encoder, grams)
        rest = itertools.islice(self._blocks(check), done.blocks, None)
        total = len(self._records)
        stride = -(-total // results.SAMPLED)
        with _bar("encoding", total=total) as bar:
            bar.update(min(done.blocks * BLOCK, total))
            for block, (encoded, near) in ordered_map(function, rest, workers=self.workers):
                held_out.keep_nearest(done.near, near)
                for kind, count in encoded.noise.items():
                    done.noise[kind] += count
                self.writer.add_pairs("train", encoded.src, encoded.tgt)
                if self.corpus.has_links:
                    self.writer.add_links("train", encoded.links)
                block = replace(block, codes=encoded.codes)
                # The same again in a run that resumes, so a kill does no harm.
                self._records.set_codes(block.start, encoded.codes)
                self._list_dropped(done, block)
                if self._linearisation is None:
                    language = self.corpus.directions[block.direction].src_lang
                    pairs = blocks.taken(block.pairs, block.kept.tolist())
                    done.lines.add(pairs, every=stride, language=language)
                done.kept[block.source] += len(encoded.src)
                for side, sentences in (("src", encoded.src), ("tgt", encoded.tgt)):
                    done.tokens[side] += sum(map(len, sentences)) // dtype.itemsize
                done.blocks += 1
                bar.update(len(block))
                if done.blocks % PART == 0:
                    done.sizes = self.writer.end_part()
                    results.write_stage(saved, done)
        if not sum(done.kept):
            raise _nothing_left(done.dropped)
        for kind in [kind for kind, count in done.noise.items() if not count]:
            log.warning("noise.%s: no training pair got it; none could, or there are few", kind)
        return done

    def _list_dropped(self, done: results.EncodeResult, block: blocks.PairBlock) -> None:
        name = self.corpus.labels[block.source]
        for index in np.flatnonzero(block.codes).tolist():
            reason, line = filters.REASONS[block.codes[index]], int(block.lines[index])
            done.dropped[reason] = done.dropped.get(reason, 0) + 1
            self.writer.drop(name, line, reason)
            # The pairs with the smallest hashes are an even sample.
            samples = done.samples.setdefault(reason, [])
            chance = zlib.crc32(f"{name}\t{line}".encode("utf-8", "surrogatepass"))
            if len(samples) < _SAMPLES or chance < samples[-1][0]:
                texts = [_shown(lines[index]) for lines in block.pairs]
                bisect.insort(samples, [chance, one_line(name), line, *texts])
                del samples[_SAMPLES:]

    def _add_held_out(self, vocabularies: Vocabularies) -> None:
        dtype = self.writer.token_type
        encoders = blocks.block_encoders(vocabularies, dtype)
        prefixes = self.corpus.direction_prefixes(vocabularies)
        for prefix, of_direction in zip(prefixes, self._sets, strict=True):
            for split, pairs in of_direction.items():
                if pairs[0]:
                    self.writer.add_text(split, *blocks.decoded(pairs))
                if split == "test":
                    continue
                # As training pairs, so that both are encoded in the same way.
                lines = blocks.model_texts(pairs, self._linearisation)
                encoded = map(blocks.CachedEncoder.encode, encoders, lines)
                self.writer.add_pairs(
                    split, *blocks.tagged(blocks.as_bytes(prefix, dtype), encoded)
                )

    # -- All stages

    def _source_blocks(
        self, number: int, read: Generator[Block, None, None]
    ) -> Iterator[blocks.PairBlock]:
        """The blocks of a training source, with their links; nothing is dropped yet."""
        direction, first = self.corpus.direction_of[number], 1
        for pairs, links in self.corpus.blocks(number, read):
            # Links are of the words as they are in the file.
            if self.config.repair_entities and links is None:
                pairs = repaired(pairs, self.corpus.train[number].reading.found)
            lines = np.arange(first, first + len(pairs[0]))
            codes = np.full(len(lines), filters.KEPT, np.uint8)
            yield blocks.PairBlock(direction, number, lines, pairs, links, codes)
            first += len(lines)

    def _blocks(
        self, check: results.CheckResult, wanted: Collection[int] | None = None
    ) -> Iterator[blocks.PairBlock]:
        """The blocks of training sources in order, all or those, with the reason codes so far.

        Each block is first compared with the one that the first stage read: a change is an error.
        """
        start = 0
        for number, (source, checksums) in enumerate(
            zip(self.corpus.train, check.blocks, strict=True)
        ):
            if wanted is not None and number not in wanted:
                start += check.pairs[number]
                continue
            # Not held by a name: after an error its files are closed at once.
            for block, checksum in itertools.zip_longest(
                self._source_blocks(number, _read_again(source)), checksums
            ):
                if block is None or _checksum(block) != checksum:
                    raise _changed(source)
                codes = self._records.read("codes", start, len(block))
                yield replace(block, codes=codes, start=start)
                start += len(block)

    def _refuse_changed(self, split: str) -> None:
        """Refuse sources that have changed since `origins` was recorded."""
        sources, now = self.corpus.sources()[split], self.corpus.facts(split)
        for source, facts, before in zip(sources, now, self.origins[split], strict=True):
            if facts != before:
                raise _changed(source)


def _reasons_of(
    finders: Sequence[Finder], block: blocks.PairBlock
) -> list[tuple[str, PairNumbers]]:
    return [reason for finder in finders for reason in finder(block)]


def _encoded(
    encoder: blocks.BlockEncoder, grams: list[held_out.Grams] | None, block: blocks.PairBlock
) -> tuple[blocks.EncodedBlock, list[held_out.NearDuplicate]]:
    """A block encoded, and which held-out pairs its kept pairs are near; in any process."""
    encoded = encoder(block)
    kept = replace(block, codes=encoded.codes)
    return encoded, [] if grams is None else held_out.near_duplicates(grams, kept)


def _checksum(block: blocks.PairBlock) -> str:
    texts = _texts(block.pairs)
    if block.links is not None:
        texts.append("\n".join(block.links.lines).encode())
    return filters.checksum_of(texts)


def _texts(pairs: Block) -> list[bytes]:
    """Both sides as text; their lines contain no newline, so the text is unambiguous."""
    return [b"\n".join(lines) + b"\n" for lines in pairs]


def _read_again(source: Source) -> Generator[Block, None, None]:
    """The blocks of a source that was read to its end before."""
    try:
        yield from source.blocks(BLOCK)
    except MtkitError as error:
        raise _changed(source, f" ({error})") from error


def _unrelated(records: filters.PairRecords, label: str, start: int, end: int) -> list[str]:
    """What is said of a source with pairs whose lengths have nothing in common; or nothing."""
    unrelated = find_unrelated(records, start, end)
    blocks = (end - start) // BLOCK_PAIRS
    if len(unrelated) <= _MAX_UNRELATED * blocks:
        return []
    first, last = unrelated[0] - start + 1, unrelated[0] - start + BLOCK_PAIRS
    return [
        f"{one_line(label)}: in {len(unrelated):,} of {blocks:,} parts of {BLOCK_PAIRS} pairs, as "
        f"in {first:,} to {last:,}, the lengths of source and target have nothing in common; do "
        "these lines belong together?"
    ]


def _without_right(segments: list[Misalignment], source: Source, start: int) -> list[Misalignment]:
    """The segments of a source that begins at `start`, without those whose words are right."""
    pairs: dict[Misalignment, list[tuple[bytes, bytes]]] = {segment: [] for segment in segments}
    for src, tgt in _read_again(source) if segments else ():
        for segment, of_segment in pairs.items():
            end = min(segment.end, segment.start + WORD_PAIRS)
            part = slice(max(0, segment.start - start), max(0, end - start))
            of_segment += zip(src[part], tgt[part], strict=True)
        start += len(src)
    return [segment for segment, texts in pairs.items() if not is_right(texts, segment.offset)]


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
