# Sourced, with the arguments of the script that does: `--scale builtin|paper`, `--data FOLDER` and `--test_mode`. Goes to
# the project's root, enters the environment, makes the built-in data, and leaves `sweep`, `tables` and `figures_of` behind.
#
# --data takes the images of a folder in place of the built-in rooms: those of which stage 1 has made a table there, or
# `nyu`, the photographs of NYUv2 in data/nyu, which are downloaded (2.8 GB) where they are not there yet.
#
# From the environment come TASKS, METHODS, ALPHAS, SEEDS, N_CLUSTERS; VIEWS_PER_BUILDING of the built-in rooms; JOBS and
# GPUS (as run_sweep.py takes them); and DATA_PATH, the folder of Taskonomy at the paper's scale. A script sets those of
# which it has defaults of its own. Its tasks are `usual_tasks`: of a folder, those of them that it has the targets of, or
# where none of these is dense, the tasks of its own labels.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

source scripts/arguments.sh "$@"
views=${VIEWS_PER_BUILDING:-}
case "$scale$mode" in
    builtin) data=data/sample_rooms${views:+_$views} results=results/sample_rooms${views:+_$views} ;;
    builtin*) data=data/sample_rooms_small results=results/test_mode ;;
    paper*) data=${DATA_PATH:-taskonomy_dataset} results=results/paper${mode:+_test_mode} ;;
    *) echo "error: --scale takes builtin or paper, not '$scale'" >&2; exit 2 ;;
esac
if [ -n "$given" ]; then
    if [ "$given" = nyu ]; then data=data/nyu; else data=$given; fi
    results=results/$(basename "$data")${mode:+_test_mode}
    if [ ! -f "$data/filtered_file_paths.csv" ] && [ "$given" != nyu ]; then
        echo "error: $data has no table of images; run extract_datapoints_for_experiments.py --data_path $data first" >&2
        exit 2
    fi
fi
source scripts/environment.sh requirements.txt
if [ "$scale" = builtin ]; then
    buildings=rooms.csv n_buildings=4 ALPHAS=${ALPHAS:-0.1 10}
else
    buildings=tiny.csv n_buildings=3 ALPHAS=${ALPHAS:-0.01 0.1 1 10 100}
fi
if [ "$given" = nyu ] && [ ! -f "$data/filtered_file_paths.csv" ]; then
    python -m datasets.download --source nyu --data_path "$data"
    python extract_datapoints_for_experiments.py --source nyu --data_path "$data"
elif [ -z "$given" ] && [ "$scale" = builtin ]; then
    python -m datasets.rooms.make --data_path "$data" ${views:+--views_per_building "$views"} \
        ${mode:+--n_buildings 2 --views_per_building 60 --image_size 32}
fi
usual_tasks=${usual_tasks:-depth_euclidean normal reshading keypoints3d edge_texture segment_semantic class_scene}
if [ -n "$given" ] && [ -z "${TASKS:-}" ]; then usual_tasks=$(python -m sweeps.served "$data" $usual_tasks); fi
TASKS=${TASKS:-$usual_tasks}
METHODS=${METHODS:-fedavg fedprox scaffold fedrep fedamp ditto}
SEEDS=${SEEDS:-0 1 2 3 4} N_CLUSTERS=${N_CLUSTERS:-16}

# Run what is not done yet of the grid; further arguments are those of run_sweep.py.
sweep() {
    python run_sweep.py --scale "$scale" --data_path "$data" --client_file_name "$buildings" \
        --taskonomy_clients_to_include "$n_buildings" --result_path "$results" --tasks $TASKS --methods $METHODS \
        --alphas $ALPHAS --seeds $SEEDS --n_clusters "$N_CLUSTERS" ${JOBS:+--jobs $JOBS} ${GPUS:+--gpus $GPUS} $mode "$@"
}

tables() {
    python make_tables.py --result_path "$results" --data_path "$data" \
        --assignment_files_path "$results/seed${SEEDS%% *}/assignments_K$N_CLUSTERS"
}

# The figures with these names (find's -name) in the newest of some runs: figures_of 'RUN DIRECTORY*' NAME...
figures_of() {
    local newest
    newest=$(ls -td $1 | sed -n 1p)
    for name in "${@:2}"; do find "$newest/figures" -name "$name"; done
}
