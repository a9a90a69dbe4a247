import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look-up of prices in the network

import litellm

from journey import BASE, MODEL, TOO_LONG, check, run

question = [{"role": "user", "content": "What is the capital of France?"}]


def ask(provider, **more):
    base = BASE + "/v1" if provider == "openai" else BASE
    return litellm.completion(model=f"{provider}/{MODEL}", api_base=base, api_key="none", **{"messages": question, "max_tokens": 12, "num_retries": 0, **more})


def chat():
    "chat as of OpenAI, Anthropic and Ollama"
    for provider in ("openai", "anthropic", "ollama_chat"):
        check(ask(provider).choices[0].message.content, provider)


def stream():
    "stream as of OpenAI, Anthropic and Ollama"
    for provider in ("openai", "anthropic", "ollama_chat"):
        check(sum(1 for c in ask(provider, stream=True) if c.choices[0].delta.content) > 3, provider)


def too_long():
    "too long a prompt is recognised, as of OpenAI and Anthropic"
    for provider in ("openai", "anthropic"):  # litellm knows no error of Ollama's as this one
        try:
            ask(provider, messages=[{"role": "user", "content": TOO_LONG}])
        except litellm.ContextWindowExceededError:
            continue
        check(False, f"{provider}: not refused")


run("litellm", chat, stream, too_long)
