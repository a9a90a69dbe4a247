"""Runs the steps of a journey, and prints a line of JSON for each. The steps' docstrings name them in docs/compatibility.md."""

import importlib.metadata
import json
import sys

BASE, MODEL = sys.argv[1:3]

# The server of the test has a context of 2,048 tokens.
TOO_LONG = "The keeper climbed the stairs and lit the lamp. " * 300

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}, "people": {"type": "integer", "minimum": 0, "maximum": 999}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


def check(value, what):
    if not value:
        raise AssertionError(what)


def is_city(value):
    check(value["city"] in ("Rome", "Oslo") and isinstance(value["people"], int), f"not of the schema: {value}")


def run(package, *steps):
    version = importlib.metadata.version(package)
    for step in steps:
        error = ""
        try:
            step()
        except Exception as e:  # whatever a client raises is its result
            error = f"{type(e).__name__}: {e}"[:600]
        print(json.dumps({"client": package, "version": version, "feature": step.__doc__, "error": error}), flush=True)
