"""The filters that drop training pairs, and the reasons for which pairs are dropped.

Every pair has a reason code, the number of a reason in `REASONS`; 0 keeps the pair. A pair is
dropped for the first reason that applies. The filters run in this order:

1. Per-pair filters, which need no other pair: `Cleaner`, on blocks of pairs in any process.
2. Corpus-level filters: duplicates and repeats (`find_repeats`) and misaligned segments
   (`find_misaligned`). They read the records that `Cleaner` wrote to flat files, block by block, so
   memory does not grow with the corpus. Then pairs with findings, if they are to be dropped.
3. Subword-level filters: length in subwords, and wrong language (`LanguageOdds`).

Sentences are compared without invisible characters (`visible`), after NFKC normalisation, with
every run of white space as one space, by 64-bit hashes: among 36 million different sentences, the
probability that two have the same hash is one in 28,000.
"""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from mtkit.base.arrays import hash64
from mtkit.base.invisible import visible
from mtkit.base.scripts import (
    CONTROL,
    DIGIT,
    END,
    IGNORED,
    INVISIBLE,
    LETTER,
    kinds_of_characters,
    script_table,
)
from mtkit.prepare_config import PrepareConfig

# The reasons in the order of their codes, from 1, and what they mean; braces name settings.
MEANINGS = {
    "not UTF-8": "A side is not valid UTF-8.",
    "empty": "A side has no visible characters.",
    "too long": "A side has more than {max_tokens:,} subwords, including its end, or more than"
    " {max_chars:,} characters.",
    "control characters": "A side has control characters, line separators, a byte-order mark or"
    " replacement characters, which are signs of damage.",
    "few letters": "Fewer than {min_letters:.0%} of a side's characters, without spaces, are"
    " letters or digits.",
    "wrong script": "Fewer than {min_script:.0%} of a side's letters are in a script of its"
    " language.",
    "identical sides": "Both sides are the same text.",
    "overlap": "The source or the target is also in the validation or test set.",
    "misaligned": "The lines around the pair are misaligned by a few lines, as their lengths show.",
    "duplicate": "The same pair occurred before; the first one is kept.",
    "repeated side": "The same source, or the same target, is in {max_repeats} earlier pairs.",
    "finding": "`mtkit check` finds something wrong with it that is to be dropped, such as damaged"
    " characters.",
    "length ratio": "One side has more than {max_ratio:g} times as many subwords as the other.",
    "wrong language": "A side is in another language: the sides are swapped, one is not translated,"
    " or it is in a third language.",
}
REASONS = ("kept", *MEANINGS)
KEPT = 0
# 2 ** 64 over the golden ratio: its multiples differ in all their bits.
_GOLDEN = 0x9E3779B97F4A7C15

ReasonCodes = npt.NDArray[np.uint8]
Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.uint32]


def reason_code(reason: str) -> int:
    """The number of a reason."""
    return REASONS.index(reason)


# ---------------------------------------------------------------------------------------------
# Per-pair filters


@dataclass(frozen=True)
class PairChecks:
    """The result of the per-pair filters for the n pairs of a block.

    Attributes:
        codes: (n,), the number of the reason, or 0.
        src_keys, tgt_keys: (n,), hashes of the normalised sentences.
        src_chars, tgt_chars: (n,), lengths in characters.
        overlaps: number of pairs whose source, target or both are in the validation or test set.
        invisible: number of pairs with invisible characters, which are dropped.
    """

    codes: ReasonCodes
    src_keys: Keys
    tgt_keys: Keys
    src_chars: Counts
    tgt_chars: Counts
    overlaps: tuple[int, int, int]
    invisible: int = 0


