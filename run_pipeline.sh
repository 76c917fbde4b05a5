#!/usr/bin/env bash
# From nothing to the paper's comparison: renders the built-in rooms, trains a model a task, clusters its embeddings,
# simulates federated learning on embedding-based, class-based and random splits, and makes the table and the figure.
#
#   bash run_pipeline.sh               under ten minutes on two cores
#   bash run_pipeline.sh --test_mode   the same in two or three minutes, with too little training to mean anything
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/environment.sh

if [ "${1:-}" = "--test_mode" ]; then
    export MODE="--test_mode True" SEEDS="0" ALPHAS="0.1 10"
    data=data/sample_rooms_small results=results/test_mode
    python -m datasets.sample_rooms --data_path "$data" --n_buildings 2 --views_per_building 60 --image_size 32
else
    data=data/sample_rooms results=results/sample_rooms
    python -m datasets.sample_rooms --data_path "$data"
fi
bash scripts/compare_splits.sh "$data" rooms.csv 4 "$results"
