"""Training (Section 5): the schedule, the loss, the update, and the order of events.

`run` assembles the parts and contains no loop. `Trainer.fit` owns the order of events,
`Trainer.update` the arithmetic.
"""

from __future__ import annotations

import logging
import math
import platform
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

import mtkit
from mtkit.checkpoint import Run, Tensors
from mtkit.config import MAY_CHANGE, Config, PrepareConfig, differences, dump_config
from mtkit.cost import Spent, training_flops
from mtkit.data import Batch, PreparedData, TokenBatches, make_batch, plan_batches
from mtkit.distributed import choose_device, describe_device, keep_freed_memory
from mtkit.errors import MtkitError
from mtkit.model import Transformer, parameter_counts
from mtkit.score import score
from mtkit.tokenizer import PAD_ID
from mtkit.translate import Translator

log = logging.getLogger(__name__)


def learning_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """The rate of update `step`, counted from 1 (Section 5.3, equation 3)."""
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def label_smoothed_loss(
    logits: Tensor, tgt_out: Tensor, *, label_smoothing: float, pad_id: int
) -> tuple[Tensor, Tensor]:
    """Cross-entropy against smoothed targets (Section 5.4), as the paper's code has it.

    The true token has probability 1 - ε, and ε is spread over the V - 1 others. (PyTorch's own
    `label_smoothing` gives the true token a share of ε as well.)

    Args:
        logits: (..., V).
        tgt_out: (...), the true tokens.
        label_smoothing: ε.
        pad_id: targets that do not count.

    Returns:
        The summed loss in natural logarithms, and the number of tokens it is summed over.
    """
    loss: Tensor = _SmoothedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits.flatten(0, -2), tgt_out.flatten(), label_smoothing, pad_id
    )
    return loss, (tgt_out != pad_id).sum()


