# Source it with the name of an experiment in experiments/ and the arguments of the calling script, which are those of
# run_sweep.py. It goes to the project's root, enters the environment, and runs the experiment.
#
# Variables of the environment: TASKS, METHODS, ALPHAS, SEEDS, N_CLUSTERS, JOBS and GPUS as run_sweep.py takes them,
# VIEWS_PER_BUILDING of the built-in rooms, and DATA_PATH, Taskonomy's folder at the paper's scale. Arguments override them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
further=
case "$*" in
    feddifrc/domains* | feddifrc/imagenet*) further+=" requirements-pretrained.txt" ;;
    feddifrc/*) further+=" requirements-diffusion.txt" ;;
    task_perspective/privacy*) further+=" requirements-privacy.txt" ;;
esac
case "$*" in *"--scale pretrained"*) further+=" requirements-pretrained.txt" ;; esac
source scripts/environment.sh requirements.txt $further
case " $* " in *" --scale paper "*) images=(${DATA_PATH:+--data_path "$DATA_PATH"}) ;;
    *) images=(${VIEWS_PER_BUILDING:+--data "rooms:$VIEWS_PER_BUILDING"}) ;; esac
python run_sweep.py --experiment "experiments/$1.toml" ${TASKS:+--tasks $TASKS} ${METHODS:+--methods $METHODS} \
    ${ALPHAS:+--alphas $ALPHAS} ${SEEDS:+--seeds $SEEDS} ${N_CLUSTERS:+--n_clusters $N_CLUSTERS} ${JOBS:+--jobs $JOBS} \
    ${GPUS:+--gpus $GPUS} ${images[@]+"${images[@]}"} "${@:2}"
