"""lm-eval's client of text completions with echo, its remote tokenizer, and a task that lies here."""

import json
import os
import subprocess
import sys
import tempfile

from journey import BASE, MODEL, check, run

CASES = [
    ("The capital of France is", ["Paris", "seventeen"]),
    ("Two plus two is", ["four", "a lighthouse"]),
    ("The sun rises in the", ["east", "spoon"]),
    ("Water freezes into", ["ice", "Tuesday"]),
]
TASK = """task: world
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: 0
target_delimiter: " "
metric_list:
  - metric: acc
"""


def task():
    "a multiple-choice task by local-completions with echo and the remote tokenizer"
    folder = tempfile.mkdtemp(prefix="lm-eval-")
    data = os.path.join(folder, "world.jsonl")
    with open(data, "w") as f:
        for question, choices in CASES:
            f.write(json.dumps({"question": question, "choices": choices}) + "\n")
    with open(os.path.join(folder, "world.yaml"), "w") as f:
        f.write(TASK.format(data=data))
    model = f"model={MODEL},base_url={BASE}/v1/completions,tokenizer_backend=remote,num_concurrent=1,max_retries=1,max_length=2048"
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "lm_eval"), "run", "--model", "local-completions", "--model_args", model]
        + ["--include_path", folder, "--tasks", "world", "--output_path", os.path.join(folder, "out.json")],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": folder, "OPENAI_API_KEY": "none"},
        capture_output=True, text=True, timeout=200,
    )
    check(done.returncode == 0, done.stderr[-500:])
    out = next(os.path.join(folder, n) for n in os.listdir(folder) if n.startswith("out"))
    with open(out) as f:
        accuracy = json.load(f)["results"]["world"]["acc,none"]
    check(accuracy >= 0.75, f"accuracy {accuracy}")


run("lm-eval", task)
