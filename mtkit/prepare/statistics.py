"""Statistics of prepared data, and the page that shows them.

The training pairs are read once, block by block, so memory does not grow with the corpus. In a
very large corpus, only evenly sampled blocks are counted, and the page says so. `report_page`
defines the contents of the page.
"""

from __future__ import annotations

import json
import operator
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import MtkitError, one_line
from mtkit.base.files import naming_file, write_whole
from mtkit.config import setting_fields
from mtkit.data import IntArray, PreparedData, SentencePairs, Split, also_split
from mtkit.prepare.report import Report
from mtkit.prepare.report_page import (
    RARE,
    RATIO_STEPS,
    DataFacts,
    Dropped,
    Origin,
    Setting,
    Side,
    Vocabulary,
    data_page,
)
from mtkit.prepare_config import PrepareConfig
from mtkit.tokenizer import UNK_ID, Tokenizer, Vocabularies

# Pairs read at a time, and the most pairs counted (within a block), which takes about 20 seconds.
_BLOCK_PAIRS = 1 << 16
_MAX_PAIRS = 64_000_000
_SAMPLES = 20
# The subword of a single byte, in the notation of SentencePiece.
_BYTE = re.compile("<0x[0-9A-F]{2}>")

# The meaning of each reason; braces name settings.
_MEANINGS = {
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
    "length ratio": "One side has more than {max_ratio:g} times as many subwords as the other.",
    "wrong language": "The words of a side are those of the other language in the rest of the"
    " corpus: the sides are swapped, or one is not translated.",
}


def check_page(path: Path) -> None:
    """Refuse, before any work is done, a file that cannot be written.

    Raises:
        MtkitError: if it cannot be written, with the reason.
    """
    if path.is_dir():
        raise MtkitError(f"{path}: is a folder; give a file name for the page")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise MtkitError(f"{path}: there is no folder {folder}; create it, or give another file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MtkitError(f"{path}: cannot be written, because {folder} is not a writable folder")


def write_page(path: Path, data: PreparedData, report: Report) -> None:
    """Write the page about prepared data, atomically.

    Args:
        path: the HTML file, which is replaced if it exists.
        data: a finished folder.
        report: the report of its preparation.

    Raises:
        MtkitError: if the file cannot be written.
    """
    check_page(path)
    html = data_page(data_facts(data, report))
    with naming_file(path):
        write_whole(path, html)


def data_facts(
    data: PreparedData,
    report: Report,
    *,
    block_pairs: int = _BLOCK_PAIRS,
    max_pairs: int = _MAX_PAIRS,
) -> DataFacts:
    """The contents of the page about a finished folder.

    Args:
        data: the folder.
        report: the report of its preparation.
        block_pairs: number of pairs read at a time.
        max_pairs: the most pairs to count, within a block.
    """
    vocabularies = data.tokenizers()
    train, valid = (
        _count(data, split, vocabularies, block_pairs=block_pairs, max_pairs=max_pairs)
        for split in ("train", "valid")
    )
    # The training count of each subword, of both sides together if the vocabulary is joint.
    uses = (train.pieces[0] + train.pieces[1],) * 2 if vocabularies.is_joint else train.pieces
    pieces = [_Pieces(tokenizer) for tokenizer in vocabularies]
    train_sides, valid_sides = (
        tuple(map(_side, counts.pieces, counts.lengths, pieces, uses)) for counts in (train, valid)
    )
    # JSON has no tuples.
    given: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in data.manifest.settings.items()
    }
    settings = PrepareConfig(**given)
    kept = report.pairs["train"] - sum(report.dropped.values())
    facts = DataFacts(
        name=one_line(report.path.resolve().name),
        findings=[],
        summary=_summary(data, report, kept),
        read=report.pairs["train"],
        kept=kept,
        counted=train.pairs,
        dropped=_dropped(report, settings),
        origins=[
            _origin(split, origin)
            for split, origins in data.manifest.sources.items()
            for origin in origins
        ],
        misaligned=report.misaligned,
        train=(train_sides[0], train_sides[1]),
        valid=(valid_sides[0], valid_sides[1]),
        ratios=train.ratios,
        vocabularies=[_vocabulary("joint", uses[0], pieces[0])]
        if vocabularies.is_joint
        else list(map(_vocabulary, ("source", "target"), uses, pieces)),
        samples=train.samples,
        settings=_settings(settings),
        versions=data.manifest.versions,
    )
    return replace(facts, findings=findings(facts, report))


# ---------------------------------------------------------------------------------------------
# Counting


