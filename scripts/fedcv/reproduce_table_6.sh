#!/usr/bin/env bash
# Segmentation: batch size against mIoU and memory.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
segmentation resnet101 FT "deeplabv3plus unet" --splits class_based --alphas 0.5 --batch_size 4 6 8 10 16
tables $masks
