"""An update has the same pairs however many fit on a device."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import CPU, TinyText, changed, number_pairs, write_pairs

from mtkit.base.errors import MtkitError
from mtkit.batches import split
from mtkit.data import PreparedData
from mtkit.prepare import prepare_files
from mtkit.train.micro_batches import MicroBatches, groups_of_threads
from mtkit.train.trainer import Trainer


@pytest.fixture(scope="module")
def more_data(tiny_text: TinyText, tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Enough pairs for full batches: 600, each different from the others."""
    folder = tmp_path_factory.mktemp("more")
    train = write_pairs(folder, "train", number_pairs(600, seed=1))
    more = replace(tiny_text, folder=folder, train=train)
    prepare_files("more", folder / "more", **more.prepare_arguments())
    return PreparedData.open(folder / "more")


@pytest.mark.parametrize("groups", [1, 3, 8])
@pytest.mark.parametrize("fits", [None, 199, 80])
def test_an_update_has_the_same_pairs_for_any_micro_batch_size(groups, fits, config, more_data):
    settings = {"batch_tokens": 200, "batches_per_update": groups}
    plain, trainer = (
        Trainer(changed(config, "train", **settings, device_batch_tokens=n), more_data, device=CPU)
        for n in (None, fits)
    )
    pairs = more_data.pairs("train")
    longest = np.maximum(pairs.src.lengths, pairs.tgt.lengths)
    # As many groups as asked for, but each must hold the longest pair.
    assert trainer.batches.per_update == min(groups, 200 // longest.max())
    tokens = filled = 0
    for _ in range(50):
        update = next(trainer.batches)
        assert len(update) == trainer.batches.per_update
        assert [b.tolist() for b in update] == [b.tolist() for b in next(plain.batches)]
        slots = [len(batch) * longest[batch].max() for batch in update]
        assert sum(slots) <= 200
        for part in split(update, trainer.micro_batches.per_batch):
            assert len(part) * longest[part].max(initial=0) <= (fits or 200)
        filled += sum(slots)
        tokens += sum(longest[batch].sum() for batch in update)
    # Hardly any padding. Five batches of 40 slots and pairs of up to 35 tokens leave a quarter of
    # the budget empty; realistic sizes are tested with the batches.
    assert tokens >= 0.97 * filled
    assert filled >= 0.7 * 50 * 200


@pytest.mark.parametrize(
    ("threads", "number", "at_most", "groups"),
    [
        # Three do not fit, but two do.
        (6, 6, 2, 2),
        (2, 4, 1, 1),
        # With 4 groups 2 of 6 threads would be idle, and with 6 groups 2 of 6.
        (6, 4, 8, 2),
        # Three rounds of two, in which one of six places is empty.
        (2, 5, 8, 1),
        # 26 rounds of two, in which one of 52 places is empty.
        (2, 51, 8, 2),
        # 8 groups would leave 4 of 12 threads idle; 6 groups need two rounds, with 4 places empty.
        (12, 8, 8, 4),
        (1, 8, 8, 1),
    ],
)
def test_groups_of_threads_leave_few_threads_idle(threads, number, at_most, groups):
    assert groups_of_threads(threads, number, at_most=at_most) == groups


def test_a_pair_longer_than_the_learned_positions_is_refused_before_training(config, more_data):
    pairs = more_data.pairs("train")
    longest = int(max(pairs.src.lengths.max(), pairs.tgt.lengths.max()))
    for most, fits in ((longest, True), (longest - 1, False)):
        learned = changed(config, "model", positions="learned", max_positions=most)
        if fits:
            Trainer(learned, more_data, device=CPU)
        else:
            with pytest.raises(MtkitError, match=rf"^model\.max_positions: {most} .* {longest} "):
                Trainer(learned, more_data, device=CPU)


def test_words_of_positions_are_not_packed_and_a_line_says_so(config, more_data, caplog):
    caplog.set_level("INFO")
    by_words = changed(config, "model", positions="words")
    plain = changed(by_words, "train", gpu_path="plain")
    vocabularies = more_data.tokenizers()
    for wanted, said in ((plain, 0), (by_words, 1)):
        made = MicroBatches(wanted, more_data.pairs("train"), vocabularies, device_type="cpu")
        assert not made.packed
        assert caplog.text.count("train.gpu_path: plain, because") == said
