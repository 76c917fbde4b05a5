#!/usr/bin/env bash
# ViT on GLD-23k's users: learning rates, momentum and schedules.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
optimisers vit_b16 FT $by_user
tables $classes
