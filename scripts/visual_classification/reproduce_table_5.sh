#!/usr/bin/env bash
# Rounds to 10, 50 and 90 % of central training, from published weights and from scratch.   [--scale builtin|paper]
#
# The built-in network has no published weights: there, only from scratch.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
pretraining tables
