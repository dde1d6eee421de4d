"""Damaged weights and impossible requests are refused; the native engine never crashes."""

import re

import pytest
from support import hostile_engine
from support.engine_builds import sanitized
from support.program import printed


def results(count: int, **environment: str) -> tuple[int, int]:
    """How often `hostile_engine` was refused something, and how often it was done."""
    text = printed(hostile_engine.__file__, count, **environment)
    counts = re.fullmatch(r"(\d+) refused, (\d+) done\n", text)
    return int(counts[1]), int(counts[2])


def test_damaged_models_and_requests_are_refused_or_give_ids_of_the_vocabulary():
    refused, done = results(100)
    assert min(refused, done) > 50


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_no_damaged_model_or_request_reads_or_writes_outside_of_its_memory(tmp_path):
    refused, done = results(2000, **sanitized(tmp_path))
    assert min(refused, done) > 1000
