#!/usr/bin/env bash
# Table 3: FedDifRC beside other methods. FedNH and FedCDA are not among ours.   --data_path D --result_path R
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
teacher diffusion
for setting in sweep nid2; do
    $setting --methods ${METHODS:-fedavg fedprox moon fedproto feddisco fedrcl}
    $setting $guided/diffusion
done
tables
