#!/usr/bin/env bash
# Table 4: clients of one domain each. CLIENTS_PER_GROUP are in the order of the domains' names, by default those of
# Office-Caltech (amazon, caltech, dslr, webcam); digits: 1,3,2,4 and CLIENT_SHARE=0.1.   --data_path D --result_path R
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
domains="--splits domain_based --partition split_groups --alphas 1 --client_share ${CLIENT_SHARE:-0.2}"
domains+=" --clients_per_group ${CLIENTS_PER_GROUP:-2,3,3,2}"
teacher diffusion
sweep $domains --methods ${METHODS:-fedavg fedprox fedproto}
sweep $domains $guided/diffusion
tables
