#!/usr/bin/env bash
# The environment variable DATASET is cifar (the default), inaturalist or landmarks.
source "$(dirname "${BASH_SOURCE[0]}")/../reproduce.sh" "visual_classification/table_1_${DATASET:-cifar}" "$@"
