#!/usr/bin/env bash
# Make the training text of english_german_further.yaml: the teachers' translations, and variants of the pairs.
# It takes about half an hour on two cores; run it again to resume. Run it in the repository, with `kermit` on the PATH.
#
#     KERMIT_DATA=DIR KERMIT_RUNS=DIR recipes/bundled/prepare.sh
set -euo pipefail
data=${KERMIT_DATA:?} runs=${KERMIT_RUNS:?}
teacher=$runs/teacher text=$runs/text

# $1 and $2 are the languages; the rest chooses the lines of Tatoeba.
distil() {
    local options="--to $2 --beams 4 --filter --skip-bad"
    local captions="$options --backend ctranslate2 --teacher checkpoints/multi30k/transformer_$1_$2"
    captions+=" --output $runs/multi30k/distilled/$1_$2"
    zcat "$data/multi30k_mono/captions.$1.gz" | shuf --random-source=<(yes 1) -n 45000 >"$text/captions.$1"
    zcat "$data/tatoeba_full/train.$1.gz" | "${@:3}" >"$text/train.$1"
    kermit distill --input "$data/multi30k/train.$1.gz" $captions
    kermit distill --input "$text/captions.$1" $captions
    kermit distill --input "$text/train.$1" $options --backend onnx --teacher "$teacher" \
        --output "$runs/bundled/distilled/$1_$2"
}

augment() {
    kermit augment --x "$data/tatoeba_full/train.en.gz" --y "$data/tatoeba_full/train.de.gz" \
        --x "$data/multi30k/train.en.gz" --y "$data/multi30k/train.de.gz" "$@"
}

mkdir -p "$text"
kermit export checkpoints/left_to_right --precision int8 --output "$teacher"
distil en de sed -n 1,113000p
distil de en tail -n 113000
augment --output "$runs/bundled/augmented" --seed 1 \
    --set capitals=0 --set unpunctuated=0.08 --set lower=0.06 --set numbers=0
for seed in 2 3 4; do
    augment --output "$runs/bundled/numbers$seed" --seed "$seed" --set numbers=1 --set lower=0 --set capitals=0 \
        --set typos=0 --set unpunctuated=0 --set names=0 --set joined=0 --set words=0 --set copies=0
done
