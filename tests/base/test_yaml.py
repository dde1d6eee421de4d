"""Settings that are read without a YAML library, against the library."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtkit.base.yaml import NotYamlError, _sections, parse_yaml
from mtkit.config import dump_config, load_config, presets

LINES = """data:|null:|true:|y:|model:|  k: 012|  k: -0|  k: 1e5|  k: 1.0e5|  k: 1.e5|  k: .5
  k: +1|  k: a:1|  k: a: 1|  k: a:|  k: a:1:2|  k: /x/y|  k: no|  k: 1_000|  k: 0x10|  k: 0o7
  k: []|  k: {}|  k: [a]|  k: 1.5e400|  k: a #b|  k: a#b|  k: -a|  k: 1-2|  k: 1.2.3
  k: 123456789012345678901|  k: 1:30|  k: 2024-01-01|  k: .inf|  k: inf|  k: nan|  k: null
  k: Null|  k: ~|  k: true|  k: True|  k:|  null: 1|  true: 1|  m:|  n: 1|  - 'a'|  - '*b*'
  - 'a''b'|  - a|  - |   - 'c'|    k: 1|# a|---|...|%YAML 1.2|  k: é|  k: 1.0\x85|  k: a\u2028|\t
\r||  k: a.b/c-d:9|  k: a\r|  k: 'a'|k: 1"""
line = st.sampled_from([part for row in LINES.split("\n") for part in row.split("|")])
text = st.lists(line, max_size=6).map("\n".join)
beginning = st.sampled_from(["", "data:\n", "data:\n  a: 1\n", "data:\n  a:\n  - 'b'\n"])


@given(st.tuples(beginning, text, st.sampled_from(["", "\n", "\n\n"])).map("".join))
def test_what_is_read_without_the_library_has_the_same_value_with_it(written: str):
    tree = _sections(written)
    if tree is None:
        return
    try:
        assert repr(tree) == repr(parse_yaml(f"# For the library.\n{written}"))
    except NotYamlError as error:
        raise AssertionError(written) from error


@pytest.mark.parametrize("preset", presets())
def test_the_settings_of_a_run_need_no_library(preset: str):
    written = dump_config(load_config(preset, ["data.dir=data/demo-en-de", "train.freeze=[a.0]"]))
    assert _sections(written) == parse_yaml(written) == parse_yaml(f"# For the library.\n{written}")
