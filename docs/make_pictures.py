"""Make the pictures of README.md: the attention page of a sentence, and the page about a run.

    python docs/make_pictures.py RUN [SENTENCE]

needs Chromium. Look at the pictures before you commit them: the page of a run shows the names of
its folders.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

PICTURES = Path(__file__).with_name("pictures")
SENTENCE = "A group of people is standing in front of a large building."
WIDTH = 1000
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"]


def screenshot(page: Path, name: str, top: int, bottom: int) -> None:
    """Write the part of a page between two lines of pixels as a PNG file."""
    picture = PICTURES / f"{name}.png"
    size = f"--window-size={WIDTH},{bottom + 100}"
    command = [*CHROMIUM, size, f"--screenshot={picture}", page.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True)
    with Image.open(picture) as whole:
        part = whole.crop((0, top, WIDTH, bottom)).convert("RGB")
    part.quantize(128).save(picture, optimize=True)
    print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Draw both."""
    run, sentence = Path(sys.argv[1]), " ".join(sys.argv[2:]) or SENTENCE
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        mtkit = [sys.executable, "-m", "mtkit", "-q", "inspect", sentence]
        subprocess.run([*mtkit, "--run", run, "--output", page], check=True)
        screenshot(page, "attention", 360, 905)
    screenshot(run / "report.html", "run", 105, 832)


if __name__ == "__main__":
    main()
