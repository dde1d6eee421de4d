"""What the walk through the model shows is what its code prints."""

import contextlib
import io
import json
import re
import warnings
from decimal import Decimal
from pathlib import Path

import pytest
from support.forked import PIPE, Forked

PAGE = Path(__file__).parent.parent / "docs" / "walkthrough.md"
TEXT = PAGE.read_text(encoding="utf-8")
# Each section with its blocks of code.
SECTIONS = {
    section.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.M)
    for section in re.split(r"^## ", TEXT, flags=re.M)[1:]
}
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]\d+)?(?!\w)")
SHOWN = "# > "


def shown(block: str) -> str:
    """What a block prints, according to the page."""
    lines = block.splitlines(keepends=True)
    return "".join(line.removeprefix(SHOWN) for line in lines if line.startswith(SHOWN))


def is_same(printed: str, expected: str) -> bool:
    """Whether two outputs have the same text and the same numbers.

    Integers are compared exactly. Other numbers may differ by one unit of the last digit shown,
    because a value on the border between two of them may be rounded to either.
    """
    texts = [
        " ".join(NUMBER.sub("#", text).replace("[", "[ ").split()) for text in (printed, expected)
    ]
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(expected), strict=False)
    return texts[0] == texts[1] and all(is_close(*pair) for pair in pairs)


def is_close(first: str, second: str) -> bool:
    """Whether two numbers have the same precision, and nearly the same value."""
    exponents = {Decimal(number).as_tuple().exponent for number in (first, second)}
    if exponents == {0}:
        return first == second
    unit = Decimal((0, (1,), exponents.pop()))
    return not exponents and abs(Decimal(first) - Decimal(second)) <= unit


def run_blocks(blocks: list[str], results: str) -> None:
    """In a process of its own: run blocks one after the other; write what each prints."""
    warnings.simplefilter("error")
    names: dict[str, object] = {}
    outputs = []
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(block, names)
        outputs.append(output.getvalue())
    Path(results).write_text(json.dumps(outputs), encoding="utf-8")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the blocks of each section print."""
    results = tmp_path_factory.mktemp("walkthrough") / "results.json"
    blocks = [block for section in SECTIONS.values() for block in section]
    with Forked(
        run_blocks, blocks, str(results), environment={"CUDA_VISIBLE_DEVICES": ""}, stderr=PIPE
    ) as process:
        _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err.decode()
    outputs = iter(json.loads(results.read_text(encoding="utf-8")))
    return {heading: [next(outputs) for _ in section] for heading, section in SECTIONS.items()}


@pytest.mark.parametrize("heading", [heading for heading in SECTIONS if SECTIONS[heading]])
def test_every_block_prints_what_the_page_shows(heading, printed):
    for block, output in zip(SECTIONS[heading], printed[heading], strict=True):
        assert output
        assert is_same(output, shown(block)), (
            f"the page shows\n{shown(block)}, printed is\n{output}"
        )


def test_a_wrong_word_on_the_page_is_noticed():
    assert is_same("a tensor([ 1.000,  2])", "a tensor([1.001, 2])")
    assert not is_same("as computed by mtkit: False", "as computed by mtkit: True")
    assert not is_same("1.000", "1.00")
    assert not is_same("1.000", "1")
    assert not is_same("1.000 2.000", "1.000")


def test_the_contents_name_every_section():
    assert re.findall(r"^- \[(.*)\]\(#", TEXT, re.M) == list(SECTIONS)


def test_every_step_names_its_section_of_the_paper():
    corpus, *steps, further = SECTIONS
    assert (corpus, further) == ("The corpus", "Further reading")
    for heading in steps:
        assert re.search(r"\(Sections? \d", heading), heading
        assert SECTIONS[heading], heading
