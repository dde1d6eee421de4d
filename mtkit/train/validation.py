"""Validation: the scores on the validation set, and what follows from all of them so far."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mtkit.base.devices import Precision, arithmetic, float32_arithmetic
from mtkit.batch_plan import plan_batches
from mtkit.checkpoint import ValidationScore, further_scores, validation_scores
from mtkit.config import Config, TrainConfig
from mtkit.data import IntArray, PreparedData, SentencePairs, also_split
from mtkit.model import Transformer
from mtkit.parsing import make_task
from mtkit.score import note_tokenised, note_unspaced
from mtkit.tokenizer import Vocabularies
from mtkit.train.diagnostics import is_flat
from mtkit.train.distributed import Workers
from mtkit.translate import Backend, LoadedRuns, Translation, Translator, backend_in_training

log = logging.getLogger(__name__)

# From which loss of points on, and of loss per token, a set was forgotten. Intervals of 95 % of
# a thousand sentences are about as wide, and good losses vary by a few hundredths.
FORGOTTEN, FORGOTTEN_LOSS = 1.0, 0.1
# The scores as they are printed.
_NAMES = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "f1": "F1"}


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """Pairs that training measures a model on, with their text.

    Attributes:
        name: empty for the only set that selects the best checkpoint.
        indices: which of the pairs belong to it, one for each line of the text.
        languages: source and target language, of a multilingual model.
        is_main: whether it selects the best checkpoint. Of multilingual data each direction has
            such a set.
    """

    pairs: SentencePairs
    src: Sequence[str]
    tgt: Sequence[str]
    name: str
    indices: IntArray
    languages: tuple[str, str] | None = None
    is_main: bool = False

    @classmethod
    def all_of(cls, data: PreparedData) -> list[ValidationSet]:
        """Those of a prepared folder, the ones that select the best checkpoint first."""

        def whole(split: str, name: str = "", **more: Any) -> ValidationSet:
            pairs = data.pairs(split)
            return cls(pairs, *data.text(split), name, np.arange(len(pairs)), **more)

        if not data.directions:
            also = [whole(also_split(name), name) for name in data.valid_also]
            return [whole("valid", is_main=True), *also]
        pairs, start = data.pairs("valid"), 0
        src, tgt = data.text("valid")
        main, others = [], []
        for direction in data.directions:
            part = slice(start, start + direction.valid)
            rows, start = np.arange(part.start, part.stop), part.stop
            languages = direction.src_lang, direction.tgt_lang
            texts = src[part], tgt[part]
            main.append(cls(pairs, *texts, direction.name, rows, languages, is_main=True))
            others += [
                whole(also_split(name), name, languages=languages) for name in direction.also
            ]
        return [*main, *others]


@dataclass(frozen=True)
class Validation:
    """The scores and translations of a validation set.

    Attributes:
        loss: natural-logarithm cross-entropy per target token, without smoothing.
        scores: of the greedy translations, in points, by name: `bleu` and `chrf`, on detokenised
            text, and `chrf++` if it selects the best checkpoint; of a parser `f1`.
        translations: of every line.
        also: the same of the further validation sets, by name.
        intervals: half the width of the 95 % interval of a score; none of the mean of several sets.
    """

    loss: float
    scores: dict[str, float]
    translations: list[Translation]
    also: Mapping[str, Validation] = field(default_factory=dict)
    intervals: Mapping[str, float] = field(default_factory=dict)

    @property
    def perplexity(self) -> float:
        """e to the loss, per subword."""
        return math.exp(min(self.loss, 700.0))

    def row(self) -> dict[str, Any]:
        """Its row of metrics, without the step."""
        row: dict[str, Any] = {f"valid_{key}": value for key, value in self._values().items()}
        if self.also:
            row["valid_also"] = {name: of_set._values() for name, of_set in self.also.items()}
        return row

    def all_intervals(self) -> dict[str, float]:
        """The intervals of all sets, by names such as `bleu` and, of a further set, `bleu@NAME`."""
        intervals = dict(self.intervals)
        for name, validation in self.also.items():
            intervals |= {f"{key}@{name}": half for key, half in validation.intervals.items()}
        return intervals

    def _values(self) -> dict[str, float]:
        return {"loss": self.loss, "perplexity": self.perplexity, **self.scores}


# The summed loss of some pairs, without smoothing: a scalar, in natural logarithms.
SummedLoss = Callable[[Transformer, SentencePairs, IntArray], Tensor]


@dataclass(eq=False)
class Validator:
    """Computes the scores of a model on the validation sets of a run.

    Attributes:
        precision: of training; on a CPU, translations are in float32 nevertheless.
        loss: of a batch.
        budget: padded tokens of a batch, at that time; more if the longest pair needs it.
    """

    config: Config
    vocabularies: Vocabularies
    data: PreparedData
    _: KW_ONLY
    device: torch.device
    precision: Precision
    loss: SummedLoss
    budget: Callable[[], int]

    def __post_init__(self) -> None:
        self._sets = ValidationSet.all_of(self.data)
        if self.data.task == "translation":
            for valid in self._sets:
                of = f" {valid.name}" if valid.name else ""
                note_tokenised(f"the validation text{of}", valid.tgt)
                note_unspaced(valid.tgt)
        self._task = make_task(self.data.task, self.vocabularies.tgt, tokenized=True)
        # Greedy, because training should not wait for a beam; `mtkit score` uses one.
        greedy, longest = self.config.decode.greedy(), self.config.model.max_tokens
        self._runs = LoadedRuns(self.vocabularies, greedy, self._task, max_positions=longest)

    def run(self, model: Transformer, workers: Workers) -> Validation:
        """Validate a whole model that is in evaluation mode.

        Workers, each with its copy of the model, call this at the same time and share the work.
        """
        device, precision = self.device, self.precision
        # Around all batches, so that autocast converts the weights once.
        with arithmetic(precision, device):
            losses = [self._mean_loss(model, workers, valid) for valid in self._sets]
        # On a CPU bf16 saves little time with few rows, and oneDNN keeps a kernel for each shape of
        # attention: a hundred megabytes for each validation.
        on_cpu = device.type == "cpu"
        with float32_arithmetic(device) if on_cpu else arithmetic(precision, device):
            threads = torch.get_num_threads()
            backend = backend_in_training(model, self._runs, device=device, threads=threads)
            translated = [self._translate(backend, workers, valid) for valid in self._sets]
        validations = {
            results[0]: self._scored(*results)
            for results in zip(self._sets, losses, translated, strict=True)
        }
        main = {valid: validation for valid, validation in validations.items() if valid.is_main}
        also = {valid.name: validation for valid, validation in validations.items() if valid.name}
        return replace(_joined(main), also=also)

    def _scored(
        self, valid: ValidationSet, loss: float, translations: list[Translation]
    ) -> Validation:
        metric, texts = self.config.train.best_metric, [t.text for t in translations]
        scores = self._task.metrics(texts, valid.tgt, best_metric=metric)
        values = {name: value for name, (value, _) in scores.items()}
        halves = {name: half for name, (_, half) in scores.items() if half is not None}
        return Validation(loss, values, translations, intervals=halves)

    def _mean_loss(self, model: Transformer, workers: Workers, measured: ValidationSet) -> float:
        pairs, rows = measured.pairs, measured.indices
        src, tgt = pairs.src.lengths[rows], pairs.tgt.lengths[rows]
        longest = int(max(src.max(), tgt.max()))
        plan = plan_batches(src, tgt, budget=max(self.budget(), longest))
        summed = torch.zeros((), dtype=torch.float64)
        for indices in itertools.islice(plan, workers.rank, None, workers.world_size):
            summed += self.loss(model, pairs, rows[indices]).item()
        return workers.sum(summed).item() / int(tgt.sum())

    def _translate(
        self, backend: Backend, workers: Workers, measured: ValidationSet
    ) -> list[Translation]:
        src = measured.src
        share = src[workers.rank :: workers.world_size]
        runs = self._runs.between(*measured.languages) if measured.languages else self._runs
        with Translator(runs, backend) as translator:
            nbest = translator.translate_nbest(share, n_best=1)
            mine = [[best.text, best.log_prob, best.repaired] for (best,) in nbest]
        translations = [Translation("")] * len(src)
        for rank, rows in enumerate(workers.gather(mine)):
            translations[rank :: workers.world_size] = [
                Translation(text, log_prob=log_prob, repaired=repaired)
                for text, log_prob, repaired in rows
            ]
        return translations


def _joined(results: Mapping[ValidationSet, Validation]) -> Validation:
    """The validation of several directions: the loss per token of all, and the mean scores."""
    (first, *others) = results.values()
    if not others:
        return first
    tokens = [int(valid.pairs.tgt.lengths[valid.indices].sum()) for valid in results]
    summed = sum(v.loss * count for v, count in zip(results.values(), tokens, strict=True))
    return Validation(
        summed / sum(tokens),
        {key: sum(v.scores[key] for v in results.values()) / len(results) for key in first.scores},
        [translation for result in results.values() for translation in result.translations],
    )


def report_validation(step: int, validation: Validation) -> dict[str, Any]:
    """Print the results of a validation; returns its row of metrics."""
    for name, result in {"": validation, **validation.also}.items():
        facts = [f"validation loss {result.loss:.3f}", f"perplexity {result.perplexity:.2f}"]
        facts += [f"{_NAMES[key]} {value:.1f}" for key, value in result.scores.items()]
        repaired = [t.repaired for t in result.translations if t.repaired is not None]
        if repaired:
            facts.append(f"repaired {sum(repaired) / len(repaired):.1%}")
        log.info("step %d: %s%s", step, name and f"{name}: ", ", ".join(facts))
    return {"step": step, **validation.row()}


class ValidationHistory:
    """All validations of a run: which one is the best, and when to stop early."""

    def __init__(self, settings: TrainConfig) -> None:
        # The scores of each validation with its `step`, oldest first.
        self.rows: list[dict[str, Any]] = []
        self._settings = settings
        self._was_flat = False

    def best_step(self) -> int | None:
        """The step of the best validation, as in `Run.best`; None if there is none."""
        best = max(self._scores(self.rows), default=None)
        return best.step if best else None

    def _scores(self, rows: Sequence[Mapping[str, Any]]) -> list[ValidationScore]:
        return validation_scores(rows, self._settings.best_metric, self._settings.best_set)

    def _lost(self, initial: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
        """What each further set had at step 0, and by how much it is worse now."""
        metric = self._settings.best_metric
        newest = self.rows[-1] if self.rows else {}
        before, now = (further_scores(row, metric) for row in (initial, newest))
        sign = -1 if metric == "loss" else 1
        return {
            name: (before[name], sign * (before[name] - value))
            for name, value in now.items()
            if name in before
        }

    def forgetting(self, initial: Mapping[str, Any]) -> list[str]:
        """A sentence for each further set that is clearly worse than at step 0, in its row."""
        metric = self._settings.best_metric
        return [
            f"{_NAMES.get(metric, metric)} of {name} is by {lost:.2f} worse than the {before:.2f} "
            "before this training: mix some of its text into the training data, train for fewer "
            "updates, or set train.may_lose."
            for name, (before, lost) in self._lost(initial).items()
            if lost > (FORGOTTEN_LOSS if metric == "loss" else FORGOTTEN)
        ]

    def _planned(self) -> list[dict[str, Any]]:
        """Those without the early ones, of which several scores of zero mean nothing."""
        return [row for row in self.rows if row["step"] not in self._settings.early_validations]

    def should_stop(self, initial: Mapping[str, Any] | None = None) -> bool:
        """Whether to stop early because of `train.patience` or `may_lose`, which is then reported.

        `initial` is the row of the validation at step 0.
        """
        metric, patience = self._settings.best_metric, self._settings.patience
        most = self._settings.may_lose
        for name, (before, lost) in self._lost(initial or {}).items():
            if most is not None and lost > most and not self._settings.finish_steps:
                said = "stopping early: %s of %s is by %.2f worse than the %.2f before"
                log.info(f"{said} (train.may_lose)", metric, name, lost, before)
                return True
        values = [score.value for score in self._scores(self._planned())]
        since_best = len(values) - 1 - values.index(max(values)) if values else 0
        # A run that is being finished ends at its last step.
        if patience is None or self._settings.finish_steps or since_best < patience:
            return False
        log.info(
            "stopping early: no better %s in %d validations (train.patience)", metric, patience
        )
        return True

    def report(self, findings: Sequence[str], *, finished: bool) -> None:
        """Warn of possible problems at the end, and when training no longer improves."""
        # BLEU for any `best_metric`, because the threshold of `is_flat` is for BLEU; or F1.
        metric = "valid_f1" if self.rows and "valid_f1" in self.rows[-1] else "valid_bleu"
        flat = is_flat([row[metric] for row in self._planned()])
        if finished or (flat and not self._was_flat):
            for sentence in findings:
                log.warning("possible problem: %s", sentence)
        self._was_flat = flat
