#!/usr/bin/env bash
# Assembles the trained classifier and packs it into model_store/sentiment.mar.
#   HEAD=...  another head that train.py wrote (default: head.safetensors)
#   WORK=...  where Transformer_model/ and model_store/ go (default: this folder)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${WORK:-$here}/model_store"
cd "${WORK:-$here}"

python "$here/assemble.py" ${HEAD:+--head "$HEAD"}

archive-model --model-name sentiment --version 1.0 \
    --serialized-file Transformer_model/model.safetensors \
    --handler transformer_handler \
    --config-file "$here/model-config.yaml" \
    --extra-files "Transformer_model/*.json,$here/index_to_name.json" \
    --export-path model_store --force
echo "packed $PWD/model_store/sentiment.mar"
