#!/usr/bin/env bash
# Accuracy by round: by alpha, fine-tuned or not, with momentum or not.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
classification efficientnet_b0 "FT SFL" $by_class --momentum 0 0.9
figures $classes accuracy
