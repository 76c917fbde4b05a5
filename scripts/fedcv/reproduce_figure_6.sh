#!/usr/bin/env bash
# mIoU by round: fine-tuned or from scratch, and batch sizes.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
segmentation resnet101 "FT SFL" "deeplabv3plus unet" --splits class_based --alphas 0.5 --batch_size 4 10
figures $masks miou
