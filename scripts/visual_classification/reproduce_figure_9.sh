#!/usr/bin/env bash
# Learning curves from published weights and from scratch.   [--scale builtin|paper]
#
# The built-in network has no published weights: there, only from scratch.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
pretraining figure progress
