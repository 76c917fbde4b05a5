#!/usr/bin/env bash
source "$(dirname "${BASH_SOURCE[0]}")/../reproduce.sh" feddifrc/table_7 "$@"
