#!/usr/bin/env bash
# t-SNE of each task's embeddings, by cluster and by scene class.   [--scale builtin|paper]
SEEDS=${SEEDS:-0}
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
sweep --until clusters
for task in $TASKS; do
    figures_of "$results/extract_embeddings/$task/K${N_CLUSTERS}_seed${SEEDS%% *}*" 'tsne_*.png'
done
