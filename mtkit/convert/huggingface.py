"""Export to `MarianMTModel` of Hugging Face's transformers.

It computes position encodings with first all sines and then all cosines, so the dimensions of all
matrices are reordered. Two things cannot be set: its layer norms add 1e-5 to the variance and ours
1e-6, and its tokenizer reads `>>…<<` at the beginning of a text as a language code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mtkit.batches import pad_ids
from mtkit.config import DecodeConfig
from mtkit.convert.parts import (
    ROWS_AT_A_TIME,
    SENTENCEPIECE_FILES,
    joined,
    longest_sequence,
    pieces_of,
    rows_by_length,
    write_json,
)
from mtkit.model import (
    Attention,
    Transformer,
)
from mtkit.run_folder import Run
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID
from mtkit.translate import Translator


def to_marian(model: Transformer, *, longest: int) -> nn.Module:
    """Hugging Face's `MarianMTModel` with the weights of a model, in its precision.

    Args:
        model: accepted by `check_expressible`.
        longest: number of positions.
    """
    from transformers import MarianMTModel

    theirs: nn.Module = MarianMTModel(_marian_config(model, longest))
    theirs = theirs.to(model.embedding.weight.dtype)
    own, width = model.src_embedding, model.config.d_model
    order = torch.cat((torch.arange(0, width, 2), torch.arange(1, width, 2)))
    shared = model.embedding.weight[:, order]
    state = {
        "final_logits_bias": torch.zeros(1, model.vocab_size),
        "lm_head.weight": shared,
        "model.encoder.embed_tokens.weight": shared if own is None else own.weight[:, order],
        "model.decoder.embed_tokens.weight": shared,
    }
    if own is None:
        state["model.shared.weight"] = shared
    # It computes these itself; they are not in the file.
    state |= {k: v for k, v in theirs.state_dict().items() if "embed_positions" in k}

    def put(name: str, weight: Tensor, bias: Tensor) -> None:
        state[f"{name}.weight"], state[f"{name}.bias"] = weight, bias

    def norm(name: str, residual: Any) -> None:
        put(name, residual.norm.weight[order], residual.norm.bias[order])

    def attend(at: str, attention: Attention) -> None:
        cuts = (attention.q_width, 2 * attention.q_width)
        weights = joined(attention, "weight")[:, order].tensor_split(cuts)
        biases = joined(attention, "bias").tensor_split(cuts)
        for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, biases, strict=True):
            put(f"{at}.{name}", weight, bias)
        put(f"{at}.out_proj", attention.out_proj.weight[order], attention.out_proj.bias[order])

    for stack, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        layer: Any
        for i, layer in enumerate(layers):
            at = f"model.{stack}.layers.{i}"
            inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
            attend(f"{at}.self_attn", layer.self_attention)
            put(f"{at}.fc1", inner.weight[:, order], inner.bias)
            put(f"{at}.fc2", outer.weight[order], outer.bias[order])
            norm(f"{at}.self_attn_layer_norm", layer.residuals[0])
            norm(f"{at}.final_layer_norm", layer.residuals[-1])
            if stack == "decoder":
                attend(f"{at}.encoder_attn", layer.cross_attention)
                norm(f"{at}.encoder_attn_layer_norm", layer.residuals[1])
    theirs.load_state_dict(state)
    return theirs.eval()


def _marian_config(model: Transformer, longest: int) -> Any:
    """The configuration of a `MarianMTModel` of the same shape."""
    from transformers import MarianConfig

    config = model.config
    has_joint_vocabulary = model.src_vocab_size is None
    # Other settings have their defaults, and are not in the file.
    of_target = {} if has_joint_vocabulary else {"decoder_vocab_size": model.vocab_size}
    return MarianConfig(
        vocab_size=model.src_vocab_size or model.vocab_size,
        **of_target,
        d_model=config.d_model,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_attention_heads=config.n_heads,
        decoder_attention_heads=config.n_heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=config.activation_dropout,
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=has_joint_vocabulary,
        max_position_embeddings=longest,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
        # The default would add an end token to outputs that were cut off.
        forced_eos_token_id=None,
    )


def write_huggingface(translator: Translator, run: Run, folder: Path) -> None:
    """Write the model and tokenizer of a run into a folder."""
    from transformers import GenerationConfig, MarianTokenizer

    longest = longest_sequence(run.config)
    model: Any = to_marian(translator.model, longest=longest)
    # The check uses its default behaviour.
    model.generation_config = GenerationConfig(
        num_beams=1,
        do_sample=False,
        max_length=longest,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
    )
    model.save_pretrained(folder)
    vocabularies = translator.vocabularies
    # A joint vocabulary has one list of subwords, but still a SentencePiece model for each side.
    models = SENTENCEPIECE_FILES.of(is_joint=False)
    for name, of_side in zip(models, vocabularies, strict=True):
        of_side.save(folder / name)
    lists = dict(zip(("vocab.json", "target_vocab.json"), vocabularies.distinct, strict=False))
    for name, of_side in lists.items():
        write_json(folder / name, {piece: i for i, piece in enumerate(pieces_of(of_side))})
    tokenizer = MarianTokenizer(
        *(str(folder / name) for name in (*models, *lists)),
        source_lang=run.manifest.data.src_lang or None,
        target_lang=run.manifest.data.tgt_lang or None,
        bos_token=vocabularies.tgt.piece(BOS_ID),
        **({} if vocabularies.is_joint else {"separate_vocabs": True}),
        model_max_length=run.config.decode.max_source_tokens,
        # `</s>` in the input is ordinary text.
        split_special_tokens=True,
    )
    tokenizer.save_pretrained(folder)


class MarianModel:
    """A model and a tokenizer loaded by Hugging Face's automatic classes.

    Args:
        folder: the folder of the export.
        decode: limits.
    """

    def __init__(self, folder: Path, decode: DecodeConfig) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        self._model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._decode = decode

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The greedy translation of each line."""
        sources = self._tokenizer(list(lines))["input_ids"]
        translations = [""] * len(lines)
        for length, rows in rows_by_length(sources):
            for start in range(0, len(rows), ROWS_AT_A_TIME):
                some = rows[start : start + ROWS_AT_A_TIME]
                found = self._model.generate(
                    **self._tokenizer([lines[row] for row in some], return_tensors="pt"),
                    max_new_tokens=length + self._decode.max_extra_length,
                )
                texts = self._tokenizer.batch_decode(found, skip_special_tokens=True)
                for row, text in zip(some, texts, strict=True):
                    translations[row] = text
        return translations

    @torch.inference_mode()
    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        """Log-probabilities of the tokens of each given translation."""
        outputs = self._tokenizer(text_target=list(targets))["input_ids"]
        tgt_in = pad_ids([[self._model.config.decoder_start_token_id, *y[:-1]] for y in outputs])
        inputs = self._tokenizer(list(sources), padding=True, return_tensors="pt")
        log_probs = self._model(**inputs, decoder_input_ids=tgt_in).logits.log_softmax(-1)
        return [log_probs[row, range(len(y)), torch.tensor(y)] for row, y in enumerate(outputs)]
