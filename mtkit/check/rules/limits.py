"""The limits of the checks: what each is set on, and what it costs.

*Good pairs* are 8,000 pairs by people from which nothing was learned: Multi30k test_2016_flickr,
newstest2014 (en-de), and the development sets of Tatoeba (de-en) and Europarl (en-fr). *Faults*
were planted in each fifth of them. With the rules alone (27 November 2026), 12 good pairs are
marked, and of the faults 99 % of copied sources, 99 % of loops, 91 % of lines without their last
third and 27 % of other lines. *No difference*: about half or double the value marks as many
pairs of both kinds. The rest are choices: no measurement is on record.
"""

from __future__ import annotations

from typing import Literal

# Rules (rules.py)

# Words of the longest phrase whose repetition is a loop, or characters where words have no spaces
# between them. The time grows with them.
MAX_PHRASE_WORDS, MAX_PHRASE_CHARACTERS = 50, 100
# How often a phrase of this many words, or characters, must be there; a longer one twice. Two for
# all words marks 42 good pairs instead of 1; four finds 12 % of three words three times, not 100 %.
MIN_REPEATS = {1: 3, 2: 3, 3: 3, 4: 3}
MIN_CHARACTER_REPEATS = {1: 6, 2: 4, 3: 4, 4: 3, 5: 3, 6: 3, 7: 3, 8: 3}
# Ideographs and kana, or else letters, of a text without spaces that is there twice:
# "ゆっくりゆっくり" and "ทีละน้อยทีละน้อย" are right.
MIN_DOUBLED_CHARACTERS, MIN_DOUBLED_LETTERS = 5, 7
# Letters of a word beyond its different ones, if letters are repeated in it: one letter five times.
MIN_REPEATED_LETTERS = 4
# Letters of a text whose capitals are compared, and capitals of a source that begins with a number.
MIN_CASED_LETTERS, MIN_CAPITALS = 6, 4
# The share of the words of a copied translation that the source has. No difference.
MIN_COPIED_SHARE = 0.7
# Words of a translation that is copied, if it is not the source itself. Six finds 94 % of copies.
MIN_COPIED_WORDS = 3
# The share of usual words below which the language is identified, as a part of the median. No
# difference.
MIN_USUAL_SHARE = 0.5
# Letters, and the share of them in a script of the language, as in `PrepareConfig`. No difference.
MIN_SCRIPT_LETTERS, MIN_SCRIPT_SHARE = 6, 0.5
# The same where a character is a word: a Chinese sentence about programs has 34 % beside names.
MIN_CHARACTER_SHARE = 0.25
# Words in a row of the source, and their letters, that are a copy in a translation with other
# words; one word less, if the usual words are known.
MIN_COPIED_RUN, MIN_COPIED_LETTERS = 4, 9
# Sigmas of the length above which a text is not cut, whose source has no mark at its end. No
# difference.
MAX_UNMARKED_SIGMAS = -2.0
# Characters of a text that a finding shows.
MAX_SHOWN = 40

# The language identifier (language.py, checker.py)

# The probability of the language that a text should be in, if it is in another one. No difference
# below; 0.2 marks one more good pair.
MAX_PROBABILITY = 0.02
# Letters of a text whose language is identified. No difference.
MIN_LETTERS = 20
# The share of words that are new to a run, up to which the language is not identified.
MAX_NEW_IDENTIFIED = 0.34
# Characters that the vocabulary lacks, and new words, that a finding names.
MAX_SHOWN_SIGNS, MAX_SHOWN_NEW = 10, 5

# Numbers (number_reading.py, number_matching.py, number_words.py)

# Digits of a number that is computed with: floats have 15.
MAX_DIGITS = 15
# Scales after one number, as in "5 hundred thousand". No difference.
MAX_SCALES = 3
# By how much a decimal may differ from a fraction: a third is 0.33. No difference.
MAX_ROUNDING = 0.005
# Numbers of a side that are compared. The time grows with their square.
MAX_NUMBERS = 300
# Numbers of a side whose order is compared.
MAX_EXCHANGED = 12
# Characters between both ends of a range: "from 8 % to 27 %".
MAX_RANGE = 9
# Characters before a number that say whether a dash is a minus: those of a long word.
MAX_BEFORE = 40
# The most parts of "one in twenty", and by how much twelve months may differ from a year.
MAX_PARTS, MAX_OTHER_UNIT = 20, 0.025
# From this value on, a number in words is reported that only one side has; smaller ones are often
# left out.
MIN_DROPPED = 11
# Words of a phrase such as "quatre vingt dix neuf": the longest of all.
MAX_PHRASE = 4
# Words whose values are kept in memory, and letters of a number that is one word.
MAX_KEPT_WORDS, MAX_WORD_LETTERS = 1 << 14, 100

