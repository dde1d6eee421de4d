import io
import re
import tracemalloc
import unicodedata
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest
import sentencepiece as spm
from hypothesis import example, given
from hypothesis import strategies as st

from mtkit.base.errors import MtkitError
from mtkit.base.invisible import visible
from mtkit.base.words import WordCounts, count_words
from mtkit.prepare.blocks import MAX_CACHED, CachedEncoder
from mtkit.tokenizer import Tokenizer

# The example of Sennrich et al. 2016, with the counts of their words.
TEXTBOOK = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
TEXT = ["der alte Hund läuft über die Straße", "ein kleines Mädchen isst Äpfel"] * 5


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.learn(TEXT, 300)


def test_the_textbook_merges_come_out():
    # "es" occurs nine times (newest, widest) and no pair more often; then "est", nine times.
    # "lo" then occurs seven times and "low" as often.
    tokenizer = Tokenizer.learn(TEXTBOOK, 260 + 10 + 1 + 4)
    pieces = [tokenizer._pieces.id_to_piece(i) for i in range(260, 264)]
    assert pieces[:2] == ["es", "est"]
    assert {"lo", "low"} <= set(pieces)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "der alte Hund",
        "Äpfel über Straße",
        "naïve café, œuvre",
        "日本語 и русский",
        "smile 😀 and 👩‍👩‍👧",
        "a_b ▂ c",
        "100 % (sic!) <unk> </s>",
    ],
)
def test_decode_undoes_encode_for_text_in_normal_form(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_nothing_is_unknown_and_no_special_id_comes_out(tokenizer):
    ids = tokenizer.encode("日本 </s> <pad> \u0378")
    assert min(ids) > max(tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)


def test_the_normal_form_is_nfkc_with_single_spaces(tokenizer):
    assert tokenizer.decode(tokenizer.encode("  ﬁne\u00a0 \t x² \u2028 y ")) == "fine x2 y"


def test_decode_stays_on_one_line(tokenizer):
    newline = tokenizer._pieces.piece_to_id("<0x0A>")
    carriage = tokenizer._pieces.piece_to_id("<0x0D>")
    text = tokenizer.decode([*tokenizer.encode("der"), newline, carriage, *tokenizer.encode("x")])
    assert "\n" not in text
    assert "\r" not in text


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    return [tokenizer._pieces.piece_to_id(f"<0x{byte:02X}>") for byte in data]


@pytest.mark.parametrize(
    ("data", "spelt"),
    [
        (b"\xe2", ""),
        (b"\xff\xfe", ""),
        ("é".encode() + b"\xc3", "é"),
        (b"\xa9" + "日本".encode(), "日本"),
        ("日".encode()[:2] + "😀".encode(), "😀"),
        ("a\ufffdb".encode(), "ab"),
        (b"\xed\xa0\x80", ""),
    ],
)
def test_bytes_that_spell_no_character_are_left_out_of_a_text(data, spelt, tokenizer):
    der, hund = tokenizer.encode("der alte"), tokenizer.encode("Hund")
    stray = byte_ids(tokenizer, data)
    assert tokenizer.decode([*der, *stray, *hund]) == f"der alte{spelt} Hund"
    space = [tokenizer._pieces.piece_to_id("▁")]
    between = f"der alte {spelt} Hund" if spelt else "der alte Hund"
    assert tokenizer.decode([*der, *space, *stray, *hund]) == between
    assert tokenizer.decode([*stray, *hund]) == (f"{spelt} Hund" if spelt else "Hund")
    assert tokenizer.decode([*hund, *space, *stray]) == f"Hund {spelt}".strip()


@given(ids=st.lists(st.integers(0, 299), max_size=40))
def test_all_output_of_a_model_decodes_to_text(ids, tokenizer):
    text = tokenizer.decode(ids)
    assert "\ufffd" not in text
    assert text.encode().decode() == text


def test_special_ids_are_skipped_by_decode(tokenizer):
    assert tokenizer.decode([1, *tokenizer.encode("der Hund"), 2, 0, 0]) == "der Hund"


@pytest.mark.parametrize("size", [-1, 3, 2**22 + 1, 2**31])
def test_a_size_that_no_text_supports_is_refused(size):
    with pytest.raises(MtkitError, match=f"a vocabulary of {size} cannot be learned"):
        Tokenizer.learn(TEXT, size)


@pytest.mark.parametrize("size", [8000, 265, 200, 4])
def test_an_impossible_size_is_refused_with_one_that_is_possible(size):
    with pytest.raises(MtkitError, match="possible is") as caught:
        Tokenizer.learn(TEXT, size)
    possible = int(str(caught.value).rsplit("--vocab-size ", 1)[1].rstrip(")"))
    assert len(Tokenizer.learn(TEXT, possible)) == possible


@pytest.mark.parametrize("lines", [[], ["", "  "]])
def test_no_text_is_refused(lines):
    with pytest.raises(MtkitError, match="no text"):
        Tokenizer.learn(lines, 300)


def test_a_damaged_or_missing_model_names_the_file(tmp_path):
    (tmp_path / "broken.model").write_bytes(b"no model")
    for name in ("broken.model", "absent.model"):
        with pytest.raises(MtkitError, match=name):
            Tokenizer.load(tmp_path / name)


# Counted words

LETTERS = [chr(i) for i in range(0x20, 0x300)] + [*"\t\0\1\u2000あ😀"]


def odd_lines(number: int) -> list[str]:
    """Lines of words of which some repeat, with all that a corpus may have between its letters."""
    rng = np.random.default_rng(7)
    words = [
        "".join(rng.choice(LETTERS, rng.integers(1, 6))) if rng.random() < 0.3 else text
        for text in rng.choice(" ".join([*TEXT, "naïve\tcafé  d'été"]).split(" "), 6 * number)
    ]
    return [" ".join(words[i : i + 6]) for i in range(0, len(words), 6)]


def learnt_from_lines(
    lines: list[str], vocab_size: int, model_type: str
) -> list[tuple[str, float]]:
    """The pieces that SentencePiece learns from the lines themselves, and their scores."""
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=model_type,
        vocab_size=vocab_size,
        character_coverage=1.0 - 1e-6,
        byte_fallback=True,
        max_sentence_length=1 << 16,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        num_threads=1,
        minloglevel=2,
    )
    return pieces_and_scores(model.getvalue())


