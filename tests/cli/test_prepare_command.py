import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import prepare_arguments

from mtkit.data import PreparedData


def test_prepare_writes_the_folder_and_prints_no_data(place, tiny_text):
    outcome = place.mtkit(*prepare_arguments(tiny_text))
    assert (outcome.status, outcome.out) == (0, "")
    assert len(PreparedData.open(place.folder / "data" / "tiny").pairs("train")) == 200
    assert "data/tiny" in outcome.err
    assert [path.name for path in (place.folder / "data").iterdir()] == ["tiny"]


def test_prepare_ends_with_the_command_that_trains_on_its_data(trained, tiny_text, monkeypatch):
    def last_line(*options: str) -> str:
        return trained.done(*prepare_arguments(tiny_text), *options).err.splitlines()[-1]

    expected = "mtkit train --config small --data 'data/a b'"
    assert last_line("--out", "data/a b") == expected
    expected = "mtkit train --config fine-tune --data data/more --init-from runs/tiny"
    assert last_line("--out", "data/more", "--tokenizer-from", "runs/tiny") == expected
    expected = "mtkit train --config small --data data/same"
    assert last_line("--out", "data/same", "--tokenizer-from", "data/tiny") == expected
    monkeypatch.setattr("mtkit.cli.prepare._SMALL", 100)
    assert last_line("--out", "data/big") == "mtkit train --config base --data data/big"


def test_a_page_about_the_data_is_written_also_where_nothing_else_is(place, tiny_text):
    outcome = place.done(*prepare_arguments(tiny_text), "--dry-run", "--report", "page.html")
    assert [path.name for path in place.files()] == ["page.html"]
    assert "dry run: no data was written; report: page.html" in outcome.err
    outcome = place.done(*prepare_arguments(tiny_text), "--report", "other.html")
    assert outcome.out == ""
    assert "; report: other.html; to train on it:\nmtkit train --config " in outcome.err
    pages = [(place.folder / name).read_bytes() for name in ("page.html", "other.html")]
    assert pages[0] == pages[1]


def test_a_page_that_would_replace_an_input_is_refused(place):
    for name in ("t", "v", "w", "x"):
        for language in ("en", "de"):
            place.write(f"{name}.{language}", f"{name} {language}\n")
    place.write("t.links", "0-0\n")
    place.write("trees", "(S (X a))\n")
    (place.folder / "link.html").symlink_to("v.de")
    train = "train: [{source: [t.en, t.de], alignments: t.links}]"
    valid = "valid: v, valid_also: {far: [w.en, w.de]}"
    place.write("mine.yaml", f"{{src_lang: en, tgt_lang: de, {train}, {valid}}}")
    place.write("parser.yaml", "{task: parsing, train: [trees], valid: trees}")
    own = ["mine", "--src-lang", "en", "--tgt-lang", "de", "--train", "t.en", "t.de"]
    own += ["--valid-from", "v", "--test-from", "x"]
    for arguments, page in [
        *((own, page) for page in ("t.en", "./t.de", "v.de", "x.en", "link.html")),
        *((["mine.yaml"], page) for page in ("w.en", "t.links", "mine.yaml")),
        (["parser.yaml"], "trees"),
    ]:
        error = place.refused("prepare", *arguments, "--report", page)
        assert "--report would replace the input" in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--report", "data/tiny"], "--report: data/tiny is in the output folder data/tiny"),
        (["--check", "data/tiny/x"], "--check: data/tiny/x is in the output folder data/tiny"),
        (["--report", "none/page"], "none/page: the folder none does not exist"),
        (["--report", "."], ".: is a folder; give --report FILE"),
        (["--report", "circle"], "circle: Too many levels of symbolic links"),
        (["--check", "train.en"], "--check would replace the input"),
        (["--check", "x", "--report", "x"], "--check and --report: give two files"),
    ],
)
def test_a_page_or_table_that_cannot_be_written_is_refused_before_any_work(
    options, message, place, tiny_text, monkeypatch
):
    monkeypatch.setattr("mtkit.prepare.prepare", None)
    (place.folder / "circle").symlink_to("circle")
    place.write("file", "")
    place.write("data/tiny/manifest.json", "{}")
    files = tuple(place.write(f"train.{side}", "one\n") for side in ("en", "de"))
    assert message in place.refused(*prepare_arguments(tiny_text, train=files), "--force", *options)


def test_a_treebank_is_not_checked(place):
    place.write("trees", "(S (X a))\n")
    place.write("parser.yaml", "{task: parsing, train: [trees], valid: trees}")
    error = place.refused("prepare", "parser.yaml", "--check", "x")
    assert "--check is for sentence pairs, and not for a treebank" in error


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize("option", ["--report", "--check"])
def test_a_corpus_of_the_catalogue_has_a_page_and_checks_too(option, place):
    place.mtkit("prepare", "demo-en-de", "--dry-run", option, "page")
    assert (place.folder / "page").is_file()


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        (["--valid-from", "more"], 2, ["--valid, --valid-from: give one set, not 2"]),
        (["--train-from", "nowhere"], 1, ["nowhere.en", "nowhere.de"]),
        (["--train-from", "nowhere.tsv"], 1, ["nowhere.tsv", "No such file"]),
        (["--set", "max_ration=3"], 1, ["max_ration", "max_ratio?"]),
        (["--set", "max_ratio=0.5"], 1, ["max_ratio", "0.5"]),
        (["--set", "max_ratio"], 1, ["max_ratio", "key=value"]),
        (["--set", "user_defined_symbols=2"], 1, ["user_defined_symbols", "a name", "2"]),
        (["--out", "."], 1, ["current folder", "another --out"]),
        (["--out", "file/out"], 1, ["file/out"]),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_line(more, status, words, place, tiny_text):
    place.write("file", "not a folder")
    before = place.files()
    outcome = place.mtkit("-q", *prepare_arguments(tiny_text), *more)
    assert (outcome.status, place.files()) == (status, before)
    for word in words:
        assert word in outcome.error


