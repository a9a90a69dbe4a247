// Runs published clients against a server and prints a line of JSON for each client and feature:
// {"client", "feature", "error"}, error being empty where it works. M40_LLM_CLIENTS is the folder
// with their packages; SERVER has a real model, SCRIPTED an engine that calls tools, and whose answers
// to requests without tools have no end; EMBEDDER has a model that computes embeddings of width 64.
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import assert from 'node:assert/strict'
import path from 'node:path'
import fs from 'node:fs'

const modules = process.env.M40_LLM_CLIENTS
const from = createRequire(path.join(modules, 'x.cjs'))
const load = name => import(pathToFileURL(from.resolve(name)))
const version = name => JSON.parse(fs.readFileSync(path.join(modules, name, 'package.json'))).version
const installed = name => fs.existsSync(path.join(modules, name))
const server = process.env.SERVER, scripted = process.env.SCRIPTED, embedder = process.env.EMBEDDER

const question = 'What is a token?'
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false }
const schema = { type: 'object', properties: { colour: { type: 'string', enum: ['red', 'green'] } }, required: ['colour'], additionalProperties: false }
const isColour = text => assert.match(JSON.parse(text).colour, /^(red|green)$/)
const isWeather = args => assert.deepEqual(typeof args === 'string' ? JSON.parse(args) : args, { city: 'Rome' })

// idle waits until no answer is generated any more.
async function idle() {
  for (let i = 0; i < 600; i++) {
    const status = await (await fetch(scripted + '/v1/status')).json()
    if (status.running === 0 && status.queued === 0) return
    await new Promise(resolve => setTimeout(resolve, 100))
  }
  throw new Error('the answer goes on after its client has left')
}

// aborts reads the first event of stream, cancels and expects that the server stops.
async function aborts(stream, cancel) {
  const seen = []
  try {
    for await (const event of stream) {
      seen.push(event)
      assert.ok(seen.length < 1000, 'the stream goes on after it was cancelled')
      if (seen.length === 2) await cancel()
    }
  } catch (error) {
    if (!/abort|cancel/i.test(error.name + error.message)) throw error
  }
  assert.ok(seen.length >= 2)
  await idle()
}

const texts = ['hello world', 'another text']

// areVectors expects a different vector of length 1 for each of texts.
function areVectors(vectors) {
  assert.equal(vectors.length, 2)
  for (const v of vectors) assert.ok(v.length === 64 && Math.abs(Math.hypot(...v) - 1) < 1e-5)
  assert.notDeepEqual(vectors[0], vectors[1])
}

// fails expects the error of a model that does not exist.
async function fails(call, check) {
  try {
    await call()
  } catch (error) {
    check(error)
    return
  }
  assert.fail('a model that does not exist answers')
}