@dataclass
class _Counts:
    """Counts of a split; pairs of values are for source and target.

    Attributes:
        pieces: (V,) each: how often every id occurs.
        pairs: number of pairs counted.
        lengths: number of sentences by length in tokens.
        ratios, samples: as in `DataFacts`.
    """

    pieces: tuple[IntArray, IntArray]
    pairs: int = 0
    lengths: tuple[Counter[int], Counter[int]] = field(
        default_factory=lambda: (Counter(), Counter())
    )
    ratios: Counter[int] = field(default_factory=Counter)
    samples: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, block: SentencePairs) -> None:
        """Count the pairs of a block."""
        self.pairs += len(block)
        for side, pieces, lengths in zip(
            (block.src, block.tgt), self.pieces, self.lengths, strict=True
        ):
            pieces += side.counts(len(pieces))
            _add_values(lengths, side.lengths)
        octaves = np.log2(block.tgt.lengths / block.src.lengths)
        # Lengths have 32 bits at most, so a ratio is at most 32 octaves.
        offset = 32 * RATIO_STEPS
        _add_values(self.ratios, np.rint(RATIO_STEPS * octaves).astype(np.int64) + offset, -offset)


def _add_values(counter: Counter[int], values: npt.NDArray[Any], offset: int = 0) -> None:
    """Add non-negative values to a counter, each increased by `offset`."""
    counts = np.bincount(values)
    for value in np.flatnonzero(counts).tolist():
        counter[value + offset] += int(counts[value])