# What is learned from a corpus (facts.py)

# Pairs that are learned from.
MAX_SAMPLED = 20_000
# Fewer pairs teach neither words nor habits.
MIN_PAIRS = 200
# Usual words of each side.
MAX_USUAL_WORDS = 5000
# How many times as frequent a word is on the side to which it belongs.
MIN_TIMES_USUAL = 5
# How often a usual word must be seen, and in what share of the cases it is last, if it is a word
# that no text ends with.
MIN_TIMES_SEEN, MAX_LAST_SHARE = 12, 0.002
# The share of the sampled pairs that a rule may mark (docs/quality.md).
MAX_MARKED = 0.0005
# A rule also counts if this share of the pairs that it is about keep it, and there are enough.
MIN_KEPT, MIN_RULE_PAIRS = 0.99, 20
# The same for numbers of two digits and more: 98 % of the pairs of newstest2014 keep them, and
# frequent faults are no habit.
MIN_LARGE_KEPT = 0.8
# The share of a corpus with other capitals, or with exchanged numbers, that is a habit.
MAX_OTHER_CAPITALS, MAX_OTHER_ORDER = 0.5, 0.1
# The same for tags, placeholders and addresses: 17 of 58,000 lines of Multi30k have any tag or
# entity, so 200 planted tags in 20,000 pairs are no habit.
MAX_BROKEN = 0.02
# Of sources with a mark at their end, the share of targets with one, if all should have it.
MIN_ENDS_KEPT = 0.9
# How often a label such as FIXME must begin a side alone, and the share of the texts with it.
MIN_LABELLED, MIN_LABELLED_SHARE = 5, 0.9
# Characters added to lengths, because the ratio of short ones says little.
PADDING = 4
# Between these the limit of a length in sigmas is learned. Half of what is learned marks 258 good
# pairs instead of 3, and 57 % of other lines; double marks none, and 8 %. The first is that of few
# pairs, which none of 102,000 good pairs is beyond.
MIN_SIGMAS, MAX_SIGMAS = 4.5, 8.0
# Between these the length in sigmas is learned below which a text without its mark is cut.
MIN_CUT_SIGMAS, MAX_CUT_SIGMAS = -2.0, -1.2
# Targets whose language is identified, which takes time.
MAX_IDENTIFIED = 2000
# The logarithm of the length of a text, compared with one in letters: the medians of 250,000 texts
# of Django and Wagtail between English and 74 languages, which are -0.2 to 0.2 for all others. They
# count as ten pairs.
LENGTHS, EXPECTED_PAIRS = {"zh": -1.0, "yue": -1.0, "ja": -0.5, "ko": -0.5}, 10
# Without enough pairs, the spread of the logarithm of the ratio of lengths, by class of length.
SPREADS = (0.7, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.3, 0.3, 0.3)
# The narrowest spread; all pairs of a few templates have one ratio.
MIN_SPREAD = 0.05

# The lexicon (lexicon.py, marks.py)

# Letters of a key, so that the forms of a word are one.
KEY_LETTERS = 6
# A key is in the lexicon if it is in this many lines, and at most this share of them.
MIN_LINES, MAX_LINE_SHARE = 3, 0.2
# The most frequent keys of a side that are used.
MAX_KEYS = 60_000
# Pairs of keys in the same pair of lines, of 100 bytes each; later lines are not used.
MAX_CELLS = 8_000_000
# Rounds of Model 1, and the expected count of a word that translates nothing.
ROUNDS, NULL_COUNT = 5, 0.02
# Entries that are kept.
MIN_PROBABILITY, MIN_COUNT = 0.01, 0.5

# Omissions and additions (coverage.py). With a lexicon of each corpus, 10 of 4,000 good pairs have
# an omission, and 28 % of the pairs without a clause of their translation.

