"""Make the pictures of README.md and docs/quality.md: parts of pages about a run.

    python docs/make_pictures.py RUN [SENTENCE]

needs Chromium, and a run from English to German with confidence.json. Look at the pictures before
you commit them: the page of a run shows the names of its folders.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from mtkit.check import RunChecks
from mtkit.train.report_page import RunFacts, run_page

PICTURES = Path(__file__).with_name("pictures")
SENTENCE = "A group of people is standing in front of a large building."
# Of the page of `mtkit compare`.
PAIRS = {
    "A black dog jumps over a fence to catch a yellow ball.": "Ein schwarzer Hund"
    " springt über einen Zaun, um einen gelben Ball zu fangen.",
    "The boy is not wearing a helmet.": "Der Junge trägt keinen Helm.",
    "The player with the number 23 kicks the ball past the goalkeeper.": "Der Spieler mit der"
    " Nummer 23 schießt den Ball am Torwart vorbei.",
    "A lady wearing a green scarf is buying tomatoes, onions and cheese at the market, and the"
    " seller is counting the money.": "Eine Dame mit einem grünen Schal kauft auf dem Markt"
    " Tomaten, Zwiebeln und Käse, und der Verkäufer zählt das Geld.",
    "The price of gas rose by 4.5 percent in March.": "Der Gaspreis stieg im März um 4,5 Prozent.",
}
WIDTH, WINDOW = 1000, 5000
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"]


def screenshot(page: Path, name: str, top: int, bottom: int, *, place: str = "") -> None:
    """Write the part of a page between two lines of pixels as a PNG file.

    Args:
        place: what the address of the page has behind `#`.
    """
    picture = PICTURES / f"{name}.png"
    # So high that the page cannot scroll to the lines that a link leads to.
    size = f"--window-size={WIDTH},{WINDOW}"
    command = [*CHROMIUM, size, f"--screenshot={picture}", f"{page.resolve().as_uri()}#{place}"]
    subprocess.run(command, check=True, capture_output=True)
    with Image.open(picture) as whole:
        part = whole.crop((0, top, WIDTH, bottom)).convert("RGB")
    part.quantize(128).save(picture, optimize=True)
    print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")


def confidence(run: Path, page: Path) -> None:
    """Draw the section of the page of a run about its confidence."""
    checks = RunChecks.load(run)
    assert checks is not None
    forecast = checks.directions[0].forecast
    assert forecast is not None
    facts = RunFacts(
        name=run.name,
        summary={},
        config_yaml="",
        metrics=[],
        samples=[],
        findings=[],
        best_step=None,
        confidence=[("", forecast.quality)],
    )
    page.write_text(run_page(facts), encoding="utf-8")
    screenshot(page, "confidence", 250, 838)


def compare(run: Path, folder: Path) -> None:
    """Draw the lines of the page of `mtkit compare` with the most severe findings."""
    files = [folder / "mine.en", folder / "mine.de"]
    for file, lines in zip(files, (PAIRS, PAIRS.values()), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    page = folder / "compare.html"
    mtkit = [sys.executable, "-m", "mtkit", "-q", "compare", run, "--output", page]
    subprocess.run([*mtkit, "--src", files[0], "--reference", files[1]], check=True)
    screenshot(page, "compare", 1304, 2264, place="order=severe")


def main() -> None:
    """Draw all."""
    run, sentence = Path(sys.argv[1]), " ".join(sys.argv[2:]) or SENTENCE
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        mtkit = [sys.executable, "-m", "mtkit", "-q", "inspect", sentence]
        subprocess.run([*mtkit, "--run", run, "--output", page], check=True)
        screenshot(page, "attention", 360, 905)
        confidence(run, page)
        compare(run, Path(folder))
    screenshot(run / "report.html", "run", 105, 832)


if __name__ == "__main__":
    main()
