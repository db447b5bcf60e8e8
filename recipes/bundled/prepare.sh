#!/usr/bin/env bash
# Make the training text of english_german_further.yaml: translations by the bundled model, which is its own teacher, and
# by two Transformers; and variants of the pairs. It takes 15 to 20 minutes on two cores; run it again to resume. Run it
# in the repository, with `kermit` on the PATH.
#
#     KERMIT_DATA=DIR KERMIT_RUNS=DIR recipes/bundled/prepare.sh
set -euo pipefail
data=${KERMIT_DATA:?} runs=${KERMIT_RUNS:?}
text=$runs/text made=$runs/bundled
export OMP_NUM_THREADS=1

# $1: a file; $2: the number of lines to draw from it; $3: the seed
draw() {
    zcat "$1" | shuf --random-source=<(yes "$3") -n "$2"
}

# from language $1 to language $2
distil() {
    local options="--to $2 --beams 4 --filter --skip-bad"
    local captions="$options --backend ctranslate2 --teacher checkpoints/multi30k/transformer_$1_$2"
    captions+=" --output $runs/multi30k/distilled/$1_$2"
    draw "$data/multi30k_mono/captions.$1.gz" 45000 1 >"$text/captions.$1"
    draw "$data/multi30k_mono/captions.$1.gz" 45000 4 >"$text/more.$1"
    draw "$data/tatoeba_full/mono.$1.gz" 60000 7 >"$text/mono.$1"
    kermit distill --input "$data/multi30k/train.$1.gz" $captions
    kermit distill --input "$text/captions.$1" $captions
    kermit distill --input "$text/more.$1" $captions
    kermit distill --input "$text/mono.$1" $options --backend onnx --teacher bundled --output "$made/distilled/$1_$2"
}

# $1: the folder to write; $2: the seed; $3: the rates of the kinds to write; then the files, with % for the language
augment() {
    local options=(--output "$made/$1" --seed "$2")
    for kind in lower capitals unpunctuated typos numbers names labels joined words copies; do
        [[ " $3" == *" $kind="* ]] || options+=(--set "$kind=0")
    done
    for rate in $3; do options+=(--set "$rate"); done
    for files in "${@:4}"; do options+=(--x "${files/\%/en}" --y "${files/\%/de}"); done
    kermit augment "${options[@]}"
}

pairs=("$data/tatoeba_full/train.%.gz" "$data/multi30k/train.%.gz")
translated=("$made/distilled/en_de/mono.%" "$made/distilled/de_en/mono.%")
mkdir -p "$text"
distil en de &
distil de en
wait $!
augment varied 21 "lower=0.05 unpunctuated=0.08 typos=0.1 names=0.25 joined=0.05 words=3000 copies=1000" "${pairs[@]}"
augment casual 22 "lower=0.5 typos=0.1" "$made/varied/both.%"
paste <(zcat "$data/tatoeba_full/train.en.gz") <(zcat "$data/tatoeba_full/train.de.gz") |
    awk -F'\t' -v en="$text/short.en" -v de="$text/short.de" \
        'split($1, _, " ") < 4 && split($2, _, " ") < 4 { print $1 >en; print $2 >de }'
augment short 15 "unpunctuated=1" "$text/short.%"
augment short_casual 16 "lower=1" "$made/short/both.%"
for seed in 22 23 24; do
    augment "numbers$seed" "$seed" "numbers=1" "${pairs[@]}" "${translated[@]}"
done
augment labels 25 "labels=0.12" "${pairs[@]}"
augment labels_casual 26 "lower=0.5" "$made/labels/both.%"
