"""Models in transformers.js, by Node."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.marian import Shape, lines_in, write_marian
from test_onnx import TEXTS, varied

from mtkit.convert import import_model
from mtkit.convert.export_record import plain_greedy
from mtkit.convert.export_run import export
from mtkit.run_folder import Run
from mtkit.translate import Translator

ROOT = Path(__file__).parents[2]
BROWSER = ROOT / "examples/browser"
LIBRARY = BROWSER / "node_modules/@huggingface/transformers"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed"),
    pytest.mark.skipif(not LIBRARY.exists(), reason="needs `npm install` in examples/browser"),
]


def node(*arguments: object, cwd: Path | None = None) -> str:
    command = ["node", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_node(run: Run, place: Path, lines: list[str], **options: Any) -> tuple[Any, list[str]]:
    """What an export gives in Node for the lines, and what the run translates."""
    out = place / "out"
    export(run, out, format="onnx", **options)
    content = {"texts": [t for t in TEXTS if t.strip()], "lines": lines}
    content["extra"] = run.config.decode.max_extra_length  # type: ignore[assignment]
    (place / "input").write_text(json.dumps(content))
    results = json.loads(
        node(ROOT / "tests/support/transformers_js.mjs", LIBRARY, out, place / "input")
    )
    translator = Translator.load(run, config=plain_greedy(run.config.decode), device="cpu")
    return results, list(translator.translate(lines))


LINES = ["one two three", "four five six seven", "nine", "eight eight one two"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"norm": "pre"}, {"positions": "learned", "max_positions": 60}, {"d_k": 5, "d_v": 7}],
    ids=str,
)
def test_transformers_js_translates_as_the_run_does(settings, tiny_run, tmp_path):
    run = varied(tiny_run, tmp_path / "run", **settings)
    theirs, ours = in_node(run, tmp_path, LINES)
    assert theirs["translated"] == [line.strip() for line in ours]
    tokenizer, _ = run.tokenizers()
    for text, ids, decoded in zip(
        filter(str.strip, TEXTS), theirs["encoded"], theirs["decoded"], strict=True
    ):
        assert ids == [*tokenizer.encode(text), tokenizer.eos_id], ascii(text)
        assert decoded == tokenizer.decode(ids), ascii(text)


def test_transformers_js_knows_which_file_to_load_of_an_export_in_int8(tiny_run, tmp_path):
    theirs, _ = in_node(varied(tiny_run, tmp_path / "run"), tmp_path, LINES, quantization="int8")
    assert all(theirs["translated"])


def test_two_vocabularies_are_one_there(uneven: Run, tmp_path: Path):
    theirs, ours = in_node(varied(uneven, tmp_path / "run"), tmp_path, LINES)
    assert theirs["translated"] == [line.strip() for line in ours]


def test_an_imported_model_does_the_same_there(tmp_path: Path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    shape = Shape(separate=True, activation="relu")
    write_marian(tmp_path / "marian", shape)
    lines = shape.lines[-12:]
    lines_in((tmp_path / "text"), lines)
    run = import_model(str(tmp_path / "marian"), tmp_path / "run", check=tmp_path / "text").run
    theirs, ours = in_node(run, tmp_path, lines, check=tmp_path / "text")
    assert [line.strip() for line in theirs["translated"]] == [line.strip() for line in ours]


def test_the_printed_program_translates(tiny_run: Run, tmp_path: Path):
    run = varied(tiny_run, tmp_path / "run")
    out = tmp_path / "out"
    program = export(run, out, format="onnx").replace("Text to translate.", "one two three")
    card = (out / "README.md").read_text()
    from_card = card.split("```js\n")[1].split("```")[0].replace("Text to translate.", "nine")
    (out / "node_modules").symlink_to(BROWSER / "node_modules")
    for number, text in enumerate([program, from_card]):
        file = out / f"program{number}.mjs"
        file.write_text(text)
        assert node(file, cwd=out).strip()


# A library whose model fails in each translation, and the parts of a page that page.js uses.
FAILING = """
export const env = { backends: { onnx: { wasm: {} } } };
const tokenizer = { encode: () => [1] };
export async function pipeline() {
  return Object.assign(async () => { throw new Error("out of memory"); }, { tokenizer });
}
"""
PAGE = """
const form = { addEventListener(_, listener) { this.submit = listener; } };
const [button, output, status] = [{ disabled: true }, {}, {}];
const parts = { form, button, textarea: { value: "one" }, output, "#status": status };
globalThis.document = { baseURI: "http://localhost/", querySelector: (name) => parts[name] };
await import("./page.mjs");
await form.submit({ preventDefault() {} });
console.log(JSON.stringify([button.disabled, status.textContent]));
"""


def test_the_page_takes_another_text_after_one_that_failed(tmp_path: Path):
    library = tmp_path / "node_modules/@huggingface/transformers/dist/transformers.min.js"
    library.parent.mkdir(parents=True)
    (library.parent / "package.json").write_text('{"type": "module"}')
    library.write_text(FAILING)
    shutil.copy(BROWSER / "page.js", tmp_path / "page.mjs")
    (tmp_path / "test.mjs").write_text(PAGE)
    state = json.loads(node(tmp_path / "test.mjs"))
    assert state == [False, "The translation failed: out of memory"]
