#!/usr/bin/env bash
# From nothing to the paper's comparison: renders the built-in rooms, trains a model a task, clusters its embeddings,
# simulates federated learning on embedding-based, class-based and random splits, and makes tables, figure and report.
#
#   bash run_pipeline.sh               under ten minutes on two cores
#   bash run_pipeline.sh --test_mode   the same in about a minute, with too little training to mean anything
TASKS=${TASKS:-depth_euclidean normal class_scene} METHODS=${METHODS:-fedavg}
if [ "${1:-}" = "--test_mode" ]; then SEEDS=${SEEDS:-0}; else SEEDS=${SEEDS:-0 1}; fi
source "$(dirname "${BASH_SOURCE[0]}")/scripts/scale.sh" "$@"
sweep
tables
python make_report.py --result_path "$results"
