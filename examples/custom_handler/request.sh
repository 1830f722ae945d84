#!/usr/bin/env bash
# Sends this example's requests to a server that serves word_count; prints commands and answers.
#   INFERENCE=...  default http://127.0.0.1:8080
set -euo pipefail
cd "$(dirname "$0")"
inference=${INFERENCE:-http://127.0.0.1:8080}

ask() {
    local answer status=0
    echo "\$ curl $*" >&2
    answer=$(curl --silent --show-error --fail-with-body "$@") || status=$?
    printf '%s\n' "$answer"
    return $status
}

ask -X POST "$inference/predictions/word_count" -T sample_text.txt
ask -X POST "$inference/predictions/word_count" -T sample_text2.txt
ask -H "Content-Type: application/json" --data-binary @sample_input.json "$inference/predictions/word_count"
