#!/usr/bin/env bash
# How much the loss rises over the random split's, for each task and method, and what of it is more than the seeds'
# spread.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/scale.sh" "$@"
sweep
tables
printf '%s\n' "$results"/tables/{increases,verdicts,alpha_slopes}.md
