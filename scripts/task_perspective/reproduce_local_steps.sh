#!/usr/bin/env bash
# How the loss depends on the number of local steps per round under each split.   [--scale builtin|paper]
usual_tasks="depth_euclidean normal class_scene" METHODS=${METHODS:-fedavg} ALPHAS=${ALPHAS:-0.1}
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
sweep --type sgd_test
python make_figures.py sensitivity --argument sgd_per_epoch --result_path "$results/sgd_test"
