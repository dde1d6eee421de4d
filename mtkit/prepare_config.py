"""The settings of `mtkit prepare`, which are stored with the prepared data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from mtkit.base.errors import MtkitError
from mtkit.base.models import InvalidValuesError, Limits
from mtkit.base.overrides import parse_value
from mtkit.base.yaml import cut
from mtkit.config import Count, Names, Section, Seed, first_mistake, setting
from mtkit.tokenizer import LARGEST_VOCABULARY

Share = Annotated[float, Limits(ge=0.0, le=1.0)]
VocabSize = Annotated[int, Limits(ge=4, le=LARGEST_VOCABULARY)]


class NoiseConfig(Section):
    """Which share of the training pairs is changed, so that a model learns to read noisy text.

    The shares are the settings before `seed`; a pair gets at most one kind of noise.
    """

    case: Share = setting(
        0.0, "probability that both sides of a training pair are in upper case; 0 is off"
    )
    title: Share = setting(
        0.0, "probability that all words of a training pair begin with a capital letter; 0 is off"
    )
    typos: Share = setting(
        0.0, "probability that a training source has typing errors, one in 40 letters; 0 is off"
    )
    punctuation: Share = setting(
        0.0,
        "probability that both sides of a training pair lack the full stop, question mark or "
        "exclamation mark at their end; 0 is off",
    )
    seed: Seed = setting(1, "random seed of the noise")

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each kind of noise."""
        return {kind: getattr(self, kind) for kind in self._fields if kind != "seed"}

    @property
    def is_on(self) -> bool:
        """Whether any pair may be changed."""
        return any(self.probabilities.values())

    def _check(self) -> None:
        if (total := math.fsum(self.probabilities.values())) > 1 + 1e-9:
            raise ValueError(
                f"{', '.join(self.probabilities)} add up to {total:g}, and must not exceed 1: a "
                "pair gets at most one of them"
            )


class PrepareConfig(Section):
    """Settings of filtering, subwords and noise; recorded in the manifest of the data."""

    vocab_size: VocabSize = setting(37_000, "vocabulary size of the joint BPE (Section 5.1)")
    shared_vocab: bool = setting(
        True,
        "one vocabulary for both sides (Section 5.1); false is one for each side, for languages "
        "in different scripts",
    )
    src_vocab_size: VocabSize | None = setting(
        None, "with shared_vocab false, vocabulary size of the source; null: vocab_size"
    )
    tgt_vocab_size: VocabSize | None = setting(
        None,
        "with shared_vocab false, vocabulary size of the target; null: vocab_size, or for trees "
        "one subword for each bracket and tag",
    )
    tree_tags: bool = setting(
        True,
        "of a treebank: learn part-of-speech tags too, as in the paper's code; false: all words "
        "are XX, as in Vinyals et al. (2015)",
    )
    model_type: Literal["bpe", "unigram"] = setting(
        "bpe", "subword model; bpe: byte-pair encoding, unigram: unigram language model"
    )
    user_defined_symbols: Names = setting((), "strings that are always one subword, such as <2de>")
    learn_from_pairs: Count = setting(5_000_000, "maximum pairs to learn BPE from, evenly sampled")
    max_tokens: Count = setting(256, "maximum length of a side of a training pair, in subwords")
    max_chars: Count = setting(5_000, "maximum length of a side in characters, checked before BPE")
    max_ratio: Annotated[float, Limits(ge=1.0)] = setting(
        4.0, "maximum length ratio of the two sides of a training pair, in subwords"
    )
    drop_control_characters: bool = setting(
        True,
        "drop pairs with control characters, line separators, byte-order marks or replacement "
        "characters, or UTF-8 that was read as another encoding: signs of damaged text",
    )
    min_letters: Share = setting(
        0.5, "minimum share of letters and digits in a side, without spaces; 0 is off"
    )
    min_script: Share = setting(
        0.5, "minimum share of a side's letters in a script of its language; 0 is off"
    )
    drop_identical: bool = setting(True, "drop pairs whose two sides are equal")
    drop_duplicates: bool = setting(True, "drop pairs that occurred before")
    max_repeats: Count | None = setting(
        10, "maximum pairs with the same source, or the same target; null is off"
    )
    drop_overlap: bool = setting(
        False, "drop pairs whose source or target is in the validation or test set"
    )
    drop_misaligned: bool = setting(True, "drop segments that are misaligned by a few lines")
    drop_wrong_language: bool = setting(
        True,
        "drop pairs in the wrong language (swapped, untranslated or in another one), by the "
        "log-odds of subwords, and by py3langid where a sample has such pairs",
    )
    drop_findings: Names = setting(
        (), "drop pairs with these kinds of findings of mtkit check, such as language and loop"
    )
    repair_entities: bool = setting(
        True,
        "write entities of HTML, such as that of a no-break space, as their characters in pairs "
        "without tags; those of the signs of tags stay",
    )
    noise: NoiseConfig = setting(NoiseConfig(), "noise in the training pairs")

    def _check(self) -> None:
        for key in ("src_vocab_size", "tgt_vocab_size"):
            if self.shared_vocab and getattr(self, key) is not None:
                raise ValueError(
                    f"{key}: requires one vocabulary for each side, shared_vocab=false"
                )


# Overrides that keep every usable pair: not empty, not too long, and valid text.
NO_CLEANING = (
    "max_ratio=1e9",
    "drop_control_characters=false",
    "min_letters=0.0",
    "min_script=0.0",
    "drop_identical=false",
    "drop_duplicates=false",
    "max_repeats=null",
    "drop_overlap=false",
    "drop_misaligned=false",
    "drop_wrong_language=false",
    "drop_findings=[]",
    "repair_entities=false",
)

# Overrides for trees: their brackets have a vocabulary of their own, and every tree is kept that
# is not too long in subwords.
FOR_TREES = (*NO_CLEANING, "shared_vocab=false", "max_chars=1000000000")


def prepare_config(settings: Mapping[str, Any], overrides: Iterable[str] = ()) -> PrepareConfig:
    """The settings of a preparation: the defaults, then settings that are not None, then overrides.

    An override is ``key=value`` or ``noise.key=value`` with a value in YAML; an error names it.
    """
    tree = {key: value for key, value in settings.items() if value is not None}
    for override in overrides:
        key, equals, text = (part.strip() for part in override.partition("="))
        if not equals or not key:
            raise MtkitError(f"--set {cut(override)}: write key=value, as in max_ratio=3")
        value = parse_value(override, text)
        section, _, inner = key.partition(".")
        if section != "noise" or not inner:
            tree[key] = value
            continue
        given = tree.get(section, {})
        if isinstance(given, Mapping | Section):  # else it is refused below
            tree[section] = dict(given) | {inner: value}
    try:
        return PrepareConfig.model_validate(tree)
    except InvalidValuesError as error:
        raise MtkitError(first_mistake(error, PrepareConfig)) from None
