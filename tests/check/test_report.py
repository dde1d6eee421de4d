"""Blocks of pairs, and the table of findings that is sorted outside of memory."""

import errno
import gzip
import random

import pytest

from mtkit.check.report import FindingTable, sortable_rows
from mtkit.check.rules.findings import Finding


def test_a_finding_is_one_line_without_control_characters(tmp_path):
    text = "a\x1b[31m\r\n\t\x00\x7f\x85\x9b\u2028\u2029\\é猫"
    path = tmp_path / "findings.tsv"
    with FindingTable(path) as table:
        table.add(sortable_rows([Finding("loop", text, 1)], (text, text), number=1))
        table.write()
    _, row = path.read_text("utf-8").splitlines()
    escaped = r"a\x1b[31m\r\n\t\x00\x7f\u0085\u009b\u2028\u2029\\é猫"
    assert row.split("\t") == ["1", "loop", "1.00", *[escaped] * 3]


def test_rows_are_sorted_by_severity_and_then_by_their_pairs(tmp_path):
    choose = random.Random(2)
    rows = [(round(choose.random(), 1), number, f"a\u2028{number}\r") for number in range(1, 400)]
    with FindingTable(tmp_path / "table.tsv.gz", has_places=True) as table:
        for severity, number, text in rows:
            found = [Finding("loop", "why", severity)]
            table.add(sortable_rows(found, (text, "x"), number=number, place="file"))
            assert list(tmp_path.iterdir()) == []
        table.write()
    lines = gzip.decompress((tmp_path / "table.tsv.gz").read_bytes()).decode().split("\n")
    assert lines[0] == "file\tline\tkind\tseverity\treason\tsource\ttranslation"
    expected = sorted(rows, key=lambda row: (-row[0], row[1]))
    assert lines[1:-1] == [
        f"file\t{number}\tloop\t{severity:.2f}\twhy\ta\\u2028{number}\\r\tx"
        for severity, number, _ in expected
    ]


def test_rows_that_do_not_fit_in_memory_are_on_the_disk_which_may_be_full(tmp_path):
    rows = list(sortable_rows([Finding("loop", "why", 1)], ("a" * 5000, "b"), number=1))
    with FindingTable(tmp_path / "table.tsv") as table:
        # SQLite has 8 of these rows in memory, and the others in its file.
        table._database.execute("PRAGMA cache_size = 10")
        table.add(rows * 1000)
        table.write()
    assert len((tmp_path / "table.tsv").read_text("utf-8").splitlines()) == 1001
    with FindingTable(tmp_path / "full.tsv") as table:
        table._database.execute("PRAGMA max_page_count = 100")
        with pytest.raises(OSError, match="SQLITE_TMPDIR") as caught:
            table.add(rows * 1000)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "full.tsv"))