async function* openai() {
  const { default: OpenAI } = await load('openai')
  const at = base => new OpenAI({ baseURL: base + '/v1', apiKey: 'any', maxRetries: 0 })
  const client = at(server), tools = at(scripted)
  const messages = [{ role: 'user', content: question }]
  const chat = more => client.chat.completions.create({ model: 'guide', messages, max_completion_tokens: 8, temperature: 0, ...more })
  const weather = [{ type: 'function', function: { name: 'weather', parameters } }]
  yield ['openai chat', version('openai'), {
    embeddings: async () => {
      const client = at(embedder), ask = more => client.embeddings.create({ model: 'tiny-embed', input: texts, ...more })
      const whole = await ask() // as base64
      areVectors(whole.data.map(d => d.embedding))
      assert.ok(whole.usage.prompt_tokens > 10)
      assert.equal((await ask({ dimensions: 16, encoding_format: 'float' })).data[1].embedding.length, 16)
      await fails(() => client.embeddings.create({ model: 'none', input: 'x' }), e => assert.equal(e.status, 404))
    },
    chat: async () => assert.ok((await chat()).choices[0].message.content),
    stream: async () => {
      let text = ''
      for await (const chunk of await chat({ stream: true })) text += chunk.choices[0]?.delta.content ?? ''
      assert.equal(text, (await chat()).choices[0].message.content)
    },
    usage: async () => {
      let usage
      for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) usage = chunk.usage ?? usage
      assert.equal(usage.completion_tokens, 8)
    },
    abort: async () => {
      const stream = await tools.chat.completions.create({ model: 'guide', messages, stream: true })
      await aborts(stream, () => stream.controller.abort())
    },
    tools: async () => {
      const answer = await tools.chat.completions.create({ model: 'guide', messages, tools: weather })
      isWeather(answer.choices[0].message.tool_calls[0].function.arguments)
      const stream = tools.chat.completions.stream({ model: 'guide', messages, tools: weather })
      isWeather((await stream.finalChatCompletion()).choices[0].message.tool_calls[0].function.arguments)
    },
    results: async () => {
      const runner = tools.chat.completions.runTools({ model: 'guide', messages, tools: [{ type: 'function', function: { ...weather[0].function, parse: JSON.parse, function: ({ city }) => city + ': 20' } }] })
      assert.equal(await runner.finalContent(), 'It is Rome: 20')
    },
    json_schema: async () => isColour((await chat({ max_completion_tokens: 40, response_format: { type: 'json_schema', json_schema: { name: 'c', schema, strict: true } } })).choices[0].message.content),
    errors: () => fails(() => chat({ model: 'none' }), e => assert.ok(e instanceof OpenAI.NotFoundError && e.code === 'model_not_found', e)),
  }]

  const respond = more => client.responses.create({ model: 'guide', input: question, max_output_tokens: 16, temperature: 0, ...more })
  const functions = [{ type: 'function', name: 'weather', parameters, strict: true }, { type: 'web_search' }]
  yield ['openai responses', version('openai'), {
    chat: async () => assert.ok((await respond()).output_text),
    stream: async () => {
      let text = ''
      for await (const event of await respond({ stream: true })) if (event.type === 'response.output_text.delta') text += event.delta
      assert.equal(text, (await respond()).output_text)
      const stream = client.responses.stream({ model: 'guide', input: question, max_output_tokens: 16, temperature: 0 })
      assert.equal((await stream.finalResponse()).output_text, text)
    },
    usage: async () => assert.equal((await respond()).usage.output_tokens, 16),
    abort: async () => {
      const stream = await tools.responses.create({ model: 'guide', input: question, stream: true })
      await aborts(stream, () => stream.controller.abort())
    },
    tools: async () => {
      const call = (await tools.responses.create({ model: 'guide', input: question, tools: functions })).output.find(item => item.type === 'function_call')
      isWeather(call.arguments)
      const stream = tools.responses.stream({ model: 'guide', input: question, tools: functions })
      isWeather((await stream.finalResponse()).output.find(item => item.type === 'function_call').arguments)
    },
    results: async () => {
      const input = [{ role: 'user', content: question }]
      const { output } = await tools.responses.create({ model: 'guide', input, tools: functions, store: false })
      const call = output.find(item => item.type === 'function_call')
      const last = await tools.responses.create({ model: 'guide', input: [...input, ...output, { type: 'function_call_output', call_id: call.call_id, output: '20' }], tools: functions })
      assert.equal(last.output_text, 'It is 20')
    },
    json_schema: async () => isColour((await respond({ max_output_tokens: 40, text: { format: { type: 'json_schema', name: 'c', schema, strict: true } } })).output_text),
    errors: () => fails(() => respond({ previous_response_id: 'resp_1' }), e => assert.ok(e instanceof OpenAI.BadRequestError && e.param === 'previous_response_id', e)),
  }]
}

async function* anthropic() {
  const { default: Anthropic } = await load('@anthropic-ai/sdk')
  const at = base => new Anthropic({ baseURL: base, apiKey: 'any', maxRetries: 0 })
  const client = at(server), scriptedClient = at(scripted)
  const messages = [{ role: 'user', content: question }]
  const ask = more => client.messages.create({ model: 'guide', messages, max_tokens: 8, temperature: 0, ...more })
  const tools = [{ name: 'weather', input_schema: parameters }]
  const use = message => message.content.find(block => block.type === 'tool_use')
  yield ['anthropic', version('@anthropic-ai/sdk'), {
    chat: async () => assert.ok((await ask()).content[0].text),
    stream: async () => {
      const stream = client.messages.stream({ model: 'guide', messages, max_tokens: 8, temperature: 0 })
      assert.equal(await stream.finalText(), (await ask()).content[0].text)
    },
    usage: async () => {
      const { usage, stop_reason } = await ask()
      assert.equal(usage.output_tokens, 8)
      assert.equal(stop_reason, 'max_tokens')
      const counted = await client.messages.countTokens({ model: 'guide', messages })
      assert.equal(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)
    },
    abort: async () => {
      const stream = await scriptedClient.messages.create({ model: 'guide', messages, max_tokens: 900, stream: true })
      await aborts(stream, () => stream.controller.abort())
    },
    tools: async () => {
      isWeather(use(await scriptedClient.messages.create({ model: 'guide', messages, max_tokens: 50, tools })).input)
      const stream = scriptedClient.messages.stream({ model: 'guide', messages, max_tokens: 50, tools })
      const message = await stream.finalMessage()
      assert.equal(message.stop_reason, 'tool_use')
      isWeather(use(message).input)
    },
    results: async () => {
      const first = await scriptedClient.messages.create({ model: 'guide', messages, max_tokens: 50, tools })
      const last = await scriptedClient.messages.create({ model: 'guide', max_tokens: 50, tools, messages: [...messages, { role: 'assistant', content: first.content },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: use(first).id, content: '20' }] }] })
      assert.equal(last.content[0].text, 'It is 20')
    },
    json_schema: async () => isColour((await ask({ max_tokens: 40, output_config: { format: { type: 'json_schema', schema } } })).content[0].text),
    errors: () => fails(() => ask({ model: 'none' }), e => assert.ok(e instanceof Anthropic.NotFoundError && e.error.error.type === 'not_found_error', e)),
  }]
}

