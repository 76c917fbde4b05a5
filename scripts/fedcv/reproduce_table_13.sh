#!/usr/bin/env bash
# EfficientNet on GLD-23k's users: learning rates, momentum, schedules, fine-tuned or not.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
optimisers efficientnet_b0 "FT SFL" $by_user
tables $classes
