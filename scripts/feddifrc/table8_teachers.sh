#!/usr/bin/env bash
# Table 8: other teachers, with the classes' mean vectors in place of texts; a network of random weights is the control.
# TEACHERS are kinds of --features.   --data_path D --result_path R
source "$(dirname "${BASH_SOURCE[0]}")/common.sh" "$@"
teacher diffusion
for setting in sweep nid2; do $setting $guided/diffusion --contrast texts classes; done
default="timm:vit_base_patch16_clip_224.openai timm:vit_base_patch16_224.mae timm:vit_base_patch16_224.dino"
for features in ${TEACHERS:-$default random:vit_base_patch16_224 image}; do
    name=${features//:/_}
    teacher "$name" --features "$features"
    for setting in sweep nid2; do $setting $guided/$name --contrast classes; done
done
tables
