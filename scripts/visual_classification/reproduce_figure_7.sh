#!/usr/bin/env bash
# Learning curves on landmarks with and without importance reweighting.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
reweighted_landmarks decoder
figure progress
