#!/usr/bin/env bash
# How many images of each scene class the selection has.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
sweep --until selection
figures_of "$results/extract_datapoints/*" class_histogram.png
