#!/usr/bin/env bash
# How similar the clusters of the tasks are to each other and to the scene classes.   [--scale builtin|paper]
SEEDS=${SEEDS:-0}
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
sweep --until clusters
tables
echo "$results/tables/task_similarity.png"
