#!/usr/bin/env bash
source "$(dirname "${BASH_SOURCE[0]}")/../reproduce.sh" feddifrc/imagenet_teacher_depth "$@"
