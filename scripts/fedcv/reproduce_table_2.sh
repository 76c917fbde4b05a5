#!/usr/bin/env bash
# Classification: FedAvg fine-tuned and from scratch, by alpha, beside the central models.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
classification "efficientnet_b0 mobilenet_v3_large" "FT SFL" $by_class
classification vit_b16 FT $by_class --n_rounds 8000
tables $classes
