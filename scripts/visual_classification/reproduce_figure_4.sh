#!/usr/bin/env bash
# Accuracy relative to central training against the EMD of the split.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
by_alpha by_alpha
counts="5 10 20"
[ "$scale" = paper ] || counts="4 10"
central --alpha 100
for alpha in $(alphas); do
    for method in fedavg fedavgm; do
        for k in $counts; do federated --method "$method" --alpha "$alpha" --clients_per_round "$k"; done
    done
done
figure emd
tables
