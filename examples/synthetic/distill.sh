#!/bin/sh
# Sequence-level knowledge distillation on Multi30k: a small student learns from the translations
# of a teacher.
#
#   sh distill.sh
#
# TEXT     folder with the files of Multi30k                         (.)
# WORK     folder for everything that is written                     (distillation)
# RUN      run of the teacher, from English to German                (one is trained)
# PRESET   configuration of the teacher, if it is trained            (small)
# STUDENT  configuration of the students                             (tiny)
# STEPS    updates of every model                                    (those of the presets)
# SET      further settings, such as "train.seed=2 model.dropout=0"  (none)
# VOCAB    vocabulary size                                           (8000)
#
# What is finished is not done again, so the script can be stopped and started again. With other
# values of these variables, give another WORK too.
set -eu

TEXT=${TEXT:-.}
WORK=${WORK:-distillation}
RUN=${RUN:-}
PRESET=${PRESET:-small}
STUDENT=${STUDENT:-tiny}
STEPS=${STEPS:-}
SET=${SET:-}
VOCAB=${VOCAB:-8000}

prepare() { # NAME OPTION...
    name=$1
    shift
    [ -e "$WORK/data/$name" ] || mtkit prepare "$name" --out "$WORK/data/$name" \
        --src-lang en --tgt-lang de --train "$TEXT/train.en.gz" "$TEXT/train.de.gz" "$@" \
        --valid "$TEXT/val.en.gz" "$TEXT/val.de.gz" \
        --test "$TEXT/test_2016_flickr.en.gz" "$TEXT/test_2016_flickr.de.gz"
}

. "$(dirname "$0")/common.sh"
mkdir -p "$WORK"
prepare real --vocab-size "$VOCAB"

# The teacher, and its translations of the training sources.
if [ -z "$RUN" ]; then
    RUN=$WORK/runs/teacher
    train "$PRESET" real teacher
fi
[ -e "$WORK/distilled.de" ] || mtkit translate --run "$RUN" --beam-size 4 \
    --input "$TEXT/train.en.gz" --output "$WORK/distilled.de"

# Both students have the same subwords, and the same number of updates.
prepare distilled --train "$TEXT/train.en.gz" "$WORK/distilled.de" --tokenizer-from "$WORK/data/real"
train "$STUDENT" real student-real
train "$STUDENT" distilled student-distilled

for beam in 4 1; do
    echo "beam size $beam"
    mtkit score --data "$WORK/data/real" --beam-size "$beam" --run "$RUN" \
        --run "$WORK/runs/student-real" --run "$WORK/runs/student-distilled"
    for run in "$RUN" "$WORK/runs/student-real" "$WORK/runs/student-distilled"; do
        # Three times, because the clock of a shell has whole seconds.
        start=$(date +%s)
        for _ in 1 2 3; do
            mtkit -q translate --run "$run" --beam-size "$beam" \
                --input "$TEXT/test_2016_flickr.en.gz" > /dev/null
        done
        end=$(date +%s)
        seconds=$(awk "BEGIN { printf \"%.1f\", ($end - $start) / 3 }")
        echo "$seconds s to translate the test set: $run"
    done
done
