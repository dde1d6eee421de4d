"""Write a toy corpus to learn with: spelled digits to their figures, in reverse order.

"one seven two" becomes "2 7 1". Any parallel text, a sentence a line, takes its place.
"""

import random
from pathlib import Path

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def main() -> None:
    """Write train, valid and test files beside each other in corpus/."""
    folder = Path("corpus")
    folder.mkdir(exist_ok=True)
    draw = random.Random(1)
    for split, count in {"train": 4000, "valid": 100, "test": 200}.items():
        numbers = [[draw.randrange(10) for _ in range(draw.randint(3, 6))] for _ in range(count)]
        sides = {
            "words": [" ".join(WORDS[digit] for digit in number) for number in numbers],
            "figures": [" ".join(str(digit) for digit in reversed(number)) for number in numbers],
        }
        for side, lines in sides.items():
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{side}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
