"""A client that openapi-python-client generates from /openapi.json."""

import os
import subprocess
import sys
import tempfile

from journey import BASE, MODEL, TOO_LONG, check, run

folder = tempfile.TemporaryDirectory(prefix="generated-")
sys.path.insert(0, folder.name)
question = {"model": MODEL, "messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 12}


def generate():
    "a client is generated from /openapi.json"
    config = os.path.join(folder.name, "config.yml")
    with open(config, "w") as f:
        f.write("post_hooks: []\n")
    program = os.path.join(os.path.dirname(sys.executable), "openapi-python-client")
    subprocess.run([program, "generate", "--url", BASE + "/openapi.json", "--config", config, "--meta", "none", "--output-path", os.path.join(folder.name, "generated")], check=True, stdout=sys.stderr)


def models():
    "models"
    from generated import Client
    from generated.api.default import get_v1_models

    check(MODEL in [m.id for m in get_v1_models.sync(client=Client(BASE)).data], "the model is not listed")


def chat():
    "chat"
    from generated import Client
    from generated.api.default import post_v1_chat_completions as route
    from generated.models import ApiChatRequest, ApiChatResponse

    answer = route.sync(client=Client(BASE, timeout=120), body=ApiChatRequest.from_dict(question))
    check(isinstance(answer, ApiChatResponse) and answer.choices[0].message.content, answer)
    check(ApiChatResponse.from_dict(answer.to_dict()) == answer, "an answer is not what it is read as")


def message():
    "message of Anthropic's API"
    from generated import Client
    from generated.api.default import post_v1_messages as route
    from generated.models import ApiAnthropicRequest

    answer = route.sync(client=Client(BASE, timeout=120), body=ApiAnthropicRequest.from_dict(question))
    check(answer.content[0].text and answer.usage.output_tokens <= 12, answer)


def tokens():
    "tokens of a text, and back"
    from generated import Client
    from generated.api.default import post_detokenize, post_tokenize
    from generated.models import ApiDetokenizeRequest, ApiTokenizeRequest

    client = Client(BASE)
    tokens = post_tokenize.sync(client=client, body=ApiTokenizeRequest.from_dict({"content": "A lamp."})).tokens
    check(post_detokenize.sync(client=client, body=ApiDetokenizeRequest.from_dict({"tokens": tokens})).content == "A lamp.", tokens)


def errors():
    "too long a prompt is an error of the description"
    from generated import Client
    from generated.api.default import post_v1_chat_completions as route
    from generated.models import ApiChatRequest, FailureBody

    got = route.sync_detailed(client=Client(BASE), body=ApiChatRequest.from_dict({**question, "messages": [{"role": "user", "content": TOO_LONG}]}))
    check(got.status_code == 400 and isinstance(got.parsed, FailureBody) and got.parsed.error.code == "context_length_exceeded", got)


run("openapi-python-client", generate, models, chat, message, tokens, errors)
