"""The server in front of another engine: what the page and the APIs send to it."""

import openai

from journey import BASE, MODEL, check, run

client = openai.OpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0)
question = [{"role": "user", "content": "What is the capital of France?"}]
settings = {"top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1, "repeat_last_n": -1, "dry_multiplier": 0.8, "dry_penalty_last_n": -1}


def chat():
    "chat"
    check(client.chat.completions.create(model=MODEL, messages=question, max_tokens=12).choices[0].message.content, "no text")


def samplers():
    "stream with windows of the whole context for DRY and the penalties"
    chunks = client.chat.completions.create(model=MODEL, messages=question, max_tokens=12, stream=True, extra_body=settings)
    check(sum(1 for c in chunks if c.choices and c.choices[0].delta.content) > 3, "no pieces")


run("openai", chat, samplers)
