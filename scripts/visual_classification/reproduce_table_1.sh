#!/usr/bin/env bash
# The data sets' sizes and central accuracy. [--scale builtin|paper]
#
# At the paper's scale with --data, and DATASET=cifar|inaturalist|landmarks for its settings.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
use "table_1_${DATASET:-cifar}" "${DATASET:-cifar}"
central
tables
