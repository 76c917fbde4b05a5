#!/usr/bin/env bash
# Segmentation: the learning rates that the paper tried.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
segmentation resnet101 FT "deeplabv3plus unet" --splits class_based --alphas 0.5 --init_lr 0.007 0.01 0.1
tables $masks
