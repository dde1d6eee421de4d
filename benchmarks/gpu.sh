#!/usr/bin/env bash
# What to run first on a GPU: 15 minutes at most, and the figures that decide most come first.
#
#     benchmarks/gpu.sh [--smallest] [training] [tests] [attention] [others]
#
# Without names, all steps. Each has its seconds, and the next one begins also if it fails. What is
# measured is written at once, to the folder $OUT or build/gpu. --smallest tries it all on a CPU,
# however slow.
set -euo pipefail
cd "$(dirname "$0")/.."
smallest=()
if [[ ${1-} == --smallest ]]; then smallest=("$1" --minutes 60) && shift; fi
if (($# == 0)); then set -- training tests attention others; fi
out=${OUT:-build/gpu}
python=.venv/bin/python
if [[ ! -x $python ]]; then python=python3; fi
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
mkdir -p "$out"
failed=
for step; do
  case $step in
    training) seconds=330 options=(--only card training loss --minutes 4.5) ;;
    tests) seconds=240 options=() ;;
    attention) seconds=180 options=(--only attention translating --minutes 2.5) ;;
    others) seconds=110 options=(--only gpus marian --minutes 1.4) ;;
    *) echo "gpu.sh: unknown step: $step" >&2 && exit 2 ;;
  esac
  if ((${#smallest[@]})); then seconds=3600; fi
  command=(benchmarks/gpu.py "${options[@]}" --json "$out/$step.json" "${smallest[@]}")
  if [[ $step == tests ]]; then command=(-m pytest -m gpu -q tests/gpu); fi
  timeout -k 10 "$seconds" "$python" "${command[@]}" 2>&1 | tee "$out/$step.log" || failed+=" $step"
done
if [[ $failed ]]; then echo "gpu.sh: failed:$failed" >&2 && exit 1; fi
