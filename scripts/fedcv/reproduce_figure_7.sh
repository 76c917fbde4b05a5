#!/usr/bin/env bash
# mIoU by round: by alpha beside splits by the network's own embeddings, and numbers of clients.   [--scale builtin|paper]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
for clients in 4 8; do
    segmentation resnet101 FT "deeplabv3plus unet" --splits class_based embedding_based iid \
        --alphas 0.1 0.5 100 --n_clients $clients
done
figures $masks miou
tables $masks
