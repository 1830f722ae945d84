#!/usr/bin/env bash
# Packs the handler and its data into model_store/word_count.mar; no weights file is needed.
#   WORK=...  where model_store/ goes (default: this folder)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${WORK:-$here}/model_store"
cd "${WORK:-$here}"

archive-model --model-name word_count --version 1.0 \
    --handler "$here/word_count_handler.py" \
    --config-file "$here/model-config.yaml" \
    --extra-files "$here/word_weights.json" \
    --export-path model_store --force
echo "packed $PWD/model_store/word_count.mar"