class _SmoothedCrossEntropy(torch.autograd.Function):
    """The summed loss with its gradient, softmax minus smoothed target, in one buffer.

    Written out because the (N, V) arrays are the largest of a step and a composition of
    PyTorch's functions passes over them nine times.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, label_smoothing: float, pad_id: int
    ) -> Tensor:
        # Every token has the probability `low`, and the true one `extra` on top.
        low = label_smoothing / (logits.shape[-1] - 1)
        extra = 1.0 - label_smoothing - low
        real = targets != pad_id
        normaliser = logits.logsumexp(-1)
        truth = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        # -Σ q·log p, with log p = logit - normaliser and Σ q = 1.
        loss = normaliser - extra * truth - low * logits.sum(-1)
        ctx.save_for_backward(logits, normaliser, targets, real)
        ctx.low, ctx.extra = low, extra
        return (loss * real).sum()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None]:
        logits, normaliser, targets, real = ctx.saved_tensors
        gradient = (logits - normaliser.unsqueeze(-1)).exp_().sub_(ctx.low)
        truth = targets.unsqueeze(-1)
        gradient.scatter_add_(-1, truth, gradient.new_full((1, 1), -ctx.extra).expand_as(truth))
        gradient.mul_((real * grad_outputs[0]).unsqueeze(-1))
        return gradient, None, None, None


@dataclass(frozen=True)
class Validation:
    """How the model does on the validation set.

    Attributes:
        loss: natural-logarithm cross-entropy per target token, without smoothing.
        bleu: of the greedy translations, on detokenised text.
    """

    loss: float
    bleu: float

    @property
    def perplexity(self) -> float:
        """e to the loss, per subword."""
        return math.exp(min(self.loss, 700.0))


class Trainer:
    """Owns the model, the optimizer, the batches and the counters of a run.

    Args:
        config: of the run.
        data: what to train on.
        device: where.
    """

    def __init__(self, config: Config, data: PreparedData, *, device: torch.device) -> None:
        self.config = config
        self.settings = config.train
        self.device = device
        self.tokenizer = data.tokenizer()
        self.step = 0
        self.spent = Spent()
        torch.manual_seed(self.settings.seed)
        self.model = Transformer(config.model, len(self.tokenizer), PAD_ID).to(device)
        if self.settings.compile:
            self.model.compile_layers()
        self.optimizer = torch.optim.Adam(
            self.model.parameters(),
            betas=(self.settings.adam_beta1, self.settings.adam_beta2),
            eps=self.settings.adam_epsilon,
            fused=True,
        )
        wanted = self.settings.batch_tokens
        fits = self.settings.device_batch_tokens or (25_000 if device.type == "cuda" else 4096)
        self.micro_batches = math.ceil(wanted / fits)
        pairs = data.pairs("train")
        longest = int(max(pairs.src.lengths.max(), pairs.tgt.lengths.max()))
        # Equal shares of an update, but never too small for a pair that would fit.
        self._budget = max(math.ceil(wanted / self.micro_batches), min(longest, fits, wanted))
        self._longest = longest
        if longest > self._budget:
            key = "batch_tokens" if self.micro_batches == 1 else "device_batch_tokens"
            raise MtkitError(
                f"train.{key}: a batch of {self._budget} tokens cannot hold the longest pair, "
                f"which has {longest}; raise it"
            )
        self.batches = TokenBatches(pairs, budget=self._budget, seed=self.settings.seed)
        self.valid_pairs = data.pairs("valid")
        self.valid_text = data.text("valid")

    def fit(self, run: Run) -> bool:
        """Train to `max_steps` or to a signal, then save.

        Returns:
            False if a signal ended it.
        """
        settings = self.settings
        meter = _Meter(self.spent)
        saved = self.step
        with _stop_on_signal() as stopped, self._progress_bar() as bar:
            while self.step < settings.max_steps and not stopped:
                meter.add(self.update(list(islice(self.batches, self.micro_batches))))
                bar.update()
                last = self.step == settings.max_steps
                validation = None
                if last or self.step % settings.log_every == 0:
                    self._log(run, meter.read(self.step), bar)
                if last or self.step % settings.valid_every == 0:
                    with meter.paused():
                        validation = self.validate()
                    self._log_validation(run, validation)
                if last or self.step % settings.checkpoint_every == 0:
                    with meter.paused():
                        self.save(run, validation)
                        saved = self.step
            if saved != self.step:
                self.save(run)
        return self.step >= settings.max_steps

    def update(self, batches: list[Batch]) -> Tensor:
        """One optimizer step on micro-batches that count as one batch; return the summed loss.

        The gradient is that of the mean loss per target token over all of them.
        """
        settings = self.settings
        self.step += 1
        # Dropout depends on seed and step alone, so a resumed run needs no random state.
        torch.manual_seed(_mix(settings.seed, self.step))
        rate = learning_rate(self.step, self.config.model.d_model, settings.warmup_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * settings.learning_rate_scale
        self.model.train()
        total = sum(batch.num_tokens for batch in batches)
        self.spent.tokens += total
        summed = torch.zeros((), device=self.device)
        for batch in batches:
            self.spent.flops += training_flops(
                self.config.model, len(self.tokenizer), *batch.lengths()
            )
            loss = self._loss(batch, label_smoothing=settings.label_smoothing)
            torch.autograd.backward(loss / total)
            summed += loss.detach()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return summed

    @torch.inference_mode()
    def validate(self) -> Validation:
        """Loss and BLEU on the validation set."""
        self.model.eval()
        pairs = self.valid_pairs
        longest = max(pairs.src.lengths.max(), pairs.tgt.lengths.max())
        plan = plan_batches(
            pairs.src.lengths, pairs.tgt.lengths, budget=max(self._budget, int(longest))
        )
        summed = sum(
            self._loss(make_batch(pairs, indices), label_smoothing=0.0).item() for indices in plan
        )
        # Greedy, because training should not wait for a beam; `mtkit score` uses one.
        greedy = self.config.decode.model_copy(update={"beam_size": 1})
        translator = Translator(self.model, self.tokenizer, greedy, device=self.device)
        src, tgt = self.valid_text
        bleu = score(list(translator.translate(src)), [tgt]).value
        return Validation(loss=summed / int(pairs.tgt.lengths.sum()), bleu=bleu)

    def check_memory(self) -> None:
        """Run the largest batch forward and backward, before the first update.

        Raises:
            MtkitError: if it does not fit, with the setting to lower.
        """
        try:
            self.model.train()
            torch.autograd.backward(self._loss(self.batches.largest(), label_smoothing=0.1))
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(
                error
            ):
                raise
            raise MtkitError(
                f"a batch of {self._budget} tokens does not fit in memory; lower it, as in "
                f"--set train.device_batch_tokens={max(self._budget // 2, self._longest)}"
            ) from error
        finally:
            self.optimizer.zero_grad()

    def save(self, run: Run, validation: Validation | None = None) -> None:
        """Add a checkpoint to the run and delete those that are no longer kept.

        Raises:
            MtkitError: if a weight is not a finite number; nothing is saved then.
        """
        if not all(bool(tensor.isfinite().all()) for tensor in self.model.parameters()):
            raise self._diverged(run, "the weights are not finite")
        state: dict[str, Any] = {
            "batches": self.batches.state_dict(),
            "spent": asdict(self.spent),
        }
        if validation is not None:
            state["valid_bleu"] = validation.bleu
            state["valid_loss"] = validation.loss
        weights, optimizer = self.state_dict()
        run.save(self.step, weights=weights, optimizer=optimizer, state=state)
        run.prune(self.settings.keep_checkpoints)

    def state_dict(self) -> tuple[Tensors, Tensors]:
        """Weights, and the optimizer's state by parameter name."""
        optimizer = {
            f"{name}.{key}": value
            for name, parameter in self.model.named_parameters()
            for key, value in self.optimizer.state[parameter].items()
        }
        return dict(self.model.state_dict()), optimizer

    def resume(self, run: Run) -> None:
        """Go on from the newest checkpoint that is whole.

        Raises:
            MtkitError: if every checkpoint is damaged.
        """
        for checkpoint in reversed(run.checkpoints()):
            try:
                weights = checkpoint.load_weights()
                optimizer = checkpoint.load_optimizer()
                state = checkpoint.load_state()
            except MtkitError as error:
                log.warning("%s", error)
                continue
            self.model.load_state_dict(weights)
            for name, parameter in self.model.named_parameters():
                moments = {
                    key.removeprefix(f"{name}."): value
                    for key, value in optimizer.items()
                    if key.rpartition(".")[0] == name
                }
                self.optimizer.state[parameter] = {
                    # Adam keeps its step count where the kernel wants it: on the device too.
                    key: value.to(self.device)
                    for key, value in moments.items()
                }
            self.batches.load_state_dict(state["batches"])
            self.spent = Spent(**state["spent"])
            self.step = checkpoint.step
            run.forget_metrics_after(self.step)
            log.info("continuing from step %d of %s", self.step, run.path)
            return
        raise MtkitError(f"{run.path}: no checkpoint is whole; begin again with --restart")

    def _loss(self, batch: Batch, *, label_smoothing: float) -> Tensor:
        batch = batch.to(self.device)
        logits = self.model(batch.src, batch.tgt_in)
        loss, _ = label_smoothed_loss(
            logits, batch.tgt_out, label_smoothing=label_smoothing, pad_id=PAD_ID
        )
        return loss

    def _log(self, run: Run, row: dict[str, float | int], bar: tqdm[Any]) -> None:
        row["lr"] = self.optimizer.param_groups[0]["lr"]
        row["epoch"] = self.batches.epoch
        run.log(row)
        if not math.isfinite(row["loss"]):
            raise self._diverged(run, f"the loss is {row['loss']}")
        facts = f"loss {row['loss']:.3f}, lr {row['lr']:.2e}, {row['tokens_per_second']:,.0f} tok/s"
        bar.set_postfix_str(facts)
        if bar.disable:
            left = (self.settings.max_steps - self.step) * row["seconds_per_step"]
            log.info(
                "step %d of %d: %s, %s left",
                self.step,
                self.settings.max_steps,
                facts,
                _clock(left),
            )

    def _diverged(self, run: Run, what: str) -> MtkitError:
        saved = run.checkpoints()
        last = (
            f"the last good checkpoint is step {saved[-1].step}" if saved else "nothing was saved"
        )
        rate = self.optimizer.param_groups[0]["lr"]
        return MtkitError(
            f"step {self.step}: {what} at learning rate {rate:.3g}; {last}; "
            "try a longer train.warmup_steps or a lower train.learning_rate_scale"
        )

    def _log_validation(self, run: Run, validation: Validation) -> None:
        run.log(
            {
                "step": self.step,
                "valid_loss": validation.loss,
                "valid_perplexity": validation.perplexity,
                "valid_bleu": validation.bleu,
            }
        )
        log.info(
            "step %d: validation loss %.3f, perplexity %.2f, BLEU %.1f",
            self.step,
            validation.loss,
            validation.perplexity,
            validation.bleu,
        )

    def _progress_bar(self) -> tqdm[Any]:
        return tqdm(
            total=self.settings.max_steps,
            initial=self.step,
            desc="training",
            unit="step",
            dynamic_ncols=True,
            disable=None,  # off where standard error is no terminal
            bar_format="{desc} {n_fmt}/{total_fmt} {bar} {postfix} {remaining} left",
        )