@dataclass(frozen=True)
class Cleaner:
    """Applies the per-pair filters to a block of pairs.

    The languages determine the expected scripts. `held_out` are the keys of the sources, and of the
    targets, of the validation and test sets.
    """

    config: PrepareConfig
    src_lang: str
    tgt_lang: str
    held_out: tuple[Keys, Keys]

    def __call__(self, block: tuple[list[bytes], list[bytes]]) -> PairChecks:
        """The reason codes for a block of source and target sentences."""
        config = self.config
        src = _Side(block[0], self.src_lang, config)
        tgt = _Side(block[1], self.tgt_lang, config)
        sides = src, tgt
        codes = np.zeros(len(block[0]), np.uint8)

        def drop(reason: str, where: npt.NDArray[np.bool_]) -> None:
            codes[(codes == KEPT) & where] = reason_code(reason)

        drop("too long", src.is_oversized | tgt.is_oversized)
        drop("not UTF-8", src.is_undecodable | tgt.is_undecodable)
        drop("empty", (src.visible == 0) | (tgt.visible == 0))
        drop("too long", np.maximum(src.chars, tgt.chars) > config.max_chars)
        if config.drop_control_characters:
            drop("control characters", (src.controls > 0) | (tgt.controls > 0))
        for side in sides:
            drop("few letters", side.letters + side.digits < config.min_letters * side.visible)
        for side in sides:
            if side.of_script is not None:
                drop("wrong script", side.of_script < config.min_script * side.letters)
        if config.drop_identical:
            # Numbers and punctuation are the same in both languages.
            drop("identical sides", (src.keys == tgt.keys) & (src.letters > 0))
        of_src, of_tgt = (
            np.isin(side.keys, keys) & (side.visible > 0)
            for side, keys in zip(sides, self.held_out, strict=True)
        )
        overlaps = int(of_src.sum()), int(of_tgt.sum()), int((of_src & of_tgt).sum())
        if config.drop_overlap:
            drop("overlap", of_src | of_tgt)
        invisible = int((src.has_invisible | tgt.has_invisible).sum())
        return PairChecks(codes, src.keys, tgt.keys, src.chars, tgt.chars, overlaps, invisible)


class _Side:
    """Character counts of one side of a block."""

    def __init__(self, lines: list[bytes], language: str, config: PrepareConfig) -> None:
        # A line of this many bytes has too many characters in any case, so it is not decoded.
        limit = 4 * config.max_chars + 1
        self.is_oversized = np.fromiter(map(len, lines), np.int64, len(lines)) >= limit
        if self.is_oversized.any():
            lines = [line if len(line) < limit else b"" for line in lines]
        self.is_undecodable = np.zeros(len(lines), bool)
        try:
            text = b"\n".join(lines).decode()
        except UnicodeDecodeError:
            lines = lines.copy()
            for index, line in enumerate(lines):
                try:
                    line.decode()
                except UnicodeDecodeError:
                    self.is_undecodable[index], lines[index] = True, b""
            text = b"\n".join(lines).decode()
        codes = np.frombuffer(text.encode("utf-32-le") + b"\n\0\0\0", np.uint32)
        codes = np.minimum(codes, END - 1)
        kinds = kinds_of_characters()[codes]
        ends = np.flatnonzero(codes == ord("\n"))
        if len(ends) != len(lines):
            raise ValueError("a sentence with a newline in it")
        given = lines
        if (kinds & IGNORED).any():
            lines = [line.encode() for line in visible(text).split("\n")]
        self.has_invisible = np.array(list(map(bytes.__ne__, given, lines)), bool)
        self.keys = _hashes(lines)
        starts = np.concatenate(([0], ends[:-1] + 1))

        def count(mask: npt.NDArray[Any]) -> Counts:
            # With its line end, no line is empty here.
            return np.add.reduceat(mask, starts, dtype=np.uint32)

        self.chars: Counts = (ends - starts).astype(np.uint32)
        self.visible = count((kinds & INVISIBLE) == 0)
        self.controls = count((kinds & CONTROL) != 0)
        is_letter = (kinds & LETTER) != 0
        self.letters = count(is_letter)
        self.digits = count((kinds & DIGIT) != 0)
        self.of_script: Counts | None = None
        table = script_table(language) if config.min_script else None
        if table is not None:
            self.of_script = count(is_letter & table[codes])


def keys_of(lines: Iterable[bytes]) -> Keys:
    """(n,): a hash of each UTF-8 sentence, equal if the normalised sentences are equal."""
    return _hashes(visible(line.decode()).encode() for line in lines)


