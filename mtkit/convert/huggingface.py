"""Export to `MarianMTModel` of Hugging Face's transformers.

It computes position encodings with first all sines and then all cosines, so the dimensions of all
matrices are reordered. Two things cannot be set: its layer norms add 1e-5 to the variance and ours
1e-6 (those of an imported model 1e-5 too), and its tokenizer reads `>>…<<` at the beginning of a
text as a language code.

The subwords of an imported model get the ids back that they had.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from mtkit.base.files import json_text
from mtkit.batches import pad_ids
from mtkit.checkpoint import naming_tensors
from mtkit.config import Config, DecodeConfig, ModelConfig
from mtkit.convert.export_record import (
    SENTENCEPIECE_FILES,
    longest_sequence,
    longest_source,
    power_penalty,
)
from mtkit.convert.marian import DROPOUTS, halves, layer_parts, marian_settings, new_ids
from mtkit.convert.target import Export, Limits, Target, common_limits, example_tag, quoted
from mtkit.convert.verification import by_length, pieces_of
from mtkit.model import Transformer
from mtkit.run_manifest import OldIdsOfSides
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from mtkit.translate import Translator


def to_marian(
    model: Transformer, *, longest: int, subwords: OldIdsOfSides | None = None
) -> nn.Module:
    """Hugging Face's `MarianMTModel` with the weights of a model, in its precision.

    The model must be accepted by `Target.check_expressible`; it gets `longest` positions.
    """
    from transformers import MarianConfig, MarianMTModel

    src_rows, tgt_rows, special = _ids(model, subwords)
    of_target = {} if model.src_embedding is None else {"decoder_vocab_size": len(tgt_rows)}
    # Other settings have their defaults, and are not in the file.
    config = MarianConfig(
        vocab_size=len(src_rows),
        **of_target,
        **marian_settings(model, longest),
        **model.config.model_dump(include=DROPOUTS),
        **special,
        # The default would add an end token to outputs that were cut off.
        forced_eos_token_id=None,
    )
    theirs: nn.Module = MarianMTModel(config).to(model.embedding.weight.dtype)
    ours, order = model.state_dict(), halves(model.config.d_model)
    matrix = ours["embedding.weight"][tgt_rows][:, order]
    src_matrix = matrix
    if "src_embedding.weight" in ours:
        src_matrix = ours["src_embedding.weight"][src_rows][:, order]
    bias = ours.get("output_bias", torch.zeros(model.vocab_size))[tgt_rows].unsqueeze(0)
    if subwords is not None:
        bias[0, subwords.tgt.pad] = subwords.pad_bias
    state = {
        "final_logits_bias": bias,
        "lm_head.weight": matrix,
        "model.encoder.embed_tokens.weight": src_matrix,
        "model.decoder.embed_tokens.weight": matrix,
    }
    if src_matrix is matrix:
        state["model.shared.weight"] = matrix
    # It computes these itself; they are not in the file.
    state |= {k: v for k, v in theirs.state_dict().items() if "embed_positions" in k}
    theirs.load_state_dict(state | layers_of(model, order))
    return theirs.eval()


def layers_of(model: Transformer, order: Tensor) -> dict[str, Tensor]:
    """The weights of all layers by their names in transformers; `order` is that of the width."""
    ours, state = model.state_dict(), dict[str, Tensor]()
    for part in layer_parts(model.config):
        for kind in ("weight", "bias"):
            joined = part.permuted(ours[f"{part.ours}.{kind}"], order)
            pieces = joined.tensor_split(len(part.theirs))
            state |= {f"{n}.{kind}": piece for n, piece in zip(part.theirs, pieces, strict=True)}
    return state


def _ids(
    model: Transformer, subwords: OldIdsOfSides | None
) -> tuple[list[int], list[int], dict[str, int | None]]:
    """Our id of each exported id of source and target, and the settings that name ids."""
    src, tgt = (range(n) for n in (model.src_vocab_size or model.vocab_size, model.vocab_size))
    rows = list(src), list(tgt)
    special: tuple[int | None, ...] = (PAD_ID, BOS_ID, EOS_ID, BOS_ID)
    if subwords is not None:
        old = subwords.tgt
        rows, special = (new_ids(subwords.src), new_ids(old)), (old.pad, None, old.eos, old.start)
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    return *rows, dict(zip(names, special, strict=True))


def silence_transformers() -> None:
    """Switch its messages off, which are about loading in general."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


