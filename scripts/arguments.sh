# Sourced, with the arguments of a script that reproduces a table or figure: leaves `scale`, `given`, the folder of
# --data, and `mode`, the arguments that --test_mode stands for, behind.
scale=builtin mode= given=
while [ $# -gt 0 ]; do
    case "$1" in
        --scale) scale=${2:-}; shift $(($# > 1 ? 2 : 1)) ;;
        --data) given=${2:-the empty name}; shift $(($# > 1 ? 2 : 1)) ;;
        --test_mode) mode="--test_mode True"; shift ;;
        *) echo "error: $1: the arguments are --scale builtin|paper, --data FOLDER and --test_mode" >&2; exit 2 ;;
    esac
done
