#!/usr/bin/env bash
# What the central models predict on held-out images, and the confusion matrix of scene classes. [--scale builtin|paper]
SEEDS=${SEEDS:-0}
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
sweep --until clusters
for task in $TASKS; do
    figures_of "$results/extract_embeddings/$task/K${N_CLUSTERS}_seed${SEEDS%% *}*" predictions.png confusion_matrix.png
done
