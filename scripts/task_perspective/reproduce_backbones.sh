#!/usr/bin/env bash
# Whether splits cost the same with other encoders: the comparison for each of them, and one table of all.
# BACKBONES, from the environment, are values of --encoder.   [--scale builtin|paper]
usual_tasks="depth_euclidean normal class_scene" METHODS=${METHODS:-fedavg} ALPHAS=${ALPHAS:-0.1}
SEEDS=${SEEDS:-0 1 2}
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
if [ "$scale" = builtin ]; then
    BACKBONES=${BACKBONES:-tiny mobilenet_v2 efficientnet_b0 timm:vit_tiny_patch16_224} weights=pretrained=False
else
    BACKBONES=${BACKBONES:-clip_vit_b32 vit_b16 efficientnet_b0 resnet50} weights=
fi
all=$results/backbones
for encoder in $BACKBONES; do
    results=$all/${encoder//:/_}
    sweep --init_arguments "encoder=$encoder" $weights
    # Each has models and clusters of its own, and so a folder; the tables read all runs in one.
    for stage in train_centralized test_federated; do
        to=$all/together/$stage/${encoder//:/_}
        mkdir -p "$to"
        (cd "$results/$stage" && find . -name '*.json' -o -name metrics.csv | tar cf - -T -) | tar xpf - -C "$to"
    done
done
results=$all/together
tables
printf '%s\n' "$results"/tables/{increases,verdicts,costs}.md