def _hashes(lines: Iterable[bytes]) -> Keys:
    """As `keys_of`, of sentences without invisible characters."""
    digest = xxhash.xxh3_64_intdigest
    return np.array([digest(_normal_form(line)) for line in lines], np.uint64)


def salted(keys: Keys, direction: int) -> Keys:
    """The keys of sentences of a direction, which differ from those of other directions."""
    return keys ^ np.uint64(direction * _GOLDEN % 2**64)


def checksum_of(texts: Iterable[bytes]) -> str:
    """Checksum of all bytes, against accidents; SHA-256 would take about ten times as long."""
    return xxhash.xxh3_128_hexdigest(b"".join(texts))


def _normal_form(line: bytes) -> bytes:
    if not line.isascii():
        line = unicodedata.normalize("NFKC", line.decode()).encode()
    return b" ".join(line.split())


# ---------------------------------------------------------------------------------------------
# Corpus-level filters


_KEYS = ("src_keys", "tgt_keys")
# Pairs read at a time by filters that need all pairs.
_BLOCK = 1 << 20

_RECORD_TYPES: dict[str, type[np.generic]] = {
    "codes": np.uint8,
    "src_keys": np.uint64,
    "tgt_keys": np.uint64,
    "src_chars": np.uint32,
    "tgt_chars": np.uint32,
}


