#!/bin/sh
# The rows of Table 3 on Multi30k, with smaller models; multi30k.yaml is the row `base`.
#
#   sh table3.sh [ROW ...]        the paper's rows, or those named, such as: base a-h1 scale-1
#
# DATA   prepared folder    (data/multi30k-en-de)
# RUNS   where runs go      (runs)
# SEEDS  of each row        ("1 2")
# STEPS  updates of a run   (800)
#
# What the paper multiplies or divides is multiplied or divided alike: there are 3 layers where base
# has 6, a width of 256 where base has 512, and 4 heads where base has 8. A run that is finished is
# not trained again, so the script can be stopped, and started again with more rows. At the end it
# prints the table of all that is finished.
set -eu

DATA=${DATA:-data/multi30k-en-de}
RUNS=${RUNS:-runs}
SEEDS=${SEEDS:-1 2}
STEPS=${STEPS:-800}
HERE=$(dirname "$0")

# ROW, then what it changes in multi30k.yaml. The last four are not in the paper's table.
rows() {
    cat <<'ROWS'
base
a-h1      model.n_heads=1
a-h4      model.n_heads=2
a-h16     model.n_heads=8
a-h32     model.n_heads=16
b-dk16    model.d_k=16 model.d_v=64
b-dk32    model.d_k=32 model.d_v=64
c-n2      model.encoder_layers=1 model.decoder_layers=1
c-n4      model.encoder_layers=2 model.decoder_layers=2
c-n8      model.encoder_layers=4 model.decoder_layers=4
c-d256    model.d_model=128
c-d1024   model.d_model=512
c-ff1024  model.d_ff=512
c-ff4096  model.d_ff=2048
d-drop0   model.dropout=0.0
d-drop2   model.dropout=0.2
d-ls0     train.label_smoothing=0.0
d-ls2     train.label_smoothing=0.2
e-learned model.positions=learned
no-positions model.positions=none
scale-1   model.attention_scale=1.0
narrow    model.narrow_attention=true
wide      model.d_k=256 model.d_v=256
ROWS
}

train() { # ROW SEED CHANGE...
    row=$1 seed=$2
    shift 2
    set -- train.max_steps="$STEPS" train.seed="$seed" "$@"
    for change; do
        shift
        set -- "$@" --set "$change"
    done
    mtkit train --config "$HERE/multi30k.yaml" --data "$DATA" --run "$RUNS/table3-$row-seed$seed" "$@"
}

wanted=${*:-$(rows | cut -d' ' -f1 | sed '/^no-positions/,$d')}
for seed in $SEEDS; do
    for row in $wanted; do
        line=$(rows | grep "^$row\( \|\$\)") || { echo "table3.sh: no row $row" >&2; exit 2; }
        # The changes have no spaces in them, and each is a word.
        train "$row" "$seed" ${line#"$row"}
    done
done

python "$HERE/table3.py" "$RUNS"
