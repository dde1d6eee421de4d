"""A vocabulary as `tokenizer.json`, for Hugging Face's tokenizers in Rust, Python and JavaScript.

The text is normalised by steps that all of them have, because the JavaScript one does not read
SentencePiece's table. They give the same text as the table, except for unusual sequences of
accents. Segmentation and decoding are those of the SentencePiece model, except that

- the JavaScript one has no bytes in a unigram model: there, a character that the vocabulary lacks
  is the unknown token;
- in BPE, two merges that give the same subword from different parts are in a fixed order, and in
  SentencePiece the left one is first.

A symbol that is always one subword is one character for private use inside. So is the mark of the
target's subwords where each side has a vocabulary: no text is segmented into these.
"""

from __future__ import annotations

import json
from typing import Any

from mtkit.base.errors import MtkitError
from mtkit.base.sentencepiece_model import Piece, normalization_of, pieces_in
from mtkit.convert.onnx_graph import joint_ids
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer, Vocabularies

SPECIAL_TOKENS = {
    "bos_token": BOS_ID,
    "eos_token": EOS_ID,
    "pad_token": PAD_ID,
    "unk_token": UNK_ID,
}
_SPACE = "▁"
# Characters for private use, which texts hardly have; docs/export.md says what becomes of them.
_FIRST_SYMBOL, _WIDE_TILDE, _OF_TARGET = 0x100000, "\U0010fffc", "\U0010fffd"
# What SentencePiece's `nmt_nfkc` does before the Unicode normal form NFKC.
_REMOVED = r"[\u0001-\u0008\u000B\u000E-\u001F\u007F\u008F\u009F]"
_MADE_SPACES = (
    r"[\u0009\u000A\u000C\u000D\u00A0\u061C\u1680\u2000-\u200C\u200E\u200F\u2028\u2029\u202F\u205F"
    r"\u2581\u3000\uFEFF\uFFFD]"
)
# Lower than the sum of a word's scores: such subwords are found where nothing else is.
_LAST_RESORT = -1e4


def tokenizer_json(vocabularies: Vocabularies, *, has_one_list: bool) -> dict[str, Any]:
    """The content of `tokenizer.json`; MtkitError if the normalisation cannot be expressed.

    With `has_one_list`, both sides have the same subwords with the same ids; an import may have two
    SentencePiece models of one list.
    """
    import tokenizers
    from tokenizers import decoders, normalizers, pre_tokenizers, processors

    src, tgt = vocabularies
    symbols = {
        symbol: chr(_FIRST_SYMBOL + number)
        for number, symbol in enumerate(dict.fromkeys([*src.symbols, *tgt.symbols]))
    }
    steps, prefix = _normalization(src, symbols)
    pieces = dict(enumerate(pieces_in(src.model))) if has_one_list else _joined(vocabularies)
    names = {
        i: symbols[piece.text] if piece.kind == "symbol" else piece.text
        for i, piece in pieces.items()
    }
    eos = names[EOS_ID]
    made = tokenizers.Tokenizer(
        _bpe(src, names) if src.model_type == "bpe" else _unigram(src, pieces, names)
    )
    made.normalizer = normalizers.Sequence(steps)
    made.pre_tokenizer = pre_tokenizers.Metaspace(
        _SPACE, prepend_scheme="always" if prefix else "never", split=False
    )
    made.post_processor = processors.TemplateProcessing(
        single=["$A", eos], pair=["$A", "$B", eos], special_tokens=[(eos, EOS_ID)]
    )
    made.decoder = decoders.Sequence(_decoders(symbols))
    tags = [src.piece(i) for i in src.language_tags.values()]
    made.add_tokens(
        [tokenizers.AddedToken(tag, lstrip=True, rstrip=True, normalized=False) for tag in tags]
    )
    content: dict[str, Any] = json.loads(made.to_str())
    return content


def _joined(vocabularies: Vocabularies) -> dict[int, Piece]:
    """The subwords of both sides by their ids."""
    src, tgt = (pieces_in(side.model) for side in vocabularies)
    ids = joint_ids(range(len(src)), len(tgt))
    of_target = enumerate(tgt[UNK_ID + 1 :], UNK_ID + 1)
    pieces = {i: Piece(piece.text + _OF_TARGET, kind="unused") for i, piece in of_target}
    return dict(sorted([*pieces.items(), *zip(ids, src, strict=True)]))


def _normalization(tokenizer: Tokenizer, symbols: dict[str, str]) -> tuple[list[Any], bool]:
    """The steps of normalisation, and whether a text begins with a space then."""
    from tokenizers import Regex
    from tokenizers.normalizers import NFKC, Replace

    spec = normalization_of(tokenizer.model)
    # Of several symbols that match, the longest is used.
    steps: list[Any]
    steps = [Replace(symbol, symbols[symbol]) for symbol in sorted(symbols, key=len, reverse=True)]
    match spec.name:
        case "nmt_nfkc":
            steps += [Replace(Regex(_REMOVED), ""), Replace(Regex(_MADE_SPACES), " ")]
            # It keeps this character, which NFKC replaces.
            steps += [Replace("\uff5e", _WIDE_TILDE), NFKC(), Replace(_WIDE_TILDE, "\uff5e")]
        case "nfkc":
            steps.append(NFKC())
        case "identity":
            pass
        case _:
            raise MtkitError(
                f"--format onnx cannot express the normalisation {spec.name!r}; use --format "
                "safetensors"
            )
    if spec.removes_spaces:
        steps += [Replace(Regex(" {2,}"), " "), Replace(Regex("^ | $"), "")]
    return steps, spec.begins_with_space


def _decoders(symbols: dict[str, str]) -> list[Any]:
    from tokenizers import Regex
    from tokenizers.decoders import ByteFallback, Fuse, Replace

    return [
        *(Replace(character, symbol) for symbol, character in symbols.items()),
        Replace(_OF_TARGET, ""),
        Replace(_SPACE, " "),
        ByteFallback(),
        Fuse(),
        # Bytes that are not a character; and a translation is one line.
        Replace("\ufffd", ""),
        Replace(Regex("[\t\n\r]"), " "),
        Replace(Regex("^ +"), ""),
    ]


def _bpe(tokenizer: Tokenizer, names: dict[int, str]) -> Any:
    """The model of merges: SentencePiece merges two parts whenever they are a subword."""
    from tokenizers.models import BPE

    normal = [piece for piece in pieces_in(tokenizer.model) if piece.kind == "normal"]
    known = {piece.text for piece in normal}
    merges = [
        (piece.text[:cut], piece.text[cut:])
        for piece in sorted(normal, key=lambda piece: -piece.score)
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in known and piece.text[cut:] in known
    ]
    vocabulary = {name: i for i, name in names.items()}
    has_bytes = tokenizer.has_bytes
    return BPE(vocabulary, merges, unk_token=names[UNK_ID], fuse_unk=True, byte_fallback=has_bytes)


def _unigram(tokenizer: Tokenizer, pieces: dict[int, Piece], names: dict[int, str]) -> Any:
    from tokenizers.models import Unigram

    scores = [
        (names[i], piece.score if piece.kind in ("normal", "symbol") else _LAST_RESORT)
        for i, piece in pieces.items()
    ]
    return Unigram(scores, unk_id=UNK_ID, byte_fallback=tokenizer.has_bytes)
