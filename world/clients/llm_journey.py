import os
import subprocess
import sys
import tempfile

from journey import BASE, MODEL, check, run

home = tempfile.mkdtemp(prefix="llm-")
with open(os.path.join(home, "extra-openai-models.yaml"), "w") as f:
    f.write(f"- model_id: local\n  model_name: {MODEL}\n  api_base: {BASE}/v1\n")


def llm(*args):
    env = {**os.environ, "LLM_USER_PATH": home, "OPENAI_API_KEY": "none"}
    done = subprocess.run([sys.executable, "-m", "llm", *args], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    check(done.returncode == 0, done.stderr[-400:])
    return done.stdout


def prompt():
    "prompt, streamed and whole"
    for flags in ([], ["--no-stream"]):
        check(llm("-m", "local", "-o", "temperature", "0", "-o", "max_tokens", "40", *flags, "What is the capital of France?").strip(), "no text")


def conversation():
    "conversation goes on"
    check(llm("-m", "local", "-c", "-o", "max_tokens", "12", "And of Italy?").strip(), "no text")


run("llm", prompt, conversation)
