"""LiteLLM's proxy in front of the server, with the configuration of docs/clients.md: the built-in model is the small one."""

import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time

import openai

from journey import BASE, MODEL, TOO_LONG, check, run

docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "clients.md")
with open(docs) as f:
    config = re.search(r"LiteLLM's proxy.*?```yaml\n(.*?)```", f.read(), re.S).group(1)
folder = tempfile.mkdtemp(prefix="litellm-")
with open(os.path.join(folder, "config.yaml"), "w") as f:
    f.write(config.replace("http://localhost:8080", BASE).replace("SMALL", "guide").replace("LARGE", MODEL))
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
log = open(os.path.join(folder, "log"), "w+")
key = "sk-" + secrets.token_hex(16)
proxy = subprocess.Popen(
    [os.path.join(os.path.dirname(sys.executable), "litellm"), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)],
    env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": key}, stdout=log, stderr=log, cwd=folder,
)
client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0)


def start():
    for _ in range(6000):
        if proxy.poll() is not None:
            break
        try:
            client.models.list()
            return
        except openai.APIConnectionError:
            time.sleep(0.1)
    log.seek(0)
    raise SystemExit("the proxy does not start:\n" + log.read()[-3000:])


def ask(text, **more):
    return client.chat.completions.create(model="small", messages=[{"role": "user", "content": text}], max_tokens=8, **more)


def chat():
    "proxy: chat"
    check(ask("What is a token?").choices[0].message.content, "no text")


def stream():
    "proxy: stream"
    check(sum(1 for c in ask("What is a token?", stream=True) if c.choices and c.choices[0].delta.content) > 3, "no pieces")


def fallback():
    "proxy: context_window_fallbacks: what is too long for a context of 1,024 is answered with one of 2,048"
    for more in ({}, {"stream": True}):
        text = TOO_LONG[: len(TOO_LONG) // 2]
        if more:
            check(any(c.choices and c.choices[0].delta.content for c in ask(text, **more)), "no pieces")
        else:
            answer = ask(text)
            check(answer.choices[0].message.content and answer.usage.prompt_tokens > 1024, answer)


def too_long():
    "proxy: too long a prompt for both"
    try:
        ask(TOO_LONG)
    except openai.BadRequestError as e:
        check("2048" in str(e) or "1024" in str(e), e)
    else:
        check(False, "not refused")


try:
    start()
    run("litellm", chat, stream, fallback, too_long)
finally:
    proxy.terminate()
    proxy.wait()
