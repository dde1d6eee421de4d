"""Run folders and prepared folders with one thing changed, and what mtkit makes of each.

`mutations_of` lists changes of a file: each key of a JSON or YAML file deleted, renamed, given
another type and put out of range; bits flipped and ends cut off in any file. `Subject` applies one
to a copy and resumes, translates, scores and exports. `check_changes` does so with many changes of
a file, and finds every outcome that it must not have.
"""

import copy
import hashlib
import json
import logging
import random
import shutil
import unittest.mock
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from conftest import changed

from mtkit.base.errors import MtkitError
from mtkit.base.files import sha256_of_json
from mtkit.base.html import Chart
from mtkit.convert import export_run
from mtkit.data import PreparedData
from mtkit.run_folder import Run
from mtkit.run_manifest import MAY_CHANGE
from mtkit.score import score
from mtkit.train import assembly as train
from mtkit.train.report_page import RunFacts, run_page
from mtkit.translate import Translator


@dataclass(frozen=True)
class Mutation:
    """One change of one file; `resealed` if the file has a checksum of its new content."""

    file: str
    what: str
    apply: Callable[[Path], None]
    key: str = ""
    resealed: bool = False

    @property
    def is_allowed_to_matter(self) -> bool:
        """Whether a user may change this, or whether only mtkit can have written it."""
        section = self.key.partition(".")[0] + "."
        edited = self.file == "config.yaml" and (self.key in MAY_CHANGE or section in MAY_CHANGE)
        return edited or self.resealed


Place = tuple[Any, ...]


def places_of(tree: Any, place: Place = ()) -> Iterator[Place]:
    """Where the values of a tree are, the inner ones too; of a list the first two."""
    if isinstance(tree, dict):
        inner = list(tree.items())
    elif isinstance(tree, list):
        inner = list(enumerate(tree))[:2]
    else:
        return
    for key, value in inner:
        yield (*place, key)
        yield from places_of(value, (*place, key))


def changes_of(value: Any) -> list[Any]:
    """A value of another type, one out of range, and one that is only a little different."""
    if isinstance(value, bool):
        return [not value, "x"]
    if isinstance(value, int | float):
        return [str(value), -value - 1, 10**30, value + 1]
    if isinstance(value, str):
        return [0, value + "x", "../" * 20]
    return ["x", -1]


def changed_trees(tree: Any) -> Iterator[tuple[str, str, Any]]:
    """Key, words and tree, for each change of one key."""
    for place in places_of(tree):
        *path, last = place
        dotted = ".".join(map(str, place))

        def parent_in(new: Any, path: list[Any] = path) -> Any:
            for key in path:
                new = new[key]
            return new

        new = copy.deepcopy(tree)
        value = parent_in(new).pop(last)
        yield dotted, "deleted", new
        if isinstance(last, str):
            new = copy.deepcopy(tree)
            parent_in(new)[last + "s"] = parent_in(new).pop(last)
            yield dotted, "renamed", new
        for other in changes_of(value):
            new = copy.deepcopy(tree)
            parent_in(new)[last] = other
            yield dotted, f"set to {str(other)[:20]!r}", new


