#!/usr/bin/env bash
# How the loss depends on the learning rate under each split.   [--scale builtin|paper]
usual_tasks="depth_euclidean normal class_scene" METHODS=${METHODS:-fedavg} ALPHAS=${ALPHAS:-0.1}
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
sweep --type lr_test || echo "the figure leaves out what failed: above some learning rate, trainings diverge"
python make_figures.py sensitivity --argument init_lr --result_path "$results/lr_test"
