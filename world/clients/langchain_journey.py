import langchain_openai

from journey import BASE, MODEL, SCHEMA, check, is_city, run

model = langchain_openai.ChatOpenAI(base_url=BASE + "/v1", api_key="none", model=MODEL, max_tokens=60, max_retries=0, temperature=0)


def invoke():
    "invoke"
    check(model.invoke("What is the capital of France?").content, "no text")


def stream():
    "stream"
    check(sum(1 for c in model.stream("What is the capital of France?") if c.content) > 3, "no pieces")


def structured():
    "structured output, by a schema and by a function"
    for method in ("json_schema", "function_calling"):
        is_city(model.with_structured_output({"title": "city", "description": "A city.", **SCHEMA}, method=method).invoke("What is the capital of Italy?"))


run("langchain-openai", invoke, stream, structured)
