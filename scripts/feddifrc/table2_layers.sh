#!/usr/bin/env bash
# Table 2: the vectors of one layer of the decoder, and of three together.   --data_path D --result_path R
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
for layers in 1 2 3 4 "2 3 4"; do
    teacher "layers_${layers// /}" --layers $layers
    for setting in sweep nid2; do $setting $guided/layers_${layers// /}; done
done
tables
