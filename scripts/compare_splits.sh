#!/usr/bin/env bash
# The paper's central comparison on one data folder, stage by stage.
#
#   bash scripts/compare_splits.sh DATA_PATH BUILDING_LIST N_BUILDINGS RESULT_PATH
#
# Settings, all optional, come from the environment: TASKS, METHODS, ALPHAS, SEEDS, N_CLUSTERS; SCALE names the folder
# of arguments under scripts/args (builtin or paper); INIT and MODE are further arguments of the initial model and of
# every training; METHODS="" makes the central models only; JOBS is how many runs go on at once, by default one a core.
set -euo pipefail
data=$1 buildings=$2 n_buildings=$3 results=$4
read -ra tasks <<< "${TASKS:-depth_euclidean normal class_scene}"
read -ra methods <<< "${METHODS-fedavg}"
read -ra alphas <<< "${ALPHAS:-0.1 10}"
read -ra seeds <<< "${SEEDS:-0 1}"
args="scripts/args/${SCALE:-builtin}" k="${N_CLUSTERS:-16}" mode="${MODE:-}"

# The arguments of a stage, then those of a task and of a method in it, where they have any; the later ones win.
settings() {
    echo "@$args/$1.txt"
    for name in "${@:2}"; do
        if [ -f "$args/$1_$name.txt" ]; then echo "@$args/$1_$name.txt"; fi
    done
}
folders() { echo "--init_model_dir $results/seed$1/initial_models --data_path $data --result_path $results --rand_seed $1"; }
run_jobs() { python scripts/run_jobs.py --log_path "$results/logs" --jobs "${JOBS:-$(nproc)}" --title "$1"; }

python extract_datapoints_for_experiments.py --client_file_name "$buildings" --data_path "$data" \
    --taskonomy_clients_to_include "$n_buildings" --result_path "$results"

for seed in "${seeds[@]}"; do for task in "${tasks[@]}"; do
    models="$results/seed$seed"
    echo "python model_initialization.py --task $task --rand_seed $seed --init_model_dir $models/initial_models" \
        $(settings init "$task") ${INIT:-} \
        "&& python train_centralized_task_model.py --task $task $(folders "$seed")" \
        "--checkpoint_path $models/trained_models" $(settings train "$task") $mode \
        "&& python extract_embeddings.py --task $task --n_clusters $k --observe_performance True" \
        "--load_model_dir $models/trained_models --assignment_files_path $models/assignments" \
        "--data_path $data --result_path $results --rand_seed $seed"
done; done | run_jobs "central models and clusters"

for seed in "${seeds[@]}"; do for task in "${tasks[@]}"; do for method in "${methods[@]}"; do
    fed="python test_fed.py --task $task --method $method --n_clusters $k $(folders "$seed")"
    fed+=" --trained_model_dir $results/seed$seed/trained_models --assignment_files_path $results/seed$seed/assignments"
    fed+=" $(settings fed "$task" "$method" | xargs) $mode"
    echo "$fed --type iid"
    for alpha in "${alphas[@]}"; do for split in class_based embedding_based; do
        echo "$fed --type $split --alpha $alpha"
    done; done
done; done; done | run_jobs "federated runs"

python make_tables.py --result_path "$results" --data_path "$data" \
    --assignment_files_path "$results/seed${seeds[0]}/assignments"