# Limits of the classes of words: of the probability of the translations that are there; of the same
# in a pair of different lines, on average; and of the most probable translation.
FOUND_STEPS = (0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
CHANCE_STEPS = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15)
BEST_STEPS = (0.15, 0.3, 0.5, 0.7)
# Log-odds of a word that is also on the other side, such as a name: 0 marks 7 and 25 %, and -8 15
# and 33 %. And the largest log-odds.
COPIED_LOG_ODDS = -4.0
MAX_LOG_ODDS = 6.0
# Added to numbers of words and characters, so that short lines are not extreme.
EXTRA_WORDS, EXTRA_LENGTH = 3, 8
# Words of a clause that is deleted to learn what an omission is.
MIN_DELETED, MAX_DELETED = 4, 7
# Words of a text whose end is deleted for the same.
MIN_CUT_WORDS = 8
# The share of the validation set of a run that may be marked (docs/quality.md).
MAX_FOUND_SHARE: dict[Literal["omission", "addition"], float]
MAX_FOUND_SHARE = {"omission": 0.003, "addition": 0.003}
# The same of what the lexicon and the model say together (prober.py). From how far below the limit
# of the lexicon the model is asked, how many right pairs this needs, and characters of a text.
MAX_CONTRAST_SHARE, MAX_DISTANCE, MIN_CONTRASTED, MAX_CONTRASTED = 0.004, 5.0, 10, 1500
# The log-odds that are needed in any case: 0.98 of such pairs are faulty, if most are. Without it,
# 1.3 instead of 0.7 % of good captions are marked.
MIN_CONTRAST_LOG_ODDS = 4.0
# The log-probability of a mark at the end that is missing, above which only the mark is: of 558
# captions without their last third, whose mark is missing, 5 % have more than -0.4 and 10 % more
# than -3.7; of 7 whole captions four.
MIN_MARK_LOG_PROB = -1.0
# Where words are new, those that are known have other translations too: the log-odds of a pair are
# lower by this times the share of new words. 0 marks 56 good pairs and 51 %; 36 marks 6 and 22 %.
NEW_WORDS_PENALTY = 18.0
# With a larger share of new words than this, and than this share of the validation set has, nothing
# is said of omissions. That is a finding itself if the source has some new words: with 1 or 3 it is
# one in 2 good pairs, with 6 in none.
MAX_NEW, NEW_QUANTILE = 0.34, 0.999
MIN_NEW_WORDS = 3
# Added to a deviation, because a feature may be constant; and the deviations of a feature from its
# mean that count.
MIN_DEVIATION, MAX_DEVIATIONS = 1e-3, 6.0
# The share of lines with a word that is in none.
UNSEEN_SHARE = 1e-5

# Confidence (confidence.py, fit.py)

# The penalty of the ridge regression, for standardised features and each 1,000 pairs, and how much
# a feature lowers a forecast outside of its range. A captions run has rank correlations of 0.64 on
# captions and 0.44 on news with these (0.62 and 0.39 by the log-probability). With more, news is
# ranked better (0.5), but translations by people, which it finds improbable, have nearly 0.
RIDGE_PENALTY, OUTSIDE = 100.0, 0.15
# Samples of each line for `--thorough`. To draw among the 20 best tokens takes half of the time of
# drawing among all, with equal correlations. On captions, the mean gain over the log-probability is
# 0.034 with three independent samples, 0.039 with four stratified ones, and 0.044 with 24. A sample
# takes 0.17 of the time of a beam search with 4.
SAMPLES, SAMPLES_TOP_P, SAMPLES_TOP_K = 4, 0.9, 20
# Training pairs of all target languages that a thorough check compares with, and the nearest that
# it uses. Multi30k has 29,000, which are read in 2 seconds. With three, five, eight and twelve
# the mean gain on captions is 0.047, 0.048, 0.049 and 0.049, which takes 0.1 to 0.15 of the time
# of a beam search with 4.
MAX_EXAMPLES, EXAMPLES = 30_000, 8
# Forecasts are moved to 0.9 of their distance from the mean of the validation set. Without this,
# those of captions of two test sets were too far from their mean, by 14 and 22 %, and those of news
# by 100 %; the largest error in a tenth was 3.9 and 6.4 points.
SPREAD = 0.9
# Parts of the validation set that are forecast from the others.
FOLDS = 10
# Translations that a forecast of 22 features is fitted to.
MIN_FITTED = 100
# By how many points the chrF of translations must differ.
MIN_CHRF_DIFFERENCE = 1.0
# Training pairs that the lexicon is learned from, and validation pairs that are translated, at the
# end of a training.
MAX_TRAIN_PAIRS, MAX_VALID_PAIRS = 100_000, 3000
# Training pairs of all target languages together, which are in memory as text.
MAX_ALL_TRAIN_PAIRS = 400_000
# Of given pairs, one in this many is held out of the lexicon, as a validation set.
HELD_OUT = 5

# Reports (report.py, comparison.py)

# The confidence below which a line is doubtful.
BELOW = 50.0
# By how many deviations of a line the mean of a text is below that of the validation set, if the
# run was not trained on such text; and of a single line, by how many more.
MIN_FOREIGN, MIN_FOREIGN_LINE = 1.5, 2.0

# The width of the bars of a histogram, in points of chrF.
CHRF_BAR = 5
