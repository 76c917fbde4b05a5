#!/usr/bin/env bash
# Figure 6: the step of the noise in an image's own vector, and the temperature of the contrast.
#                                                                                    --data_path D --result_path R
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
for t in ${TIMESTEPS:-0 50 100 150 200 250 300}; do
    teacher "t$t" --timestep "$t"
    sweep $guided/t$t
done
sweep $guided/t150 --contrast_temperature ${TEMPERATURES:-0.02 0.04 0.06 0.08 0.1 0.2}
tables
