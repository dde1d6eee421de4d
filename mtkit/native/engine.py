"""A model of the native engine: translating a batch, or one step for a search in Python."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from ctypes import byref, c_int64
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mtkit.base.errors import MtkitError
from mtkit.config import ModelConfig
from mtkit.native.library import (
    PRECISIONS,
    Precision,
    Request,
    Settings,
    Shape,
    address,
    check,
    check_done,
    int32s,
    library,
)
from mtkit.search_settings import LOOKAHEAD, Constraints, Hypothesis, Sampling, SearchSettings
from mtkit.weights import full_matrix

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

# The largest number that the library reads. No output and no vocabulary is as large, so a limit
# above it means the same as this one.
_LARGEST = 2**31 - 1
# Their numbers in shape.h.
POSITIONS = ("sinusoidal", "learned", "words", "none")
ACTIVATIONS = ("none", "relu", "silu")


class Watched(Protocol):
    """Takes the attention of heads, (heads, 3), each as `Head` in `src/search.h`."""

    head_numbers: Ints

    def put(self, source: Sequence[int], target: Sequence[int], weights: Floats) -> None:
        """Take the mean weights of the heads, (T, S), of a source with EOS and a translation."""


class NativeModel:
    """The weights of a run in the native engine.

    Several threads may use it at a time.

    Args:
        weights: of each name in `Transformer.state_dict` its tensor; each is read once.
        vocab_size: V, of the joint vocabulary, or of the target's.
        src_vocab_size: of the source's own vocabulary; None if it is joint.

    Raises:
        MtkitError: if there is no native engine, or the weights are not those of the model; by its
            methods if an id or a size is not possible with it.
    """

    def __init__(
        self,
        weights: Mapping[str, npt.NDArray[Any]],
        config: ModelConfig,
        vocab_size: int,
        src_vocab_size: int | None = None,
        *,
        precision: Precision = "fp32",
    ) -> None:
        self.vocab_size = vocab_size
        own_src = src_vocab_size is not None and not config.shared_embedding
        window = config.attention_window
        shape = Shape(
            d_model=config.d_model,
            d_ff=config.d_ff,
            heads=config.n_heads,
            key_width=config.key_width,
            value_width=config.value_width,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            src_vocabulary=src_vocab_size if own_src else vocab_size,
            tgt_vocabulary=vocab_size,
            own_src_embedding=own_src,
            pre_norm=config.norm == "pre",
            activation=ACTIVATIONS.index(config.activation),
            output_bias=config.output_bias,
            window=-1 if window is None else min(window, _LARGEST),
            positions=POSITIONS.index(config.positions),
            max_positions=config.max_positions,
            norm_epsilon=config.norm_epsilon,
        )
        self.handle = int(check(library().mtkit_new(shape, PRECISIONS.index(precision))))
        # Not at exit, when a daemon thread may still compute with it.
        weakref.finalize(self, library().mtkit_free, self.handle).atexit = False
        _set_tensors(self.handle, weights, config)
        check_done(library().mtkit_ready(self.handle))

    def translate(
        self,
        sentences: Sequence[Sequence[int]],
        search: SearchSettings,
        *,
        beam_size: int = 1,
        n_best: int = 1,
        rank_cut_off: bool = False,
        sampling: Sampling | None = None,
        uniforms: npt.NDArray[np.float64] | None = None,
        stop: Ints | None = None,
        watched: Watched | None = None,
    ) -> list[list[Hypothesis]]:
        """Up to `n_best` hypotheses of each of B sentences, best first, or all samples in order.

        Args:
            sentences: ids, each sentence ended by EOS.
            search: without masks, which are for searches in Python.
            beam_size: W, hypotheses kept per sentence; 1 is greedy search.
            n_best: at most W.
            rank_cut_off: whether hypotheses at the length limit are ranked among the finished ones.
            sampling: draws samples instead, with the random numbers `uniforms` (B, W, steps).
            stop: one number; when another thread sets it, the search ends and nothing is found.
            watched: takes the attention of the best hypotheses of a search.
        """
        B, constraints = len(sentences), search.constraints or Constraints()
        if B == 0:
            return []
        of_sentences = _Lists(sentences)
        of_prefixes = _Lists([()] * B if constraints.prefixes is None else constraints.prefixes)
        if not B == len(search.max_lengths) == len(of_prefixes.lengths):
            raise ValueError("sentences, limits and prefixes differ in number")
        samples = 0
        if sampling is not None:
            if uniforms is None or len(uniforms) != B:
                raise ValueError(f"uniforms are not of shape ({B}, samples, steps)")
            uniforms, samples = np.ascontiguousarray(uniforms, dtype=np.float64), uniforms.shape[1]
        # ctypes would cut off the upper bits.
        limits = [min(limit, _LARGEST) for limit in search.max_lengths]
        most, forbidden = int32s(limits), int32s(constraints.forbidden)
        of_samples = vars(sampling or Sampling())
        settings = Settings(
            beam_size=beam_size,
            n_best=n_best,
            rank_cut_off=rank_cut_off,
            power_penalty=search.penalty_form == "power",
            lookahead=LOOKAHEAD if search.stop == "likely" else 0,
            alpha=search.alpha,
            bos_id=search.bos_id,
            eos_id=search.eos_id,
            min_length=min(constraints.min_length, _LARGEST),
            no_repeat_ngram=min(constraints.no_repeat_ngram, _LARGEST),
            samples=samples,
            **of_samples | {"top_k": min(of_samples["top_k"], _LARGEST)},
        )
        request = Request(
            ids=address(of_sentences.ids),
            lengths=address(of_sentences.lengths),
            sentences=B,
            limits=address(most),
            prefixes=address(of_prefixes.ids),
            prefix_lengths=address(of_prefixes.lengths),
            forbidden=address(forbidden),
            forbidden_count=len(forbidden),
            uniforms=address(uniforms),
            uniform_steps=0 if uniforms is None else uniforms.shape[2],
            stop=address(stop),
            heads=address(None if watched is None else watched.head_numbers),
            head_count=0 if watched is None else len(watched.head_numbers),
        )
        count, room = B * (samples or n_best), max(limits)
        tokens = np.empty((count, room), dtype=np.int32)
        lengths = np.full(count, -1, dtype=np.int32)
        finished = np.empty(count, dtype=np.bool_)
        log_probs, scores = np.empty(count), np.empty(count)
        token_log_probs = np.empty((count, room))
        attention = None if watched is None else of_sentences.attention(room)
        results = tokens, lengths, finished, log_probs, scores, token_log_probs, attention
        check_done(
            library().mtkit_translate(self.handle, settings, request, room, *map(address, results))
        )
        hypotheses = [
            Hypothesis(
                tuple(tokens[i, :length].tolist()),
                float(log_probs[i]),
                float(scores[i]),
                bool(finished[i]),
                tuple(token_log_probs[i, : length + finished[i]].tolist()),
            )
            if length >= 0
            else None
            for i, length in enumerate(lengths.tolist())
        ]
        each = count // B
        best = [[h for h in hypotheses[b * each : (b + 1) * each] if h] for b in range(B)]
        if watched is not None and attention is not None:
            for source, n_best_list, of_pair in zip(sentences, best, attention, strict=True):
                target = n_best_list[0].tokens if n_best_list else ()
                # Of what was cut off, the last token is no input.
                if target and of_pair[0, 0] >= 0:
                    watched.put(source, target, of_pair[: len(target), : len(source)].copy())
        return best

    def attend(
        self,
        sentences: Sequence[Sequence[int]],
        translations: Sequence[Sequence[int]],
        head_numbers: Ints,
        *,
        bos_id: int,
    ) -> list[Floats]:
        """The attention of given translations, without BOS and EOS; see `Watched`."""
        of_sources, of_targets = _Lists(sentences), _Lists(translations)
        request = Request(
            ids=address(of_sources.ids),
            lengths=address(of_sources.lengths),
            sentences=len(sentences),
            prefixes=address(of_targets.ids),
            prefix_lengths=address(of_targets.lengths),
            heads=address(head_numbers),
            head_count=len(head_numbers),
        )
        room = max(map(len, translations))
        attention = of_sources.attention(room)
        check_done(library().mtkit_attend(self.handle, request, bos_id, room, address(attention)))
        return [
            of_pair[: len(target), : len(source)]
            for source, target, of_pair in zip(sentences, translations, attention, strict=True)
        ]

    def start(self, sentences: Sequence[Sequence[int]], slots: int) -> NativeDecoding:
        """Encode sentences, each ended by EOS, for decoding `slots` hypotheses of each."""
        return NativeDecoding(self, sentences, slots)


def _set_tensors(model: int, weights: Mapping[str, npt.NDArray[Any]], config: ModelConfig) -> None:
    rows, columns = c_int64(), c_int64()
    for number in itertools.count():
        encoded = library().mtkit_tensor(model, number, byref(rows), byref(columns))
        if encoded is None:
            return
        name = encoded.decode()
        if name not in weights:
            raise MtkitError(f"the weights have no tensor {name}")
        # A mapping that reads a file needs the memory of one tensor at a time.
        tensor = weights[name]
        shape = (rows.value, columns.value) if rows.value else (columns.value,)
        _, _, part = name.partition("attention.")
        is_narrow = config.narrow_attention and part == "in_proj.weight"
        if is_narrow:
            shape = (rows.value, columns.value // config.n_heads)
        if tensor.shape != shape:
            raise MtkitError(f"the tensor {name} is of shape {tensor.shape}, not {shape}")
        if is_narrow:
            tensor = full_matrix(tensor, config.n_heads)
        if config.query_factor != 1.0 and part.startswith(("in_proj", "q_proj")):
            tensor = np.array(tensor, dtype=np.float32)
            tensor[: config.n_heads * config.key_width] *= np.float32(config.query_factor)
        values = np.ascontiguousarray(tensor, dtype=np.float32)
        check_done(library().mtkit_set(model, number, address(values), values.size))


class NativeDecoding:
    """The decoding state of B sentences with W slots each; as `DecoderCache` in PyTorch.

    It is made by `NativeModel.start` and belongs to one thread.

    Raises:
        MtkitError: by its methods if a token, a row, a slot or a sentence is not possible, or if
            learned positions do not suffice.
    """

    def __init__(self, model: NativeModel, sentences: Sequence[Sequence[int]], slots: int) -> None:
        lists = _Lists(sentences)
        self.model = model
        self.handle = check(
            library().mtkit_start(
                model.handle,
                address(lists.ids),
                lists.ids.size,
                address(lists.lengths),
                len(lists.lengths),
                slots,
            )
        )
        # The library's decoding refers to the model, which must live as long.
        weakref.finalize(self, _end, self.handle, model).atexit = False

    def step(
        self, tokens: Sequence[int] | Ints, rows: Sequence[int] | Ints
    ) -> npt.NDArray[np.float32]:
        """Log-probabilities (R, V) of the token after `tokens`, for the R live hypotheses.

        Args:
            tokens: (R,), the newest token of each hypothesis; BOS in the first step.
            rows: (R,), the slot of each hypothesis among the B·W, ascending.
        """
        newest, slots = int32s(tokens), int32s(rows)
        if newest.shape != slots.shape or newest.ndim != 1:
            raise ValueError("tokens and rows differ in number")
        out = np.empty((len(newest), self.model.vocab_size), dtype=np.float32)
        check_done(
            library().mtkit_step(
                self.handle, address(newest), address(slots), len(newest), address(out)
            )
        )
        return out

    def reorder(self, parents: Sequence[Sequence[int]] | Ints) -> None:
        """Slot w of sentence b continues the hypothesis of slot `parents[b, w]`; (B, W)."""
        array = int32s(parents)
        check_done(library().mtkit_reorder(self.handle, address(array), array.size))

    def select(self, sentences: Sequence[int] | Ints) -> None:
        """Keep these sentences of the batch, in that order."""
        array = int32s(sentences)
        check_done(library().mtkit_select(self.handle, address(array), array.size))


def _end(handle: int, model: NativeModel) -> None:
    library().mtkit_end(handle)


class _Lists:
    """Lists of ids, one after the other, and their lengths."""

    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self.lengths = int32s([len(ids) for ids in lists])
        self.ids = int32s(list(itertools.chain.from_iterable(lists)))

    def attention(self, room: int) -> Floats:
        """An empty array for the attention of up to `room` tokens to each of these sources."""
        return np.empty((len(self.lengths), room, self.lengths.max()), np.float32)
