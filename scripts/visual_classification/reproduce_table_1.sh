#!/usr/bin/env bash
# DATASET, from the environment, is cifar (the default), inaturalist or landmarks.
source "$(dirname "${BASH_SOURCE[0]}")/../reproduce.sh" "visual_classification/table_1_${DATASET:-cifar}" "$@"