def run(
    config: Config,
    data: PreparedData,
    run_path: Path,
    *,
    device: str = "auto",
    restart: bool = False,
    command: list[str] | None = None,
) -> bool:
    """Train in a run folder, from its last checkpoint if it has one.

    Args:
        config: what to train.
        data: what on.
        run_path: the run folder, made if need be.
        device: `auto`, `cpu` or `cuda`.
        restart: forget the checkpoints that are there.
        command: recorded in the run's manifest.

    Returns:
        False if a signal ended the training early; it is saved all the same.

    Raises:
        MtkitError: if the folder holds a run of another configuration or other data, which the
            message names.
    """
    _check_direction(config, data)
    data.verify()
    if not Run.may_create(run_path):
        raise MtkitError(f"{run_path}: exists and is not a run folder; give another --run")
    existing = None if restart else _existing_run(run_path)
    if existing is not None:
        _check_same(existing, config, data)
    place = choose_device(device)
    keep_freed_memory()
    trainer = Trainer(config, data, device=place)
    log.info(
        "training %s on %s: %s, %s parameters",
        run_path,
        data.path,
        describe_device(place),
        f"{sum(parameter_counts(trainer.model).values()):,}",
    )
    if existing is None:
        manifest = {
            "data": {
                "name": data.name,
                "path": str(data.path.resolve()),
                "fingerprint": data.fingerprint,
                "src_lang": data.src_lang,
                "tgt_lang": data.tgt_lang,
            },
            "versions": {
                "mtkit": mtkit.__version__,
                "torch": str(torch.__version__),
                "python": platform.python_version(),
            },
            "seed": config.train.seed,
            "command": command or sys.argv,
        }
        folder = Run.create(run_path, config, trainer.tokenizer, manifest=manifest)
    else:
        folder = existing.with_config(config)
        trainer.resume(folder)
        if trainer.step >= config.train.max_steps:
            log.info(
                "%s has reached step %d already; to go on, raise train.max_steps (now %d)",
                run_path,
                trainer.step,
                config.train.max_steps,
            )
            return True
    trainer.check_memory()
    finished = trainer.fit(folder)
    spent = trainer.spent
    log.info(
        "trained on %s target tokens in %s: %s",
        f"{spent.tokens:,}",
        _clock(spent.seconds),
        _cost(spent.flops, spent.seconds, config),
    )
    return finished


