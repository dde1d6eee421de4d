"""Writes the metrics of a run: `metrics.jsonl`, samples, TensorBoard files, and the page.

A write error, such as a full disk, never stops training; it gives one warning.
"""

from __future__ import annotations

import logging
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any

from mtkit.base.errors import MtkitError, reason_of
from mtkit.base.files import json_text, naming_file, write_whole
from mtkit.check import Quality, RunChecks
from mtkit.config import dump_config
from mtkit.run_folder import BOARD, METRICS, PAGE, SAMPLES, Run
from mtkit.train.report_page import RunFacts, RunState, run_page
from mtkit.train.validation import Validation

log = logging.getLogger(__name__)

# Lines of the validation set whose translations are kept.
SAMPLE_LINES = 6
# As many times as long as the page took to write.
_PAUSE_AFTER_PAGE = 100


@dataclass(eq=False)
class MetricsLogger:
    """Logs the metrics of a run, from a step on; only if `active`.

    As a context manager it writes the page at the start, and at the end.
    `summary` gives the summary of the page and the step of the best validation, as in `RunFacts`.

    Attributes:
        findings: of the newest validation, for the page.
        is_finished: whether the end is that of the run; otherwise it was stopped.
    """

    run: Run
    step: int
    _: KW_ONLY
    active: bool = True
    summary: Callable[[], tuple[Mapping[str, str], int | None]] = lambda: ({}, None)
    clock: Callable[[], float] = time.monotonic
    findings: Sequence[str] = ()
    is_finished: bool = False

    def __post_init__(self) -> None:
        # When the page was written, and how long that took.
        self._written, self._took = 0.0, 0.0
        self._failed = False
        # The file of TensorBoard's events.
        self._board: str | None = None
        # Read only once, because every validation uses all of them several times.
        self._rows = self.run.metrics() if self.active else []
        if not self.active:
            return
        # Files differ by second and step. TensorBoard's own have the name of the host before that.
        self._board = f"events.out.tfevents.{int(time.time())}.mtkit.{self.step}"
        events: list[Mapping[str, Any]] = [{"file_version": "brain.Event:2"}]
        if self.step:
            # Rows after the step from which a run resumes are written again.
            events.append({"step": self.step + 1, "session_log": {"status": "START"}})
        self._write_events(*events)

    def __enter__(self) -> MetricsLogger:
        self.write_page()
        return self

    def __exit__(self, *_: object) -> None:
        self.write_page("finished" if self.is_finished else "stopped")

    def log(self, row: Mapping[str, Any]) -> None:
        """Write a row of training or validation metrics, with its `step`."""
        if not self.active:
            return
        self._rows.append(dict(row))
        with self._errors_noted():
            append_row(self.run, METRICS, row)
        kind = "valid" if "valid_loss" in row else "train"
        scalars = {
            f"{kind}/{key.removeprefix('valid_')}": row[key]
            for key in row
            if key not in ("step", "valid_also")
        }
        for name, of_set in row.get("valid_also", {}).items():
            scalars |= {f"valid@{name}/{key}": value for key, value in of_set.items()}
        values = [{"tag": tag, "simple_value": value} for tag, value in scalars.items()]
        self._write_events({"step": int(row["step"]), "summary": {"value": values}})

    def add_samples(
        self, step: int, src: Sequence[str], tgt: Sequence[str], validation: Validation
    ) -> None:
        """Store the intervals of a validation, and translations of the same lines every time."""
        if not self.active:
            return
        lines = [i * len(src) // SAMPLE_LINES for i in range(min(SAMPLE_LINES, len(src)))]
        samples = [
            {"src": src[i], "ref": tgt[i], "hyp": validation.translations[i].text}
            for i in dict.fromkeys(lines)
        ]
        row: dict[str, Any] = {"step": step, "samples": samples}
        if intervals := validation.all_intervals():
            row["intervals"] = intervals
        with self._errors_noted():
            append_row(self.run, SAMPLES, row)

    def initial(self) -> Mapping[str, Any]:
        """The row of the validation at step 0, which only fine-tuning has; else an empty one."""
        return next((row for row in self._rows if row["step"] == 0), {})

    def losses(self) -> list[float]:
        """The training losses of the last rows, oldest first."""
        return [row["loss"] for row in self._rows if "loss" in row][-20:]

    def refresh_page(self) -> None:
        """Write the page again, unless that would take more than a hundredth of the time."""
        if self.clock() - self._written >= _PAUSE_AFTER_PAGE * self._took:
            self.write_page()

    def write_page(self, state: RunState = "running") -> None:
        """Write `report.html`, of a training in this state."""
        if not self.active:
            return
        began, now = self.clock(), datetime.now().astimezone()
        with self._errors_noted():
            summary, best_step = self.summary()
            facts = RunFacts(
                name=self.run.name,
                summary=summary,
                config_yaml=dump_config(self.run.config),
                metrics=self._rows,
                samples=self.run.samples(),
                findings=self.findings,
                best_step=best_step,
                confidence=_confidence(self.run) if state == "finished" else (),
                state=state,
                written=f"{now:%Y-%m-%d %H:%M:%S} (UTC{now:%z})",
            )
            page = run_page(facts)
            self.run.check_held()
            path = self.run.path / PAGE
            with naming_file(path):
                write_whole(path, page)
        self._written = self.clock()
        self._took = self._written - began

    def _write_events(self, *events: Mapping[str, Any]) -> None:
        """Write events for TensorBoard, unless that has failed before."""
        name = self._board
        if name is None:
            return
        content = b"".join(_record(event) for event in events)
        path = self.run.path / BOARD / name
        # TensorBoard cannot read beyond an event that was only partly written.
        self._board = None
        with self._errors_noted(), naming_file(path):
            self.run.check_held()
            path.parent.mkdir(exist_ok=True)
            with path.open("ab") as file:
                file.write(content)
            self._board = name

    @contextmanager
    def _errors_noted(self) -> Iterator[None]:
        """Within it, an error of writing ends the block; the first one is a warning."""
        try:
            yield
        # A library that is loaded for the page can be missing, or not fit in memory.
        except (MtkitError, OSError, ImportError, MemoryError) as error:
            if not self._failed:
                reason = reason_of(error) or "out of memory"
                log.warning("%s; training continues, the metrics will have gaps", reason)
            self._failed = True


def _confidence(run: Run) -> list[tuple[str, Quality]]:
    """Of each direction of a finished run, how good the forecasts of chrF are."""
    checks = RunChecks.load(run.path)
    fitted = [] if checks is None else [d for d in checks.directions if d.forecast]
    several = len(fitted) > 1
    return [
        (f"{d.facts.src_lang}-{d.facts.tgt_lang}" if several else "", d.forecast.quality)
        for d in fitted
        if d.forecast
    ]


def append_row(run: Run, name: str, row: Mapping[str, Any]) -> None:
    """Append a row to `metrics.jsonl` or `samples.jsonl`."""
    run.check_held()
    path = run.path / name
    with naming_file(path), path.open("a+b") as file:
        line = f"{json_text(row)}\n".encode()
        if file.tell():
            # A full disk or a kill may have cut the previous row.
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                line = b"\n" + line
        file.write(line)


def truncate_rows(run: Run, step: int) -> None:
    """Delete the rows after `step`, which a resumed run will write again."""
    for name, rows in ((METRICS, run.metrics()), (SAMPLES, run.samples())):
        kept = [row for row in rows if row["step"] <= step]
        with naming_file(run.path / name):
            write_whole(run.path / name, "".join(f"{json_text(row)}\n" for row in kept))


def _record(event: Mapping[str, Any]) -> bytes:
    """An event in TensorBoard's file format: length, checksum, message, checksum."""
    # tensorboardX has TensorBoard's messages without its dependencies. Its own writer has a thread,
    # which ends when the disk is full, and then waits for it forever.
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    message = Event(wall_time=time.time(), **event).SerializeToString()
    length = struct.pack("<Q", len(message))
    parts = (length, struct.pack("<I", masked_crc32c(length)))
    return b"".join((*parts, message, struct.pack("<I", masked_crc32c(message))))
