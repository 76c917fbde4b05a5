#!/usr/bin/env bash
# Which classes clients have at each alpha.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
by_alpha distributions
mode="--test_mode True"
for alpha in $(alphas); do federated --alpha "$alpha"; done
figure distributions