def pieces_and_scores(model: bytes) -> list[tuple[str, float]]:
    pieces = spm.SentencePieceProcessor(model_proto=model)
    return [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(len(pieces))]


def test_words_with_counts_teach_what_the_lines_teach():
    lines = odd_lines(400)
    size = 1050
    learnt = Tokenizer.learn(lines, size)
    seen = list(map(visible, lines))
    assert pieces_and_scores(learnt.model) == learnt_from_lines(seen, size, "bpe")


def test_a_unigram_model_of_counted_words_is_as_good_as_one_of_lines(tmp_path):
    # Sums in another order make other models; as long as they need as many pieces, never mind.
    lines = odd_lines(400)
    of_words = Tokenizer.learn(lines, 1050, model_type="unigram")
    of_lines = {piece for piece, _ in learnt_from_lines(lines, 1050, "unigram")}
    assert len(of_lines & {piece for piece, _ in pieces_and_scores(of_words.model)}) > 0.98 * 1050
    of_words.save(tmp_path / "unigram")
    assert Tokenizer.load(tmp_path / "unigram").encode(lines[0]) == of_words.encode(lines[0])


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_what_is_learnt_does_not_depend_on_the_order_of_the_words(model_type):
    words = list(count_words(odd_lines(400)).items())
    np.random.default_rng(5).shuffle(shuffled := words.copy())
    first, other = (
        Tokenizer.learn_from_counts(w, 1050, model_type=model_type) for w in (words, shuffled)
    )
    assert first.model == other.model


def test_words_stand_between_spaces_and_tabs():
    assert count_words(["a b  a\tc ", "", " b\u00a0d"]) == {"a": 2, "b": 1, "c": 1, "b\u00a0d": 1}


@given(st.lists(st.dictionaries(st.text("ab", max_size=3), st.integers(1, 9))))
def test_with_room_for_all_words_their_counts_are_the_sums(blocks):
    counts = WordCounts()
    for block in blocks:
        counts.add(block)
    assert dict(counts.items()) == sum(map(Counter, blocks), Counter())


