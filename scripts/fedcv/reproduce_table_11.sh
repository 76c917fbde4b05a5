#!/usr/bin/env bash
# EfficientNet on CIFAR-100: learning rates, momentum, schedules, fine-tuned or not.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
optimisers efficientnet_b0 "FT SFL" $by_class
tables $classes
