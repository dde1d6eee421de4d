"""What the files of an imported model say of the search is taken, or named with its value."""

import json
import logging

import pytest
from support.marian import Shape, edit

from mtkit.base.errors import MtkitError
from mtkit.config import DecodeConfig
from mtkit.convert.import_run import import_model
from mtkit.convert.transformers_folder import read_transformers_folder
from mtkit.translate import Translator

pytest.importorskip("transformers")

CONFIG, GENERATION = "config.json", "generation_config.json"
SHAPE = Shape()
PLAIN = DecodeConfig(beam_size=6, length_penalty=1.0, length_penalty_form="power")


# Settings of transformers | those of mtkit. The start token is a part of the lengths of
# transformers, but not of its numbers of new tokens. The last lines have no effect, or every model
# has them.
TAKEN = """
{"no_repeat_ngram_size": 3} | {"no_repeat_ngram": 3}
{"max_length": 64} | {"max_length": 63}
{"max_length": 20} | {"max_length": 19}
{"max_new_tokens": 64} | {"max_length": 64}
{"max_length": 30, "max_new_tokens": 64} | {"max_length": 64}
{"min_length": 4} | {"min_length": 3}
{"min_new_tokens": 4, "min_length": 9} | {"min_length": 4}
{"num_beams": 2, "length_penalty": 0.7} | {"beam_size": 2, "length_penalty": 0.7}
{"do_sample": true, "num_beams": 1} | {"beam_size": 1, "sample": true, "top_k": 50}
{"do_sample": true, "num_beams": 1, "top_k": 5} | {"beam_size": 1, "sample": true, "top_k": 5}
{"temperature": 0.7, "top_k": 5, "top_p": 0.5} | {}
{"min_length": 0, "no_repeat_ngram_size": 0, "early_stopping": "never"} | {}
{"max_length": 512, "renormalize_logits": true, "forced_eos_token_id": 0} | {}
{"eos_token_id": [0], "forced_eos_token_id": [0]} | {}
"""
LACKING = """
{"eos_token_id": [0, 7]} {"suppress_tokens": [5, 6]} {"begin_suppress_tokens": [5]}
{"forced_bos_token_id": 9} {"forced_eos_token_id": 9} {"repetition_penalty": 1.3}
{"encoder_no_repeat_ngram_size": 2} {"num_beam_groups": 2, "diversity_penalty": 0.5}
{"early_stopping": true} {"bad_words_ids": [[5], [6, 7]]} {"typical_p": 0.5} {"stop_strings": ["a"]}
{"sequence_bias": [[[5], -2.0]]} {"exponential_decay_length_penalty": [5, 1.1]}
{"do_sample": true} {"do_sample": "yes"} {"max_length": 0} {"max_length": "64"}
{"max_new_tokens": -3} {"min_length": 2.5} {"no_repeat_ngram_size": -1} {"num_beams": 4.5}
{"length_penalty": 99.0}
"""


@pytest.mark.parametrize(
    ("given", "taken"),
    [tuple(map(json.loads, line.split(" | "))) for line in TAKEN.split("\n")[1:-1]],
)
@pytest.mark.parametrize("file", [GENERATION, CONFIG])
def test_settings_that_mtkit_has_are_taken_without_a_word(file, given, taken, source):
    if file == CONFIG:
        edit(source / CONFIG, num_beams=6, max_length=512)
        (source / GENERATION).unlink()
    edit(source / file, **given)
    folder = read_transformers_folder(source)
    assert folder.lacking == []
    assert folder.decode == PLAIN.model_copy(update=taken)


@pytest.mark.parametrize(
    "given", [json.loads("{" + text) for text in LACKING.split("{")[1:]], ids=str
)
@pytest.mark.parametrize("file", [GENERATION, CONFIG])
def test_settings_that_mtkit_does_not_have_are_named_with_their_values(file, given, source):
    if file == CONFIG:
        (source / GENERATION).unlink()
    edit(source / file, **{"num_beams": 6, **given})
    wanted = {f"{key} {json.dumps(value)}" for key, value in given.items()}
    assert set(read_transformers_folder(source).lacking) == wanted


