#!/usr/bin/env bash
# Accuracy at a round and at a batch without and with virtual clients.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
virtual_clients
tables $(budgets)
