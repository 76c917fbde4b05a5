#!/usr/bin/env bash
# mIoU by round: backbones and training types.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
backbones --splits class_based --alphas 0.5
figures $masks miou
