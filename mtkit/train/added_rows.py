"""Rows of the embeddings for subwords that the data has, and the run that it starts from has not.

They are those of `prepare --add-language` and `--add-characters`. All other rows stay as they are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mtkit.base.sentencepiece_model import pieces_in
from mtkit.checkpoint import Tensors
from mtkit.kernels.cpu_loss import NEVER
from mtkit.tokenizer import UNK_ID, Tokenizer, Vocabularies

# Of the source's own vocabulary, and of the target's or a joint one.
_MATRICES = (("src_embedding.weight",), ("embedding.weight", "output_bias"))
_SHOWN = 20


@dataclass(frozen=True)
class AddedRows:
    """Rows that are added to the weights of a run.

    Attributes:
        starts: of each vocabulary, for each new subword, the old ids whose mean it begins as.
        description: how many there are, and what they begin as.
    """

    starts: list[list[list[int]]]
    description: str

    @classmethod
    def between(
        cls, old: Vocabularies, new: Vocabularies, languages: Mapping[str, str]
    ) -> AddedRows | None:
        """The rows that lead from one pair of vocabularies to another; None if others differ too.

        Args:
            languages: of each new language the one whose tag its own begins as.
        """
        if old.is_joint != new.is_joint:
            return None
        starts, words = [], dict[str, str]()
        for ours, theirs in zip(old.distinct, new.distinct, strict=True):
            pieces, others = pieces_in(ours.model), pieces_in(theirs.model)
            if [p.text for p in pieces] != [p.text for p in others[: len(pieces)]]:
                return None
            known = {*pieces}
            more = [piece for piece in others if piece not in known]
            if ours.model != theirs.model and ours.with_more(more).model != theirs.model:
                return None
            codes = {i: code for code, i in theirs.language_tags.items()}
            of_side = []
            for i in range(len(ours), len(theirs)):
                like = code = codes.get(i)
                while like is not None and like not in ours.language_tags:
                    like = languages.get(like)
                if code is not None and like is None:
                    return None
                of_side.append(
                    [ours.language_tags[like]] if like else _spelling(ours, theirs.piece(i))
                )
                words[code or theirs.piece(i)] = like or ""
            starts.append(of_side)
        tags = [f"the tag of {code} from that of {like}" for code, like in words.items() if like]
        characters = [character for character, like in words.items() if not like]
        if characters:
            shown = " ".join(characters[:_SHOWN]) + " …" * (len(characters) > _SHOWN)
            tags.append(f"{len(characters)} characters from what they were spelled with ({shown})")
        text = f"{len(words)} rows added to the embedding: {'; '.join(tags)}"
        return cls(starts, text if words else "")

    def add_to(self, weights: Tensors) -> None:
        """Add the rows to the weights of a model."""
        for names, starts in zip(_MATRICES[-len(self.starts) :], self.starts, strict=True):
            for name in (name for name in names if name in weights and starts):
                old = weights[name]
                weights[name] = torch.cat((old, torch.stack([_mean(old[ids]) for ids in starts])))


def _spelling(tokenizer: Tokenizer, character: str) -> list[int]:
    """The ids that a character was encoded as; of an unknown one, its base or its other case."""
    parts = unicodedata.normalize("NFKD", character)
    base = "".join(part for part in parts if not unicodedata.combining(part))
    for form in (character, base, character.swapcase()):
        ids = [i for i in tokenizer.encode(form) if i != UNK_ID and tokenizer.piece(i) != "▁"]
        if ids:
            return ids
    return [UNK_ID]


def _mean(rows: Tensor) -> Tensor:
    if rows.dim() == 1:
        # The bias of what is never written would say the same of the new subword.
        rows = rows[rows > NEVER / 2]
    return rows.mean(0) if len(rows) else torch.zeros(rows.shape[1:])
