"""Requests that schemathesis derives from /openapi.json: no server errors, and answers as the document says."""

import os
import subprocess
import sys
import tempfile

from journey import BASE, check, run

# Routes that are others by another name: the same functions answer them.
TWINS = "^/(chat/completions|completions|responses|responses/.*|embeddings|rerank|reranking|models/.*|v1/reranking)$"


def requests():
    "requests made from /openapi.json: 0 server errors, 0 violations"
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", BASE + "/openapi.json", "--phases", "examples,coverage"]
        + ["--exclude-path-regex", TWINS, "--max-examples", "5", "--seed", "1", "--no-color", "--checks", "not_a_server_error,response_schema_conformance,status_code_conformance,content_type_conformance"],
        cwd=tempfile.mkdtemp(prefix="schemathesis-"),  # it writes a cache where it runs
        capture_output=True, text=True, timeout=400,
    )
    check(done.returncode == 0, done.stdout[-3000:])


run("schemathesis", requests)
