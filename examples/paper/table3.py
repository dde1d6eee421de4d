"""Print the runs of table3.sh as a table: perplexity and BLEU, mean and deviation over seeds.

    python table3.py RUNS

Perplexity is that of the validation set at the end of training; BLEU is that of the test set, by
`mtkit score` with the last checkpoint and no averaging, as in the paper's Table 3.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev

from mtkit.run_folder import Run

# The order of the table, with the paper's perplexity and BLEU (newstest2013).
PAPER = {
    "base": (4.92, 25.8),
    "a-h1": (5.29, 24.9),
    "a-h4": (5.00, 25.5),
    "a-h16": (4.91, 25.8),
    "a-h32": (5.01, 25.4),
    "b-dk16": (5.16, 25.1),
    "b-dk32": (5.01, 25.4),
    "c-n2": (6.11, 23.7),
    "c-n4": (5.19, 25.3),
    "c-n8": (4.88, 25.5),
    "c-d256": (5.75, 24.5),
    "c-d1024": (4.66, 26.0),
    "c-ff1024": (5.12, 25.4),
    "c-ff4096": (4.75, 26.2),
    "d-drop0": (5.77, 24.6),
    "d-drop2": (4.95, 25.5),
    "d-ls0": (4.67, 25.3),
    "d-ls2": (5.47, 25.7),
    "e-learned": (4.92, 25.7),
}
# Rows that test what the paper says elsewhere.
OTHERS = ("no-positions", "scale-1", "narrow", "wide")


def spread(values: list[float]) -> str:
    """Mean and sample deviation; a single value stands alone."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{mean(values):.2f} ± {stdev(values):.2f}"


def finished(folder: Path) -> dict[str, list[Path]]:
    """The runs of each row that have been trained to their end."""
    rows: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("table3-*-seed*")):
        row = re.sub(r"table3-(.*)-seed\d+", r"\1", path.name)
        run = Run.open(path)
        steps = [checkpoint.step for checkpoint in run.checkpoints()]
        if row in {*PAPER, *OTHERS} and steps and steps[-1] == run.config.train.max_steps:
            rows.setdefault(row, []).append(path)
    return rows


def main() -> None:
    """Score every finished run and print the table."""
    rows = finished(Path(sys.argv[1]))
    if not rows:
        sys.exit(f"table3.py: no finished run of table3.sh under {sys.argv[1]}")
    runs = [path for paths in rows.values() for path in paths]
    command = ["mtkit", "score", "--checkpoint", "last", "--json"]
    for path in runs:
        command += ["--run", str(path)]
    scored = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    bleu = {entry["system"]: entry["scores"][0]["value"] for entry in scored["systems"]}
    print("| row | seeds | perplexity | BLEU | paper: perplexity | paper: BLEU |")
    print("|---|---|---|---|---|---|")
    for row in (*PAPER, *OTHERS):
        if row not in rows:
            continue
        perplexities = [
            next(line for line in reversed(Run.open(path).metrics()) if "valid_perplexity" in line)
            for path in rows[row]
        ]
        cells = [
            f"`{row}`",
            str(len(rows[row])),
            spread([line["valid_perplexity"] for line in perplexities]),
            spread([bleu[str(path)] for path in rows[row]]),
        ]
        paper = PAPER.get(row)
        cells += [f"{paper[0]:.2f}", f"{paper[1]:.1f}"] if paper else ["", ""]
        print("| " + " | ".join(cells) + " |")
    print(f"\n{scored['systems'][0]['scores'][0]['signature']}")


if __name__ == "__main__":
    main()
