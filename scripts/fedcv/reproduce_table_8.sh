#!/usr/bin/env bash
# Detection: networks of several sizes on the paper's own partition.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
detection "mobilenet_v2 resnet18 resnet50 resnet101" $by_object
tables detection
