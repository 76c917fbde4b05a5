#!/usr/bin/env bash
# mAP by round on the paper's partition: learning rates, numbers of clients; other splits beside it.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
detection mobilenet_v2 $by_object --init_lr 0.001 0.01 0.1 --on_nan skip_client
for clients in 4 8; do
    detection mobilenet_v2 $by_object --n_clients $clients
    detection mobilenet_v2 --splits class_based embedding_based iid --alphas 0.1 --partition equal_size \
        --n_clients $clients
done
figures detection map_50
tables detection
