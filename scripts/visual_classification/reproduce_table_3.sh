#!/usr/bin/env bash
# Users with and without importance reweighting, accuracy at a round.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
reweighted_users
tables $(budgets)
