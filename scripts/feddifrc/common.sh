# Sourced, with the arguments of the script that does: `--data_path D --result_path R [--test_mode]`. D is a data folder
# that stage 1 has been through. Leaves `teacher`, `sweep` and `tables` behind.
#
# From the environment come DIFFUSION_MODEL and DIFFUSION_SIZE; SEEDS, ALPHAS and METHODS; INIT, arguments NAME=VALUE of
# model_initialization.py; FED, further arguments of every federation; JOBS and GPUS, as run_sweep.py takes them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

data= results= mode=
while [ $# -gt 0 ]; do
    case "$1" in
        --data_path) data=${2:-}; shift $(($# > 1 ? 2 : 1)) ;;
        --result_path) results=${2:-}; shift $(($# > 1 ? 2 : 1)) ;;
        --test_mode) mode="--test_mode True"; shift ;;
        *) echo "error: $1: the arguments are --data_path, --result_path and --test_mode" >&2; exit 2 ;;
    esac
done
if [ -z "$data" ] || [ -z "$results" ]; then
    echo "error: --data_path and --result_path are needed, the folders of the images and of the runs" >&2; exit 2
fi
source scripts/environment.sh requirements.txt requirements-diffusion.txt
SEEDS=${SEEDS:-0 1 2 3 4} ALPHAS=${ALPHAS:-0.05 0.2 0.5} INIT=${INIT:-} FED=${FED:-}

# What a teacher says of the images, once: teacher NAME ARGUMENT… ; the vectors are in $results/guidance/NAME.
teacher() {
    [ -f "$results/guidance/$1/guidance.json" ] || python extract_diffusion_features.py --data_path "$data" \
        --result_path "$results" --guidance_path "$results/guidance/$1" --resume_training True \
        ${DIFFUSION_MODEL:+--diffusion_model "$DIFFUSION_MODEL"} ${DIFFUSION_SIZE:+--diffusion_size $DIFFUSION_SIZE} \
        $mode "${@:2}"
}

# What is not done yet of a grid, with the settings of the paper; further arguments are those of run_sweep.py. Without
# --alphas and --splits: the first setting, NID1, for all ALPHAS.
sweep() {
    python run_sweep.py --scale feddifrc --data_path "$data" --result_path "$results" --tasks classification \
        --splits class_based --alphas $ALPHAS --seeds $SEEDS ${INIT:+--init_arguments $INIT} ${JOBS:+--jobs $JOBS} \
        ${GPUS:+--gpus $GPUS} $mode $FED "$@"
}

# The second setting, NID2: six clients of one class and one of all; alpha has no part in it.
nid2() {
    sweep --partition one_group --n_clients 7 --alphas 1 "$@"
}

guided="--methods feddifrc --guidance_path $results/guidance"

# Every setting that was run, with the last round's values: loss, accuracy and their spread over seeds.
tables() {
    python make_tables.py --result_path "$results" --data_path "$data"
}
