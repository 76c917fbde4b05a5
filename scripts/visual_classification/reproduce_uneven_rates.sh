#!/usr/bin/env bash
source "$(dirname "${BASH_SOURCE[0]}")/../reproduce.sh" visual_classification/uneven_rates "$@"
