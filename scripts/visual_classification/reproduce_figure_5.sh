#!/usr/bin/env bash
# The environment variable LANDMARKS is the folder of Landmarks; --data is that of iNaturalist.
source "$(dirname "${BASH_SOURCE[0]}")/../reproduce.sh" visual_classification/figure_5_users "$@"
source scripts/reproduce.sh visual_classification/figure_5_landmarks "$@" ${LANDMARKS:+--data "$LANDMARKS"}