def test_the_counts_of_a_dry_run_come_after_samples_and_warnings(place, tiny_text):
    src = place.write("my.en", tiny_text.train[0].read_bytes() + b"\nBerlin\n")
    tgt = place.write("my.de", tiny_text.train[1].read_bytes() + b"null\nBerlin\n")
    program = [sys.executable, "-m", "mtkit", *prepare_arguments(tiny_text, train=(src, tgt))]
    program += ["--dry-run", "--set", "drop_overlap=true"]
    # On a terminal the two streams are one.
    done = subprocess.run(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0
    shown = done.stdout
    assert "identical sides" in shown
    last_sample = shown.rindex("\tBerlin\tBerlin")
    assert max(last_sample, shown.rfind("WARNING")) < shown.index("training pairs read")
    assert shown.splitlines()[-1].endswith("dry run: no data was written")


@pytest.mark.parametrize("out", [".", "..", "/", "../place", "../place/."])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_the_folder_one_stands_in_is_not_replaced(out, force, trained, tiny_text):
    line = trained.refused(*prepare_arguments(tiny_text), "--out", out, *force)
    assert line.startswith(f"mtkit: error: {Path(out)}: is the current folder or contains it")
    line = trained.refused("export", "runs/tiny", out, "--format=safetensors", *force)
    assert "give another OUT" in line


def test_without_cleaning_every_pair_is_kept_that_is_text_and_not_too_long(place, tiny_text):
    odd = "one two\tone two\n---\t---\none\teins eins eins eins eins eins eins eins eins\n"
    odd += "дом\tдом\na\x01b\ta\x01b\n\teins\none two\tone two\n"
    pairs = [line.split("\t") for line in odd.splitlines()]
    files = tuple(place.write(f"odd.{side}", "") for side in ("en", "de"))
    for side, (file, sound) in enumerate(zip(files, tiny_text.train, strict=True)):
        text = sound.read_text(encoding="utf-8") + "".join(f"{pair[side]}\n" for pair in pairs)
        file.write_text(text, encoding="utf-8")
    assert place.mtkit(*prepare_arguments(tiny_text, train=files), "--no-cleaning").status == 0
    manifest = json.loads((place.folder / "data/tiny/manifest.json").read_text(encoding="utf-8"))
    assert manifest["counts"]["dropped"] == {"empty": 1}


def test_the_kept_pairs_are_checked_as_the_command_check_does(place, tiny_text):
    lines = [path.read_text("utf-8").splitlines() for path in tiny_text.train]
    # The second pair has a finding; the fourth one is dropped, so it has none.
    faults = {2: ("one {x}", "eins"), 4: ("four {x}", ""), 6: ("just 6 {x}", "nur 7 {x} %s")}
    for number, pair in faults.items():
        lines[0][number - 1], lines[1][number - 1] = pair
    for language, side in zip(("en", "de"), lines, strict=True):
        place.write(f"train.{language}", "".join(f"{line}\n" for line in side))
    arguments = prepare_arguments(tiny_text, train=(Path("train.en"), Path("train.de")))
    arguments += ["--set", "min_letters=0"]
    outcome = place.done(*arguments, "--check", "found.tsv", "--workers", "1")
    assert "; findings: found.tsv; to train on it:\n" in outcome.err
    rows = [line.split("\t") for line in (place.folder / "found.tsv").read_text().splitlines()]
    assert rows[0] == ["file", "line", "kind", "severity", "reason", "source", "translation"]
    # The target language of the corpus counts backwards.
    exchanged = [row for row in rows if row[4].endswith("are exchanged")]
    assert [row[:3] + row[4:] for row in rows[1:] if row not in exchanged] == [
        ["train.en and train.de", "2", "placeholders", "missing: {x}", *faults[2]],
        ["train.en and train.de", "6", "placeholders", "added: %s", *faults[6]],
        ["train.en and train.de", "6", "numbers", "missing: 6; added: 7", *faults[6]],
    ]
    counts = [line.split()[:2] for line in outcome.err.splitlines()]
    assert counts[counts.index(["with", "findings"]) :][:3] == [
        ["with", "findings"],
        ["numbers", str(1 + len(exchanged))],
        ["placeholders", "2"],
    ]
    # Without it, and after a stop, the folder is the same.
    checked = (place.folder / "data" / "tiny" / "train.tgt.bin").read_bytes()
    assert place.mtkit(*arguments, "--force").status == 0
    assert (place.folder / "data" / "tiny" / "train.tgt.bin").read_bytes() == checked
    table = (place.folder / "found.tsv").read_bytes()
    outcome = place.done(*arguments, "--dry-run", "--check", "again.tsv", "--workers", "2")
    assert (place.folder / "again.tsv").read_bytes() == table
