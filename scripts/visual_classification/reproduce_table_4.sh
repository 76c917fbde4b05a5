#!/usr/bin/env bash
# Landmarks with and without importance reweighting, two layers and all, accuracy at a round.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
reweighted_landmarks decoder all
tables $(budgets)
