#!/usr/bin/env bash
# LANDMARKS, from the environment, is the folder of these, where --data is that of iNaturalist.
source "$(dirname "${BASH_SOURCE[0]}")/../reproduce.sh" visual_classification/figure_5_users "$@"
source scripts/reproduce.sh visual_classification/figure_5_landmarks "$@" ${LANDMARKS:+--data "$LANDMARKS"}
