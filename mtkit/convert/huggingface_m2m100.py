"""Export of a model with tags on both sides to `M2M100ForConditionalGeneration` of transformers.

Its subwords must be those of M2M-100 or NLLB-200, which have no bytes: so it is an import of one of
these, or was trained further. They get the ids back that they had.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtkit.base.errors import MtkitError
from mtkit.base.files import json_text
from mtkit.base.sentencepiece_model import Piece, pieces_in, with_pieces
from mtkit.config import Config, DecodeConfig, ModelConfig
from mtkit.convert.huggingface import (
    NEEDS,
    MarianModel,
    layers_of,
    program,
    save_model,
    silence_transformers,
)
from mtkit.convert.m2m100 import (
    FIRST,
    SENTENCEPIECE,
    SPECIAL,
    fairseq_positions,
    is_code_of_nllb,
    kind_of_codes,
)
from mtkit.convert.marian import DROPOUTS, marian_settings
from mtkit.convert.target import Export, Limits, Target, common_limits, quoted
from mtkit.convert.verification import Agreement, CheckText, RunModel, compare
from mtkit.kernels.cpu_loss import NEVER
from mtkit.model import Transformer
from mtkit.tokenizer import EOS_ID, PAD_ID, UNK_ID, Tokenizer, Vocabularies
from mtkit.translate import Translator


def to_m2m100(model: Transformer, rows: list[int]) -> Any:
    """Hugging Face's `M2M100ForConditionalGeneration`; `rows` is our id of each exported one.

    MtkitError if the positions are not fairseq's, or the output has a bias.
    """
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    ours, config = model.state_dict(), model.config
    table = fairseq_positions(config.max_positions, config.d_model)
    bias = ours.get("output_bias", torch.zeros(1))
    for name, differs in (
        ("learned_positions", not torch.equal(ours["learned_positions"].float(), table)),
        ("output_bias", bool(bias[[i for i in rows if i != PAD_ID and i < len(bias)]].any())),
    ):
        if differs:
            raise MtkitError(
                f"--format huggingface cannot express {name}, which were trained; train with "
                "train.freeze, or use --format safetensors"
            )
    settings = marian_settings(model, config.max_positions) | config.model_dump(include=DROPOUTS)
    del settings["share_encoder_decoder_embeddings"]
    layer_drops = {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
    shape = M2M100Config(vocab_size=len(rows), **settings, **layer_drops)
    theirs = M2M100ForConditionalGeneration(shape).to(model.embedding.weight.dtype)
    matrix = ours["embedding.weight"][rows]
    names = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    state: dict[str, Tensor] = {f"{name}.weight": matrix for name in names}
    theirs.load_state_dict(state | layers_of(model, torch.arange(config.d_model)))
    return theirs.eval()


def why_not(vocabularies: Vocabularies) -> str:
    """Why transformers has no model with such vocabularies, which have tags on both sides.

    Empty if it has one.
    """
    tokenizer, codes = vocabularies.src, [*vocabularies.src.language_tags]
    first = [tokenizer.piece(i) for i in (4, PAD_ID, EOS_ID, UNK_ID)]
    if not vocabularies.is_joint or tokenizer.has_bytes or first != FIRST:
        return "it does not have the subwords of M2M-100 or NLLB-200"
    if kind_of_codes(codes) is not None:
        return ""
    others = [code for code in codes if not is_code_of_nllb(code)]
    if len(others) < len(codes):
        return f"NLLB-200 has codes such as eng_Latn, and not {', '.join(others)}"
    return "the list of languages of M2M-100 is fixed, and that of this run is another"


def _old_order(tokenizer: Tokenizer, bias: Tensor | None) -> tuple[list[int], int]:
    """Our ids in the order of M2M-100 or NLLB-200, and the number of those before the tags."""
    first = min(tokenizer.language_tags.values())
    behind = range(first, len(tokenizer))
    tags = [i for i in behind if tokenizer.is_control(i)]
    others = (i for i in behind if not tokenizer.is_control(i))
    # Characters that were added; what only a text can have is left out, as its bias says.
    added = [i for i in others if bias is None or bias[i] > NEVER / 2]
    text = [4, PAD_ID, EOS_ID, UNK_ID, *range(5, first), *added]
    return text + tags, len(text)


def _write_subwords(folder: Path, tokenizer: Tokenizer, rows: list[int], count: int) -> None:
    """Write the tokenizer: the SentencePiece model, and what transformers needs besides."""
    listed = pieces_in(tokenizer.model)
    texts = [listed[row] for row in rows[len(FIRST) : count]]
    special = [Piece("<unk>", kind="unknown"), *(Piece(x, kind="control") for x in ("<s>", "</s>"))]
    model = with_pieces(tokenizer.model, [*special, *texts], {"unk": 0, "bos": 1, "eos": 2})
    (folder / SENTENCEPIECE).write_bytes(model)
    codes = list(tokenizer.language_tags)
    names = [*FIRST, *(piece.text for piece in texts)]
    if (kind := kind_of_codes(codes)) != "nllb":
        from transformers import M2M100Tokenizer

        ids = {name: i for i, name in enumerate(names)}
        (folder / "vocab.json").write_text(json_text(ids, indent=2) + "\n", encoding="utf-8")
        M2M100Tokenizer(
            *(str(folder / name) for name in ("vocab.json", SENTENCEPIECE)),
            language_codes=kind,
            num_madeup_words=len(rows) - count - len(codes),
            # transformers 5 knows their ids without it, and CTranslate2 does not.
            extra_special_tokens=[f"__{code}__" for code in codes],
        ).save_pretrained(folder)
        return
    from transformers import NllbTokenizer

    with tempfile.TemporaryDirectory() as place:
        (Path(place) / SENTENCEPIECE).write_bytes(model)
        (Path(place) / "tokenizer_config.json").write_text('{"tokenizer_class": "NllbTokenizer"}')
        plain = NllbTokenizer.from_pretrained(place)
    # It would give the languages other ids.
    merges = json.loads(plain.backend_tokenizer.to_str())["model"]["merges"]
    known = {row: code for code, row in tokenizer.language_tags.items()}
    behind = [known.get(row, f"<made-up {i}>") for i, row in enumerate(rows[count:], count)]
    # Behind the last language is the mask, if there is a row for it.
    end = behind.index(codes[-1]) + 1
    behind[end:] = ["<mask>"] if end < len(behind) else []
    ids = {name: i for i, name in enumerate([*names, *behind])}
    made = NllbTokenizer(
        vocab=ids, merges=list(map(tuple, merges)), extra_special_tokens=codes, src_lang=codes[0]
    )
    made.backend_tokenizer.normalizer = plain.backend_tokenizer.normalizer
    made.save_pretrained(folder)
    # Other software takes them for adjacent, and those that were added may be behind the mask.
    file = folder / "tokenizer_config.json"
    content = json.loads(file.read_text("utf-8"))
    content["added_tokens_decoder"] = {
        str(ids[code]): {"content": code, "special": True} for code in codes
    }
    file.write_text(json_text(content, indent=2) + "\n", encoding="utf-8")


class _M2M100(Target):
    name = "huggingface"
    library = "transformers"
    model = "M2M100ForConditionalGeneration"
    needs = NEEDS
    note = "For a model on the hub, write its name instead of the dot. Leave blank lines out."

    def load(self, folder: Path, decode: DecodeConfig) -> MarianModel:
        return MarianModel(folder, decode, bans_padding=True)

    def compare(self, export: Export, theirs: MarianModel, text: CheckText) -> Agreement:
        ours = export.translator
        codes = list(ours.tokenizer.language_tags)
        theirs = theirs.between(ours.src_lang, ours.tgt_lang, codes=codes)
        return compare(RunModel(ours), theirs, text)

    def limits(self, config: ModelConfig) -> Limits:
        return common_limits(config) | {
            "norm": (config.norm != "pre", "normalises before each part"),
            "positions": (config.positions != "learned", "has fairseq's sines and cosines"),
            "activation": (config.activation != "relu", "has ReLU"),
        }

    def write(self, export: Export) -> None:
        translator, run, folder, _ = export
        silence_transformers()
        tokenizer = translator.tokenizer
        rows, count = _old_order(tokenizer, translator.model.output_bias)
        model = to_m2m100(translator.model, rows)
        longest = run.config.model.max_positions
        save_model(model, folder, run.config.decode, max_length=longest, bos_token_id=0, **SPECIAL)
        _write_subwords(folder, tokenizer, rows, count)

    def usage(self, out: Path, config: Config, translator: Translator) -> str:
        src_lang, tgt_lang = map(quoted, (translator.src_lang, translator.tgt_lang))
        is_nllb = kind_of_codes([*translator.tokenizer.language_tags]) == "nllb"
        id_of = "convert_tokens_to_ids" if is_nllb else "get_lang_id"
        start = f", forced_bos_token_id=tokenizer.{id_of}({tgt_lang})"
        return program(out, "Text to translate.", languages=f", src_lang={src_lang}", start=start)


M2M100 = _M2M100()
