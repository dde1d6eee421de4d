"""The rules that need no model: each is a pure function of source, translation and facts.

`findings` applies all of them. A rule first asks something cheap that rules out nearly every pair;
only for the others it looks closely.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from mtkit.base.errors import in_words
from mtkit.base.scripts import script_share, script_table
from mtkit.base.text import END_MARKS, base_language
from mtkit.check.rules import damage, limits, marks
from mtkit.check.rules.facts import PairFacts, ends_with_mark
from mtkit.check.rules.findings import Finding
from mtkit.check.rules.language import EAST_ASIAN_TEXT, other_east_asian, other_language
from mtkit.check.rules.marks import Text
from mtkit.check.rules.number_matching import Unmatched, changed_words, may_be_converted, unmatched
from mtkit.check.rules.number_phrases import (
    changed_date,
    changed_fraction,
    changed_ordinal,
    changed_roman,
    changed_time,
    copied_thousands,
)
from mtkit.check.rules.number_reading import Number, has_digit
from mtkit.check.rules.number_words import (
    has_dates,
    has_number_words,
    has_ordinals,
    has_words_for_numbers,
)

# All other characters are Latin letters, or none; so most texts need not be looked at closely.
_NOT_LATIN = re.compile(r"[^\0-\u024f\u1e00-\u1eff\u2000-\u206f\u20a0-\u20cf]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]+")
# Titles, what signs say, and code.
_QUOTED = re.compile('["„“”«»‘\'`][^"„“”«»`]+["„“”«»’\'`]')
# No finished text ends with one of these, unless its source breaks off.
_UNFINISHED, _BROKEN_OFF = tuple(",;(–—-，、；（"), ("…", "...")
# Names in the original script, and titles.
_IN_BRACKETS = re.compile('[(（\\[「『《"“«][^)）\\]」』》"”»]*+[)）\\]」』》"”»]')
_TWO_SENTENCES = re.compile(rf"[{END_MARKS}]\s*\w")


def findings(src: Text, tgt: Text, facts: PairFacts, *, knows_words: bool = False) -> list[Finding]:
    """All that the rules find; with `knows_words`, the language need not be identified."""
    is_blank, is_source_blank = (not side.raw or side.raw.isspace() for side in (tgt, src))
    if is_blank:
        return [] if is_source_blank else [Finding("length", "the translation is empty", 1.0)]
    if is_source_blank:
        return [Finding("length", "the source is empty, but not the translation", 0.9)]
    result = list(_loop(src, tgt, facts))
    copied = list(_copied(src, tgt, facts)) or list(_half_copied(src, tgt, facts))
    result += copied
    if not copied:
        if src.raw != tgt.raw:
            result += _script(src, tgt, facts)
        # Repeated letters look like another language.
        is_identified = facts.usual_share or (facts.is_of_few and not result)
        if is_identified and not knows_words:
            result += _language(src, tgt, facts)
    result += _damage(src, tgt)
    result += _labels(src, tgt, facts) if facts.labels else ()
    is_in_digits = has_digit(src.plain) or has_digit(tgt.plain)
    if is_in_digits or has_number_words(src.plain, src.words, src.language):
        of_numbers = list(_numbers(src, tgt, facts)) if is_in_digits else []
        result += of_numbers or _number_words(src, tgt)
        for number in copied_thousands(src.plain, tgt.plain, **_languages(src, tgt))[:1]:
            reason = f"{number} is a decimal in the language of the translation"
            result.append(Finding("numbers", reason, 0.6))
        for ours, theirs in damage.other_units(src, tgt):
            result.append(Finding("units", f"missing: {ours}; added: {theirs}", 0.8))
        if "order" not in facts.loose and not result and (both := damage.exchanged(src, tgt)):
            result.append(Finding("numbers", f"{both[0]} and {both[1]} are exchanged", 0.7))
    if (rest := changed_roman(src.plain, tgt.plain)).src:
        result.append(Finding("numbers", _changed(rest), 0.7))
    if not any(finding.kind == "numbers" for finding in result):
        result += _halves_and_thirds(src, tgt)
    if (src.plain, tgt.plain) != (src.raw, tgt.raw) or marks.has_markdown(src.raw + tgt.raw):
        result += _copied_parts(src, tgt)
    sigmas = facts.sigmas(len(src.raw), len(tgt.raw))
    result += _length(src.raw, tgt.raw, sigmas, facts)
    result += _cut(src.raw, tgt, sigmas, facts)
    return [finding for finding in result if finding.kind not in facts.loose]


# ---------------------------------------------------------------------------------------------
# Loops


class _Repeat(NamedTuple):
    """A phrase that is repeated at once: its first word, its number of words, how often."""

    start: int
    size: int
    times: int


def _loop(src: Text, tgt: Text, facts: PairFacts) -> Iterator[Finding]:
    words = tgt.words
    longest, least = limits.MAX_PHRASE_WORDS, limits.MIN_REPEATS
    if facts.is_unspaced:
        longest, least = limits.MAX_PHRASE_CHARACTERS, limits.MIN_CHARACTER_REPEATS
        half = len(words) // 2
        is_ideographic = words[:1] > ["\u2e80"]
        enough = limits.MIN_DOUBLED_CHARACTERS if is_ideographic else limits.MIN_DOUBLED_LETTERS
        # A sentence, and no word that is doubled, as 谢谢 is.
        enough -= bool(_TWO_SENTENCES.search(tgt.plain))
        if half >= enough and words[:half] == words[half:]:
            least = {**least, half: 2}
    worst = _longest_repeat(words, longest, least) if _may_repeat(words) else None
    if worst is not None:
        # Whatever the length of the phrase is in the source.
        usual = _longest_repeat(src.words, longest, {})
        # A doubled word (きらきら) is there four times where the source has its word twice.
        times = worst.times // (1 + (facts.is_unspaced and worst.size == 2))
        # "No, no, no! Do not" may have one "no" more.
        if usual is None or times > usual.times + (usual.times > 2):
            phrase = ("" if facts.is_unspaced else " ").join(
                words[worst.start : worst.start + worst.size]
            )
            pattern = marks.word_pattern(tgt.language)
            spans = [match.span() for match in pattern.finditer(tgt.plain)]
            end = min(len(spans), worst.start + worst.size * worst.times) - 1
            # Lower case may have other words.
            span = range(spans[worst.start][0], spans[end][1]) if worst.start < len(spans) else None
            reason = f"{_quoted(phrase)} occurs {worst.times} times in a row"
            place = slice(span.start, span.stop) if span else slice(0)
            # There may be placeholders between the words; and a word may be letters of the source.
            if tgt.raw[place] == tgt.plain[place] and not (span and tgt.raw[place] in src.raw):
                yield Finding("loop", reason, min(1.0, 0.6 + 0.1 * worst.times), tgt=span)
                return
    if facts.is_unspaced:
        return
    if inside := damage.letter_loop(src.raw, words, tgt.plain):
        part = inside[1] or inside[2]
        count = len(inside[0]) // len(part)
    else:
        inside = damage.doubled(src.plain, words, tgt.plain) or damage.doubled_word(src.plain, tgt)
        part, count = inside[1] if inside else "", 2
    if inside:
        reason = f"{_quoted(part)} occurs {count} times in a row"
        yield Finding("loop", reason, min(1.0, 0.6 + 0.1 * count), tgt=range(*inside.span()))


def _may_repeat(words: Sequence[str]) -> bool:
    """Whether a word is there twice in a row, or three words in a row twice, as in any loop."""
    after = words[1:]
    if any(map(operator.eq, words, after)):
        return True
    triples = list(zip(words, after, words[2:], strict=False))
    return len(set(triples)) < len(triples)


def _longest_repeat(words: Sequence[str], longest: int, least: Mapping[int, int]) -> _Repeat | None:
    """The phrase whose repetitions fill the most words.

    `least` says how often a phrase of a length must be there; without it, twice.
    """
    # Only distances at which something is repeated can be the length of a phrase.
    seen: dict[tuple[str, str], int] = {}
    sizes = {1}
    for index, bigram in enumerate(pairwise(words)):
        if bigram in seen and (size := index - seen[bigram]) <= longest:
            sizes.add(size)
        seen[bigram] = index
    best = None
    for size in sorted(sizes):
        run = 0
        for index in range(size, len(words) + 1):
            if index < len(words) and words[index] == words[index - size]:
                run += 1
                continue
            count = run // size + 1
            if count >= least.get(size, 2) and (
                best is None or count * size > best.times * best.size
            ):
                best = _Repeat(index - run - size, size, count)
            run = 0
    return best


# ---------------------------------------------------------------------------------------------
# Copied text, and other languages


def _copied(src: Text, tgt: Text, facts: PairFacts) -> Iterator[Finding]:
    is_identical = src.raw == tgt.raw
    # In a language without spaces, what is not translated still has the words of the source.
    words = src.words if is_identical else tgt.words
    total, shared = len(words), set(src.words).intersection(words)
    if not total or 2 * len(shared) < total / 2:
        return
    count = sum(word in shared for word in words)
    # Titles in quotation marks stay.
    quoted = " ".join(_QUOTED.findall(src.plain)) if _QUOTED.search(tgt.plain) else ""
    titles = set(marks.words_of(quoted, src.language))
    others = [word in shared for word in words if word not in titles]
    if sum(others) < limits.MIN_COPIED_SHARE * len(others):
        return
    foreign = sum(word in facts.source_only for word in words)
    own = sum(word in facts.target_only for word in words)
    if facts.is_of_few:
        # Nothing is known of the words: only a long and equal text is certain.
        some = sum(not word.isdigit() for word in shared)
        is_copied = some > limits.MIN_COPIED_WORDS and count >= 0.9 * total
    elif total < limits.MIN_COPIED_WORDS:
        is_copied = is_identical and foreign == total
    else:
        is_copied = foreign >= 2 and foreign > 2 * own
    if is_copied:
        severity = 0.6 + 0.3 * count / total
        reason = f"{count} of {total} words are those of the source"
        if is_identical:
            severity, reason = 0.95, "the source, unchanged"
        yield Finding("copied", reason, severity)


def _half_copied(src: Text, tgt: Text, facts: PairFacts) -> Iterator[Finding]:
    """Many words in a row are those of the source; names, with capitals, are the same in both."""
    if marks.is_unspaced(src.language):
        part = EAST_ASIAN_TEXT.search(_IN_BRACKETS.sub("", tgt.plain))
        if part and part[0] in src.plain and not facts.is_unspaced:
            yield Finding("copied", f"{_quoted(part[0])} is text of the source", 0.8)
        return
    is_known = not facts.is_of_few
    is_german = base_language(src.language) == "de"
    size = limits.MIN_COPIED_RUN - is_known
    pattern = marks.word_pattern(src.language)
    # Chinese characters stand beside Latin words without a space.
    others = _LATIN if facts.is_unspaced else marks.word_pattern(tgt.language)
    ours, theirs = pattern.findall(src.plain), others.findall(tgt.plain)
    # Where no word has Latin letters, two of them that are no names are enough.
    table = script_table(tgt.language)
    least = size if table is None or table[ord("a")] else 2
    runs = {tuple(ours[at : at + size]) for at in range(len(ours) - size + 1)}
    for at in range(len(theirs) - size + 1):
        run = theirs[at : at + size]
        if tuple(run) not in runs or sum(map(len, run)) < limits.MIN_COPIED_LETTERS:
            continue
        # A name is neither the first word of a text, nor each German noun.
        lower = size if is_german else int(not at)
        small = [word for word in (*map(str.lower, run[:lower]), *run[lower:]) if word.islower()]
        foreign = len(facts.source_only.intersection(small))
        text = " ".join(run)
        # Not a format such as "[HH:MM:ss]".
        is_text = least == size or text in tgt.plain
        if len(small) >= least and is_text and (foreign >= least - 1 or not is_known):
            quoted = " ".join(pattern.findall(" ".join(_QUOTED.findall(src.plain))))
            if not _QUOTED.search(tgt.plain) or text not in quoted:
                yield Finding("copied", f"{_quoted(text)} is text of the source", 0.8)
                return


def in_other_languages(src: Text, tgt: Text, facts: PairFacts) -> Iterator[tuple[str, str, float]]:
    """The sides in another language: `target` or `source`, the language, the share of usual words.

    Sides with enough of the usual words are not identified; if none are known, both sides are.
    """
    sides = (
        ("target", tgt, facts.usual_targets, set(src.words) - facts.source_only),
        ("source", src, facts.source_only, set(tgt.words) - facts.target_only),
    )
    limit = limits.MIN_USUAL_SHARE * facts.usual_share
    for side, text, usual, names in sides:
        if usual and sum(map(usual.__contains__, text.words)) >= limit * len(text.words):
            continue
        # Names are in no language.
        words = [word for word in text.words if word not in names]
        share = sum(map(usual.__contains__, words)) / max(1, len(words))
        letters = sum(map(str.isalpha, "".join(words)))
        if (usual and share >= limit) or letters < limits.MIN_LETTERS:
            continue
        if name := other_language(text.plain, text.language):
            yield side, name, share


def _language(src: Text, tgt: Text, facts: PairFacts) -> Iterator[Finding]:
    for side, name, share in islice(in_other_languages(src, tgt, facts), 1):
        start = "the source looks" if side == "source" else "looks"
        words = "" if facts.is_of_few else f", and {share:.0%} of the words are usual"
        reason = f"{start} like {name}{words}"
        yield Finding("language", reason, 0.9)


def _without(names: set[str], text: str) -> str:
    return _LATIN.sub(lambda word: "" if word[0] in names else word[0], text)


def _script(src: Text, tgt: Text, facts: PairFacts) -> Iterator[Finding]:
    for name, side, other in (("", tgt, src), ("of the source ", src, tgt)):
        table = script_table(side.language)
        if table is None or (table[ord("a")] and not _NOT_LATIN.search(side.plain)):
            continue
        # Names keep their script, and no word of a source that was copied is a fault of its own.
        names = {
            word
            for word in _LATIN.findall(other.plain)
            if name or (not word.islower() and word.lower() not in facts.source_only)
        }
        words = _without(names, side.plain)
        letters, share = script_share(words, side.language) or (0, 0.0)
        is_unspaced = marks.is_unspaced(side.language)
        least = limits.MIN_CHARACTER_SHARE if is_unspaced else limits.MIN_SCRIPT_SHARE
        reason = other_east_asian(words, side.language)
        if letters >= limits.MIN_SCRIPT_LETTERS and share < least:
            reason = f"{share:.0%} of the letters are in a script of {side.language}"
        if reason:
            yield Finding("language", f"{name}{reason}", 0.95)
            return


# ---------------------------------------------------------------------------------------------
# Damaged characters


def _damage(src: Text, tgt: Text) -> Iterator[Finding]:
    for side, name in ((src, "src"), (tgt, "tgt")):
        if part := damage.misread(side.raw, side.language):
            reason = f"{_quoted(part[0])} is damaged"
            yield Finding("damage", reason, 0.9, **{name: range(*part.span())})
            break
    else:
        if part := damage.lost_sign(src.raw, tgt.plain) or damage.foreign_letters(src.raw, tgt):
            reason = f"{_quoted(part[0])} is damaged"
            yield Finding("damage", reason, 0.8, tgt=range(*part.span()))
    if reason := damage.capitals(src, tgt):
        yield Finding("capitals", reason, 0.7)
    if part := damage.entity(src.raw, tgt.raw):
        yield Finding("markup", f"added: {part[0]}", 0.8, tgt=range(*part.span()))


def _labels(src: Text, tgt: Text, facts: PairFacts) -> Iterator[Finding]:
    for side, other, kind in ((src, tgt, "omission"), (tgt, src, "addition")):
        if (label := damage.label(side.raw, other.raw)) in facts.labels:
            yield Finding(kind, f"{_quoted(label)} begins many such texts on one side", 0.8)


# ---------------------------------------------------------------------------------------------
# Numbers, placeholders, markup, addresses


def _languages(src: Text, tgt: Text) -> dict[str, str]:
    return {"src_lang": src.language, "tgt_lang": tgt.language}


def _numbers(src: Text, tgt: Text, facts: PairFacts) -> Iterator[Finding]:
    rest = unmatched(src.plain, tgt.plain, **_languages(src, tgt))
    is_changed = bool(rest.src and rest.tgt)
    is_kept = facts.is_strict_about_numbers or (
        facts.keeps_large_numbers
        and not may_be_converted(src.plain, tgt.plain)
        and (
            rest.is_large
            or (
                all(map(has_words_for_numbers, (src.language, tgt.language)))
                and rest.are_counts(src.plain, tgt.plain)
            )
        )
    )
    if is_changed or ((rest.src or rest.tgt) and is_kept):
        spans = [side[0].span if side else None for side in (rest.src, rest.tgt)]
        severity = 0.8 if is_changed else 0.7
        yield Finding("numbers", _changed(rest), severity, src=spans[0], tgt=spans[1])


def _number_words(src: Text, tgt: Text) -> Iterator[Finding]:
    sides = (src, tgt)
    if all(has_words_for_numbers(side.language) for side in sides) and any(
        has_number_words(side.plain, side.words, side.language) for side in sides
    ):
        rest = changed_words(src.plain, tgt.plain, **_languages(src, tgt))
        if rest.src or rest.tgt:
            yield Finding("numbers", _changed(rest), 0.7)


def _halves_and_thirds(src: Text, tgt: Text) -> Iterator[Finding]:
    texts = (src.plain, tgt.plain)
    languages = _languages(src, tgt)
    has_both = all(has_ordinals(side.plain, side.words, side.language) for side in (src, tgt))
    ordinals = changed_ordinal(*texts, **languages) if has_both else None
    is_dated = all(has_dates(side.words, side.language) for side in (src, tgt))
    for changed in (
        changed_time(*texts, **languages),
        changed_fraction(*texts, **languages),
        changed_date(*texts, **languages) if is_dated else None,
        ordinals,
    ):
        if changed:
            missing, added = changed
            yield Finding("numbers", _difference([missing], [added]), 0.7)


def _changed(rest: Unmatched) -> str:
    # A comma between them would be read as a decimal mark.
    src, tgt = ([_written(number) for number in side] for side in (rest.src, rest.tgt))
    return _difference(src, tgt, joint=" and ")


def _written(number: Number) -> str:
    # A sign and a half of the day are not in its text.
    sign, half = "-" * ("minus" in number.measures), " pm" * ("pm" in number.measures)
    return sign + " ".join(number.text.split()) + half


def _copied_parts(ours: Text, theirs: Text) -> Iterator[Finding]:
    source, translation = ours.raw, theirs.raw
    for kind in ("placeholders", "markup", "addresses"):
        src, tgt = map(marks.COPIED_PARTS[kind], (source, translation))
        if src != tgt:
            if kind == "placeholders" and marks.are_the_same_by_position(source, translation):
                continue
            missing, added = (sorted(some.elements()) for some in (src - tgt, tgt - src))
            if kind == "addresses":
                pages = marks.in_any_language(missing, ours), marks.in_any_language(added, theirs)
                if pages[0] == pages[1]:
                    continue
            yield Finding(kind, _difference(missing, added), 0.85)
        elif kind == "markup" and (signs := marks.not_closed(source, translation)):
            yield Finding(kind, f"not closed on one side: {' '.join(signs)}", 0.7)
        elif kind == "markup" and marks.is_balanced(source) > marks.is_balanced(translation):
            yield Finding(kind, "the tags are closed in another order than they are opened", 0.6)


def _difference(missing: Sequence[str], added: Sequence[str], *, joint: str = ", ") -> str:
    """In words, what is missing in the translation, and what was added."""
    parts = (("missing", missing), ("added", added))
    return "; ".join(f"{what}: {_shown(joint.join(some))}" for what, some in parts if some)


# ---------------------------------------------------------------------------------------------
# Length and end


def _length(source: str, translation: str, sigmas: float, facts: PairFacts) -> Iterator[Finding]:
    if sigmas > facts.longest or sigmas < -facts.shortest:
        excess = abs(sigmas) / (facts.longest if sigmas > 0 else facts.shortest)
        what = "longer" if sigmas > 0 else "shorter"
        low, high = facts.usual_length(len(source))
        count = in_words(len(translation), "character")
        reason = f"much {what} than usual: {count}, usual {low:,} to {high:,}"
        yield Finding("length", reason, min(1.0, 0.3 * excess))


def _cut(source: str, tgt: Text, sigmas: float, facts: PairFacts) -> Iterator[Finding]:
    is_broken_off = source.rstrip().endswith(_BROKEN_OFF) and tgt.raw.rstrip().endswith("—")
    if is_broken_off or ends_with_mark(tgt.raw):
        return
    # Behind any word there may be a placeholder or an address.
    behind = marks.word_pattern(tgt.language).split(tgt.plain)[-1]
    end = tgt.raw[len(tgt.raw) - len(behind) :]
    is_word = tgt.words and not (marks.placeholders(end) or marks.addresses(end))
    last = tgt.words[-1] if is_word else ""
    is_unfinished, is_source_unfinished = (
        text.rstrip().endswith(_UNFINISHED) for text in (tgt.raw, source)
    )
    is_unfinished &= not is_source_unfinished
    signs = []
    if ends_with_mark(source) and facts.ends_kept > limits.MIN_ENDS_KEPT:
        if sigmas < facts.cut_below:
            signs.append("the mark at the end is missing, and the text is short")
        elif last in facts.never_final or is_unfinished:
            signs.append("the mark at the end is missing")
    elif sigmas >= limits.MAX_UNMARKED_SIGMAS:
        return
    if last in facts.never_final:
        signs.append(f"no text ends with {_quoted(last)}")
    if is_unfinished:
        signs.append("it ends with a comma or a dash")
    if len(signs) > 1 or (signs and sigmas < facts.cut_below):
        span = range(max(0, len(tgt.raw) - limits.MAX_SHOWN), len(tgt.raw))
        yield Finding("cut", "; ".join(signs), 0.8, tgt=span)


def _quoted(text: str) -> str:
    return f'"{_shown(text)}"'


def _shown(text: str) -> str:
    return text if len(text) <= limits.MAX_SHOWN else f"{text[: limits.MAX_SHOWN]}…"
