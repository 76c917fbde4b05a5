#!/usr/bin/env bash
# Tables 1 and, of the long-tailed set, its second half: both terms, one, none; and with the controls, the same with the
# vectors of other images, and of black ones.   --data_path D --result_path R
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
teacher diffusion
teacher blank --blank_images True
for setting in sweep nid2; do
    $setting $guided/diffusion --tdcl_weight 0 1 --ndcr_weight 0 1 --guidance own shuffled
    $setting $guided/blank --tdcl_weight 0 1 --ndcr_weight 0 1
done
tables