async function* ollama() {
  const { Ollama } = await load('ollama')
  const client = new Ollama({ host: server }), scriptedClient = new Ollama({ host: scripted })
  const messages = [{ role: 'user', content: question }]
  const options = { num_predict: 8, temperature: 0, num_ctx: 32768 }
  const chat = more => client.chat({ model: 'guide', messages, options, ...more })
  const tools = [{ type: 'function', function: { name: 'weather', parameters } }]
  yield ['ollama', version('ollama'), {
    embeddings: async () => {
      const client = new Ollama({ host: embedder })
      areVectors((await client.embed({ model: 'tiny-embed', input: texts })).embeddings)
      assert.equal((await client.embeddings({ model: 'tiny-embed', prompt: texts[0] })).embedding.length, 64)
      assert.deepEqual((await client.show({ model: 'tiny-embed' })).capabilities, ['embedding'])
    },
    chat: async () => {
      assert.ok((await chat()).message.content)
      assert.ok((await client.generate({ model: 'guide', prompt: question, options })).response)
      assert.equal((await client.list()).models[0].model, 'guide')
      assert.ok((await client.show({ model: 'guide' })).capabilities.includes('completion'))
      assert.equal((await client.ps()).models[0].name, 'guide')
      assert.ok((await client.version()).version)
    },
    stream: async () => {
      let text = ''
      for await (const part of await chat({ stream: true })) text += part.message.content
      assert.equal(text, (await chat()).message.content)
    },
    usage: async () => {
      const answer = await chat()
      assert.equal(answer.eval_count, 8)
      assert.ok(answer.total_duration >= answer.prompt_eval_duration + answer.eval_duration && answer.eval_duration > 0)
    },
    abort: async () => {
      const stream = await scriptedClient.chat({ model: 'guide', messages, stream: true })
      await aborts(stream, () => stream.abort())
    },
    tools: async () => {
      isWeather((await scriptedClient.chat({ model: 'guide', messages, tools })).message.tool_calls[0].function.arguments)
      for await (const part of await scriptedClient.chat({ model: 'guide', messages, tools, stream: true })) if (part.message.tool_calls) isWeather(part.message.tool_calls[0].function.arguments)
    },
    results: async () => {
      const { message } = await scriptedClient.chat({ model: 'guide', messages, tools })
      const last = await scriptedClient.chat({ model: 'guide', tools, messages: [...messages, message, { role: 'tool', tool_name: 'weather', content: '20' }] })
      assert.equal(last.message.content, 'It is 20')
    },
    json_schema: async () => isColour((await chat({ format: schema, options: { num_predict: 40 } })).message.content),
    errors: () => fails(() => chat({ model: 'none' }), e => assert.ok(e.status_code === 404 && /model 'none' not found/.test(e.message), e)),
  }]
}

