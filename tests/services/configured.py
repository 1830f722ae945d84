"""Answers with its model-config.yaml, manifest, system properties, folder and request headers."""

import os


def handle(data, context):
    if data is None:
        return None
    return [
        {
            "config": context.model_yaml_config,
            "manifest": context.manifest,
            "properties": context.system_properties,
            "folder": os.getcwd(),
            "headers": context.get_all_request_header(index),
        }
        for index in range(len(data))
    ]
