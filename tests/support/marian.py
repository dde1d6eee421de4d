"""Small random Marian models, written by transformers as published models are.

Their SentencePiece models are unigram models without bytes, and their vocabularies have the
subwords of both sides, with EOS anywhere and padding last.
"""

import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sentencepiece
import torch
from conftest import ENGLISH, GERMAN

EosAt = Literal["first", "middle", "last"]
# Letters of their own, so that a random line has many subwords.
SPREAD = 0.2
_LETTERS = "abcdefghijklmnopqrstuvwxyzäöüß"


def lines_in(file: Path, lines: Sequence[str]) -> Path:
    """A new file with these lines."""
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def text(words: Sequence[str], count: int, seed: int) -> list[str]:
    """Lines of these words, and of words that are made up."""
    rng = random.Random(seed)
    made = ["".join(rng.choices(_LETTERS, k=rng.randint(2, 6))) for _ in range(60)]
    return [" ".join(rng.choices([*words, *made], k=rng.randint(1, 8))) for _ in range(count)]


def sentencepiece_model(lines: Sequence[str], size: int, **options: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def unigram(lines: Sequence[str], size: int) -> bytes:
    """A SentencePiece model like those of published models: EOS is 0, and there are no bytes."""
    ids = {"bos_id": -1, "eos_id": 0, "unk_id": 1, "pad_id": -1}
    options = {"model_type": "unigram", "hard_vocab_limit": False}
    return sentencepiece_model(lines, size, **options, **ids)


def pieces_of(model: bytes) -> list[str]:
    """The subwords of a SentencePiece model without the special ones."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(2, processor.get_piece_size())]


@dataclass(frozen=True)
class Shape:
    """A random model.

    Attributes:
        eos: where EOS is in the vocabulary.
        separate: a vocabulary and a matrix for each side.
        tags: language codes.
        lost: subwords of the SentencePiece models that the vocabulary lacks.
    """

    activation: str = "swish"
    eos: EosAt = "first"
    separate: bool = False
    tags: tuple[str, ...] = ()
    lost: int = 0
    seed: int = 1

    @property
    def lines(self) -> list[str]:
        """Source text, 500 lines, with characters that the vocabulary lacks."""
        lines = text(ENGLISH, 490, seed=2)
        odd = ["Ωmega one", "你好 two", "one 😀 😀 two", "x" * 40, "seven  eight ", "ﬁne ½"]
        return [*lines, *odd, "7 % & !", "<b>one</b>", "nine", "zero zero"]


def write_marian(folder: Path, shape: Shape = Shape()) -> Any:
    """Write a model as `save_pretrained` does; gives the model."""
    import transformers
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    transformers.utils.logging.set_verbosity_error()
    folder.mkdir(parents=True)
    models = [unigram(text(w, 400, seed=s), 150) for s, w in enumerate((ENGLISH, GERMAN), 1)]
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    own = [list(dict.fromkeys(pieces_of(model)[shape.lost :])) for model in models]
    tags = [f">>{code}<<" for code in shape.tags]
    if shape.separate:
        lists = [_ordered([*tags, *own[0]], shape.eos), _ordered(own[1], shape.eos)]
        # Padding has one id for both sides.
        most = max(map(len, lists))
        lists = [
            [*part, *(f"<more {i}>" for i in range(len(part), most)), "<pad>"] for part in lists
        ]
    else:
        lists = [[*_ordered([*tags, *sorted({*own[0], *own[1]})], shape.eos), "<pad>"]]
    ids = [{piece: i for i, piece in enumerate(part)} for part in lists]
    for name, part in zip(("vocab.json", "target_vocab.json"), ids, strict=False):
        (folder / name).write_text(json.dumps(part, ensure_ascii=False), encoding="utf-8")
    words = {"source_lang": "en", "target_lang": "de", "model_max_length": 512}
    words |= {"tokenizer_class": "MarianTokenizer", "separate_vocabs": shape.separate}
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    pad, eos = ids[-1]["<pad>"], ids[-1]["</s>"]
    special = {"pad_token_id": pad, "eos_token_id": eos, "decoder_start_token_id": pad}
    torch.manual_seed(shape.seed)
    model = MarianMTModel(
        MarianConfig(
            vocab_size=len(lists[0]),
            decoder_vocab_size=len(lists[-1]),
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            activation_function=shape.activation,
            scale_embedding=True,
            share_encoder_decoder_embeddings=not shape.separate,
            max_position_embeddings=512,
            bos_token_id=eos,
            forced_eos_token_id=eos,
            **special,
        )
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layer_norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif "embed_positions" not in name:
                parameter.copy_(torch.randn_like(parameter) * SPREAD)
                if "encoder_attn" in name:
                    parameter.mul_(2)
            if "shared" in name or "embed_tokens" in name:
                parameter.div_(2)
                parameter[pad] = 0
        bias = torch.randn(1, len(lists[-1])) * 0.5
        bias[0, pad], bias[0, eos] = 0, 0.5
        # A trained model never writes a tag.
        bias[0, [ids[-1][tag] for tag in tags if tag in ids[-1]]] = -50
        model.final_logits_bias = bias
    model.generation_config = GenerationConfig(
        num_beams=6, bad_words_ids=[[pad]], max_length=512, forced_eos_token_id=eos, **special
    )
    model.save_pretrained(folder)
    return model.eval()


def _ordered(pieces: list[str], eos: EosAt) -> list[str]:
    """The subwords with EOS in its place, and the unknown token after the first three."""
    place = {"first": 0, "middle": len(pieces) // 2, "last": len(pieces)}[eos]
    listed = [*pieces[:place], "</s>", *pieces[place:]]
    return [*listed[:3], "<unk>", *listed[3:]]


def write_npz(folder: Path, source: Path) -> Path:
    """Write the model of a folder of transformers as Marian does; gives the `.npz` file."""
    from safetensors.torch import load_file

    tensors = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    ids = json.loads((source / "vocab.json").read_text(encoding="utf-8"))
    del ids["<pad>"]
    folder.mkdir(parents=True)
    arrays = {"Wemb": tensors["model.shared.weight"][:-1].numpy()}
    arrays["decoder_ff_logit_out_b"] = tensors["final_logits_bias"][:, :-1].numpy()
    attentions = {"self_attn": "self", "encoder_attn": "context"}
    for name, tensor in tensors.items():
        if ".layers." in name:
            _, stack, _, number, part, *tail = name.split(".")
            at = f"{stack}_l{int(number) + 1}"
            kind = tail[-1]
            array = tensor.numpy()
            if part in attentions:
                letter = tail[0][0]
                key = f"{at}_{attentions[part]}_{'W' if kind == 'weight' else 'b'}{letter}"
            elif part in ("fc1", "fc2"):
                key = f"{at}_ffn_{'W' if kind == 'weight' else 'b'}{part[-1]}"
            else:
                of = {"self_attn": "self_Wo", "encoder_attn": "context_Wo", "final": "ffn_ffn"}
                norm = of[part.removesuffix("_layer_norm")]
                key = f"{at}_{norm}_ln_{'scale' if kind == 'weight' else 'bias'}"
            arrays[key] = array.T if array.ndim == 2 else array[None, :]
    settings = f"""\
type: transformer
dim-emb: {config["d_model"]}
enc-depth: {config["encoder_layers"]}
dec-depth: {config["decoder_layers"]}
transformer-heads: {config["encoder_attention_heads"]}
transformer-dim-ffn: {config["encoder_ffn_dim"]}
transformer-ffn-activation: {config["activation_function"]}
transformer-preprocess: ""
transformer-postprocess: dan
transformer-postprocess-emb: d
transformer-decoder-autoreg: self-attention
transformer-no-projection: false
transformer-guided-alignment-layer: last
tied-embeddings-all: true
"""
    arrays["special:model.yml"] = np.frombuffer(settings.encode() + b"\0", dtype=np.int8)
    np.savez(folder / "model.npz", **arrays)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes((source / name).read_bytes())
    listed = "".join(f"{json.dumps(piece, ensure_ascii=False)}: {i}\n" for piece, i in ids.items())
    (folder / "vocab.yml").write_text(listed, encoding="utf-8")
    decoder = "models:\n  - model.npz\nvocabs:\n  - vocab.yml\n  - vocab.yml\n"
    (folder / "decoder.yml").write_text(decoder)
    return folder / "model.npz"


def edit(file: Path, **changes: Any) -> None:
    """Change values of a JSON file; None deletes one."""
    content = json.loads(file.read_text(encoding="utf-8")) | changes
    content = {key: value for key, value in content.items() if value is not None}
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def edit_npz(file: Path, **changes: Any) -> None:
    with np.load(file) as opened:
        arrays = dict(opened)
    np.savez(file, **(arrays | changes))
