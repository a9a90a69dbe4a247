import json

import ollama

from journey import BASE, MODEL, SCHEMA, check, is_city, run

client = ollama.Client(host=BASE)
question = [{"role": "user", "content": "What is the capital of France?"}]


def models():
    "list and show"
    check(any(m.model.split(":")[0] == MODEL for m in client.list().models), "the model is not listed")
    check("completion" in client.show(MODEL).capabilities, "it has no completion")


def chat():
    "chat"
    answer = client.chat(model=MODEL, messages=question, options={"num_predict": 40, "temperature": 0})
    check(answer.message.content and answer.eval_count, answer)


def stream():
    "stream"
    parts = list(client.chat(model=MODEL, messages=question, stream=True, options={"num_predict": 12}))
    check(len(parts) > 3 and parts[-1].done, parts[-1])


def generate():
    "generate"
    check(client.generate(model=MODEL, prompt="What is the capital of France?", options={"num_predict": 8}).response, "no text")


def schema():
    "JSON schema"
    is_city(json.loads(client.chat(model=MODEL, messages=question, format=SCHEMA, options={"num_predict": 60}).message.content))


run("ollama", models, chat, stream, generate, schema)
