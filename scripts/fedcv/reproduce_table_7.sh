#!/usr/bin/env bash
# Segmentation: parameters, operations and time of backbones and training types.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
backbones --splits class_based --alphas 0.5
tables $masks
