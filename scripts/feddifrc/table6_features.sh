#!/usr/bin/env bash
# Table 6: only the restriction to an image's own vector, beside both terms and FedRCL, for what comes of matching a
# teacher's features alone. FedDISC and FedDDA, which make images, are not among ours.   --data_path D --result_path R
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
teacher diffusion
for setting in sweep nid2; do
    $setting --methods fedrcl
    $setting $guided/diffusion --tdcl_weight 0 1
done
tables
