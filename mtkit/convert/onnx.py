"""Export to ONNX, in the layout that transformers.js and optimum read for Marian models.

`onnx/` has the graphs, `config.json` says that the model is a Marian model, and `tokenizer.json`
has the subwords. The SentencePiece models are there too, for other programs.

The tokenizer is not named `MarianTokenizer`: in Python that one reads other files, and the name
would add nothing but its language tags, which `tokenizer.json` has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.files import json_text
from mtkit.batches import pad_ids
from mtkit.config import Config, DecodeConfig, ModelConfig
from mtkit.convert.export_record import (
    SENTENCEPIECE_FILES,
    longest_sequence,
    longest_source,
    power_penalty,
)
from mtkit.convert.marian import marian_settings
from mtkit.convert.onnx_graph import OPSET, decoder_graph, encoder_graph
from mtkit.convert.target import Export, Limits, Target, example_tag, quoted
from mtkit.convert.tokenizer_json import SPECIAL_TOKENS, tokenizer_json
from mtkit.convert.verification import by_length
from mtkit.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocabularies
from mtkit.translate import Translator

_GRAPHS, _TOKENIZER, _GENERATION = "onnx", "tokenizer.json", "generation_config.json"
# The end of the file names, and what transformers.js calls this type.
_TYPES = {"float32": ("", "fp32"), "int8": ("_quantized", "q8")}
_LARGEST_FILE = 2**31 - 1
# The subwords that the pipeline of transformers.js writes at most by default.
_MAX_LENGTH = 256
_SPECIAL_IDS = {
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": PAD_ID,
    "decoder_start_token_id": BOS_ID,
}


class OnnxModel:
    """A model loaded by ONNX Runtime, and its tokenizer by Hugging Face's tokenizers."""

    def __init__(self, folder: Path, decode: DecodeConfig) -> None:
        import tokenizers

        (encoder,) = (folder / _GRAPHS).glob("encoder_model*.onnx")
        (decoder,) = (folder / _GRAPHS).glob("decoder_model_merged*.onnx")
        self._encoder, self._decoder = _session(encoder), _session(decoder)
        content = (folder / _TOKENIZER).read_text(encoding="utf-8")
        self._tokenizer = tokenizers.Tokenizer.from_str(content)
        self._tgt = Vocabularies.load(folder, SENTENCEPIECE_FILES).tgt
        self._special = json.loads((folder / _GENERATION).read_text(encoding="utf-8"))
        self._decode = decode

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The greedy translation of each line."""
        sources = [self._tokenizer.encode(line).ids for line in lines]

        def translate(rows: list[int], length: int) -> list[str]:
            limit = length + self._decode.max_extra_length
            return list(map(self._text, self._greedy([sources[row] for row in rows], limit)))

        return by_length(sources, translate)

    def _text(self, ids: list[int]) -> str:
        kept = [i for i in ids if i > UNK_ID]
        # Of bytes that are not a character, the tokenizer in Rust leaves out valid neighbours too;
        # the one in JavaScript does not.
        if self._tgt.is_fallback[kept].any():
            return self._tgt.decode(kept)
        return str(self._tokenizer.decode(kept, skip_special_tokens=False))

    def log_probs(self, sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
        """Log-probabilities of the tokens of each given translation."""
        outputs = [[*self._tgt.encode(line), EOS_ID] for line in targets]
        start = self._special["decoder_start_token_id"]
        tgt_in = pad_ids([[start, *y[:-1]] for y in outputs]).numpy()
        memory = self._encode([self._tokenizer.encode(line).ids for line in sources])
        logits = torch.from_numpy(self._step(memory, tgt_in, {})["logits"])
        log_probs = logits.log_softmax(-1)
        return [log_probs[row, range(len(y)), torch.tensor(y)] for row, y in enumerate(outputs)]

    def _greedy(self, sources: list[list[int]], limit: int) -> list[list[int]]:
        """The ids of at most `limit` subwords for each source, up to EOS."""
        memory, eos = self._encode(sources), self._special["eos_token_id"]
        newest = np.full((len(sources), 1), self._special["decoder_start_token_id"])
        cache: dict[str, Any] = {}
        columns: list[npt.NDArray[np.int64]] = []
        ended = np.zeros(len(sources), dtype=bool)
        while len(columns) < limit and not ended.all():
            outputs = self._step(memory, newest, cache)
            newest = outputs.pop("logits")[:, -1:].argmax(-1)
            cache = {f"past_key_values{n.removeprefix('present')}": x for n, x in outputs.items()}
            columns.append(newest)
            ended |= newest[:, 0] == eos
        rows = np.concatenate(columns, axis=1).tolist()
        return [ids[: ids.index(eos)] if eos in ids else ids for ids in rows]

    def _encode(self, sources: list[list[int]]) -> dict[str, Any]:
        """What every step needs of the sources."""
        ids = pad_ids(sources).numpy()
        mask = (ids != self._special["pad_token_id"]).astype(np.int64)
        states = self._encoder.run(None, {"input_ids": ids, "attention_mask": mask})
        return {"encoder_hidden_states": states[0], "encoder_attention_mask": mask}

    def _step(
        self, memory: dict[str, Any], ids: npt.NDArray[np.int64], cache: dict[str, Any]
    ) -> dict[str, Any]:
        """Logits and cache after the ids (B, T); an empty cache begins."""
        use_cache = np.array([bool(cache)])
        for tensor in self._decoder.get_inputs():
            if not use_cache and tensor.name.startswith("past_key_values"):
                _, heads, _, width = tensor.shape
                cache[tensor.name] = np.zeros((len(ids), heads, 0, width), dtype=np.float32)
        inputs = memory | cache | {"input_ids": ids, "use_cache_branch": use_cache}
        names = [output.name for output in self._decoder.get_outputs()]
        return dict(zip(names, self._decoder.run(None, inputs), strict=True))


def _session(file: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Errors only.
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(
            file.read_bytes(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        # Its exceptions have no class in common.
        raise MtkitError(f"{file.name}: {reason_of(error, most=300)}") from error


class _Onnx(Target):
    name = "onnx"
    library = "onnx"
    more_libraries = ("onnxruntime", "tokenizers")
    extra = "onnx"
    quantizations = ("float32", "int8")
    hub_library = "transformers.js"
    code_language = "js"
    model = "the exported decoder"
    needs = "Needs `npm install @huggingface/transformers`. In this folder:"
    note = (
        f"The files in `onnx/` have version {OPSET} of the operators (opset); ONNX Runtime reads "
        "them too. transformers.js has no beam search. Give it one text at a time: it goes on "
        "writing after the end of the shorter ones of several. Leave blank lines out; mtkit would "
        "keep them blank."
    )

    def load(self, folder: Path, decode: DecodeConfig) -> OnnxModel:
        return OnnxModel(folder, decode)

    def limits(self, config: ModelConfig) -> Limits:
        return {"positions": (config.positions == "words", "does not count words")}

    def write(self, export: Export) -> None:
        translator, run, folder, record = export
        model, vocabularies = translator.model, translator.vocabularies
        longest = longest_sequence(run.config)
        suffix, dtype = _TYPES[record.quantization]
        is_int8 = record.quantization == "int8"
        bytes_ = sum(parameter.numel() for parameter in model.parameters()) * (1 if is_int8 else 4)
        if bytes_ > _LARGEST_FILE:
            raise MtkitError(
                "the model is larger than 2 GB, the limit of an ONNX file; try --quantization int8"
            )
        (folder / _GRAPHS).mkdir()
        graphs = {"encoder_model": encoder_graph, "decoder_model_merged": decoder_graph}
        for name, graph in graphs.items():
            content = graph(model, longest=longest, is_int8=is_int8).SerializeToString()
            (folder / _GRAPHS / f"{name}{suffix}.onnx").write_bytes(content)
        sizes = {"vocab_size": (V := model.vocab_size)}
        if (own := model.src_vocab_size) is not None:
            sizes = {"vocab_size": V + own - (UNK_ID + 1), "decoder_vocab_size": V}
        special = {name: vocabularies.tgt.piece(i) for name, i in SPECIAL_TOKENS.items()}
        tokenizer = tokenizer_json(vocabularies, has_one_list=model.src_embedding is None)
        files = {
            # As of a `MarianMTModel`.
            "config.json": {
                "model_type": "marian",
                "architectures": ["MarianMTModel"],
                "is_encoder_decoder": True,
                **sizes,
                **marian_settings(model, longest),
                **_SPECIAL_IDS,
                # By default the page in a browser would look for int8, and Node for float32.
                "transformers.js_config": {"dtype": dtype},
            },
            _GENERATION: {
                **_SPECIAL_IDS,
                "num_beams": run.config.decode.beam_size,
                "length_penalty": power_penalty(run.config.decode),
                "do_sample": False,
                "max_length": longest,
            },
            _TOKENIZER: tokenizer,
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": longest_source(run.config),
                "clean_up_tokenization_spaces": False,
                # `</s>` in the input is ordinary text.
                "split_special_tokens": True,
                **special,
                "additional_special_tokens": list(special.values()),
            },
            "special_tokens_map.json": special,
        }
        for name, content in files.items():
            indent = None if name == _TOKENIZER else 2
            (folder / name).write_text(json_text(content, indent=indent) + "\n", encoding="utf-8")
        vocabularies.save(folder, SENTENCEPIECE_FILES)

    def usage(self, out: Path, config: Config, translator: Translator) -> str:
        text = quoted(f"{example_tag(translator.vocabularies)} Text to translate.".lstrip())
        # Without a dot or a slash at its beginning it would be the name of a model on the hub.
        is_path = out.is_absolute() or out == Path()
        folder = quoted(out) if is_path else f'"./{quoted(out)[1:]}'
        # The limit of the pipeline is beyond the last position of some models.
        most = min(longest_sequence(config) - 1, _MAX_LENGTH)
        return f"""\
import {{ pipeline }} from "@huggingface/transformers";
const translator = await pipeline("translation", {folder});
const options = {{ num_beams: 1, max_new_tokens: {most} }};
const found = await translator({text}, options);
console.log(found[0].translation_text);
"""


ONNX = _Onnx()
