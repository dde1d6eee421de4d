"""Leaves out the subwords, and the language tags, that a user's text does not need.

A text for which a vocabulary was trimmed is segmented as before. Of BPE also the subwords stay that
merges make on the way to those of the text: without them the merges do not lead there. All bytes,
single characters and symbols stay, so other text is segmented too, into smaller subwords.

The probabilities of a translation are larger by the share of the subwords that are left out.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from mtkit.base.errors import MtkitError
from mtkit.base.language_id import find_code, listed_languages
from mtkit.base.sentencepiece_model import is_bpe, pieces_in, with_pieces
from mtkit.base.text import read_lines
from mtkit.checkpoint import Tensors
from mtkit.convert.verification import Agreement, CheckText, RunModel, compare
from mtkit.kernels.cpu_loss import NEVER
from mtkit.model import Transformer
from mtkit.run_folder import Run
from mtkit.tokenizer import PAD_ID, SPECIAL_IDS, Tokenizer, Vocabularies
from mtkit.translate import Torch, Translator

log = logging.getLogger(__name__)

_Mask = npt.NDArray[np.bool_]
_BLOCK = 10_000
# Every n-th line is held back, to see how other text of this kind is segmented.
_HELD_BACK = 10
_SHOWN = 20


@dataclass(frozen=True)
class Trimming:
    """The vocabularies that are left of a run, and the old id of each new one of either side."""

    vocabularies: Vocabularies
    src_rows: list[int]
    tgt_rows: list[int]

    def weights(self, old: Tensors) -> Tensors:
        """The weights of the run with these rows only."""
        rows = {"src_embedding.weight": self.src_rows}
        rows |= dict.fromkeys(("embedding.weight", "output_bias"), self.tgt_rows)
        return {name: x[rows[name]] if name in rows else x for name, x in old.items()}

    def of_run(self, run: Run) -> Run:
        """The run with the facts that stay true: the directions whose tags are left."""
        data, imported = run.manifest.data, run.manifest.imported
        if imported is not None:
            imported = imported.model_copy(update={"subwords": None})
        if data.directions:
            codes = self.vocabularies.src.language_tags
            has_both = self.vocabularies.has_tags_on_both_sides
            left = [
                d
                for d in data.directions
                if d.tgt_lang in codes and (d.src_lang in codes or not has_both)
            ]
            if not left:
                raise MtkitError(
                    f"--keep-language: {run.path} has no direction between {', '.join(codes)}; "
                    "give both languages of one"
                )
            sides = ({d.src_lang: None for d in left}, {d.tgt_lang: None for d in left})
            src_lang, tgt_lang = (",".join(side) for side in sides)
            changes = {"directions": left, "src_lang": src_lang, "tgt_lang": tgt_lang}
            data = data.model_copy(update=changes)
        manifest = run.manifest.model_copy(update={"data": data, "imported": imported})
        return Run(run.path, run.config, manifest)

    def compare(self, full: Translator, trimmed: RunModel, text: CheckText) -> Agreement:
        """Compare a trimmed run with the whole one that never writes what was left out.

        Also says how many translations are those of the whole one.
        """
        ours = trimmed.translator
        model, runs = full.model, full.runs
        if runs.tgt_prefix:
            runs = runs.between(ours.src_lang, ours.tgt_lang)
        state, size = model.state_dict(), model.vocab_size
        bias = state.get("output_bias", torch.zeros(size)).clone()
        bias[np.setdiff1d(np.arange(size), self.tgt_rows)] = NEVER
        with torch.device("meta"):
            config = model.config.model_copy(update={"output_bias": True})
            limited = Transformer(config, size, PAD_ID, model.src_vocab_size)
        limited.load_state_dict(state | {"output_bias": bias}, assign=True)
        same = [x for x in text.lines if self.is_as_before(full.vocabularies, [x]).all()]
        name = f"{text.name} (against the whole run without the subwords that were left out)"
        text = CheckText(name, same, positions=text.positions)
        theirs = trimmed.translate(same)
        count = sum(map(operator.eq, full.translate(same), theirs))
        log.info(
            "of %d lines, %d are translated as by the whole run (greedy search)", len(same), count
        )
        if 2 * count < len(same):
            log.warning(
                "the subwords of most translations were left out; give text in the target language "
                "too, with a further --keep-text"
            )
        whole = RunModel(Translator(runs, Torch([limited.eval()], runs)))
        # A translation may be written in other subwords than it was made of; this text is not.
        return compare(whole, trimmed, text, [whole.translate(same), theirs], targets=same)

    def is_as_before(self, old: Vocabularies, lines: Sequence[str]) -> _Mask:
        """(N,): whether both vocabularies segment a line as the old ones did."""
        same = np.ones(len(lines), np.bool_)
        sides = zip(old, self.vocabularies, (self.src_rows, self.tgt_rows), strict=True)
        for ours, theirs, rows in islice(sides, 1 if old.is_joint else 2):
            both = zip(ours.encode_batch(lines), theirs.encode_batch(lines), strict=True)
            for i, (before, after) in enumerate(both):
                same[i] &= before == [rows[number] for number in after]
        return same


def trim(run: Run, files: Sequence[Path], languages: Sequence[str], other: Path | None) -> Trimming:
    """Trim the vocabularies of a run to what files of text need, and say what is left.

    The tags of `languages` stay, or all. Lines of `other`, or a part of the files, are compared.
    MtkitError if a file cannot be read or has no text, or the run has not such a language.
    """
    if run.manifest.data.task != "translation":
        raise MtkitError("--keep-text: is for translation, and not for a parser")
    old = run.tokenizers()
    is_one = old.is_joint or run.config.model.shared_embedding
    dropped = _dropped_tags(run, old, languages)
    # Of all lines, and of those that are not held back.
    used = [[np.zeros(len(side), np.bool_) for side in old] for _ in range(2)]
    count = 0
    for lines in _blocks(files):
        some = [line for i, line in enumerate(lines) if i % _HELD_BACK]
        for text, masks in zip((lines, some), used, strict=True):
            for tokenizer, mask in zip(old, masks, strict=True):
                for ids in tokenizer.encode_batch(text):
                    mask[ids] = True
        count += sum(bool(line.strip()) for line in lines)
    if not count:
        raise MtkitError(f"--keep-text: there is no text in {', '.join(map(str, files))}")
    whole, part = (_trimmed(old, masks, dropped, is_one=is_one) for masks in used)
    checked = [whole.is_as_before(old, lines) for lines in _blocks(files)]
    if changed := sum(int((~same).sum()) for same in checked):
        raise MtkitError(f"--keep-text: {changed} lines are not as before; did a file change?")
    sizes, left = (" and ".join(f"{n:,}" for n in v.sizes) for v in (old, whole.vocabularies))
    log.info(
        "subwords: %s of %s are left; %s lines of text are segmented as before",
        left,
        sizes,
        f"{count:,}",
    )
    if other is not None:
        name, rest = str(other), [whole.is_as_before(old, lines) for lines in _blocks([other])]
    else:
        name = "a tenth of the text, if it is held back"
        rest = [part.is_as_before(old, lines[::_HELD_BACK]) for lines in _blocks(files)]
    same = np.concatenate(rest) if rest else np.ones(0, np.bool_)
    if len(same):
        log.info(
            "%s: %.1f %% of its lines are segmented as before, and others into smaller subwords",
            name,
            100 * same.mean(),
        )
    for before, after in zip(old.distinct, whole.vocabularies.distinct, strict=True):
        lost = sorted(_characters(before) - _characters(after))
        if lost and not before.has_bytes:
            log.warning(
                "unknown from now on, because they are only in subwords that are left out: "
                "%d characters (%s)",
                len(lost),
                " ".join(lost[:_SHOWN]),
            )
    return whole


def _characters(tokenizer: Tokenizer) -> set[str]:
    """Those that text is segmented into subwords by."""
    texts = (piece.text for piece in pieces_in(tokenizer.model) if piece.kind == "normal")
    return {*"".join(texts)}


def _blocks(files: Sequence[Path]) -> Iterator[list[str]]:
    """The lines of files, some thousands at a time."""
    for file in files:
        lines = read_lines(file)
        while block := list(islice(lines, _BLOCK)):
            yield block


def _dropped_tags(run: Run, old: Vocabularies, languages: Sequence[str]) -> set[str]:
    tags = old.src.language_tags
    if languages and not tags:
        raise MtkitError(f"--keep-language: {run.path} has no language tags; leave it out")
    kept = set()
    for wanted in languages:
        if (code := wanted if wanted in tags else find_code(wanted, tags)) is None:
            raise MtkitError(
                f"--keep-language {wanted}: {run.path} does not have it; it has "
                f"{listed_languages(tags, wanted)}"
            )
        kept.add(code)
    if languages and old.has_tags_on_both_sides and len(kept) < 2:
        raise MtkitError(
            f"--keep-language: {run.path} has no direction between {', '.join(kept)}; give both "
            "languages of one"
        )
    return {old.src.piece(i) for code, i in tags.items() if languages and code not in kept}


def _trimmed(
    old: Vocabularies, used: Sequence[_Mask], dropped: set[str], *, is_one: bool
) -> Trimming:
    kept = [_kept(side, mask, dropped) for side, mask in zip(old, used, strict=True)]
    if is_one:
        kept = [kept[0] | kept[1]] * 2
    rows = [np.flatnonzero(mask).tolist() for mask in kept]
    sides = []
    for tokenizer, of_side in zip(old.distinct, rows, strict=False):
        pieces = pieces_in(tokenizer.model)
        model = with_pieces(tokenizer.model, [pieces[i] for i in of_side], SPECIAL_IDS)
        sides.append(Tokenizer(model))
    return Trimming(Vocabularies(sides[0], sides[-1]), rows[0], rows[1])


def _kept(tokenizer: Tokenizer, used: _Mask, dropped: set[str]) -> _Mask:
    """(V,): the subwords that stay, of which a text has used some."""
    pieces = pieces_in(tokenizer.model)
    kept = used.copy()
    for i, piece in enumerate(pieces):
        if piece.kind not in ("normal", "unused") or len(piece.text) == 1:
            kept[i] = piece.text not in dropped
    if is_bpe(tokenizer.model):
        # Also those that segmentation makes, and then takes apart again.
        merges = {
            p.text: (p.score, i) for i, p in enumerate(pieces) if p.kind in ("normal", "unused")
        }
        kept |= [piece.kind == "unused" for piece in pieces]
        for i in np.flatnonzero(kept).tolist():
            if pieces[i].text in merges:
                kept[_on_the_way(pieces[i].text, merges)] = True
    return kept


def _on_the_way(subword: str, merges: dict[str, tuple[float, int]]) -> list[int]:
    """The ids of what merges make on the way from the characters to a subword."""
    symbols, made = list(subword), []
    while len(symbols) > 1:
        pairs = (merges.get(left + right) for left, right in pairwise(symbols))
        # The leftmost of those with the highest priority.
        best = max(((m[0], -at, m[1]) for at, m in enumerate(pairs) if m), default=None)
        if best is None:
            break
        at = -best[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
        made.append(best[2])
    return made
