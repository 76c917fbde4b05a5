#!/usr/bin/env bash
# Relative accuracy of FedAvgM over server momentum, learning rate and alpha.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
by_alpha sensitivity
momenta="0 0.9 0.99" rates="0.003 0.01 0.03 0.1"
[ "$scale" = paper ] || momenta="0 0.9" rates="0.01 0.05"
central --alpha 100
for alpha in $(alphas); do
    for beta in $momenta; do
        for lr in $rates; do
            federated --method fedavgm --alpha "$alpha" --beta1 "$beta" --init_lr "$lr" --on_nan skip_client
        done
    done
done
figure emd
tables
