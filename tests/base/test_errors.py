"""Messages to the user: one line that can be printed, whatever is in it."""

import os
import pickle

from hypothesis import given
from hypothesis import strategies as st

from mtkit.base.errors import LostWorkerError, MtkitError, column, encodable, one_line

ANY = st.text(st.characters())
NAMES = st.binary(max_size=30).map(os.fsdecode)


@given(ANY | NAMES)
def test_a_message_is_one_line_that_can_be_written(text: str):
    message = str(MtkitError(text))
    assert len(message.splitlines()) <= 1
    message.encode()
    assert "\x1b" not in message
    assert str(pickle.loads(pickle.dumps(LostWorkerError(text)))) == message


def test_what_can_be_printed_stays_as_it_is():
    text = "data/größe 1\\2.txt: 你好 🙂 e\u0301"
    assert str(MtkitError(text)) == one_line(text) == encodable(text) == text


def test_a_message_is_never_longer_than_can_be_read():
    message = str(MtkitError(f"begin {'x' * 25_000_000} end"))
    assert len(message) < 11_000
    assert message.startswith("begin x")
    assert message.endswith("x end")


@given(NAMES, NAMES)
def test_no_two_names_look_the_same_in_a_table(first: str, second: str):
    for name in (first, second):
        assert not {"\t", "\x1b", "\x9b"} & {*column(name)}
        assert len(column(name).splitlines()) <= 1
        column(name).encode()
    assert (column(first) == column(second)) == (first == second)


def test_a_name_in_a_table_is_spelled_as_a_shell_would_quote_it():
    assert column(os.fsdecode(b"a\tb\nc\rd\\e \xff")) == r"a\tb\nc\rd\\e \xff"