class MarianModel:
    """A model and a tokenizer loaded by Hugging Face's automatic classes.

    With `bans_padding`, padding has no probability, whatever the settings of the model say.
    """

    def __init__(self, folder: Path, decode: DecodeConfig, *, bans_padding: bool = False) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

        # Published weights may be in half precision.
        self._model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._decode = decode
        self._tag: int | None = None
        given, config = self._model.generation_config, self._model.config
        # The settings of search may not name it. It is never produced, and has no probability here.
        padding = [config.pad_token_id]
        banned = bans_padding or padding in (given.bad_words_ids or [])
        self._banned = padding if banned else []
        self._start = config.decoder_start_token_id
        if given.decoder_start_token_id is not None:
            self._start = given.decoder_start_token_id
        # Published models have other settings of search, some of which mtkit does not have.
        self._model.generation_config = GenerationConfig(
            num_beams=1,
            do_sample=False,
            # The start token is a part of this length.
            min_length=decode.min_length + 1,
            no_repeat_ngram_size=decode.no_repeat_ngram,
            bad_words_ids=[padding] if banned else None,
            pad_token_id=config.pad_token_id,
            eos_token_id=self._tokenizer.eos_token_id,
            decoder_start_token_id=self._start,
        )

    def between(self, src_lang: str, tgt_lang: str, *, codes: Sequence[str]) -> Self:
        """The same for a direction of M2M-100 or NLLB-200, which has these languages.

        As in mtkit, a tag is only at the beginning of a translation.
        """
        self._tokenizer.src_lang, self._tokenizer.tgt_lang = src_lang, tgt_lang
        self._tag = self.id_of(tgt_lang)
        search = self._model.generation_config
        search.forced_bos_token_id = self._tag
        search.bad_words_ids = [[i] for i in (*self._banned, *map(self.id_of, codes))]
        return self

    def id_of(self, code: str) -> int:
        """The id of the tag of a language."""
        tokenizer = self._tokenizer
        i: int = getattr(tokenizer, "get_lang_id", tokenizer.convert_tokens_to_ids)(code)
        return i

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The greedy translation of each line."""
        sources = self._tokenizer(list(lines))["input_ids"]
        max_length = self._decode.max_length or torch.inf

        def translate(rows: list[int], length: int) -> list[str]:
            outputs = self._model.generate(
                **self._tokenizer([lines[row] for row in rows], return_tensors="pt"),
                max_new_tokens=min(length + self._decode.max_extra_length, max_length),
            )
            outputs = outputs[:, 1 if self._tag is None else 2 :]
            return list(self._tokenizer.batch_decode(outputs, skip_special_tokens=True))

        return by_length(sources, translate)

    @torch.inference_mode()
    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        """Log-probabilities of the tokens of each given translation, as far as it has positions."""
        positions = self._model.config.max_position_embeddings
        outputs = [y[:positions] for y in self._tokenizer(text_target=list(targets))["input_ids"]]
        tgt_in = pad_ids([[self._start, *y[:-1]] for y in outputs])
        inputs = self._tokenizer(list(sources), padding=True, return_tensors="pt")
        logits = self._model(**inputs, decoder_input_ids=tgt_in).logits
        logits[..., self._banned] = -torch.inf
        log_probs = logits.log_softmax(-1)
        if self._tag is not None:
            # It is certain, as in a search.
            log_probs[:, 0] = 0.0
        return [log_probs[row, range(len(y)), torch.tensor(y)] for row, y in enumerate(outputs)]


NEEDS = "Needs `pip install transformers torch sentencepiece`. In this folder:"


def save_model(model: Any, folder: Path, decode: DecodeConfig, **generation: Any) -> None:
    """Write a model of transformers, with settings of its search; its files get the usual mode."""
    from transformers import GenerationConfig

    model.generation_config = GenerationConfig(
        num_beams=decode.beam_size,
        length_penalty=power_penalty(decode),
        do_sample=False,
        **generation,
    )
    with naming_tensors(folder):
        model.save_pretrained(folder)
    # safetensors makes its files private.
    mode = (folder / "config.json").stat().st_mode
    for weights in folder.glob("*.safetensors"):
        weights.chmod(mode)


def program(out: Path, text: str, *, languages: str = "", start: str = "") -> str:
    """Python that translates a text; more arguments of tokenizer and search begin with a comma."""
    return f"""\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({quoted(out)}{languages})
