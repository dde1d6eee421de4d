"""Whatever is changed in a folder: one line, an earlier checkpoint, or no difference at all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest
from mutations import Mutation, Subject, files_of, mutations_of

from mtkit.data import PreparedData
from mtkit.run_folder import Run

GOOD = {"same", "fell back", "refused", "used"}
# What is only a record never stops a training, and a damaged checkpoint falls back to the one
# before it, or is old and not looked at.
RECORDS = {"metrics.jsonl", "samples.jsonl", "report.html", "dropped.tsv.gz"}
NEVER_STOPS = {"same", "fell back"}


@pytest.fixture(scope="module")
def subject(
    tiny_run: Run, tiny_data: PreparedData, tmp_path_factory: pytest.TempPathFactory
) -> Subject:
    place = tmp_path_factory.mktemp("mutations")
    (place / "text").write_text("one two three\nnine\nfour four five one two six\n")
    return Subject(tiny_run.path, tiny_data.path, place, place / "text")


RUN = [
    "config.yaml",
    "manifest.json",
    "metrics.jsonl",
    "samples.jsonl",
    "report.html",
    "tokenizer.model",
    *(
        f"checkpoints/step-0000000{step}/{name}"
        for step in (2, 4)
        for name in ("model.safetensors", "optimizer.safetensors", "state.json")
    ),
]
DATA = [
    "dropped.tsv.gz",
    "manifest.json",
    "tokenizer.model",
    "test.src.txt",
    "test.tgt.txt",
    *(
        f"{split}.{side}.{kind}"
        for split in ("train", "valid")
        for side in ("src", "tgt")
        for kind in ("bin", "lengths.bin")
    ),
    "valid.src.txt",
    "valid.tgt.txt",
]


def test_there_are_thousands_of_changes(tiny_run: Run, tiny_data: PreparedData):
    count = sum(
        1
        for folder in (tiny_run.path, tiny_data.path)
        for file in files_of(folder)
        for _ in mutations_of(folder, file, random.Random(1))
    )
    assert count >= 2000


def test_every_file_of_both_folders_is_changed(tiny_run: Run, tiny_data: PreparedData):
    for folder, names in ((tiny_run.path, RUN), (tiny_data.path, DATA)):
        assert sorted(str(path.relative_to(folder)) for path in files_of(folder)) == sorted(names)


FILES = [*(("run", name) for name in RUN), *(("data", name) for name in DATA)]


@pytest.mark.parametrize(("which", "name"), FILES)
def test_a_changed_file_never_gives_a_traceback_or_another_result_for_some_changes(
    which: str, name: str, subject: Subject, tiny_run: Run, tiny_data: PreparedData
):
    folder = tiny_run.path if which == "run" else tiny_data.path
    every = list(mutations_of(folder, folder / name, random.Random(name)))
    some = random.Random(name).sample(every, min(2, len(every)))
    check_changes(which, name, some, subject)


# Hundreds of changes of a file, each with up to four operations.
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("which", "name"), FILES)
def test_a_changed_file_never_gives_a_traceback_or_another_result_for_all_changes(
    which: str, name: str, subject: Subject, tiny_run: Run, tiny_data: PreparedData
):
    folder = tiny_run.path if which == "run" else tiny_data.path
    check_changes(which, name, mutations_of(folder, folder / name, random.Random(name)), subject)


def check_changes(which: str, name: str, changes: Iterable[Mutation], subject: Subject) -> None:
    """Make each change, and find no outcome that a file of this name must not have."""
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