def forecast(config: Config, data: PreparedData, *, device: str = "auto") -> str:
    """What `--dry-run` prints: the resolved configuration, as YAML, with the forecast as comments.

    Builds the model, runs the largest batch, and times a few; writes nothing.
    """
    _check_direction(config, data)
    place = choose_device(device)
    keep_freed_memory()
    trainer = Trainer(config, data, device=place)
    trainer.check_memory()
    # Seconds and tokens of a few micro-batches, each made an update of its own.
    meter = _Meter(trainer.spent)
    while trainer.step < 3 and trainer.spent.seconds < 10.0:
        meter.add(trainer.update([next(trainer.batches)]))
        speed = meter.read(trainer.step)["tokens_per_second"]
    pairs = data.pairs("train")
    updates = trainer.batches.batches_in_epoch / trainer.micro_batches
    tokens = int(pairs.tgt.lengths.sum())
    flops = training_flops(
        config.model, len(trainer.tokenizer), pairs.src.lengths, pairs.tgt.lengths
    )
    epochs = config.train.max_steps / updates
    seconds = epochs * tokens / speed
    return _forecast(
        config,
        [
            f"data: {data.path} ({data.src_lang} to {data.tgt_lang})",
            *_facts_of_model(trainer.model),
            f"an update: {tokens / updates:,.0f} target tokens, "
            f"{trainer.micro_batches} micro-batches",
            f"an epoch: {updates:,.0f} updates, {tokens:,} target tokens",
            f"device: {describe_device(place)}",
            f"memory at the largest batch: {_peak(place)}",
            f"speed: {speed:,.0f} target tokens/s over {trainer.step} micro-batches",
            f"time: {_clock(seconds)} for {config.train.max_steps:,} updates, without validation",
            f"cost: {_cost(epochs * flops, seconds, config)}",
        ],
    )


def forecast_without_data(config: Config) -> str:
    """What `--dry-run` can say of a configuration before there is data to train on.

    The vocabulary is taken to be the paper's, and every sentence to have 30 tokens, about what
    those of WMT14 have.
    """
    vocab_size = PrepareConfig().vocab_size
    with torch.device("meta"):
        model = Transformer(config.model, vocab_size, PAD_ID)
    tokens = config.train.batch_tokens * config.train.max_steps
    flops = training_flops(config.model, vocab_size, [30], [30]) / 30 * tokens
    return _forecast(
        config,
        [
            "data: none yet; vocabulary as in the paper, sentences of 30 tokens",
            *_facts_of_model(model),
            f"an update: {config.train.batch_tokens:,} target tokens",
            f"cost: {_cost(flops, None, config)}, for {config.train.max_steps:,} updates",
        ],
    )


