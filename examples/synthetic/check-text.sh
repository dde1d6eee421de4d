# For the scripts in this folder: stop if a file of Multi30k is missing in the folder TEXT.
for file in train val test_2016_flickr; do
    for language in en de; do
        path=$TEXT/$file.$language.gz
        if ! [ -f "$path" ] || ! [ -r "$path" ]; then
            echo "$(basename "$0"): $path: does not exist or cannot be read; set TEXT" >&2
            exit 1
        fi
    done
done