def test_the_file_of_the_search_wins_over_the_configuration(source):
    edit(source / CONFIG, no_repeat_ngram_size=2, repetition_penalty=1.5, max_length=9)
    edit(source / GENERATION, no_repeat_ngram_size=3, repetition_penalty=1.0)
    folder = read_transformers_folder(source)
    assert (folder.lacking, folder.decode) == ([], PLAIN.model_copy(update={"no_repeat_ngram": 3}))


@pytest.mark.parametrize("key", ["decoder_start_token_id", "eos_token_id", "pad_token_id"])
def test_an_id_may_be_in_the_file_of_the_search_alone(key, source):
    whole = read_transformers_folder(source)
    edit(source / CONFIG, **{key: None})
    folder = read_transformers_folder(source)
    assert (folder.start, folder.tgt.eos, folder.tgt.pad) == (
        *(whole.start, whole.tgt.eos, whole.tgt.pad),
    )
    edit(source / GENERATION, **{key: None})
    with pytest.raises(MtkitError, match=rf"{key} is missing"):
        read_transformers_folder(source)


@pytest.mark.parametrize(
    "given",
    [{"eos_token_id": 7}, {"eos_token_id": [7, 8]}, {"eos_token_id": "</s>"}]
    + [{"decoder_start_token_id": bad} for bad in (9**9, -1, "5")],
    ids=str,
)
def test_ids_of_the_search_that_do_not_fit_are_refused(given, source):
    edit(source / GENERATION, **given)
    with pytest.raises(MtkitError, match=next(iter(given))):
        read_transformers_folder(source)


RESTRICTED = """
{"no_repeat_ngram_size": 1} {"no_repeat_ngram_size": 2} {"max_length": 6} {"max_new_tokens": 7}
{"min_length": 9, "max_length": 12, "no_repeat_ngram_size": 2} {"decoder_start_token_id": 5}
"""


@pytest.mark.parametrize(
    "given", [json.loads("{" + text) for text in RESTRICTED.split("{")[1:]], ids=str
)
def test_an_import_searches_as_transformers_does(given, source, tmp_path, monkeypatch):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    edit(source / GENERATION, forced_eos_token_id=None, max_length=40)
    edit(source / GENERATION, **given)
    edit(source / CONFIG, decoder_start_token_id=None)
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)  # it is compared below
        run, notes, _ = import_model(str(source), tmp_path / "run")
    (note,) = (note for note in notes if note.startswith("translates with "))
    assert "max_length" in note
    lines = SHAPE.lines[:12]
    tokenizer = AutoTokenizer.from_pretrained(source)
    theirs = AutoModelForSeq2SeqLM.from_pretrained(source).eval()
    outputs = theirs.generate(**tokenizer(lines, padding=True, return_tensors="pt"), num_beams=1)
    wanted = tokenizer.batch_decode(outputs[:, 1:], skip_special_tokens=True)
    texts = Translator.load(run, device="cpu", config=run.config.decode.greedy()).translate(lines)
    assert [line.strip() for line in texts] == [line.strip() for line in wanted]


def test_settings_that_mtkit_lacks_are_one_warning_and_are_not_compared(source, tmp_path, caplog):
    edit(source / GENERATION, eos_token_id=[0, 7], suppress_tokens=[5], repetition_penalty=9.0)
    with caplog.at_level(logging.INFO):
        import_model(str(source), tmp_path / "run")
    (warned,) = (log.getMessage() for log in caplog.records if log.levelno == logging.WARNING)
    for part in ("eos_token_id [0, 7]", "suppress_tokens [5]", "repetition_penalty 9.0"):
        assert part in warned
    assert "20 of 20 lines of random subwords identical" in caplog.text
