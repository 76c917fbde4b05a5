#!/usr/bin/env bash
# MobileNet V3 on GLD-23k's users: learning rates, momentum, schedules, fine-tuned or not.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
optimisers mobilenet_v3_large "FT SFL" $by_user
tables $classes
