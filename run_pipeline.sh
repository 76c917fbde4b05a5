#!/usr/bin/env bash
# Does a partition by clusters of a task's embeddings cost more than one by class? The script renders the built-in rooms,
# trains one model per task and clusters its embeddings. It simulates federated learning with five seeds under
# embedding-based, class-based and IID partitions. It makes tables, a figure and a report, and its last lines answer.
#
#   bash run_pipeline.sh               about nine minutes on two cores
#   bash run_pipeline.sh --data nyu    the same on the photographs of NYUv2, or of any folder with a table of images,
#                                      for the tasks that it has: those of the rooms, or classification, segmentation
#   bash run_pipeline.sh --test_mode   the same in about a minute, with too little training to mean anything
case " $* " in *" --test_mode "*) SEEDS=${SEEDS:-0} ;; esac
source "$(dirname "${BASH_SOURCE[0]}")/scripts/reproduce.sh" task_perspective/pipeline "$@"
