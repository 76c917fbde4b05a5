#!/usr/bin/env bash
# Segmentation: backbones, training types, splits and numbers of clients.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
for clients in 4 8; do backbones --splits class_based iid --alphas 0.5 --n_clients $clients; done
tables $masks
