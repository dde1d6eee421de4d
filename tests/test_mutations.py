"""Whatever is changed in a run folder or prepared data: one line, or no other result."""

import pytest
from support import mutations

FILES = [
    *(("run", name) for name in (*mutations.RECORDS_OF_RUN, *mutations.CHECKPOINTS_OF_RUN)),
    *(("data", name) for name in mutations.FILES_OF_DATA),
]


def test_every_file_of_both_folders_is_changed(folders):
    assert sorted(FILES) == sorted(
        (which, str(path.relative_to(folder)))
        for which, folder in folders.items()
        for path in mutations.files_of(folder)
    )


# Of all changes there are hundreds in a file, each with up to four operations.
ALL = pytest.param(None, marks=pytest.mark.slow, id="all")


@pytest.mark.parametrize("most", [2, ALL])
@pytest.mark.parametrize(("which", "name"), FILES)
def test_changes_give_no_traceback_and_no_other_result(which, name, most, subject, folders):
    mutations.check_changes(subject, folders, which, name, most=most)
