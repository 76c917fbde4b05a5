# Sourced, with the arguments of the script that does: `--scale builtin|paper`, `--data FOLDER` and `--test_mode`. Goes to
# the project's root, enters the environment, and leaves `use`, `federated`, `central` and what several tables share behind.
#
# --data takes the images of a folder in which stage 1 has made a table with classes (docs/data.md): at the paper's scale
# CIFAR-10 or -100, iNaturalist or Landmarks; at the built-in one any, in place of the rooms. From the environment come
# SEEDS and ROUNDS, in place of the settings' number.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

source scripts/arguments.sh "$@"
task=
case "$scale" in
    builtin) data=${given:-data/sample_rooms${mode:+_small}} task=${given:+--task classification} ;;
    paper) data=${given:-the folder of --data} ;;
    *) echo "error: --scale takes builtin or paper, not '$scale'" >&2; exit 2 ;;
esac
if [ "$scale$given" != builtin ] && [ ! -f "$data/filtered_file_paths.csv" ]; then
    echo "error: $data has no table of images; run extract_datapoints_for_experiments.py --data_path $data first" >&2
    exit 2
fi
SEEDS=${SEEDS:-0}
source scripts/environment.sh requirements.txt

# use NAME DATASET ARGUMENTS…: from here on, runs of one group of tables and figures, with the settings of a data set at
# the paper's scale, and with those of the rooms at the built-in one. Makes data and initial models (with these further
# arguments of model_initialization.py) unless they are there.
use() {
    local settings=$2
    results=results/visual_classification/$scale${given:+_$(basename "$given")}${mode:+_test}/$1
    further="$task ${ROUNDS:+--n_rounds $ROUNDS}"
    [ "$scale" = paper ] || settings=rooms
    if [ "$scale$given" = builtin ]; then
        python -m datasets.rooms.make --data_path "$data" ${mode:+--n_buildings 2 --views_per_building 60 --image_size 32}
        [ -f "$data/filtered_file_paths.csv" ] || python extract_datapoints_for_experiments.py --data_path "$data" \
            --client_file_name rooms.csv --taskonomy_clients_to_include $((${#mode} ? 2 : 4))
    fi
    federation=@scripts/args/visual_classification/fed_$settings.txt
    compgen -G "$results/initial_models/init_model_*.safetensors" > /dev/null ||
        python model_initialization.py @scripts/args/visual_classification/init_$settings.txt $task --data_path "$data" \
            --init_model_dir "$results/initial_models" "${@:3}"
}

# A run of test_fed.py per seed with these arguments besides the settings', unless it is done.
federated() {
    local seed name
    for seed in $SEEDS; do
        name=$(echo "$further $seed $*" | cksum | tr ' ' -)
        [ ! -e "$results/done/$name" ] || continue
        python test_fed.py "$federation" --data_path "$data" --result_path "$results" \
            --init_model_dir "$results/initial_models" --rand_seed "$seed" $further $mode "$@"
        mkdir -p "$results/done"
        touch "$results/done/$name"
    done
}

# What federations are measured by: as many steps on everybody's images.
central() { federated --method centralized "$@"; }

tables() { python make_tables.py --result_path "$results" "$@"; }

figure() { python make_figures.py "$@" --result_path "$results"; }

# The paper's 1k, 2.5k and 5k rounds and 10k, 25k and 50k batches, at its scale.
budgets() { [ "$scale" != paper ] || echo --at_round 1000 2500 5000 --at_batch 10000 25000 50000; }

# Clients of any size against virtual clients of one: table 2, figure 6.
virtual_clients() {
    local size=256 method kind
    local kinds="user_id_based cell_3000_based cell_1000_based cell_100_based cell_30000_based"
    [ "$scale" = paper ] || { size=32 kinds=class_based; }
    use virtual_clients inaturalist
    central
    for kind in $kinds; do
        for method in fedavg fedavgm; do
            federated --method "$method" --type "$kind"
            federated --method "$method" --type "$kind" --local_epochs auto --virtual_client_size "$size"
        done
    done
}

# Users with and without importance reweighting, in virtual clients: table 3; without and with few: figure 5.
reweighted_users() {
    local size=256 counts="10 100" method by k
    [ "$scale" = paper ] || { size=32 counts="4 10"; }
    use reweighted_users inaturalist
    central
    for method in fedavg fedavgm; do
        for by in none class; do
            for k in $counts; do
                federated --method "$method" --clients_per_round "$k" --importance_reweighting "$by" \
                    --local_epochs auto --virtual_client_size "$size"
            done
        done
    done
}

# reweighted_landmarks PART…: landmarks' users with and without importance reweighting towards the uniform test images,
# training the two last layers (`decoder`) or `all`: table 4, figures 5 and 7.
reweighted_landmarks() {
    local parts="$*" counts="10 50 100" part method by k
    [ "$scale" = paper ] || { parts=all counts="4 10"; } # the built-in network's encoder is random before training
    use reweighted_landmarks landmarks
    for part in $parts; do
        central --train "$part"
        for method in fedavg fedavgm; do
            for by in none class; do
                for k in $counts; do
                    federated --method "$method" --clients_per_round "$k" --train "$part" \
                        --importance_reweighting "$by" --importance_target held_out
                done
            done
        done
    done
}

# The alphas of appendix B.1: of CIFAR-10, or ALPHAS.
alphas() { [ "$scale" = paper ] && echo "${ALPHAS:-100 10 1 0.5 0.2 0.1 0.05 0}" || echo "${ALPHAS:-100 1 0.1 0}"; }

# CIFAR's clients of equal size by alpha: figures 4, 8 and 10.
by_alpha() {
    use "$1" cifar
    further="$further --partition dirichlet_hsu"
    [ "$scale" = paper ] || further="$further --min_client_ds_len 1 --n_clients 20"
}

# From published weights and from scratch, then the rest of the arguments as a command, on either: table 5, figure 9.
pretraining() {
    local starts="published scratch" counts="10 100" start method k
    [ "$scale" = paper ] || { starts=scratch counts="4 10"; } # the built-in network has no published weights
    for start in $starts; do
        use "pretraining_$start" inaturalist $([ "$start" = published ] || echo --pretrained False)
        [ "$scale" != paper ] || further="$further --type cell_3000_based"
        central
        for method in fedavg fedavgm; do
            for k in $counts; do federated --method "$method" --clients_per_round "$k"; done
        done
        "$@"
    done
}
