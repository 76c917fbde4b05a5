#!/usr/bin/env bash
source "$(dirname "${BASH_SOURCE[0]}")/../reproduce.sh" task_perspective/instances_coco128 "$@"