def _count(
    data: PreparedData,
    split: Split,
    vocabularies: Vocabularies,
    *,
    block_pairs: int,
    max_pairs: int,
) -> _Counts:
    """The counts of a split, with evenly spaced samples."""
    recorded = data.manifest.counts
    total = int(recorded["kept"] if split == "train" else recorded["pairs"][split])
    every = max(1, round(total / max_pairs))
    src, tgt = (np.zeros(len(tokenizer), np.int64) for tokenizer in vocabularies)
    counts = _Counts((src, tgt))
    number = min(_SAMPLES, total)
    wanted = [(2 * place + 1) * total // (2 * number) for place in range(number)]
    for place, block in enumerate(data.blocks(split, block_pairs)):
        first = place * block_pairs
        for index in wanted:
            if first <= index < first + len(block):
                texts = [
                    tokenizer.decode(side[index - first])
                    for tokenizer, side in zip(vocabularies, (block.src, block.tgt), strict=True)
                ]
                counts.samples.append((f"{index + 1:,}", texts[0], texts[1]))
        if place % every == 0:
            counts.add(block)
    return counts


class _Pieces:
    """Properties of the subwords of a vocabulary; every array is (V,).

    Attributes:
        words: how many words begin in each subword.
        is_byte: whether it is a single byte.
        is_learned: whether it is neither a single byte nor special.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        texts = [tokenizer.piece(number) for number in range(len(tokenizer))]
        self.words = np.array([text.count("▁") for text in texts])
        self.is_byte = np.array([_BYTE.fullmatch(text) is not None for text in texts])
        self.is_learned = ~self.is_byte
        self.is_learned[: UNK_ID + 1] = False


def _side(counts: IntArray, lengths: Counter[int], pieces: _Pieces, uses: IntArray) -> Side:
    frequent = np.sort(counts[UNK_ID + 1 :])[::-1]
    covered = np.cumsum(frequent)
    # The first position at which this share is covered.
    covering = [
        int(np.searchsorted(covered, share * covered[-1])) + 1 if covered[-1] else 0
        for share in (0.5, 0.9, 0.99)
    ]
    return Side(
        tokens=int(counts.sum()),
        words=int(counts @ pieces.words),
        byte_tokens=int(counts[pieces.is_byte].sum()),
        rare_tokens=int(counts[uses < RARE].sum()),
        covering=(covering[0], covering[1], covering[2]),
        lengths=dict(lengths),
    )


def _vocabulary(label: str, uses: IntArray, pieces: _Pieces) -> Vocabulary:
    learned = uses[pieces.is_learned]
    unused = int((learned == 0).sum())
    return Vocabulary(label, len(uses), len(learned), unused, int((learned < RARE).sum()) - unused)


# ---------------------------------------------------------------------------------------------
# Facts of the preparation


def _summary(data: PreparedData, report: Report, kept: int) -> dict[str, str]:
    read = report.pairs["train"]
    sides = ("source", "target", "both")
    summary = {
        "Languages": f"{data.src_lang} → {data.tgt_lang}",
        "Training pairs read": f"{read:,}",
        "Kept": f"{kept:,} ({kept / read:.2%})",
        "Dropped": f"{read - kept:,} ({(read - kept) / read:.2%})",
        "Validation pairs": f"{report.pairs['valid']:,}",
        "Test pairs": f"{report.pairs['test']:,}",
        **{
            f"Validation pairs of {name}": f"{report.pairs[also_split(name)]:,}"
            for name in data.valid_also
        },
        "Vocabulary size": report.vocabulary,
        "Tokens kept": f"source {report.tokens[0]:,}\ntarget {report.tokens[1]:,}",
        "Training pairs in validation or test": "\n".join(
            f"{side} {count:,}" for side, count in zip(sides, report.overlaps, strict=True)
        ),
        "Pairs that are in training too": "\n".join(
            f"{split} {count:,}" for split, count in report.in_training.items()
        ),
        "Fixed lines": "\n".join(f"{what}: {count:,}" for what, count in report.fixed.items())
        or "none",
        "Misaligned parts": f"{len(report.misaligned):,}",
    }
    if report.noise:
        summary["Pairs with noise"] = "\n".join(
            f"{kind}: {count:,} ({count / kept:.2%})" for kind, count in report.noise.items()
        )
    if licence := data.manifest.licence:
        summary["Licence"] = str(licence)
    return summary


def _dropped(report: Report, settings: PrepareConfig) -> list[Dropped]:
    return [
        Dropped(
            reason,
            _MEANINGS[reason].format(**settings.model_dump()),
            count,
            [
                (f"{sample.file}, {sample.line}", sample.src, sample.tgt)
                for sample in report.samples
                if sample.reason == reason
            ],
        )
        for reason, count in report.dropped.items()
    ]


_DIGESTS = {"src_sha256": "source file", "tgt_sha256": "target file", "sha256": "file"}
_NOT_A_PLACE = {"kind", "weight", "tag", "pairs", "kept", "fixed", "languages", "text_sha256"}
_NOT_A_PLACE |= _DIGESTS.keys()


def _origin(split: str, source: Mapping[str, Any]) -> Origin:
    """A source, from its entry in the manifest."""
    digests = {label: source[key] for key, label in _DIGESTS.items() if key in source}
    texts = source.get("text_sha256", {})
    places = [
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in source.items()
        if key not in _NOT_A_PLACE and value
    ]
    if tag := source.get("tag"):
        places.append(f"tag {tag}")
    return Origin(
        split=split,
        place=", ".join(places) or source["kind"],
        pairs=source["pairs"],
        kept=source.get("kept"),
        weight=source["weight"],
        fixed=source.get("fixed", {}),
        languages=source.get("languages", {}),
        digests=digests or {f"{side} text": digest for side, digest in texts.items()},
    )


def _settings(settings: PrepareConfig) -> list[Setting]:
    found = []
    for key, one in setting_fields(PrepareConfig).items():
        value = operator.attrgetter(key)(settings)
        found.append(
            Setting(
                key=key,
                value=json.dumps(value, ensure_ascii=False),
                changed=value != one.default,
                meaning=one.description or "",
            )
        )
    return found


# Values above these limits are reported.
_MUCH_DROPPED = 0.2
_MUCH_IN_BYTES = 0.005
_MUCH_RARE = 0.2
_UNLIKE = 1.2


def findings(facts: DataFacts, report: Report) -> list[str]:
    """Sentences about possible problems of the data."""
    found = [one if one.endswith("?") else f"{one}." for one in report.warnings]
    lost = facts.read - facts.kept
    if lost > _MUCH_DROPPED * facts.read:
        most = max(facts.dropped, key=lambda one: one.pairs)
        found.append(
            f"{lost / facts.read:.0%} of the training pairs were dropped, most of them "
            f"({most.pairs:,}) for the reason “{most.reason}”. Look at the samples below: the "
            "text may be bad, or the rule too strict."
        )
    if facts.misaligned:
        lines = sum(last - first + 1 for _, first, last, _ in facts.misaligned)
        found.append(
            f"The sides are misaligned in {len(facts.misaligned):,} "
            f"{'part' if len(facts.misaligned) == 1 else 'parts'} of the files, {lines:,} lines in "
            "all. These pairs are dropped; to keep them, fix the files."
        )
    for name, train, valid in zip(("source", "target"), facts.train, facts.valid, strict=True):
        of_bytes = train.byte_tokens / max(1, train.subwords)
        if of_bytes > _MUCH_IN_BYTES:
            found.append(
                f"{of_bytes:.1%} of the {name} subwords are single bytes, of characters that are "
                "not in the vocabulary, such as those of another script."
            )
        if min(train.words, valid.words):
            usual, here = (side.subwords / side.words for side in (train, valid))
            if here > _UNLIKE * usual:
                found.append(
                    f"A {name} word has {here:.2f} subwords in the validation set and "
                    f"{usual:.2f} in the training set: the texts are of different kinds."
                )
    for vocabulary in facts.vocabularies:
        few = vocabulary.unused + vocabulary.rare
        if few > _MUCH_RARE * vocabulary.learned:
            found.append(
                f"{few:,} of the {vocabulary.learned:,} subwords ({vocabulary.label}) occur fewer "
                f"than {RARE} times in training; a smaller vocabulary would do."
            )
    return found
