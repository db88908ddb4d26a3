"""The server and the libraries that agents are made with."""

import asyncio
import importlib.util
import os
import sys
import unittest
from typing import Literal

from program import CLIENTS
from server import TEMPLATE, ServedCase

sys.path.insert(0, str(CLIENTS))  # before what the interpreter has of the same names
NAMES = ("agents", "langchain_anthropic", "langchain_openai", "pydantic_ai", "smolagents")
MISSING = [name for name in NAMES if importlib.util.find_spec(name) is None]
FINE = {"guided_choice": ["fine"]}  # what an answer is


def weather(city: Literal["Rome", "Oslo"]) -> str:
    """Tells the weather.

    Args:
        city: where
    """
    return f"sunny in {city}"


WEATHERS = (weather("Rome"), weather("Oslo"))


@unittest.skipIf(MISSING, f"without {', '.join(MISSING)}; tools/setup --dev installs them")
class ServeAgentsTest(ServedCase):
    """One server for all libraries."""

    template = TEMPLATE + "{# <tool_call> #}"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.openai = {"base_url": cls.server.url + "/v1", "api_key": "none"}
        cls.anthropic = {"base_url": cls.server.url, "api_key": "none"}
        os.environ["LANGSMITH_TRACING"] = "false"

    @staticmethod
    def place():
        from pydantic import BaseModel

        class Place(BaseModel):
            """A place."""

            warm: bool
            kind: Literal["town", "lake"]

        return Place

    def test_openai_agents(self):
        asyncio.run(self.run_openai_agents())

    async def run_openai_agents(self):
        import agents
        from openai import AsyncOpenAI

        agents.set_tracing_disabled(True)
        place, tool = self.place(), agents.function_tool(weather)
        async with AsyncOpenAI(**self.openai) as api:
            for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
                def agent(settings, model=kind(model="demo", openai_client=api), **more):
                    return agents.Agent(name="A", instructions="Be brief.", model=model, **more,
                                        model_settings=agents.ModelSettings(temperature=0, **settings))

                result = await agents.Runner.run(agent({"extra_body": FINE}), "Anne")
                self.assertEqual(result.final_output, "fine")
                self.assertGreater(result.context_wrapper.usage.input_tokens, 0)
                stream = agents.Runner.run_streamed(agent({"extra_body": FINE}), "Anne")
                deltas = [e.data.delta async for e in stream.stream_events()
                          if e.type == "raw_response_event" and e.data.type == "response.output_text.delta"]
                self.assertEqual("".join(deltas), "fine")
                must = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200}
                calls = agent(must, tools=[tool], tool_use_behavior="stop_on_first_tool")
                self.assertIn((await agents.Runner.run(calls, "Anne")).final_output, WEATHERS)
                self.assertIsInstance((await agents.Runner.run(agent({"max_tokens": 200}, output_type=place), "Anne")).final_output, place)

    def test_pydantic_ai(self):
        asyncio.run(self.run_pydantic_ai())

    async def run_pydantic_ai(self):
        from pydantic_ai import Agent, NativeOutput
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.anthropic import AnthropicProvider
        from pydantic_ai.providers.openai import OpenAIProvider

        place = self.place()
        for kind, provider in ((OpenAIChatModel, OpenAIProvider(**self.openai)), (OpenAIResponsesModel, OpenAIProvider(**self.openai)),
                               (AnthropicModel, AnthropicProvider(**self.anthropic))):
            model = kind("demo", provider=provider)
            fine = Agent(model, instructions="Be brief.", model_settings={"max_tokens": 50, "extra_body": FINE})
            first = await fine.run("Anne")
            self.assertEqual(first.output, "fine")
            again = await fine.run("Anne", message_history=first.all_messages())
            self.assertEqual((again.output, len(again.all_messages())), ("fine", 4))
            async with fine.run_stream("Anne") as stream:
                self.assertEqual("".join([text async for text in stream.stream_text(delta=True)]), "fine")
            settings = {"max_tokens": 300, "temperature": 0, "parallel_tool_calls": False}
            for output in (place,) if kind is AnthropicModel else (place, NativeOutput(place)):
                self.assertIsInstance((await Agent(model, output_type=output, model_settings=settings).run("Anne")).output, place)

    def test_langchain(self):
        from langchain_anthropic import ChatAnthropic
        from langchain_core.messages import HumanMessage
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI

        place, told = self.place(), tool(weather)
        options = {"model": "demo", "max_tokens": 200}
        for model in (ChatOpenAI(temperature=0, **options, **self.openai),
                      ChatOpenAI(temperature=0, use_responses_api=True, **options, **self.openai), ChatAnthropic(**options, **self.anthropic)):
            fine = model.bind(extra_body=FINE)
            whole = fine.invoke([("system", "Be brief."), ("human", "Anne")])
            self.assertEqual(whole.text, "fine")
            self.assertGreater(whole.usage_metadata["input_tokens"], 0)
            self.assertEqual("".join(part.text for part in fine.stream("Anne")), "fine")
            asked = model.bind_tools([told], tool_choice="any", parallel_tool_calls=False).invoke("Anne")
            call, = asked.tool_calls
            result = told.invoke(call)
            self.assertIn(result.content, WEATHERS)
            answer = model.bind_tools([told]).bind(extra_body=FINE).invoke([HumanMessage("Anne"), asked, result])
            self.assertEqual(answer.text, "fine")
            for method in ("json_schema", "function_calling"):
                self.assertIsInstance(model.with_structured_output(place, method=method).invoke("Anne"), place)

    def test_smolagents(self):
        from smolagents import OpenAIModel, tool

        model = OpenAIModel(model_id="demo", api_base=self.openai["base_url"], api_key="none", max_tokens=200, temperature=0)
        asked = [{"role": "user", "content": [{"type": "text", "text": "Anne"}]}]
        answer = model(asked, extra_body=FINE)
        self.assertEqual(answer.content, "fine")
        self.assertGreater(answer.token_usage.input_tokens, 0)
        self.assertEqual("".join(part.content or "" for part in model.generate_stream(asked, extra_body=FINE)), "fine")
        call = model(asked, tools_to_call_from=[tool(weather)], parallel_tool_calls=False).tool_calls[0].function
        self.assertEqual(call.name, "weather")
