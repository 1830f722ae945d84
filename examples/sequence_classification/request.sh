#!/usr/bin/env bash
# Sends this example's requests to a server that serves my_tc; prints each command and its answer.
#   INFERENCE=...   default http://127.0.0.1:8080
#   MANAGEMENT=...  default http://127.0.0.1:8081
set -euo pipefail
cd "$(dirname "$0")"
inference=${INFERENCE:-http://127.0.0.1:8080} management=${MANAGEMENT:-http://127.0.0.1:8081}

ask() {
    local answer status=0
    echo "\$ curl $*" >&2
    answer=$(curl --silent --show-error --fail-with-body "$@") || status=$?
    printf '%s\n' "$answer"
    return $status
}

echo "# Predictions: plain text, JSON, and TorchServe's python literal"
ask -X POST "$inference/predictions/my_tc" -T sample_text.txt
ask -H "Content-Type: application/json" --data-binary @sample_input.json "$inference/predictions/my_tc"
ask -X POST "$inference/predictions/my_tc/1.0" -T sample_text_captum_input.txt

echo "# Explanations"
ask -H "Content-Type: application/json" --data-binary @sample_input.json "$inference/explanations/my_tc"
ask -X POST "$inference/explanations/my_tc" -T sample_text_captum_input.txt

echo "# Batch inference by the management API: register again with a batch size, send two at once"
ask -X DELETE "$management/models/my_tc"
ask -X POST "$management/models?url=BERTSeqClassification.mar&model_name=my_tc&batch_size=4&max_batch_delay=100&initial_workers=1"
ask "$management/models/my_tc"
answers=$(mktemp -d)
trap 'rm -r "$answers"' EXIT
ask -X POST "$inference/predictions/my_tc" -T sample_text.txt >"$answers/1" &
first=$!
ask -X POST "$inference/predictions/my_tc" -T sample_text2.txt >"$answers/2" &
second=$!
wait "$first"
wait "$second"
cat "$answers/1" "$answers/2"
