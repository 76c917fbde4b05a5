#!/usr/bin/env bash
# The same of FedProx, SCAFFOLD, FedRep, FedAMP and Ditto, a figure each.   [--scale builtin|paper]
METHODS=${METHODS:-fedprox scaffold fedrep fedamp ditto} bash "$(dirname "${BASH_SOURCE[0]}")/reproduce_rounds_fedavg.sh" "$@"