model = AutoModelForSeq2SeqLM.from_pretrained({quoted(out)})
source = tokenizer([{quoted(text)}], padding=True, return_tensors="pt")
output = model.generate(**source{start})
print(*tokenizer.batch_decode(output, skip_special_tokens=True))
"""


class _HuggingFace(Target):
    name = "huggingface"
    library = "transformers"
    model = "MarianMTModel"
    needs = NEEDS
    note = (
        "For a model on the hub, write its name instead of the dot. Leave blank lines out; mtkit "
        "would keep them blank."
    )

    def load(self, folder: Path, decode: DecodeConfig) -> MarianModel:
        return MarianModel(folder, decode)

    def limits(self, config: ModelConfig) -> Limits:
        return common_limits(config) | {
            "norm": (config.norm != "post", "normalises after the residual sum"),
            "positions": (config.positions != "sinusoidal", "has sinusoidal ones"),
        }

    def write(self, export: Export) -> None:
        translator, run, folder, _ = export
        from transformers import MarianTokenizer

        silence_transformers()
        longest = longest_sequence(run.config)
        imported = run.manifest.imported
        subwords = None if imported is None else imported.subwords
        src_rows, tgt_rows, special = _ids(translator.model, subwords)
        model: Any = to_marian(translator.model, longest=longest, subwords=subwords)
        # Its padding has a probability that is not zero.
        banned = None if subwords is None else [[subwords.tgt.pad]]
        decode = run.config.decode
        save_model(model, folder, decode, max_length=longest, bad_words_ids=banned, **special)
        vocabularies = translator.vocabularies
        # A joint vocabulary has one list of subwords, but still a model for each side.
        models = SENTENCEPIECE_FILES.used(is_joint=False)
        for name, of_side in zip(models, vocabularies, strict=True):
            of_side.save(folder / name)
        is_joint = pieces_of(vocabularies.src) == pieces_of(vocabularies.tgt)
        lists = ("vocab.json",) if is_joint else ("vocab.json", "target_vocab.json")
        for name, of_side, rows in zip(lists, vocabularies, (src_rows, tgt_rows), strict=False):
            listed = {of_side.piece(row): i for i, row in enumerate(rows)}
            (folder / name).write_text(json_text(listed, indent=2) + "\n", encoding="utf-8")
        tokens = {"eos_token": EOS_ID, "unk_token": UNK_ID, "pad_token": PAD_ID}
        if subwords is None:
            tokens["bos_token"] = BOS_ID
        tokenizer = MarianTokenizer(
            *(str(folder / name) for name in (*models, *lists)),
            source_lang=run.manifest.data.src_lang or None,
            target_lang=run.manifest.data.tgt_lang or None,
            **{name: vocabularies.tgt.piece(i) for name, i in tokens.items()},
            **({} if is_joint else {"separate_vocabs": True}),
            model_max_length=longest_source(run.config),
            # `</s>` in the input is ordinary text.
            split_special_tokens=True,
        )
        tokenizer.save_pretrained(folder)

    def usage(self, out: Path, config: Config, translator: Translator) -> str:
        return program(out, f"{example_tag(translator.vocabularies)} Text to translate.".lstrip())


HUGGINGFACE = _HuggingFace()
