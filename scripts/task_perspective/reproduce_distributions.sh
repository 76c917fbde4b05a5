#!/usr/bin/env bash
# Which clusters and classes clients have at each α, for each task.   [--scale builtin|paper]
ALPHAS=${ALPHAS:-0.01 0.1 1 10 100} SEEDS=${SEEDS:-0}
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
sweep --type distributions --methods fedavg --splits class_based embedding_based
python make_figures.py distributions --result_path "$results/distributions"
