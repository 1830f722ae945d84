#!/usr/bin/env bash
# Gets a model and packs it into model_store/BERTTokenClassification.mar.
#   MODEL=...  hub id, directory, package:NAME or tiny:ARCHITECTURE (default: see model-config.yaml)
#   WORK=...   where Transformer_model/ and model_store/ go (default: this folder)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${WORK:-$here}/model_store"
cd "${WORK:-$here}"

python "$here/../download_transformer_models.py" "$here/model-config.yaml" ${MODEL:+--model "$MODEL"}

archive-model --model-name BERTTokenClassification --version 1.0 \
    --serialized-file Transformer_model/model.safetensors \
    --handler transformer_handler \
    --config-file "$here/model-config.yaml" \
    --extra-files "Transformer_model/*.json,$here/index_to_name.json" \
    --export-path model_store --force
echo "packed $PWD/model_store/BERTTokenClassification.mar"
