#!/usr/bin/env bash
# Classification: parameters, operations and communication of each model.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
classification "efficientnet_b0 mobilenet_v3_large" FT --splits class_based --alphas 0.5
classification vit_b16 FT --splits class_based --alphas 0.5 --n_rounds 8000
tables $classes