async function* aiSDK() {
  const { generateText, streamText, tool, Output, jsonSchema, APICallError, stepCountIs, isStepCount } = await load('ai')
  const { createOpenAI } = await load('@ai-sdk/openai')
  const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible')
  const compatible = base => createOpenAICompatible({ name: 'm40', baseURL: base + '/v1', includeUsage: true, supportsStructuredOutputs: true })('guide')
  const responses = base => createOpenAI({ baseURL: base + '/v1', apiKey: 'any' }).responses('guide')
  for (const [name, at, unknown] of [
    ['@ai-sdk/openai-compatible', compatible, () => createOpenAICompatible({ name: 'm40', baseURL: server + '/v1' })('none')],
    ['@ai-sdk/openai', responses, () => createOpenAI({ baseURL: server + '/v1', apiKey: 'any' }).responses('none')],
  ]) {
    const providerOptions = { openai: { store: false } }
    const settings = { prompt: question, maxOutputTokens: 16, temperature: 0, maxRetries: 0, providerOptions }
    const weather = { weather: tool({ description: 'weather', inputSchema: jsonSchema(parameters), execute: async ({ city }) => city + ': 20' }) }
    yield [`ai + ${name}`, version('ai') + ', ' + version(name), {
      chat: async () => assert.ok((await generateText({ model: at(server), ...settings })).text),
      stream: async () => {
        let text = ''
        for await (const part of streamText({ model: at(server), ...settings }).textStream) text += part
        assert.equal(text, (await generateText({ model: at(server), ...settings })).text)
      },
      usage: async () => assert.equal((await streamText({ model: at(server), ...settings }).usage).outputTokens, 16),
      abort: async () => {
        const controller = new AbortController()
        await aborts(streamText({ model: at(scripted), ...settings, maxOutputTokens: 900, abortSignal: controller.signal }).textStream, () => controller.abort())
      },
      tools: async () => isWeather((await generateText({ model: at(scripted), ...settings, tools: weather })).toolCalls[0].input),
      results: async () => {
        const answer = streamText({ model: at(scripted), ...settings, tools: weather, stopWhen: (stepCountIs ?? isStepCount)(3) })
        assert.match(await answer.text, /^It is .*Rome: 20/)
      },
      json_schema: async () => assert.match((await generateText({ model: at(server), ...settings, maxOutputTokens: 40, output: Output.object({ schema: jsonSchema(schema) }) })).output.colour, /^(red|green)$/),
      errors: () => fails(() => generateText({ model: unknown(), ...settings }), e => assert.ok(APICallError.isInstance(e) && e.statusCode === 404, e)),
    }]
  }
}

async function* langchain() {
  const { ChatOpenAI, OpenAIEmbeddings } = await load('@langchain/openai')
  const { ChatOllama, OllamaEmbeddings } = await load('@langchain/ollama')
  const { ChatAnthropic } = await load('@langchain/anthropic')
  const { HumanMessage, ToolMessage } = await load('@langchain/core/messages')
  const { tool } = await load('@langchain/core/tools')
  const kinds = {
    '@langchain/openai': (base, more) => new ChatOpenAI({ model: 'guide', apiKey: 'any', temperature: 0, maxTokens: 16, maxRetries: 0, configuration: { baseURL: base + '/v1' }, ...more }),
    '@langchain/ollama': (base, more) => new ChatOllama({ model: 'guide', baseUrl: base, temperature: 0, numPredict: more?.maxTokens ?? 16, maxRetries: 0, ...more }),
    '@langchain/anthropic': (base, more) => new ChatAnthropic({ model: 'guide', apiKey: 'any', anthropicApiUrl: base, temperature: 0, maxTokens: 16, maxRetries: 0, ...more }),
  }
  const embeddings = {
    '@langchain/openai': () => new OpenAIEmbeddings({ model: 'tiny-embed', apiKey: 'any', maxRetries: 0, configuration: { baseURL: embedder + '/v1' } }),
    '@langchain/ollama': () => new OllamaEmbeddings({ model: 'tiny-embed', baseUrl: embedder, maxRetries: 0 }),
  }
  const text = message => typeof message.content === 'string' ? message.content : message.content.map(part => part.text ?? '').join('')
  const weather = tool(({ city }) => city + ': 20', { name: 'weather', description: 'weather', schema: parameters })
  for (const [name, at] of Object.entries(kinds)) {
    const features = {
      chat: async () => assert.ok(text(await at(server).invoke(question))),
      stream: async () => {
        let streamed = ''
        for await (const chunk of await at(server).stream(question)) streamed += text(chunk)
        assert.equal(streamed, text(await at(server).invoke(question)))
      },
      usage: async () => assert.equal((await at(server).invoke(question)).usage_metadata.output_tokens, 16),
      abort: async () => {
        const controller = new AbortController()
        await aborts(await at(scripted, { maxTokens: 900 }).stream(question, { signal: controller.signal }), () => controller.abort())
      },
      tools: async () => isWeather((await at(scripted).bindTools([weather]).invoke(question)).tool_calls[0].args),
      results: async () => {
        const model = at(scripted).bindTools([weather])
        const first = await model.invoke(question)
        const last = await model.invoke([new HumanMessage(question), first, new ToolMessage({ tool_call_id: first.tool_calls[0].id, name: 'weather', content: '20' })])
        assert.equal(text(last), 'It is 20')
      },
      json_schema: async () => {
        const answer = await at(server, { maxTokens: 40 }).withStructuredOutput(schema, { name: 'c', method: 'jsonSchema' }).invoke(question)
        assert.equal(typeof answer.colour, 'string') // LangChain sends Anthropic's servers no enum
      },
      errors: () => fails(() => at(server, { model: 'none' }).invoke(question), e => assert.match(String(e.message), /none|404/)),
    }
    if (embeddings[name]) features.embeddings = async () => areVectors(await embeddings[name]().embedDocuments(texts))
    if (name === '@langchain/ollama') delete features.abort // it stops reading and keeps its connection
    yield [name, version(name), features]
  }
}

