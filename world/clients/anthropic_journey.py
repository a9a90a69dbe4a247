import anthropic

from journey import BASE, MODEL, SCHEMA, TOO_LONG, check, is_city, run

client = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
question = [{"role": "user", "content": "What is the capital of France?"}]


def models():
    "models"
    check(MODEL in [m.id for m in client.models.list()], "the model is not listed")


def message():
    "message"
    answer = client.messages.create(model=MODEL, max_tokens=24, messages=question)
    check(answer.content[0].text, answer)


def stream():
    "stream"
    with client.messages.stream(model=MODEL, max_tokens=12, messages=question) as s:
        pieces = list(s.text_stream)
        check(len(pieces) > 3 and s.get_final_message().stop_reason == "max_tokens", pieces)


def tools():
    "a required tool"
    answer = client.messages.create(
        model=MODEL, max_tokens=80, messages=question, tools=[{"name": "visit", "input_schema": SCHEMA}], tool_choice={"type": "any"}
    )
    is_city(next(b.input for b in answer.content if b.type == "tool_use"))


def count():
    "token count"
    check(client.messages.count_tokens(model=MODEL, messages=question).input_tokens > 7, "too few")


def too_long():
    "too long a prompt"
    try:
        client.messages.create(model=MODEL, max_tokens=4, messages=[{"role": "user", "content": TOO_LONG}])
    except anthropic.BadRequestError as e:
        check("prompt is too long" in str(e), e)
    else:
        check(False, "not refused")


run("anthropic", models, message, stream, tools, count, too_long)
