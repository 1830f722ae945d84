"""Fails at import: the package it needs does not exist."""

import a_package_that_nobody_has


def handle(data, context):
    return a_package_that_nobody_has.predict(data)