async function* agents() {
  const { Agent, Runner, tool, OpenAIChatCompletionsModel, OpenAIResponsesModel, setTracingDisabled } = await load('@openai/agents')
  const { default: OpenAI } = await load('openai')
  const { z } = await load('zod')
  setTracingDisabled(true)
  const runner = new Runner({ tracingDisabled: true })
  for (const [api, Model] of [['chat', OpenAIChatCompletionsModel], ['responses', OpenAIResponsesModel]]) {
    const agent = (base, more) => new Agent({ name: 'helper', instructions: 'Answer shortly.', modelSettings: { temperature: 0, maxTokens: 300, store: false }, // an answer that is cut is an error
      model: new Model(new OpenAI({ baseURL: base + '/v1', apiKey: 'any', maxRetries: 0 }), 'guide'), ...more })
    const weather = tool({ name: 'weather', description: 'weather', parameters: z.object({ city: z.string() }), execute: async ({ city }) => city + ': 20' })
    yield [`@openai/agents ${api}`, version('@openai/agents'), {
      chat: async () => assert.ok((await runner.run(agent(server), question)).finalOutput),
      stream: async () => {
        const streamed = await runner.run(agent(server), question, { stream: true })
        let text = ''
        for await (const part of streamed.toTextStream()) text += part
        await streamed.completed
        assert.equal(text, (await runner.run(agent(server), question)).finalOutput)
      },
      usage: async () => assert.ok((await runner.run(agent(server), question)).rawResponses[0].usage.outputTokens > 5),
      abort: async () => {
        const controller = new AbortController()
        const streamed = await runner.run(agent(scripted, { modelSettings: {} }), question, { stream: true, signal: controller.signal })
        await aborts(streamed.toTextStream(), () => controller.abort())
      },
      tools: async () => isWeather((await runner.run(agent(scripted, { tools: [weather], toolUseBehavior: 'stop_on_first_tool' }), question)).newItems.find(item => item.type === 'tool_call_item').rawItem.arguments),
      results: async () => assert.equal((await runner.run(agent(scripted, { tools: [weather] }), question)).finalOutput, 'It is Rome: 20'),
      json_schema: async () => {
        const outputType = z.object({ colour: z.enum(['red', 'green']) })
        assert.match((await runner.run(agent(server, { outputType, modelSettings: { temperature: 0, maxTokens: 40 } }), question)).finalOutput.colour, /^(red|green)$/)
      },
      errors: () => fails(() => runner.run(agent(server, { model: new Model(new OpenAI({ baseURL: server + '/v1', apiKey: 'any', maxRetries: 0 }), 'none') }), question), e => assert.equal(e.status, 404, e)),
    }]
  }
}

for (const [needs, clients] of [['openai', openai], ['@anthropic-ai/sdk', anthropic], ['ollama', ollama], ['ai', aiSDK], ['@langchain/core', langchain], ['@openai/agents', agents]]) {
  if (!installed(needs)) continue
  for await (const [client, its, features] of clients()) {
    for (const [feature, run] of Object.entries(features)) {
      let error = ''
      try {
        await run()
      } catch (e) {
        error = String(e?.stack ?? e)
      }
      console.log(JSON.stringify({ client, version: its, feature, error }))
    }
  }
}
process.exit(0)
