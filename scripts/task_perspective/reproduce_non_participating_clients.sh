#!/usr/bin/env bash
source "$(dirname "${BASH_SOURCE[0]}")/../reproduce.sh" task_perspective/non_participating_clients "$@"
