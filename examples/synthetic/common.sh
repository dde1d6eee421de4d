# For the scripts in this folder: defines `train`, and stops if a file in TEXT is missing.

train() { # PRESET DATA [RUN]; the run has the name of the data if none is given
    # The settings have no spaces in them, and each is a word.
    set -- "$1" "$2" "${3:-$2}" $SET ${STEPS:+train.max_steps=$STEPS}
    preset=$1 data=$2 run=$3
    shift 3
    for setting; do
        shift
        set -- "$@" --set "$setting"
    done
    mtkit train --config "$preset" --data "$WORK/data/$data" --run "$WORK/runs/$run" "$@"
}

# Stop if a file of Multi30k is missing in the folder TEXT.
for file in train val test_2016_flickr; do
    for language in en de; do
        path=$TEXT/$file.$language.gz
        if ! [ -f "$path" ] || ! [ -r "$path" ]; then
            echo "$(basename "$0"): $path: does not exist or cannot be read; set TEXT" >&2
            exit 1
        fi
    done
done
