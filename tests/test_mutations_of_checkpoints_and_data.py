"""Whatever is changed in checkpoints or prepared data: one line, or an earlier checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.mutations import CHECKPOINTS_OF_RUN, FILES_OF_DATA, Subject, check_changes

FILES = [
    *(("run", name) for name in CHECKPOINTS_OF_RUN),
    *(("data", name) for name in FILES_OF_DATA),
]


@pytest.mark.parametrize(("which", "name"), FILES)
def test_some_changes_give_no_traceback_and_no_other_result(
    which: str, name: str, subject: Subject, folders: dict[str, Path]
):
    check_changes(subject, folders, which, name, most=2)


# Hundreds of changes of a file, each with up to four operations.
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("which", "name"), FILES)
def test_all_changes_give_no_traceback_and_no_other_result(
    which: str, name: str, subject: Subject, folders: dict[str, Path]
):
    check_changes(subject, folders, which, name)
