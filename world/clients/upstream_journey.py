"""The server in front of another engine: all APIs, and what the page sends."""

import json

import anthropic
import ollama
import openai

from journey import BASE, MODEL, SCHEMA, TOO_LONG, check, is_city, run

client = openai.OpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0)
question = [{"role": "user", "content": "What is the capital of France?"}]
settings = {"top_k": 40, "min_p": 0.05, "repeat_penalty": 1.1, "repeat_last_n": -1, "dry_multiplier": 0.8, "dry_penalty_last_n": -1}
tool = {"type": "function", "function": {"name": "visit", "description": "Visits a city.", "parameters": SCHEMA}}


def chat():
    "chat"
    check(client.chat.completions.create(model=MODEL, messages=question, max_tokens=12).choices[0].message.content, "no text")


def samplers():
    "stream with windows of the whole context for DRY and the penalties"
    chunks = client.chat.completions.create(model=MODEL, messages=question, max_tokens=12, stream=True, extra_body=settings)
    check(sum(1 for c in chunks if c.choices and c.choices[0].delta.content) > 3, "no pieces")


def schema():
    "JSON schema"
    answer = client.chat.completions.create(
        model=MODEL, messages=question, max_tokens=80, response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
    )
    is_city(json.loads(answer.choices[0].message.content))


def grammar():
    "grammar, or its refusal where the engine has none"
    try:
        answer = client.chat.completions.create(model=MODEL, messages=question, max_tokens=8, extra_body={"grammar": 'root ::= "yes" | "no"'})
    except openai.BadRequestError as e:
        check(e.param == "grammar", e)
    else:
        check(answer.choices[0].message.content in ("yes", "no"), answer)


def log_probabilities():
    "log probabilities"
    content = client.chat.completions.create(model=MODEL, messages=question, max_tokens=3, logprobs=True, top_logprobs=4).choices[0].logprobs.content
    check(len(content) == 3 and all(len(t.top_logprobs) == 4 and t.logprob <= 0 for t in content), content)


def tools():
    "tools, in the system prompt where the template shows none"
    answer = client.chat.completions.create(model=MODEL, messages=question, tools=[tool], max_tokens=40)
    check(answer.choices[0].message.content or answer.choices[0].message.tool_calls, answer)


def completions():
    "text completions"
    check(client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=6).choices[0].text, "no text")


def responses():
    "responses"
    check(client.responses.create(model=MODEL, input="What is the capital of France?", max_output_tokens=20).output_text, "no text")


def messages():
    "messages of Anthropic's API, whole and streamed"
    one = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
    check(one.messages.create(model=MODEL, max_tokens=12, messages=question).content[0].text, "no text")
    with one.messages.stream(model=MODEL, max_tokens=12, messages=question) as s:
        check(len(list(s.text_stream)) > 3, "no pieces")


def ollamas():
    "chat and generate of Ollama's API, and what it lists"
    one = ollama.Client(host=BASE)
    check(one.chat(model=MODEL, messages=question, options={"num_predict": 12}).message.content, "no text")
    check(one.generate(model=MODEL, prompt="The capital of France is", options={"num_predict": 8}).response, "no text")
    first, second = ({m.model: (m.digest, m.modified_at) for m in one.list().models}.get(MODEL) for _ in range(2))
    check(first and first == second, (first, second))
    shown = one.show(MODEL)
    check(shown.details.parameter_size != "0.00K" and shown.modelinfo.get("general.parameter_count") != 0, shown)
    check("tools" in shown.capabilities, shown.capabilities)
    check(any(k.endswith(".context_length") and v == 2048 for k, v in shown.modelinfo.items()), shown.modelinfo)


def too_long():
    "too long a prompt has the engine's figures"
    try:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": TOO_LONG}])
    except openai.BadRequestError as e:
        check(e.code == "context_length_exceeded" and "2048" in str(e) and " 0 tokens" not in str(e), e)
    else:
        check(False, "not refused")


def limit():
    "a limit of tokens above what the context holds"
    answer = client.chat.completions.create(model=MODEL, messages=question, max_tokens=100000, stop=["e", "a"])
    check(answer.usage.completion_tokens < 2048, answer.usage)


def counted():
    "counting tokens is refused by name"
    try:
        anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0).messages.count_tokens(model=MODEL, messages=question)
    except anthropic.BadRequestError as e:
        check(MODEL in str(e), e)
    else:
        check(False, "not refused")


run("openai", chat, samplers, schema, grammar, log_probabilities, tools, completions, responses, too_long, limit)
run("anthropic", messages, counted)
run("ollama", ollamas)
