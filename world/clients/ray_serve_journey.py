"""Ray Serve with two replicas on two nodes, by the file of docs/upstreams.md, behind --upstream. It has a network of its own, because Ray
listens on all addresses: arguments are m40-llm, llama-server and a model file."""

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

PROGRAM, ENGINE, MODEL = sys.argv[1:4]
bin = os.path.dirname(sys.executable)
folder = tempfile.mkdtemp(prefix="ray-")
docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "upstreams.md")
with open(docs) as f:
    recipe = re.search(r"```python\n(.*?)```", f.read(), re.S).group(1)
with open(os.path.join(folder, "app.py"), "w") as f:
    f.write(recipe)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
log = open(os.path.join(folder, "log"), "w+")
started = []


def start(*command, **env):
    p = subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": folder, "PATH": bin + ":" + os.environ["PATH"], "RAY_USAGE_STATS_ENABLED": "0", **env}, stdout=log, stderr=log)
    started.append(p)
    return p


def wait(url, text=""):
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=5) as got:
                if text in got.read().decode():
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"{url} is not ready")


def streams(name):
    "Has 16 streams ask four times each, and returns what went wrong."
    wrong = []

    def ask(i):
        for k in range(4):
            body = {"model": "remote", "messages": [{"role": "user", "content": f"What is lamp {name} {i} {k}?"}], "max_tokens": 16, "stream": True}
            r = urllib.request.Request("http://127.0.0.1:18090/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
            try:
                with urllib.request.urlopen(r, timeout=120) as got:
                    text = got.read().decode()
                    if '"error"' in text or "[DONE]" not in text:
                        wrong.append(text[-200:])
            except OSError as e:
                wrong.append(str(e))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return wrong


def report(feature, wrong):
    print(json.dumps({"client": "ray[serve]", "version": importlib.metadata.version("ray"), "feature": feature, "error": f"{len(wrong)} of 64: {wrong[0]}" if wrong else ""}), flush=True)


try:
    engines = [start(ENGINE, "-m", MODEL, "--alias", "remote", "-c", "4096", "-np", "4", "-t", "1", "--poll", "0", "--host", "127.0.0.1", "--port", str(port)) for port in (18081, 18082)]
    node = ["--node-ip-address", "127.0.0.1", "--num-cpus", "2", "--object-store-memory", "100000000", "--block"]
    start("ray", "start", "--head", "--port", "6379", "--include-dashboard=false", *node, ENGINE="http://127.0.0.1:18081")
    subprocess.run(["bash", "-c", "until exec 3<>/dev/tcp/127.0.0.1/6379; do sleep 0.2; done"], stderr=subprocess.DEVNULL, timeout=120, check=True)
    start("ray", "start", "--address", "127.0.0.1:6379", *node, ENGINE="http://127.0.0.1:18082")
    for port in (18081, 18082):
        wait(f"http://127.0.0.1:{port}/health")
    for _ in range(60):  # until the head takes drivers and both nodes are there
        alive = subprocess.run([sys.executable, "-c", "import ray; ray.init('127.0.0.1:6379', log_to_driver=False); print(sum(n['Alive'] for n in ray.nodes()))"], cwd=folder, stdout=subprocess.PIPE, stderr=log)
        if alive.stdout.split()[-1:] == [b"2"]:
            break
        time.sleep(1)
    start("serve", "run", "--address", "127.0.0.1:6379", "--route-prefix", "/", "app:engine")
    wait("http://127.0.0.1:8000/v1/models", "remote")
    start(PROGRAM, "serve", "--addr", "127.0.0.1:18090", "--open=false", "--data", os.path.join(folder, "data"), "--upstream", "http://127.0.0.1:8000")
    wait("http://127.0.0.1:18090/v1/models", "remote")
    report("two replicas behind --upstream: 16 streams, four questions each", streams("first"))
    engines[0].send_signal(signal.SIGKILL)
    report("the engine of one replica is killed: 16 streams, four questions each", streams("second"))
    report("later: 16 streams, four questions each", streams("third"))
except BaseException:
    log.seek(0)
    print(log.read()[-6000:], file=sys.stderr)
    raise
finally:
    for p in reversed(started):
        p.terminate()
    for p in reversed(started):
        try:
            p.wait(20)
        except subprocess.TimeoutExpired:
            p.kill()
