#!/usr/bin/env bash
# Learning curves without and with virtual clients, and accuracy against EMD.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
virtual_clients
figure progress
figure emd