def thinned(blocks: int, max_bytes: int) -> WordCounts:
    """Blocks of 3 words that all have, of 100 that no other has, and of 20 seen in two places."""
    counts = WordCounts(max_bytes=max_bytes)
    for block in range(blocks):
        words = Counter({"der": 50, "die": 40, "日本": 9})
        words.update(f"einmal{block}-{i}" for i in range(100))
        words.update(f"zweimal{block // 2}-{i}" for i in range(20))
        counts.add(words)
    return counts


def test_frequent_words_keep_their_counts_when_rare_ones_are_thinned():
    left = dict(thinned(1000, 1 << 20).items())
    assert (left["der"], left["die"], left["日本"]) == (50_000, 40_000, 9_000)


def test_rare_words_that_are_left_are_an_even_sample_that_stands_for_all():
    left = {word: n for word, n in thinned(2000, 1 << 19).items() if word.startswith("einmal")}
    # Of 200,000 words some two thousand, whose number is by chance 2 % more or less.
    assert 1000 < len(left) < 5000
    assert sum(left.values()) == pytest.approx(200_000, rel=0.1)
    of_tenth = Counter(int(word[6:].split("-")[0]) // 200 for word in left)
    expected = len(left) / 10
    assert all(abs(n - expected) < 5 * expected**0.5 for n in of_tenth.values())
    assert len(of_tenth) == 10


def test_counted_words_stay_within_their_room():
    tracemalloc.start()
    try:
        counts = WordCounts(max_bytes=1 << 20)
        for block in range(300):
            # Sentences of a language without spaces, and words of every count.
            counts.add({f"{block}、これは長い文です、{i}": 1 for i in range(100)})
            counts.add({f"{block // 10}-{i}": 1 + block % 5 * 100 for i in range(100)})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1.2 * (1 << 20)


def test_what_is_too_long_to_learn_from_is_not_kept():
    counts = WordCounts()
    counts.add({"x" * 70_000: 3, "y": 1})
    assert dict(counts.items()) == {"y": 1}


def ids_of(encoded: list[bytes], dtype: str) -> list[list[int]]:
    return [np.frombuffer(line, dtype).tolist() for line in encoded]


# Spaces of every kind, marks that join what stands before them, characters that the normal form
# takes away or spells with a space; and symbols.
SPECIAL = " \t\n\r\0\u0001\u00a0\u00b4\u0301\u0308\u200b\u2028\u2581\u2585\u3000\u3099\ufeff\ufdfaﬁ"
SYMBOLS = ["<2de>", "⟦1⟧", "①", "①②", "a,b"]
texts = st.lists(
    st.sampled_from([*SPECIAL, *SYMBOLS, *"aäbci'カ"]) | st.characters(codec="utf-8")
).map("".join)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def odd_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.learn(odd_lines(400), 1050, model_type=request.param, symbols=SYMBOLS)


@pytest.fixture(scope="module")
def block_encoder(odd_tokenizer: Tokenizer) -> CachedEncoder:
    return CachedEncoder(odd_tokenizer, dtype=np.dtype("<u2"))


@given(st.lists(texts))
@example(["", " ", "a  b", "x" * 300 + " " + "x" * 300])
def test_a_block_is_encoded_as_its_lines_are(block_encoder, odd_tokenizer, lines):
    expected = [[*odd_tokenizer.encode(line), 2] for line in lines]
    for _ in range(2):  # Unknown words first, remembered ones then.
        assert ids_of(block_encoder.encode(lines), "<u2") == expected


@pytest.mark.parametrize("form", ["{0}", "{0}{0} a{0} {0}b a {0} b"])
def test_every_character_is_encoded_in_a_block_as_it_is_alone(block_encoder, odd_tokenizer, form):
    characters = [chr(i) for i in range(1 << 16) if not 0xD800 <= i < 0xE000]
    lines = [form.format(character) for character in characters]
    expected = [[*ids, 2] for ids in odd_tokenizer.encode_batch(lines)]
    assert ids_of(block_encoder.encode(lines), "<u2") == expected


def test_a_block_is_encoded_the_same_when_the_cache_is_full(odd_tokenizer):
    lines = odd_lines(200)
    cramped = CachedEncoder(odd_tokenizer, dtype=np.dtype("<u4"), max_bytes=2000)
    expected = [[*odd_tokenizer.encode(line), 2] for line in lines]
    for start in range(0, 200, 20):
        got = ids_of(cramped.encode(lines[start : start + 20]), "<u4")
        assert got == expected[start : start + 20]


@pytest.mark.parametrize("odd_tokenizer", ["bpe"], indirect=True)
@pytest.mark.parametrize("letter", ["x", "我", "ä", "ไ", "ع"])
def test_lines_without_spaces_do_not_displace_short_words_from_the_cache(
    odd_tokenizer, monkeypatch, letter
):
    encoder = CachedEncoder(odd_tokenizer, dtype=np.dtype("<u4"), max_bytes=5000)
    words = ["a b"]
    encoder.encode(words)
    for i in range(20):
        lines = [f"{letter * (MAX_CACHED + i)}{i} b"]
        expected = [[*odd_tokenizer.encode(line), 2] for line in lines]
        assert ids_of(encoder.encode(lines), "<u4") == expected
    encode_batch = Mock(wraps=odd_tokenizer.encode_batch)
    monkeypatch.setattr(odd_tokenizer, "encode_batch", encode_batch)
    encoder.encode(words)
    encode_batch.assert_called_once_with([])


def test_ids_that_do_not_fit_are_refused(odd_tokenizer):
    with pytest.raises(ValueError, match="1050"):
        CachedEncoder(odd_tokenizer, dtype=np.dtype("u1"))


@given(texts)
@example("ﬁ\u0301")
def test_decode_of_encode_is_the_normal_form(odd_tokenizer, text):
    sentencepiece = spm.SentencePieceProcessor(model_proto=odd_tokenizer.model)
    normal = sentencepiece.normalize(visible(text)).replace("▁", " ")
    normal = normal.removeprefix(" ")  # SentencePiece puts one before every text.
    ids = odd_tokenizer.encode(text)
    assert odd_tokenizer.decode(ids) == normal
    assert all(i > 3 for i in ids)
    if sentencepiece.normalize(normal) == sentencepiece.normalize(visible(text)):
        assert odd_tokenizer.decode(odd_tokenizer.encode(normal)) == normal


@given(st.lists(st.sampled_from([*SYMBOLS, "der", " ", "a", "ﬁ", "日"])))
def test_a_symbol_is_one_piece_wherever_it_occurs(odd_tokenizer, parts):
    text = "".join(parts)
    pieces = [odd_tokenizer.piece(i) for i in odd_tokenizer.encode(text)]
    # The longest symbol first, as a hand would find them.
    symbols = re.findall("①②|①|<2de>|⟦1⟧|a,b", text)
    assert [piece for piece in pieces if piece in SYMBOLS] == symbols
    assert (
        re.findall("①②|①|<2de>|⟦1⟧|a,b", odd_tokenizer.decode(odd_tokenizer.encode(text)))
        == symbols
    )


@pytest.mark.parametrize(
    ("symbols", "says"),
    [
        ([""], "empty"),
        (["a b"], "white space"),
        (["\u2581a"], "white space"),
        (["a\0"], "cannot be printed"),
        (["<2de>", "<2fr>", "<2de>"], "'<2de>' is given twice"),
        (["</s>"], "'</s>' has the name"),
        (["<0x0A>"], "fixed subword"),
        (["\u0301x"], "become one"),
        ([f"<{i}>" for i in range(40)], "the least possible is"),
    ],
)
def test_what_cannot_be_a_symbol_is_refused_in_one_line(symbols, says):
    with pytest.raises(MtkitError, match=says):
        Tokenizer.learn(TEXT, 300, symbols=symbols)


def test_every_first_character_of_a_symbol_stays_apart_from_what_is_before_it():
    # The table of the normal form, rebuilt from every pair that NFKC makes one character.
    refused = set()
    for i in range(0x20, 0x3400):
        decomposed = unicodedata.normalize("NFD", chr(i))
        refused.update(c for c in decomposed[1:] if c.isprintable())
    for character in sorted(refused):
        with pytest.raises(MtkitError, match="become one"):
            Tokenizer.learn(TEXT, 300, symbols=[character])
