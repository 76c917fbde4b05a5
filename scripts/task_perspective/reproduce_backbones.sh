#!/usr/bin/env bash
# Whether splits cost the same with other encoders: the comparison for each of them, and one table of all.
# BACKBONES, from the environment, are values of --encoder, with further arguments of the model behind commas.
# [--scale builtin|paper]
usual_tasks="depth_euclidean normal" METHODS=${METHODS:-fedavg} ALPHAS=${ALPHAS:-0.1}
SEEDS=${SEEDS:-0 1 2}
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
if [ "$scale" = builtin ]; then
    # In so few steps and from random weights, the published decoder learns nothing of an encoder's vector; a U-Net does
    # of its maps. The last encoder is a vision transformer that has maps.
    BACKBONES=${BACKBONES:-tiny efficientnet_b0,decoder=unet timm:pvt_v2_b0,decoder=unet} weights=,pretrained=False
else
    BACKBONES=${BACKBONES:-clip_vit_b32 vit_b16 efficientnet_b0 resnet50} weights=
fi
all=$results/backbones
for backbone in $BACKBONES; do
    name=${backbone//[:,=]/_}
    results=$all/$name
    sweep --init_arguments $(tr , ' ' <<< "encoder=$backbone$weights")
    # Each has models and clusters of its own, and so a folder; the tables read all runs in one.
    for stage in train_centralized test_federated; do
        to=$all/together/$stage/$name
        mkdir -p "$to"
        (cd "$results/$stage" && find . -name '*.json' -o -name metrics.csv | tar cf - -T -) | tar xpf - -C "$to"
    done
done
results=$all/together
tables
printf '%s\n' "$results"/tables/{increases,verdicts,costs}.md
