#!/usr/bin/env bash
# Landmarks with and without importance reweighting, all layers, accuracy at a round.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
reweighted_landmarks
tables $(budgets)