def _written(content: str | bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def of_json(name: str, file: Path) -> Iterator[Mutation]:
    """Changes of a JSON file; as they are, and those of the structure with a new checksum."""
    for key, what, new in changed_trees(json.loads(file.read_text(encoding="utf-8"))):
        yield Mutation(name, what, _written(json.dumps(new)), key)
        # A value of another type, as another version might write it, not one that is possible.
        is_of_structure = "set to" not in what or what.startswith(("set to 'x'", "set to 0"))
        if key != "checksum" and is_of_structure:
            sealed = {k: v for k, v in new.items() if k != "checksum"}
            sealed["checksum"] = sha256_of_json(sealed)
            yield Mutation(name, f"{what}, resealed", _written(json.dumps(sealed)), key, True)


def of_json_lines(name: str, file: Path) -> Iterator[Mutation]:
    """Changes of the first row, the last and one between them."""
    rows = file.read_text(encoding="utf-8").splitlines()
    for number in sorted({0, len(rows) // 2, len(rows) - 1}):
        for key, what, new in changed_trees(json.loads(rows[number])):
            lines = [*rows[:number], json.dumps(new), *rows[number + 1 :]]
            yield Mutation(name, f"row {number} {what}", _written("\n".join(lines) + "\n"), key)


def of_yaml(name: str, file: Path) -> Iterator[Mutation]:
    for key, what, new in changed_trees(yaml.safe_load(file.read_text(encoding="utf-8"))):
        yield Mutation(name, what, _written(yaml.safe_dump(new)), key)


def of_bytes(name: str, file: Path, rng: random.Random, count: int) -> Iterator[Mutation]:
    """Bits flipped, ends cut off, bytes added, the file gone or another kind of file."""
    content = file.read_bytes()

    def replace_by_folder(path: Path) -> None:
        path.unlink()
        path.mkdir()

    def link_to_itself(path: Path) -> None:
        path.unlink()
        path.symlink_to(path)

    yield Mutation(name, "deleted", Path.unlink)
    yield Mutation(name, "a folder", replace_by_folder)
    yield Mutation(name, "a link to itself", link_to_itself)
    yield Mutation(name, "with more at its end", _written(content + b"\n{}"))
    for length in sorted({0, 1, 8, len(content) // 2, len(content) - 1} & set(range(len(content)))):
        yield Mutation(name, f"cut to {length} bytes", _written(content[:length]))
    for _ in range(count if content else 0):
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        new = bytearray(content)
        new[place] ^= 1 << bit
        yield Mutation(name, f"bit {bit} of byte {place} flipped", _written(bytes(new)))


def mutations_of(folder: Path, file: Path, rng: random.Random) -> Iterator[Mutation]:
    name = str(file.relative_to(folder))
    by_kind = {".json": of_json, ".jsonl": of_json_lines, ".yaml": of_yaml}
    if file.suffix in by_kind:
        yield from by_kind[file.suffix](name, file)
    yield from of_bytes(name, file, rng, 10)


@dataclass(frozen=True)
class Outcome:
    """What came of an operation on a changed folder.

    Attributes:
        kind: "same", "fell back" (the same, with a warning), "refused", "used" (a change that a
            user may make), or what must not be: "differs", "unclear", "traceback".
        text: what was said.
    """

    kind: str
    text: str = ""


@contextmanager
def warned() -> Iterator[list[str]]:
    """The warnings that are logged meanwhile."""
    package, handler = logging.getLogger("mtkit"), logging.Handler(logging.WARNING)
    texts: list[str] = []
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    package.addHandler(handler)
    try:
        yield texts
    finally:
        package.removeHandler(handler)


def _no_page(_: RunFacts) -> str:
    return ""


def _drawn_once() -> property:
    """The charts of a page: most changes leave most of them as they were."""
    draw, drawn = Chart.svg.fget, dict[str, str]()

    def svg(chart: Chart) -> str:
        if (key := repr(chart)) not in drawn:
            drawn[key] = draw(chart)
        return drawn[key]

    return property(svg)


class Subject:
    """A run and its data, copied to `place` and changed again and again."""

    def __init__(self, run: Run, data: PreparedData, place: Path) -> None:
        self._originals = {"run": run.path, "data": data.path}
        self._place = place
        # To translate, and to check an export with.
        self._text = place / "text"
        self._text.write_text("one two three\nnine\nfour four five one two six\n")
        self._page, self._charts = _no_page, _drawn_once()
        # What an operation warns of on folders that nobody has changed.
        self._usual: dict[str, list[str]] = {}
        self._config = changed(run.config, "train", max_steps=run.config.train.max_steps + 2)
        self.operations: dict[str, Callable[[Path, Path], Any]] = {
            "resume": self._resume,
            "score": self._score,
            "translate": lambda run, _: self._translate(run),
            "export": lambda run, _: self._export(run),
        }
        # The others read the run alone.
        self.reading_data = {name: self.operations[name] for name in ("resume", "score")}
        with self._copies() as (run_copy, data_copy):
            self._expected: dict[str, Any] = {}
            for name, work in self.operations.items():
                with warned() as self._usual[name]:
                    self._expected[name] = self._in_a_copy(work, run_copy, data_copy)

    def try_out(self, which: str, mutation: Mutation) -> dict[str, Outcome]:
        """What each operation that reads the run, or the data, makes of a change of it."""
        operations = self.operations if which == "run" else self.reading_data
        with self._copies() as (run, data):
            # Drawing the page takes most of the time, and only these files stand on it.
            self._page = run_page if mutation.file.endswith(".jsonl") else _no_page
            mutation.apply((run if which == "run" else data) / mutation.file)
            return {name: self._outcome(name, mutation, run, data) for name in operations}

    def _outcome(self, name: str, mutation: Mutation, run: Path, data: Path) -> Outcome:
        try:
            with warned() as warnings:
                result = self._in_a_copy(self.operations[name], run, data)
        except MtkitError as error:
            text = str(error)
            return Outcome("refused" if "\n" not in text and len(text) < 1500 else "unclear", text)
        except Exception as error:
            return Outcome("traceback", repr(error)[:500])
        said = " ".join(text for text in warnings if text not in self._usual[name])
        if result == self._expected[name]:
            return Outcome("fell back" if said else "same", said)
        return Outcome("used" if mutation.is_allowed_to_matter else "differs", said)

    @contextmanager
    def _copies(self) -> Iterator[tuple[Path, Path]]:
        run, data = self._place / "run", self._place / "data"
        shutil.copytree(self._originals["run"], run)
        shutil.copytree(self._originals["data"], data)
        try:
            yield run, data
        finally:
            shutil.rmtree(run)
            shutil.rmtree(data)

    def _in_a_copy(self, work: Callable[[Path, Path], Any], run: Path, data: Path) -> Any:
        """What an operation gives, on a folder that it may change."""
        if work != self._resume:
            return work(run, data)
        own = self._place / "resumed"
        shutil.copytree(run, own, symlinks=True)
        try:
            return work(own, data)
        finally:
            shutil.rmtree(own)

    def _resume(self, run: Path, data: Path) -> Any:
        with (
            unittest.mock.patch("mtkit.train.metrics.run_page", self._page),
            unittest.mock.patch.object(Chart, "svg", self._charts),
        ):
            assert train.run(self._config, PreparedData.open(data), run, device="cpu")
        last = Run.open(run).checkpoints()[-1]
        return last.step, [
            hashlib.sha256((last.path / name).read_bytes()).hexdigest()
            for name in ("model.safetensors", "optimizer.safetensors")
        ]

    def _translate(self, run: Path) -> Any:
        lines = self._text.read_text(encoding="utf-8").splitlines()
        rows = []
        for which in (None, "best"):
            translator = Translator.load(run, checkpoint=which, device="cpu")
            rows += translator.translate_nbest(lines, n_best=2)
        return [[(best.text, best.score) for best in row] for row in rows]

    def _score(self, run: Path, data: Path) -> Any:
        src, tgt = PreparedData.open(data).text("test")
        translator = Translator.load(run, checkpoint="last", device="cpu")
        value = score(list(translator.translate(src[:5])), [tgt[:5]], metric="chrf")
        return value.value, value.signature

    def _export(self, run: Path) -> Any:
        out = self._place / "out"
        try:
            export_run.export(Run.open(run), out, format="safetensors", check=self._text)
            kept = Run.open(out)
            (checkpoint,) = kept.checkpoints()
            weights = (checkpoint.path / "model.safetensors").read_bytes()
            return hashlib.sha256(weights).hexdigest(), kept.config.decode
        finally:
            shutil.rmtree(out, ignore_errors=True)


def files_of(folder: Path) -> list[Path]:
    """The files of a folder; of TensorBoard's none, which mtkit never reads."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if "tensorboard" not in path.parts]


# Many changes of a file

GOOD = {"same", "fell back", "refused", "used"}
# What is only a record never stops a training, and a damaged checkpoint falls back to the one
# before it, or is old and not looked at.
RECORDS = {"metrics.jsonl", "samples.jsonl", "report.html", "dropped.tsv.gz"}
NEVER_STOPS = {"same", "fell back"}

RECORDS_OF_RUN = ["config.yaml", "manifest.json", "metrics.jsonl", "samples.jsonl"]
RECORDS_OF_RUN += ["report.html", "tokenizer.model"]
CHECKPOINTS_OF_RUN = [
    f"checkpoints/step-0000000{step}/{name}"
    for step in (2, 4)
    for name in ("model.safetensors", "optimizer.safetensors", "state.json")
]
FILES_OF_DATA = [
    *("dropped.tsv.gz", "manifest.json", "tokenizer.model", "test.src.txt", "test.tgt.txt"),
    *(
        f"{split}.{side}.{kind}"
        for split in ("train", "valid")
        for side in ("src", "tgt")
        for kind in ("bin", "lengths.bin")
    ),
    "valid.src.txt",
    "valid.tgt.txt",
]


def check_changes(
    subject: Subject, folders: Mapping[str, Path], which: str, name: str, *, most: int | None = None
) -> None:
    """Change a file in many ways, and find no outcome that a file of this name must not have.

    `which` of the folders has it. With `most`, that many changes are chosen at random.
    """
    changes: Iterable[Mutation]
    changes = mutations_of(folders[which], folders[which] / name, random.Random(name))
    if most is not None:
        every = list(changes)
        changes = random.Random(name).sample(every, min(most, len(every)))
    counts: Counter[str] = Counter()
    wrong = []
    for mutation in changes:
        counts["mutations"] += 1
        for operation, outcome in subject.try_out(which, mutation).items():
            counts[outcome.kind] += 1
            good = GOOD
            if operation == "resume" and (name in RECORDS or name.startswith("checkpoints/")):
                good = NEVER_STOPS
            if outcome.kind not in good:
                wrong.append(f"{operation} with {name} {mutation.key} {mutation.what}: {outcome}")
    # Shown by pytest -rP.
    print(f"{which} {name}: {dict(counts)}")
    assert not wrong, "\n".join(wrong[:20])
