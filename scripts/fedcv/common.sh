# Sourced, with the arguments of the script that does: `--scale builtin|paper`, `--data FOLDER` and `--test_mode`. Goes to
# the project's root, enters the environment, and leaves `classification`, `segmentation`, `detection`, what several
# tables share, `figures` and `tables` behind.
#
# --data takes the images of a folder in which stage 1 has made a table (docs/papers/fedcv.md says how, for each data
# set); without it, at the built-in scale, the rooms take their place. From the environment come SEEDS; JOBS and GPUS, as
# run_sweep.py takes them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

source scripts/arguments.sh "$@"
case "$scale" in
    builtin) data=${given:-data/sample_rooms${mode:+_small}} settings=fedcv_builtin ;;
    paper) data=${given:-the folder of --data} settings=fedcv ;;
    *) echo "error: --scale takes builtin or paper, not '$scale'" >&2; exit 2 ;;
esac
if [ "$scale$given" != builtin ] && [ ! -f "$data/filtered_file_paths.csv" ]; then
    echo "error: $data has no table of images; run extract_datapoints_for_experiments.py --data_path $data first" >&2
    exit 2
fi
SEEDS=${SEEDS:-0 1 2} results=results/fedcv/$scale${given:+_$(basename "$given")}${mode:+_test}
source scripts/environment.sh requirements.txt
[ "$scale$given" != builtin ] || python -m datasets.rooms.make --data_path "$data" \
    ${mode:+--n_buildings 2 --views_per_building 60 --image_size 32}

# What is not done yet of a grid with one model: runs TASK NAME "ARGUMENT=VALUE … of the model" ARGUMENT… of the grid.
runs() {
    python run_sweep.py --scale $settings --data_path "$data" --result_path "$results/$1/$2" --tasks "$1" --seeds $SEEDS \
        --client_file_name rooms.csv --taskonomy_clients_to_include $((${#mode} ? 2 : 4)) \
        ${3:+--init_arguments $3} ${JOBS:+--jobs $JOBS} ${GPUS:+--gpus $GPUS} $mode "${@:4}"
}

# A grid for each model: models TASK "ENCODERS" "TYPES" "DECODERS" ARGUMENT… Types are FT (fine-tuned), FZ (the encoder
# is frozen and not sent) and SFL (from scratch). At the built-in scale it is the small network alone, from scratch.
models() {
    local encoder kind decoder
    [ "$scale" = paper ] || { runs "$1" tiny "" "${@:5}"; return; }
    for encoder in $2; do for kind in $3; do for decoder in $4; do
        runs "$1" "${encoder}_${decoder}_$kind" \
            "encoder=$encoder decoder=$decoder pretrained=$([ "$kind" = SFL ] && echo False || echo True)" \
            $([ "$kind" != FZ ] || echo --train decoder) "${@:5}"
    done; done; done
}

# The rooms have scene classes and masks under Taskonomy's names.
classes=classification masks=segmentation
[ "$scale$given" != builtin ] || { classes=class_scene masks=segment_semantic; }

# classification "ENCODERS" "TYPES" ARGUMENT…; segmentation "ENCODERS" "TYPES" "DECODERS" ARGUMENT…; and detection
# "ENCODERS" ARGUMENT…
classification() { models $classes "$1" "$2" linear "${@:3}"; }
segmentation() { models $masks "$@"; }
detection() { models detection "$1" FT fcos "${@:2}"; }

# The paper's three factors; clients by class, or of GLD-23k by user.
by_class="--splits class_based --alphas 0.1 0.5 100"
by_user="--splits user_id_based --partition natural --n_clients auto --alphas 1"
[ "$scale" = paper ] || by_user=$by_class
# Its own partition of boxes.
by_object="--splits object_based --partition commonest_object --alphas 1"

# Learning rates and momentum without a schedule and with one: optimisers "ENCODERS" "TYPES" ARGUMENT…
optimisers() {
    classification "$@" --init_lr 0.003 0.01 0.03 0.1 0.3 --momentum 0 0.9
    classification "$@" --init_lr 0.003 0.01 0.03 0.1 0.3 --momentum 0 0.9 --lr_schedule step --lr_decay_rate 0.99
}

# Backbones, training types and decoders on one split.
backbones() { segmentation "resnet101 mobilenet_v2" "FT FZ SFL" "deeplabv3plus unet" "$@"; }

# A table, and a figure of a metric by round with bands over clients, of all that was run for a task.
tables() {
    local folder
    for folder in "$results/$1"/*/; do python make_tables.py --result_path "$folder" --data_path "$data"; done
}

figures() {
    local folder
    for folder in "$results/$1"/*/; do python make_figures.py progress --metric "$2" --result_path "$folder"; done
}
