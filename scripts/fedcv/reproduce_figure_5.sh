#!/usr/bin/env bash
# Accuracy by round with and without a schedule of the learning rate.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
classification efficientnet_b0 "FT SFL" $by_class
classification efficientnet_b0 "FT SFL" $by_class --lr_schedule step --lr_decay_rate 0.99
figures $classes accuracy