def _forecast(config: Config, lines: list[str]) -> str:
    return "".join(f"# {line}\n" for line in lines) + dump_config(config)


def _facts_of_model(model: Transformer) -> list[str]:
    counts = parameter_counts(model)
    total = sum(counts.values())
    parts = ", ".join(f"{part} {count:,}" for part, count in counts.items())
    return [
        f"vocabulary: {model.vocab_size:,} pieces",
        f"parameters: {total:,} ({parts})",
        # In float32, with Adam's two moments.
        f"memory: {_gigabytes(16 * total)} for weights, gradients and optimizer",
    ]


def _cost(flops: float, seconds: float | None, config: Config) -> str:
    """Operations counted, and beside them the paper's estimate where it can be made."""
    text = f"{flops:.2e} floating-point operations by the model and its tokens"
    if seconds is None:
        return text
    text += f" ({flops / max(seconds, 1e-9):.1e} a second)"
    if (sustained := config.train.sustained_flops) is not None:
        text += (
            f"; {seconds * sustained:.2e} as the paper estimates it, "
            f"time times {sustained:.2g} a second"
        )
    return text


class _Meter:
    """Loss and speed between two rows of metrics; pauses do not count."""

    def __init__(self, spent: Spent) -> None:
        self._spent = spent
        self._marked = time.perf_counter()
        self._start_row()

    def add(self, loss: Tensor) -> None:
        """Count one update; the loss stays on its device until it is read."""
        self._losses.append(loss)
        self._charge()

    def read(self, step: int) -> dict[str, float | int]:
        """A row of metrics; counting begins again."""
        summed = float(torch.stack(self._losses).sum())
        self._charge()
        tokens = self._spent.tokens - self._before.tokens
        seconds = self._spent.seconds - self._before.seconds
        row: dict[str, float | int] = {
            "step": step,
            "loss": summed / tokens,
            "tokens_per_second": tokens / seconds,
            "seconds_per_step": seconds / len(self._losses),
            "tokens": self._spent.tokens,
            "flops": self._spent.flops,
        }
        self._start_row()
        return row

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave what happens inside out of the speed."""
        yield
        self._marked = time.perf_counter()

    def _start_row(self) -> None:
        self._losses: list[Tensor] = []
        self._before = replace(self._spent)

    def _charge(self) -> None:
        now = time.perf_counter()
        self._spent.seconds += now - self._marked
        self._marked = now


@contextmanager
def _stop_on_signal() -> Iterator[list[int]]:
    """A list that the first SIGINT or SIGTERM is put into; the second acts as always."""
    received: list[int] = []
    previous: dict[int, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        log.warning("stopping after this step and saving; once more to stop at once")
        for signum, handler in previous.items():
            signal.signal(signum, handler)

    try:
        for wanted in (signal.SIGINT, signal.SIGTERM):
            previous[wanted] = signal.signal(wanted, handle)
    except ValueError:
        # Python takes signals in the main thread only; elsewhere the caller owns them.
        yield received
        return
    try:
        yield received
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def _existing_run(path: Path) -> Run | None:
    """The run to continue. Killed before its first checkpoint, a run has nothing to lose."""
    saved = Run(path, Config(), {}).checkpoints()
    return Run.open(path) if saved else None


def _check_same(run: Run, config: Config, data: PreparedData) -> None:
    if run.data_fingerprint != data.fingerprint:
        raise MtkitError(
            f"{run.path}: was trained on other data than {data.path} "
            f"({run.manifest['data']['name']}, by checksum); give another --run, or --restart"
        )
    changed = differences(run.config, config, ignore=MAY_CHANGE)
    if changed:
        raise MtkitError(
            f"{run.path}: was begun with other settings: {', '.join(changed)}; "
            "give another --run, or --restart"
        )


def _check_direction(config: Config, data: PreparedData) -> None:
    for key in ("src_lang", "tgt_lang"):
        wanted, found = getattr(config.data, key), getattr(data, key)
        if wanted is not None and wanted != found:
            raise MtkitError(
                f"data.{key}: the configuration wants {wanted}, {data.path} has {found}"
            )


def _mix(seed: int, step: int) -> int:
    """A 63-bit seed from two numbers."""
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0] >> 1)


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    days, hours = divmod(hours, 24)
    text = f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
    return f"{days} d {text}" if days else text


def _gigabytes(count: float) -> str:
    return f"{count / 2**30:.2f} GiB"


def _peak(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{_gigabytes(torch.cuda.max_memory_allocated(device))} on the device"
    import resource

    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return f"{_gigabytes(peak)} for the whole process"
