"""Small random models of the kind of M2M-100 and NLLB-200, as transformers writes them.

Their SentencePiece models are BPE models without bytes.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import sentencepiece
import torch
from conftest import ENGLISH, GERMAN
from support.marian import sentencepiece_model, text

Kind = Literal["m2m100", "nllb"]
# Of NLLB-200; M2M-100 has its own, which no file names.
CODES = ("deu_Latn", "eng_Latn", "tyv_Cyrl", "zho_Hans", "zho_Hant")
FIRST = ["<s>", "<pad>", "</s>", "<unk>"]
LINES = [*text(ENGLISH, 300, seed=2), *text(GERMAN, 300, seed=3)]


def write_m2m100(
    folder: Path,
    kind: Kind,
    *,
    lines: Sequence[str] = LINES,
    subwords: int = 200,
    codes: Sequence[str] = CODES,
    seed: int = 1,
    **shape: Any,
) -> Any:
    """Write a model as `save_pretrained` does; gives the model."""
    import transformers
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    transformers.utils.logging.set_verbosity_error()
    folder.mkdir(parents=True)
    model = sentencepiece_model(lines, subwords, model_type="bpe")
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [*FIRST, *(processor.id_to_piece(i) for i in range(3, len(processor)))]
    if kind == "m2m100":
        from transformers import M2M100Tokenizer

        listed = {piece: i for i, piece in enumerate(pieces)}
        (folder / "vocab.json").write_text(json.dumps(listed, ensure_ascii=False), "utf-8")
        files = (folder / name for name in ("vocab.json", "sentencepiece.bpe.model"))
        M2M100Tokenizer(*map(str, files)).save_pretrained(folder)
        size = len(pieces) + 100 + 8
    else:
        from transformers import NllbTokenizer

        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "NllbTokenizer"}')
        plain = NllbTokenizer.from_pretrained(folder)
        state = json.loads(plain._tokenizer.to_str())
        vocab = {piece: i for i, piece in enumerate([*pieces, *codes, "<mask>"])}
        merges = [tuple(merge) for merge in state["model"]["merges"]]
        tokenizer = NllbTokenizer(vocab=vocab, merges=merges, extra_special_tokens=[*codes])
        tokenizer._tokenizer.normalizer = plain._tokenizer.normalizer
        tokenizer.save_pretrained(folder)
        size = len(vocab) + 2
    torch.manual_seed(seed)
    usual = {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "max_position_embeddings": 256,
        "init_std": 0.2,
    }
    found = M2M100ForConditionalGeneration(M2M100Config(vocab_size=size, **usual | shape)).eval()
    found.generation_config.max_length = 200
    with torch.no_grad():
        # Some translations end by themselves.
        found.model.shared.weight[2] *= 2.5
    found.save_pretrained(folder)
    return found
