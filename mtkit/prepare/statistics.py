"""What prepared data is like: facts of a finished folder, and a page that shows them.

The training pairs are gone through once, a stretch at a time, so memory does not grow with the
corpus. Of a very large one an even share of the stretches is counted, which the page says. How a
page looks is the business of `report_page`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtkit.config import PrepareConfig
from mtkit.data import IntArray, Lengths, PreparedData, SentencePairs, Split
from mtkit.errors import MtkitError, one_line
from mtkit.prepare.passes import Report
from mtkit.prepare.report_page import (
    LONGEST,
    RATIO_STEPS,
    DataFacts,
    Dropped,
    Origin,
    Setting,
    Side,
    Vocabulary,
    data_page,
)
from mtkit.tokenizer import UNK_ID, Tokenizer

# Pairs that are counted together.
_STRETCH = 1 << 16
# Pairs that are counted at most, give or take a stretch: some 20 seconds.
_MOST_PAIRS = 64_000_000
_SAMPLES = 20
_EXAMPLES = 40
_RARE = 10
_OFTEN = 100
_COVERAGE_POINTS = 200
# How SentencePiece writes the piece of a single byte.
_BYTE = re.compile("<0x[0-9A-F]{2}>")

# Why a pair is dropped; braces name settings.
_MEANINGS = {
    "not UTF-8": "A side has bytes that are no text in UTF-8.",
    "empty": "A side has nothing that could be seen.",
    "too long": "A side has more than {max_tokens:,} subwords, its end counted, or more than"
    " {max_chars:,} characters.",
    "control characters": "A side has control characters, line separators, a byte-order mark or"
    " replacement characters, which tell of damage.",
    "few letters": "Of a side's characters, spaces not counted, fewer than {min_letters:.0%} are"
    " letters or digits.",
    "wrong script": "Of a side's letters, fewer than {min_script:.0%} are in a script in which its"
    " language is written.",
    "identical sides": "Both sides are the same text.",
    "overlap": "The source or the target is in the validation or test set as well.",
    "out of step": "The pair is in a stretch where lines belong to others a few lines off, as"
    " their lengths tell.",
    "duplicate": "The same pair occurred before; the first stays.",
    "repeated side": "The same source, or the same target, stands in {max_repeats} pairs before.",
    "length ratio": "One side has more than {max_ratio:g} times as many subwords as the other.",
    "wrong language": "The words of a side are those of the other side in the rest of the corpus,"
    " as where sides are swapped or one was not translated.",
}


def check_page(path: Path) -> None:
    """Refuse, before any work is done, a file that cannot be written.

    Raises:
        MtkitError: saying why.
    """
    if path.is_dir():
        raise MtkitError(f"{path}: is a folder; give the name of a file for the page")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise MtkitError(f"{path}: there is no folder {folder}; make it, or name another file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MtkitError(f"{path}: cannot be written, because {folder} is not a writable folder")


def write_page(path: Path, data: PreparedData, report: Report) -> None:
    """Write the page about prepared data, as a whole or not at all.

    Args:
        path: the HTML file, which is replaced if it exists.
        data: a finished folder.
        report: what `prepare` did to make it.

    Raises:
        MtkitError: if the file cannot be written.
    """
    check_page(path)
    html = data_page(data_facts(data, report))
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            file.write(html)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise MtkitError(f"{path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def data_facts(data: PreparedData, report: Report) -> DataFacts:
    """What the page of a finished folder shows.

    Args:
        data: the folder.
        report: what `prepare` did to make it.
    """
    tokenizers = data.tokenizers()
    train = _Counts.of(data, "train", tokenizers, samples=_SAMPLES)
    valid = _Counts.of(data, "valid", tokenizers)
    settings = PrepareConfig(**_as_given(data.manifest.settings))
    pieces = [_Pieces.of(tokenizer) for tokenizer in tokenizers]
    rare = [counts < _RARE for counts in _uses(train, tokenizers)]
    train_sides, valid_sides = (
        tuple(map(_side, counts.pieces, counts.lengths, pieces, rare)) for counts in (train, valid)
    )
    read = report.pairs["train"]
    kept = read - sum(report.dropped.values())
    facts = DataFacts(
        name=one_line(report.path.resolve().name),
        findings=[],
        summary=_summary(data, report, kept),
        read=read,
        kept=kept,
        counted=train.pairs,
        dropped=_dropped(report, settings),
        origins=[
            _origin(split, origin)
            for split, origins in data.manifest.sources.items()
            for origin in origins
        ],
        shifts=report.shifts,
        train=(train_sides[0], train_sides[1]),
        valid=(valid_sides[0], valid_sides[1]),
        ratios=train.ratios,
        both_lengths=train.both_lengths(),
        max_ratio=settings.max_ratio,
        coverage=(_coverage(train.pieces[0]), _coverage(train.pieces[1])),
        vocabularies=_vocabularies(train, tokenizers, pieces),
        samples=train.samples,
        settings=_settings(settings),
        versions=data.manifest.versions,
    )
    return dataclasses.replace(facts, findings=_findings(facts, report, settings))


def _as_given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a manifest, where JSON has no tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}


# ---------------------------------------------------------------------------------------------
# Counting


@dataclass
class _Counts:
    """What is counted of the pairs of a split; pairs of arrays are of source and target.

    Attributes:
        pairs: that were counted.
        pieces: (V,) each: how often every id occurs; V of either vocabulary.
        lengths: sentences by their tokens.
        ratios: as in `DataFacts`.
        plane: (source, target) lengths up to `LONGEST`.
        samples: number, source and target of some pairs.
    """

    pieces: tuple[IntArray, IntArray]
    pairs: int = 0
    lengths: tuple[Counter[int], Counter[int]] = field(
        default_factory=lambda: (Counter(), Counter())
    )
    ratios: Counter[int] = field(default_factory=Counter)
    plane: IntArray = field(default_factory=lambda: np.zeros((LONGEST + 1) ** 2, np.int64))
    samples: list[tuple[int, str, str]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        data: PreparedData,
        split: Split,
        tokenizers: tuple[Tokenizer, Tokenizer],
        *,
        samples: int = 0,
    ) -> _Counts:
        """The counts of a split, with some pairs evenly from all of it."""
        total = _number_of_pairs(data, split)
        stride = max(1, round(total / _MOST_PAIRS))
        src, tgt = (np.zeros(len(tokenizer), np.int64) for tokenizer in tokenizers)
        counts = cls((src, tgt))
        number = min(samples, total)
        wanted = [(2 * place + 1) * total // (2 * number) for place in range(number)]
        start = 0
        for place, stretch in enumerate(data.stretches(split, _STRETCH)):
            while wanted and wanted[0] < start + len(stretch):
                index = wanted.pop(0)
                src_text = tokenizers[0].decode(stretch.src[index - start])
                tgt_text = tokenizers[1].decode(stretch.tgt[index - start])
                counts.samples.append((index + 1, src_text, tgt_text))
            if place % stride == 0:
                counts._add(stretch)
            start += len(stretch)
        return counts

    def _add(self, stretch: SentencePairs) -> None:
        src, tgt = stretch.src.lengths, stretch.tgt.lengths
        self.pairs += len(stretch)
        for side, pieces, lengths in zip(
            (stretch.src, stretch.tgt), self.pieces, self.lengths, strict=True
        ):
            pieces += side.counts(len(pieces))
            _count(lengths, side.lengths)
        # Lengths have 32 bits at most, so no ratio is beyond 32 octaves.
        zero = 32 * RATIO_STEPS
        of_pairs = Counter[int]()
        _count(of_pairs, np.rint(RATIO_STEPS * np.log2(tgt / src)).astype(np.int64) + zero)
        for step, count in of_pairs.items():
            self.ratios[step - zero] += count
        where = np.minimum(src, LONGEST) * (LONGEST + 1) + np.minimum(tgt, LONGEST)
        self.plane += np.bincount(where, minlength=len(self.plane))

    def both_lengths(self) -> dict[tuple[int, int], int]:
        """As in `DataFacts`."""
        (where,) = np.nonzero(self.plane)
        return {
            divmod(place, LONGEST + 1): count
            for place, count in zip(where.tolist(), self.plane[where].tolist(), strict=True)
        }


def _count(counter: Counter[int], values: Lengths | IntArray) -> None:
    counts = np.bincount(values)
    (found,) = np.nonzero(counts)
    counter.update(dict(zip(found.tolist(), counts[found].tolist(), strict=True)))


def _number_of_pairs(data: PreparedData, split: Split) -> int:
    counts = data.manifest.counts
    return int(counts["kept"] if split == "train" else counts["pairs"][split])


@dataclass(frozen=True)
class _Pieces:
    """What the pieces of a vocabulary are; every array is (V,).

    Attributes:
        texts: the pieces.
        words: how many words begin in each.
        is_byte: whether it spells a single byte.
        is_text: whether it is none of these and not special.
    """

    texts: list[str]
    words: IntArray
    is_byte: npt.NDArray[np.bool_]
    is_text: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> _Pieces:
        texts = [tokenizer.piece(number) for number in range(len(tokenizer))]
        is_byte = np.array([_BYTE.fullmatch(text) is not None for text in texts])
        is_text = ~is_byte
        is_text[: UNK_ID + 1] = False
        return cls(texts, np.array([text.count("▁") for text in texts]), is_byte, is_text)


def _vocabularies(
    train: _Counts, tokenizers: tuple[Tokenizer, Tokenizer], pieces: Sequence[_Pieces]
) -> list[Vocabulary]:
    uses = _uses(train, tokenizers)
    if tokenizers[0] is tokenizers[1]:
        return [_vocabulary("joint", uses[0], pieces[0])]
    return list(map(_vocabulary, ("source", "target"), uses, pieces))


def _side(
    counts: IntArray, lengths: Counter[int], pieces: _Pieces, rare: npt.NDArray[np.bool_]
) -> Side:
    return Side(
        tokens=int(counts.sum()),
        words=int(counts @ pieces.words),
        byte_tokens=int(counts[pieces.is_byte].sum()),
        rare_tokens=int(counts[rare].sum()),
        lengths=dict(lengths),
    )


def _uses(train: _Counts, tokenizers: tuple[Tokenizer, Tokenizer]) -> tuple[IntArray, IntArray]:
    """How often each piece of either vocabulary is used, on both sides if it is a joint one."""
    if tokenizers[0] is not tokenizers[1]:
        return train.pieces
    both = train.pieces[0] + train.pieces[1]
    return both, both


def _vocabulary(label: str, uses: IntArray, pieces: _Pieces) -> Vocabulary:
    of_text = np.flatnonzero(pieces.is_text)
    counts = uses[of_text]
    groups = np.bincount(np.searchsorted([1, _RARE, _OFTEN], counts, side="right"), minlength=4)
    unused = of_text[counts == 0]
    rare = of_text[(counts > 0) & (counts < _RARE)]
    rare = rare[np.argsort(uses[rare], kind="stable")]
    never, few, some, many = groups.tolist()
    return Vocabulary(
        label=label,
        size=len(uses),
        by_use=(never, few, some, many),
        unused=[pieces.texts[number] for number in _evenly(unused, _EXAMPLES)],
        rare=[(pieces.texts[number], int(uses[number])) for number in _evenly(rare, _EXAMPLES)],
    )


def _evenly(values: IntArray, most: int) -> list[int]:
    number = min(len(values), most)
    chosen: list[int] = values[[place * len(values) // number for place in range(number)]].tolist()
    return chosen


def _coverage(counts: IntArray) -> list[tuple[float, float]]:
    """(k, share of the subwords that are one of the k most frequent pieces)."""
    frequent = np.sort(counts[UNK_ID + 1 :])[::-1]
    frequent = frequent[frequent > 0]
    if not len(frequent):
        return []
    shares = np.cumsum(frequent) / frequent.sum()
    places = np.unique(np.geomspace(1, len(shares), _COVERAGE_POINTS).round().astype(np.int64))
    return [(float(k), float(shares[k - 1])) for k in places]


# ---------------------------------------------------------------------------------------------
# What is told


def _summary(data: PreparedData, report: Report, kept: int) -> dict[str, str]:
    read = report.pairs["train"]
    summary = {
        "Languages": f"{data.src_lang} → {data.tgt_lang}",
        "Training pairs read": f"{read:,}",
        "Kept": f"{kept:,} ({kept / read:.2%})",
        "Dropped": f"{read - kept:,} ({(read - kept) / read:.2%})",
        "Validation pairs": f"{report.pairs['valid']:,}",
        "Test pairs": f"{report.pairs['test']:,}",
        "Pieces": ", ".join(f"{size:,}" for size in report.vocab_sizes),
        "Tokens kept": f"source {report.tokens[0]:,}\ntarget {report.tokens[1]:,}",
        "Training pairs in validation or test": "\n".join(
            f"{side} {count:,}"
            for side, count in zip(("source", "target", "both"), report.overlaps, strict=True)
        ),
        "Mended": "\n".join(f"{what}: {count:,}" for what, count in sorted(report.mended.items()))
        or "nothing",
        "Stretches out of step": f"{len(report.shifts):,}",
    }
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
                (sample.file, sample.line, sample.src, sample.tgt)
                for sample in report.samples
                if sample.reason == reason
            ],
        )
        for reason, count in report.dropped.items()
    ]


_DIGESTS = {"src_sha256": "source file", "tgt_sha256": "target file", "sha256": "file"}
_NO_PLACE = {"kind", "weight", "pairs", "kept", "mended", "text_sha256", *_DIGESTS}


def _origin(split: str, facts: Mapping[str, Any]) -> Origin:
    digests = {label: str(facts[key]) for key, label in _DIGESTS.items() if key in facts}
    if not digests:
        texts = facts.get("text_sha256", {})
        digests = {
            f"{label} text": texts[key]
            for key, label in (("src", "source"), ("tgt", "target"))
            if key in texts
        }
    places = [_in_words(value) for key, value in facts.items() if key not in _NO_PLACE]
    return Origin(
        split=split,
        place=", ".join(filter(None, places)) or str(facts.get("kind", "")),
        pairs=facts["pairs"],
        kept=facts.get("kept"),
        weight=facts.get("weight", 1.0),
        mended=facts.get("mended", {}),
        digests=digests,
    )


def _in_words(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _settings(settings: PrepareConfig) -> list[Setting]:
    values = settings.model_dump(mode="json")
    return [
        Setting(
            key=key,
            value=json.dumps(values[key], ensure_ascii=False),
            changed=getattr(settings, key) != field.default,
            meaning=field.description or "",
        )
        for key, field in PrepareConfig.model_fields.items()
    ]


# From these on something is worth a sentence.
_MUCH_DROPPED = 0.2
_MUCH_IN_BYTES = 0.005
_MUCH_RARE = 0.2
_UNLIKE = 1.2


def _findings(facts: DataFacts, report: Report, settings: PrepareConfig) -> list[str]:
    """Sentences on what may be amiss."""
    findings = []
    lost = facts.read - facts.kept
    if lost > _MUCH_DROPPED * facts.read:
        most = max(facts.dropped, key=lambda one: one.pairs)
        findings.append(
            f"{lost / facts.read:.0%} of the training pairs were dropped, most of them "
            f"({most.pairs:,}) for the reason “{most.reason}”. Look at the samples below: is the "
            "text at fault, or the rule?"
        )
    if facts.shifts:
        lines = sum(last - first + 1 for _, first, last, _ in facts.shifts)
        findings.append(
            f"The sides are out of step in {len(facts.shifts):,} "
            f"{'stretch' if len(facts.shifts) == 1 else 'stretches'} of {lines:,} lines in all; "
            "mend the files to have them."
        )
    if report.overlaps[2] and not settings.drop_overlap:
        findings.append(
            f"{report.overlaps[2]:,} training pairs have both sides in the validation or test set, "
            "so scores look better than the model is; --set drop_overlap=true leaves them out."
        )
    for name, train, valid in zip(("source", "target"), facts.train, facts.valid, strict=True):
        of_bytes = train.byte_tokens / max(1, train.subwords)
        if of_bytes > _MUCH_IN_BYTES:
            findings.append(
                f"{of_bytes:.1%} of the {name} subwords are single bytes: characters that "
                "occur and have no piece, such as those of another script."
            )
        if min(train.words, valid.words):
            usual, here = (side.subwords / side.words for side in (train, valid))
            if here > _UNLIKE * usual:
                findings.append(
                    f"A {name} word of the validation set takes {here:.2f} subwords, one of the "
                    f"training set {usual:.2f}: the two are texts of different kinds."
                )
    for vocabulary in facts.vocabularies:
        never, few, *_ = vocabulary.by_use
        pieces = sum(vocabulary.by_use)
        if never + few > _MUCH_RARE * pieces:
            findings.append(
                f"{never + few:,} of the {pieces:,} pieces ({vocabulary.label}) occur fewer than "
                f"{_RARE} times in training; a smaller vocabulary would do."
            )
    return findings
