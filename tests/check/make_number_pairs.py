"""Writes pairs of numbers as the Unicode CLDR writes them in twelve languages, and wrong ones.

    uv run --with babel tests/check/make_number_pairs.py 1 > tests/check/number_pairs.tsv

The argument is the seed. A row has the language of the second text, whether that has the value of
the first one, which is in English, the kind of number, and both texts.
"""

import datetime
import random
import sys
from functools import partial

from babel import dates, numbers, units

LANGUAGES = ("cs", "de", "es", "fr", "it", "ja", "nl", "pl", "pt", "ru", "sv", "zh")
UNITS = ("length-kilometer", "mass-kilogram", "volume-liter", "duration-minute", "duration-day")


def kinds(rng: random.Random):
    """The name, a value, how it is written, another value, and how that is written."""
    factor = rng.choice([0.5, 0.7, 1.3, 1.6, 2, 3])
    decimal = rng.randint(1001, 98_765) / rng.choice([10, 100])
    large = rng.choice([1, 12, 137, 1024, 45_678]) * 1000 + rng.randint(101, 987)
    whole, percent = rng.randint(11, 980), rng.randint(2, 97)
    compact = rng.randint(11, 99) / 10 * 10 ** rng.choice([6, 9])
    day = datetime.datetime(rng.randint(1950, 2030), rng.randint(1, 12), rng.randint(1, 28))
    time = day + datetime.timedelta(minutes=rng.randint(1, 1439))
    other_day = day + datetime.timedelta(rng.choice([-400, -45, -3, 2, 17, 70, 800]))
    other_time = time + datetime.timedelta(minutes=rng.choice([-725, -125, -18, 7, 45, 195, 720]))
    money = partial(numbers.format_currency, currency=rng.choice(["EUR", "USD", "JPY"]))
    long = partial(numbers.format_compact_decimal, format_type="long", fraction_digits=1)
    unit = partial(units.format_unit, measurement_unit=rng.choice(UNITS))
    for name, value, write, other in (
        ("decimal", decimal, numbers.format_decimal, round(decimal * factor, 1)),
        ("thousands", large, numbers.format_decimal, int(large * factor)),
        ("percent", percent / 100, numbers.format_percent, (percent + rng.choice([1, 3])) / 100),
        ("currency", large, money, int(large * factor)),
        ("currency name", whole, partial(money, format_type="name"), int(whole * factor)),
        ("compact", compact, long, compact * rng.choice([1000, 1.5, 3])),
        ("unit", whole, unit, int(whole * factor)),
        ("short unit", decimal, partial(unit, length="short"), round(decimal * factor, 1)),
        ("date", day, dates.format_date, other_day),
        ("long date", day, partial(dates.format_date, format="full"), other_day),
        ("short date", day, partial(dates.format_date, format="short"), other_day),
        ("time", time, partial(dates.format_time, format="short"), other_time),
    ):
        yield name, value, write, other, write
    kilometres = partial(units.format_unit, measurement_unit="length-kilometer")
    other_unit = rng.choice(["length-mile", "mass-gram"])
    yield "other unit", whole, kilometres, whole, partial(kilometres, measurement_unit=other_unit)


def main() -> None:
    rng = random.Random(int(sys.argv[1]))
    for language in LANGUAGES:
        for name, value, write, other, write_other in kinds(rng):
            english = write(value, locale="en")
            print(language, 1, name, english, write(value, locale=language), sep="\t")
            print(language, 0, name, english, write_other(other, locale=language), sep="\t")


if __name__ == "__main__":
    main()
