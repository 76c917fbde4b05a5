#!/bin/bash
# One federation over several nodes of a Slurm cluster, with the arguments of test_fed.py, from the project's root:
#     sbatch --nodes=2 --gpus-per-node=8 --time=4:00:00 scripts/federation_on_nodes.sh --task normal --alpha 0.1 …
# PER_NODE, MASTER and PORT may come from the environment: processes on a node, the first node's address, and its port.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --job-name=federation

set -euo pipefail
export PER_NODE=${PER_NODE:-${SLURM_GPUS_ON_NODE:-1}}
export MASTER=${MASTER:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
export PORT=${PORT:-$((20000 + SLURM_JOB_ID % 10000))}
# A launcher on each node; the dollar signs within are for the nodes. srun does not take the cores from sbatch any more.
srun --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" bash -c '
    exec accelerate launch --multi_gpu --mixed_precision no --dynamo_backend no \
        --num_machines "$SLURM_NNODES" --machine_rank "$SLURM_NODEID" --num_processes $((SLURM_NNODES * PER_NODE)) \
        --main_process_ip "$MASTER" --main_process_port "$PORT" test_fed.py "$@"' federation "$@"
