#!/usr/bin/env bash
# Global loss by round of FedAvg, embedding-based against class-based against random splits.   [--scale builtin|paper]
METHODS=${METHODS:-fedavg}
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
sweep
python make_figures.py rounds --result_path "$results" --methods $METHODS
