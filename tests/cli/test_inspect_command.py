import json

import pytest
from support.browsed import well_formed

TEXT = "one two three"


def test_inspect_writes_a_page(trained):
    outcome = trained.mtkit("inspect", TEXT, "--target", "eins zwei", "--output", "page.html")
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.err.endswith("mtkit: wrote page.html\n")
    page = well_formed((trained.folder / "page.html").read_text(encoding="utf-8"))
    assert {TEXT, "eins zwei", "tiny"} <= set(page.texts("dd"))
    assert not list(trained.folder.glob(".page*"))


def test_several_sentences_make_a_folder_with_an_index(trained):
    trained.write("test.en", "one two\nnine\n")
    trained.write("test.de", "eins zwei\nneun\n")
    command = ("inspect", "--input", "test.en", "--target-file", "test.de", "--output", "pages")
    assert trained.mtkit(*command).status == 0
    names = sorted(path.name for path in (trained.folder / "pages").iterdir())
    assert names == ["0001.html", "0002.html", "index.html"]
    index = well_formed((trained.folder / "pages" / "index.html").read_text(encoding="utf-8"))
    assert [link["attrs"]["href"] for link in index.all("a")] == names[:2]
    assert {"one two", "eins zwei", "nine", "neun"} <= set(index.texts("td"))
    assert "pages: exists already" in trained.refused(*command)
    assert trained.mtkit(*command, "--force").status == 0


def test_a_link_stays_a_link(trained):
    (trained.folder / "page.html").symlink_to("real.html")
    assert trained.mtkit("inspect", TEXT, "--output", "page.html").status == 0
    assert (trained.folder / "page.html").is_symlink()
    assert (trained.folder / "real.html").is_file()


def test_json_has_a_line_for_each_sentence(trained):
    outcome = trained.mtkit("-q", "inspect", TEXT, "nine", "--json")
    assert (outcome.status, outcome.err) == (0, "")
    first, second = map(json.loads, outcome.out.splitlines())
    assert (first["source"], second["source"]) == (TEXT, "nine")
    by_file = trained.mtkit("inspect", TEXT, "nine", "--json", "--output", "all.jsonl")
    assert by_file.out == ""
    assert by_file.err.endswith("mtkit: wrote all.jsonl\n")
    assert (trained.folder / "all.jsonl").read_text(encoding="utf-8") == outcome.out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([TEXT], "give --output PAGE.html"),
        ([], "give the sentences as TEXT, or as a file with --input"),
        ([TEXT, "nine", "--target", "eins", "--json"], "--target once for each TEXT: 2, not 1"),
        ([TEXT, "--target-file", "test.en", "--json"], "--target-file requires --input"),
        ([TEXT, "--output", "data"], "data: is a folder; give --output FILE"),
        ([TEXT, "--output", "x.html", "--force"], "--force is for a folder of pages"),
        (["--input", "two.en", "--json", "--output", "two.en"], "would replace the --input"),
        (["caf\udce9", "--json"], "TEXT: is not UTF-8"),
        ([" ", "--json"], "TEXT, line 1: is blank"),
        (["--input", "empty", "--json"], "empty: has no lines"),
        (["--input", "two.en", "--target-file", "empty", "--json"], "empty: has no line 1, but"),
        (["--input", "test.en", "--output", "pages"], "test.en, line 2: is blank"),
        (["--input", "-", "--target-file", "-", "--json"], "can be read once"),
        ([TEXT, "--output", "nowhere/page.html"], "page.html: the folder nowhere does not exist"),
    ],
    ids=str,
)
def test_inspect_refuses_what_it_cannot_do(trained, command, message):
    trained.write("test.en", "one two\n\n")
    trained.write("two.en", "one\ntwo\n")
    trained.write("empty", "")
    before = sorted(path.name for path in trained.folder.iterdir())
    assert message in trained.refused("inspect", *command)
    assert sorted(path.name for path in trained.folder.iterdir()) == before


def test_a_file_with_too_many_sentences_is_refused(trained, monkeypatch):
    monkeypatch.setattr("mtkit.cli.inspect.MAX_SENTENCES", 2)
    trained.write("test.en", "one\n" * 3)
    error = trained.refused("inspect", "--input", "test.en", "--output", "pages")
    assert "test.en: has more than 2 lines" in error
