"""M2M-100 and NLLB-200 as Hugging Face stores them: their subwords, languages and positions.

Both are `M2M100ForConditionalGeneration`; `transformers_folder` reads what they share with Marian.
A source is ``tag tokens </s>``; a translation begins with `</s>`, and then the tag of its language.

- M2M-100: `vocab.json` has the ids of the subwords; behind are the tags and eight made-up words.
- NLLB-200: an id is that of SentencePiece plus one, and the first four are fairseq's; behind are
  the tags, and a mask.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.convert.marian import MADE_UP, Subwords, listed_pieces, most_rows, sentencepiece_pieces
from mtkit.convert.untrusted import MAX_LARGE_SENTENCEPIECE, MAX_VOCABULARY, read_bytes, read_json
from mtkit.tokenizer import language_tag

Kind = Literal["m2m100", "nllb"]

SENTENCEPIECE = "sentencepiece.bpe.model"
# The ids of `<s>`, padding, `</s>` and the unknown token.
FIRST = ["<s>", "<pad>", "</s>", "<unk>"]
PAD, EOS, UNK = range(1, 4)
# Settings of their ids, which a configuration may leave out.
SPECIAL = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": EOS}
_MADE_UP_WORDS = 8
_FLORES = re.compile(r"[a-z]{2,3}_[A-Z][a-z]{3}[\w-]{0,20}", re.ASCII)
# Each kind has a class of tokenizers; others, as that of SMaLL-100, put tags elsewhere.
_TOKENIZERS: dict[str, Kind] = {
    "M2M100Tokenizer": "m2m100",
    "NllbTokenizer": "nllb",
    "NllbTokenizerFast": "nllb",
}
# The languages in the order of their ids, which no file of M2M-100 has to name (fairseq,
# examples/m2m_100; transformers, tokenization_m2m_100.py).
_LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga "
    "gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
    "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn "
    "tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}


def has_tokenizer(folder: Path) -> bool:
    """Whether transformers gives the languages the right ids, for which NLLB needs its file."""
    return any((folder / name).exists() for name in ("vocab.json", "tokenizer.json"))


def is_code_of_nllb(code: str) -> bool:
    """Whether a code of a language is written as in NLLB-200: `eng_Latn`."""
    return _FLORES.fullmatch(code) is not None


def kind_of_codes(codes: Sequence[str]) -> str | None:
    """The model that has exactly these languages: `nllb`, or one of `language_codes`."""
    if all(map(is_code_of_nllb, codes)):
        return "nllb"
    return next((kind for kind, names in _LANGUAGES.items() if names.split() == [*codes]), None)


def fairseq_positions(count: int, width: int) -> Tensor:
    """(count, D): fairseq's encodings of positions 0 to `count` - 1 of a text.

    All sines come before all cosines, the frequencies are 10000 ** (-i / (D / 2 - 1)), and the
    first position is number 2.
    """
    # As transformers computes them, in float32.
    frequencies = torch.exp(
        torch.arange(width // 2).float() * -(math.log(10000) / (width // 2 - 1))
    )
    angles = torch.arange(2, count + 2).float().unsqueeze(1) * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def read_subwords(folder: Path, words: dict[str, Any], size: int) -> Subwords:
    """The subwords of both sides; those of languages are tags. `size` is the number of rows.

    `words` is `tokenizer_config.json`. MtkitError if the tokenizer is another one, or
    a file is missing, damaged or does not fit.
    """
    name = words.get("tokenizer_class")
    kind = _TOKENIZERS.get(str(name)) if name is not None else None
    if (name is not None and kind is None) or words.get("legacy_behaviour") is True:
        what = "legacy_behaviour: true" if kind else f"the tokenizer {str(name)[:100]}"
        raise MtkitError(
            f"{folder}: cannot be imported, because {what} puts the tags of languages elsewhere"
        )
    if kind is None:
        kind = "m2m100" if (folder / "vocab.json").exists() else "nllb"
    file = folder / SENTENCEPIECE
    model = read_bytes(file, MAX_LARGE_SENTENCEPIECE, what="SentencePiece model")
    pieces = [piece.text for piece in sentencepiece_pieces(model, file)]
    if kind == "m2m100":
        file = folder / "vocab.json"
        listed = read_json(file, MAX_VOCABULARY)
        pieces = listed_pieces(listed, file)
        if len(listed) < len(pieces):
            raise MtkitError(f"{file}: some ids below {len(pieces)} have no subword")
        if pieces[: len(FIRST)] != FIRST:
            raise MtkitError(f"{file}: does not begin with {', '.join(FIRST)}")
        languages = words.get("language_codes", "m2m100")
        if not isinstance(languages, str) or languages not in _LANGUAGES:
            raise MtkitError(f"{folder}: language_codes is {str(languages)[:100]!r}")
        codes = _LANGUAGES[languages].split()
        count = words.get("num_madeup_words", _MADE_UP_WORDS)
        count = count if type(count) is int and 0 <= count <= size else 0
    else:
        if pieces[:3] != ["<unk>", "<s>", "</s>"]:
            raise MtkitError(f"{file}: does not begin with <unk>, <s> and </s>")
        pieces = [*FIRST, *pieces[3:]]
        codes = _languages_of_nllb(folder, words, len(pieces), most_rows(len(pieces)))
        # The mask, unless a language that was added is behind it.
        count = int(len(pieces) + len(codes) < size)
    known = [code for code in codes if code]
    if twice := sorted({code for code in known if known.count(code) > 1}):
        raise MtkitError(f"{folder}: the language {twice[0]} has two ids")
    behind = enumerate(codes + [""] * count, len(pieces))
    pieces += [language_tag(code, "both") if code else MADE_UP.format(i) for i, code in behind]
    return Subwords(pieces, eos=EOS, unk=UNK, pad=PAD, model=model, file=folder / SENTENCEPIECE)


def _languages_of_nllb(folder: Path, words: dict[str, Any], first: int, end: int) -> list[str]:
    """The language of each id from `first` on, which is below `end`; empty for another subword."""
    # They are where a version of transformers has put them.
    tokens = words.get("added_tokens_decoder")
    names: dict[int, str] = {}
    for number, token in (tokens if isinstance(tokens, dict) else {}).items():
        content = token.get("content") if isinstance(token, dict) else None
        if re.fullmatch("[0-9]{1,9}", number) and first <= int(number) < end:
            names[int(number)] = _code(content)
    if any(names.values()):
        return [names.get(i, "") for i in range(first, max(names) + 1)]
    of_map = read_json(folder / "special_tokens_map.json", required=False)
    for content in (words, of_map):
        for key in ("extra_special_tokens", "additional_special_tokens"):
            given = content.get(key)
            codes = [_code(token) for token in given] if isinstance(given, list) else []
            if all_codes := [code for code in codes if code]:
                return all_codes
    raise MtkitError(
        f"{folder}: does not name its languages; tokenizer_config.json has them usually"
    )


def _code(token: Any) -> str:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) and is_code_of_nllb(text) else ""