class PairRecords:
    """The results of `Cleaner` for all pairs, in flat files: arrays named as in `PairChecks`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def write(cls, folder: Path, blocks: Iterable[PairChecks]) -> PairRecords:
        """Write the records of all blocks, in order, to files in an existing folder."""
        with contextlib.ExitStack() as stack:
            files = {
                name: stack.enter_context((folder / name).open("wb")) for name in _RECORD_TYPES
            }
            for checks in blocks:
                for name, file in files.items():
                    file.write(getattr(checks, name).tobytes())
        return cls(folder)

    def __len__(self) -> int:
        return (self._folder / "codes").stat().st_size

    def read(self, name: str, start: int, count: int) -> npt.NDArray[Any]:
        """A part of one of the arrays; it is shorter at the end of the corpus."""
        dtype = np.dtype(_RECORD_TYPES[name])
        offset = start * dtype.itemsize
        return np.fromfile(self._folder / name, dtype, count=count, offset=offset)

    def counts(self) -> dict[str, int]:
        """The number of pairs with each reason code."""
        total = np.zeros(len(REASONS), np.int64)
        for start in range(0, len(self), _BLOCK):
            total += np.bincount(self.read("codes", start, _BLOCK), minlength=len(REASONS))
        return {reason: n for reason, n in zip(REASONS, total.tolist(), strict=True) if n}

    def set_codes(self, start: int, codes: ReasonCodes) -> None:
        """Replace the codes of the pairs from this one on."""
        with (self._folder / "codes").open("r+b") as file:
            file.seek(start)
            file.write(codes.tobytes())

    def drop(self, reason: str, pairs: npt.NDArray[np.int64]) -> None:
        """Set this reason for pairs that are not dropped yet."""
        if len(pairs):
            codes = np.memmap(self._folder / "codes", np.uint8, mode="r+")
            codes[pairs[codes[pairs] == KEPT]] = reason_code(reason)
            codes.flush()


def kept_pairs_among(records: PairRecords, pairs: Sequence[tuple[Keys, Keys]]) -> list[int]:
    """How many of each set of pairs, given by the keys of both sides, are kept training pairs."""

    def of_pairs(src_keys: Keys, tgt_keys: Keys) -> Keys:
        return src_keys * np.uint64(_GOLDEN) + tgt_keys

    sets = [of_pairs(*keys) for keys in pairs]
    wanted = np.unique(np.concatenate(sets))
    is_kept = np.zeros(len(wanted), bool)
    for start in range(0, len(records) if len(wanted) else 0, _BLOCK):
        codes, *keys = (records.read(name, start, _BLOCK) for name in ("codes", *_KEYS))
        block_keys = of_pairs(*keys)[codes == KEPT]
        places = np.minimum(np.searchsorted(wanted, block_keys), len(wanted) - 1)
        is_kept[places[wanted[places] == block_keys]] = True
    return [int(is_kept[np.searchsorted(wanted, keys)].sum()) for keys in sets]


def find_repeats(
    records: PairRecords,
    config: PrepareConfig,
    *,
    advance: Callable[[float], object] = lambda _: None,
) -> None:
    """Drop repeated pairs, and pairs whose source or target occurs more often than a limit.

    The first ones in the order of the corpus are kept. `advance` is called with progress in
    pairs.
    """
    rules: list[tuple[int, str, tuple[str, ...]]] = [(1, "duplicate", _KEYS)]
    if config.max_repeats is not None:
        rules += [(config.max_repeats, "repeated side", (side,)) for side in _KEYS]
    for rule in rules if config.drop_duplicates else rules[1:]:
        _drop_beyond(records, *rule)
        advance(len(records) / len(rules))


def _drop_beyond(records: PairRecords, limit: int, reason: str, names: tuple[str, ...]) -> None:
    """Drop pairs that are still kept, from the (limit + 1)th with the same keys on."""
    total = len(records)
    # Equal keys are in the same part, and each part is sorted in memory.
    parts = -(-total // _BLOCK)
    for part in range(parts):
        where, keys = [], []
        for start in range(0, total, _BLOCK):
            hashes = np.zeros(1, np.uint64)
            for name in names:
                hashes = hash64(hashes, 0) + records.read(name, start, _BLOCK)
            hashes = hash64(hashes, 1)
            mine = records.read("codes", start, _BLOCK) == KEPT
            if parts > 1:
                mine &= hashes % np.uint64(parts) == part
            (indices,) = np.nonzero(mine)
            where.append(indices + start)
            keys.append(hashes[indices])
        pairs, of_pair = np.concatenate(where), np.concatenate(keys)
        order = np.argsort(of_pair, kind="stable")
        of_pair = of_pair[order]
        is_first = np.concatenate(([True], of_pair[1:] != of_pair[:-1]))[: len(order)]
        place = np.arange(len(order))
        rank = place - np.maximum.accumulate(np.where(is_first, place, 0))
        records.drop(reason, pairs[order[rank >= limit]])


# ---------------------------------------------------------------------------------------------
# Subword-level filters

# A subword that occurs less often than this on both sides is ignored.
_RARE = 5
# The largest log-odds of a subword, in nats.
_LOUDEST = 4.0
# Limits for the sum of a sentence in the wrong language: 3,000 to 1, and half a nat per subword.
_SENTENCE = 8.0
_PER_PIECE = 0.5


class LanguageOdds:
    """Log-odds of each subword: this side of the corpus against the other.

    A sentence whose subwords nearly all belong to the other side is in the wrong language: the
    pair is swapped or untranslated. This needs no language model, and works for any two languages
    that share a script, as long as most of the corpus is right.

    `log_odds` (V,) is how much more frequent each subword is on this side, in nats; 0 if that is
    unknown.
    """

    def __init__(self, log_odds: npt.NDArray[np.float64]) -> None:
        self.log_odds = log_odds

    @classmethod
    def from_counts(cls, here: npt.NDArray[np.int64], there: npt.NDArray[np.int64]) -> LanguageOdds:
        """The log-odds for one side, from the counts (V,) of each subword on both sides."""
        shares = [(side + 0.5) / (side.sum() + 1) for side in (here, there)]
        odds = np.log(shares[0] / shares[1]).clip(-_LOUDEST, _LOUDEST)
        # Subwords that both sides share are ignored: names, numbers, punctuation.
        tells = (np.maximum(here, there) >= _RARE) & (np.abs(odds) > 1)
        return cls(np.where(tells, odds, 0.0))

    def foreign(
        self, ids: npt.NDArray[np.unsignedinteger], lengths: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """(n,): whether each sentence is in the language of the other side.

        `ids` are the subwords of the sentences, one after another, and `lengths` (n,) the number of
        each, at least one.
        """
        if not len(lengths):
            return np.zeros(0, bool)
        sums = np.add.reduceat(self.log_odds[ids], np.cumsum(lengths) - lengths)
        limits: npt.NDArray[np.float64] = np.maximum(_SENTENCE, _PER_PIECE * lengths)
        return np.less(sums, -limits)
