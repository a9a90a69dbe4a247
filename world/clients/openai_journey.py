import json

import openai

from journey import BASE, MODEL, SCHEMA, TOO_LONG, check, is_city, run

client = openai.OpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0)
question = [{"role": "user", "content": "What is the capital of France?"}]
tool = {"type": "function", "function": {"name": "visit", "description": "Visits a city.", "parameters": SCHEMA}}


def models():
    "models"
    check(MODEL in [m.id for m in client.models.list()], "the model is not listed")


def chat():
    "chat"
    answer = client.chat.completions.create(model=MODEL, messages=question, max_tokens=40, temperature=0)
    check(answer.choices[0].message.content, answer)
    check(answer.usage.completion_tokens > 0, answer.usage)


def stream():
    "stream"
    chunks = list(client.chat.completions.create(model=MODEL, messages=question, max_tokens=12, stream=True, stream_options={"include_usage": True}))
    check(sum(1 for c in chunks if c.choices and c.choices[0].delta.content) > 3, "no pieces")
    check(chunks[-1].usage.completion_tokens > 3, chunks[-1])


def seed():
    "seed"
    texts = {client.chat.completions.create(model=MODEL, messages=question, max_tokens=20, temperature=1, seed=7).choices[0].message.content for _ in range(2)}
    check(len(texts) == 1, texts)


def log_probabilities():
    "log probabilities"
    content = client.chat.completions.create(model=MODEL, messages=question, max_tokens=3, logprobs=True, top_logprobs=4).choices[0].logprobs.content
    check(len(content) == 3 and all(len(t.top_logprobs) == 4 and t.logprob <= 0 for t in content), content)


def schema():
    "JSON schema"
    answer = client.chat.completions.create(
        model=MODEL, messages=question, max_tokens=60, response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
    )
    is_city(json.loads(answer.choices[0].message.content))


def tools():
    "a required tool, streamed"
    arguments = ""
    for c in client.chat.completions.create(model=MODEL, messages=question, tools=[tool], tool_choice="required", max_tokens=80, stream=True):
        for call in (c.choices[0].delta.tool_calls or []) if c.choices else []:
            arguments += call.function.arguments or "" if call.index == 0 else ""
    is_city(json.loads(arguments))


def responses():
    "responses"
    answer = client.responses.create(model=MODEL, input="What is the capital of France?", max_output_tokens=40, temperature=0)
    check(answer.output_text, answer)


def completions():
    "text completions with echo"
    answer = client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=0, echo=True, logprobs=2)
    check(len(answer.choices[0].logprobs.token_logprobs) == 5, answer)


def too_long():
    "too long a prompt"
    try:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": TOO_LONG}])
    except openai.BadRequestError as e:
        check(e.code == "context_length_exceeded", e)
    else:
        check(False, "not refused")


def too_long_system():
    "a system prompt that does not fit is named"
    try:
        client.chat.completions.create(model=MODEL, messages=[{"role": "system", "content": TOO_LONG}, {"role": "user", "content": "Hi"}])
    except openai.BadRequestError as e:
        check(e.code == "context_length_exceeded" and "are the system prompt: shorten that" in str(e), e)
    else:
        check(False, "not refused")


def too_long_tools():
    "tools that do not fit are named"
    tool = {"type": "function", "function": {"name": "visit", "description": TOO_LONG, "parameters": {"type": "object", "properties": {}}}}
    try:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], tools=[tool])
    except openai.BadRequestError as e:
        check(e.code == "context_length_exceeded" and "are the definitions of the tools: offer fewer" in str(e), e)
    else:
        check(False, "not refused")


def several():
    "several answers by n, and by llama-server's n_cmpl"
    for fields in ({"n": 2}, {"extra_body": {"n_cmpl": 2}}):
        answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=4, **fields)
        check(len(answer.choices) == 2, answer)


def embeddings():
    "embeddings of a chat model are refused without retries"
    try:
        client.embeddings.create(model=MODEL, input="lamp")
    except openai.APIStatusError as e:
        check(400 <= e.status_code < 500, e)
    else:
        check(False, "not refused")


run("openai", models, chat, stream, seed, log_probabilities, schema, tools, responses, completions, several, too_long, too_long_system, too_long_tools, embeddings)
