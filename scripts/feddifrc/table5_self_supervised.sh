#!/usr/bin/env bash
# Table 5: no labels in training, then a linear probe. FedEMA and FedLID are not among ours.   --data_path D --result_path R
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
teacher neutral --prompts neutral
for setting in sweep nid2; do $setting $guided/neutral --task_weight 0; done
for run in "$results"/test_federated/feddifrc/classification/*/*/; do
    if [ -f "$run/summary.json" ]; then python linear_probe.py --run "$run"; fi
done
