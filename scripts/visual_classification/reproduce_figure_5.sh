#!/usr/bin/env bash
# What importance reweighting does to FedAvg and FedAvgM, on users and on landmarks.   [--scale builtin|paper]
#
# At the paper's scale with --data for iNaturalist, and LANDMARKS for the other folder.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
reweighted_users
figure progress
data=${LANDMARKS:-$data}
reweighted_landmarks decoder all
figure progress
