#!/bin/sh
# Back-translation on Multi30k: 10,000 pairs of the training text are real, and of the other 19,000
# only the German side is used.
#
#   sh back-translation.sh
#
# TEXT    folder with the files of Multi30k                         (.)
# WORK    folder for everything that is written                     (back-translation)
# REAL    number of real pairs                                      (10000)
# SEARCH  how the German text is translated to English              ("--beam-size 4")
# PRESET  configuration of every model                              (small)
# STEPS   updates of every model                                    (those of the preset)
# SET     further settings, such as "train.seed=2 model.dropout=0"  (none)
# VOCAB   vocabulary size                                           (8000)
#
# What is finished is not done again, so the script can be stopped and started again. With other
# values of these variables, give another WORK too.
set -eu

TEXT=${TEXT:-.}
WORK=${WORK:-back-translation}
REAL=${REAL:-10000}
SEARCH=${SEARCH:---beam-size 4}
PRESET=${PRESET:-small}
STEPS=${STEPS:-}
SET=${SET:-}
VOCAB=${VOCAB:-8000}

prepare() { # NAME SRC TGT OPTION...
    name=$1 src=$2 tgt=$3
    shift 3
    [ -e "$WORK/data/$name" ] || mtkit prepare "$name" --out "$WORK/data/$name" \
        --src-lang "$src" --tgt-lang "$tgt" --train "$WORK/real.$src" "$WORK/real.$tgt" "$@" \
        --valid "$TEXT/val.$src.gz" "$TEXT/val.$tgt.gz" \
        --test "$TEXT/test_2016_flickr.$src.gz" "$TEXT/test_2016_flickr.$tgt.gz" \
        --vocab-size "$VOCAB"
}

. "$(dirname "$0")/common.sh"
mkdir -p "$WORK"
for language in en de; do
    # Not in a pipe, which would hide a failure, as for a file that is cut.
    gzip -dc "$TEXT/train.$language.gz" > "$WORK/train.$language"
    head -n "$REAL" "$WORK/train.$language" > "$WORK/real.$language"
done
tail -n "+$((REAL + 1))" "$WORK/train.de" > "$WORK/mono.de"

# The model of the reverse direction, and its translations.
prepare reverse de en
train "$PRESET" reverse
if ! [ -e "$WORK/back.en" ]; then
    # $SEARCH is several words.
    mtkit translate --run "$WORK/runs/reverse" --input "$WORK/mono.de" --output "$WORK/back.en" \
        $SEARCH
fi

# The real pairs alone; with the back-translations; and with tagged back-translations.
prepare real en de
prepare back en de --train "$WORK/back.en" "$WORK/mono.de"
here=$(cd "$TEXT" && pwd)
cat > "$WORK/tagged.yaml" << YAML
src_lang: en
tgt_lang: de
train:
  - [real.en, real.de]
  - source: [back.en, mono.de]
    tag: bt
valid: ["$here/val.en.gz", "$here/val.de.gz"]
test: ["$here/test_2016_flickr.en.gz", "$here/test_2016_flickr.de.gz"]
YAML
[ -e "$WORK/data/tagged" ] || mtkit prepare "$WORK/tagged.yaml" --out "$WORK/data/tagged" \
    --vocab-size "$VOCAB"
set --
for name in real back tagged; do
    train "$PRESET" "$name"
    set -- "$@" --run "$WORK/runs/$name"
done
mtkit score --data "$WORK/data/real" "$@" --beam-size 4
