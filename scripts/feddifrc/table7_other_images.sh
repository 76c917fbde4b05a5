#!/usr/bin/env bash
# Table 7: images that the diffusion model was not trained on, such as HAM10000 and EuroSAT: a folder of classes that
# stage 1 has been through.   --data_path D --result_path R
METHODS=${METHODS:-fedavg fedprox fedproto}
source "$(dirname "${BASH_SOURCE[0]}")/table3_methods.sh" "$@"
