from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from journey import BASE, MODEL, check, run

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE + "/v1", api_key="none"))
settings = {"max_tokens": 80, "temperature": 0}


class City(BaseModel):
    city: Literal["Rome", "Oslo"]
    people: int = Field(ge=0, le=999)


def text():
    "text"
    check(Agent(model, model_settings=settings).run_sync("What is the capital of France?").output, "no text")


def native():
    "output of a schema"
    Agent(model, output_type=NativeOutput(City), model_settings=settings).run_sync("What is the capital of Italy?")


def function():
    "output by a function"
    Agent(model, output_type=City, model_settings=settings).run_sync("What is the capital of Italy?")


run("pydantic-ai-slim", text, native, function)
