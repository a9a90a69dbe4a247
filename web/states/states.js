// Shows a state of the page's scripts with fixed data. The name of the state is the end of the address.
const base = document.querySelector('link[href$="/tokens.css"]').href.replace('tokens.css', '')
const name = location.pathname.split('/').at(-1)
const at = Date.UTC(2026, 2, 14, 15, 9)
const $ = q => document.querySelector(q)

const timings = { queue_ms: 120, load_ms: 900, prefill_ms: 310, decode_ms: 2400, first_ms: 1330 }
const settings = { seed: 42, max_tokens: 512, temperature: 0.7, top_k: 40, top_p: 0.95, min_p: 0.05, dry_multiplier: 0, stop: [] }
const info = more => ({ state: 'done', reason: 'stop', end_prob: 0.97, settings, model: 'guide', name: 'guide', device: 'AMD EPYC, 2 threads', tokens: 12, prompt_tokens: 31, cached_tokens: 8, context: 1024, timings, ending: { kind: 'finished', text: 'finished' }, ...more })
const question = (more = {}) => ({ id: 1, parent: 0, role: 'user', at, text: 'Tell me a story about a fox.', versions: { index: 1, count: 1 }, ...more })
const story = '<p>This is the story of <em>Sprout</em>, a young fox who lived by the river and <strong>never</strong> slept.</p>'
const answer = (more = {}, html = [story]) => ({ id: 2, parent: 1, role: 'model', at, text: 'This is the story of Sprout.', html, versions: { index: 1, count: 1 }, answer: info(more) })
const pictures = [{ hash: '1', width: 1200, height: 780 }, { hash: '2', width: 600, height: 800 }]
const waiting = progress => answer({ state: 'waiting', tokens: 0, progress, ending: undefined }, [])
const bytesOf = text => btoa(String.fromCharCode(...new TextEncoder().encode(text)))

// words are tokens with probabilities from all steps of the scales.
const words = [['This', 0.62, 0, 1.2], [' is', 0.97, 0, 0.1], [' the', 0.41, 0, 1.9], [' story', 0.83, 0, 0.8], [' of', 0.99, 0, 0], [' Sp', 0.12, 2, 3.4], ['rout', 0.96, 0, 0.2], [',', 0.74, 0, 0.9], [' a', 0.91, 0, 0.4], [' young', 0.03, 11, 2.6], [' fox', 0.55, 0, 2.1], ['.', 0.004, 44, 3.9]]
const token = ([text, p, rank, entropy], i) => ({ id: 300 + i, text, known: true, p, rank, entropy })
const tokens = words.map(token)
const prompt = ['<|im_start|>', 'user', '\n', 'Tell', ' me', ' a', ' story', ' about', ' a', ' fox', '.', '<|im_end|>', '\n', '<|im_start|>', 'assistant', '\n'].map((text, i) => i ? { id: i, text, known: true, p: [0.95, 0.6, 0.3, 0.1, 0.02, 0.001][i % 6], rank: i, entropy: i / 4 } : { id: 0, text, p: 0, rank: 0, entropy: 0 })
const compare = (list, first) => list.map((t, i) => i + first ? { ...t, compared: { kl: [0.0004, 0.004, 0.02, 0.1, 0.4, 1.6][(i + first) % 6], p: t.p / 2, rank: t.rank + 1 } } : t)
const alternatives = [' a', ' the', ' quick', ' little', ' red', ' clever', ' small', ' brave', ' old', ' hungry'].map((text, i) => ({ id: 405 + i, text, p: 0.4 / 2 ** i }))
const detail = (t, total) => ({ ...t, total, bytes: bytesOf(t.text), alternatives: [{ id: t.id, text: t.text, p: t.p }, ...alternatives].sort((a, b) => b.p - a.p) })
const stages = {
  source: 'stored', drawn: { of: 4096, u: 0.8114, from: 0.7421, to: 0.8533 },
  stages: [{ name: 'Model', kept: 4096, removed: 0 }, { name: 'Repeat penalty', value: '1.10', kept: 4096, removed: 0.031, moves: true }, { name: 'Top-k', value: '40', kept: 40, removed: 0.062 }, { name: 'Top-p', value: '0.95', kept: 11, removed: 0.048 }, { name: 'Temperature', value: '0.70', kept: 11, removed: 0.112, moves: true }],
  tokens: [{ id: 309, text: ' young', p: [0.03, 0.03, 0.032, 0.034, 0.111] }, { id: 305, text: ' a', p: [0.4, 0.39, 0.42, 0.44, 0.52] }, { id: 306, text: ' the', p: [0.2, 0.21, 0.22, 0.23, 0.21] }, { id: 310, text: ' clever', p: [0.02, 0.02, 0.02, 0, 0] }, { id: 311, text: ' grey', p: [0.001, 0.001, 0, 0, 0] }],
}
const nodes = [
  { id: 1, parent: 0, role: 'user', text: 'Tell me a story about a fox.', shown: true },
  { id: 2, parent: 1, role: 'model', text: 'This is the story of Sprout.', tokens: 12, scored: 12, logprob: -14.2 },
  { id: 3, parent: 1, role: 'model', text: 'Once there was a fox who could count.', tokens: 14, scored: 14, logprob: -11.7, shown: true },
  { id: 4, parent: 3, role: 'user', text: 'How far?', shown: true },
  { id: 5, parent: 4, role: 'model', text: 'To seven.', tokens: 4, scored: 4, logprob: -2.1, shown: true },
]

// The server's answers.
const files = [
  [/\/tokens\/2\?from=0$/, () => ({ tokens, total: tokens.length })],
  [/\/tokens\/2\/(\d+)\/stages$/, () => name === 'microscope-reason' ? { reason: 'The stored candidates do not suffice: these settings need the logits of other tokens too.', ask: true, loaded: false } : stages],
  [/\/tokens\/2\/judge$/, () => ({ before: tokens.map(t => t.p), after: tokens.map((t, i) => i === 9 || i === 11 ? 0 : t.p / (i === 5 ? 4 : 1)), diverges: 5 })],
  [/\/tokens\/2\/(\d+)$/, i => detail(tokens[i], tokens.length)],
  [/\/score\/2\/(\d+)$/, i => detail(prompt[i], prompt.length)],
  [/\/candidates$/, () => ({ days: 30, megabytes: 128, bytes: 5_400_000, may: true })],
  [/\/tree$/, () => ({ nodes })],
]
globalThis.fetch = async (address, options) => {
  const path = new URL(address, location).pathname + new URL(address, location).search
  if (/\/score\/2$/.test(path)) return scores(JSON.parse(options.body))
  for (const [pattern, file] of files) {
    const match = pattern.exec(path)
    if (match) return Response.json(file(match[1]))
  }
  return Response.json({ error: { title: 'Not in the storybook', message: path } }, { status: 404 })
}

// scores is the stream of a scoring pass, which does not end in the state of its progress.
function scores({ against }) {
  const first = { prefill: { done: 10, total: 31, cached: 0 } }
  const kl = against ? { mean: 0.3527, worst: 5 } : undefined
  const scored = { prompt: prompt.length, tokens: against ? [...compare(prompt, 0), ...compare(tokens, prompt.length)] : prompt, kl }
  const text = name === 'scoring' ? [first] : name === 'scoring-failed' ? [first, { error: { title: 'x', message: 'The model needs 5.0 GB of memory, and 3.1 GB are free.' } }] : [first, { scored }]
  const body = new ReadableStream({
    start(c) {
      c.enqueue(new TextEncoder().encode(text.map(line => `${JSON.stringify(line)}\n`).join('')))
      if (name !== 'scoring') c.close()
    },
  })
  return new Response(body)
}

const formula = '<p>For <math><msup><mi>x</mi><mn>2</mn></msup></math> there is</p><p><math display="block"><mrow><mi>x</mi><mo>=</mo><mfrac><mrow><mo>−</mo><mi>b</mi><mo>±</mo><msqrt><mrow><msup><mi>b</mi><mn>2</mn></msup><mo>−</mo><mn>4</mn><mi>a</mi><mi>c</mi></mrow></msqrt></mrow><mrow><mn>2</mn><mi>a</mi></mrow></mfrac></mrow></math></p>'
const code = '<p>In Go:</p><pre><code class="language-go">func add(a, b int) int {\n\treturn a + b\n}\n</code></pre><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table><ul><li>one</li><li>two</li></ul>'
const called = { ...answer({ reason: 'tool_calls', tokens: 18, call: { id: 'c1', name: 'weather', arguments: '{}' }, ending: { kind: 'call', text: 'ended with a call of', code: 'weather' } }, ['<p class="call">Calls <code>weather</code></p><pre><code class="language-json">{\n  <span class="k">"city"</span>: <span class="s">"Oslo"</span>\n}\n</code></pre>']), text: '' }
const replay = more => ({ answer: 2, state: 'running', equal: 5, total: 12, was: '', is: '', ...more })

// messages are the states of a chat: its messages, and what is done then.
const messages = {
  'answer-queued': [question(), waiting({ queued: { position: 3, wait_s: 40 }, for_ms: 900 })],
  'answer-loading': [question(), waiting({ loading: { model: 'guide', done: 3.2e9, total: 4.9e9 }, for_ms: 4000 })],
  'answer-reading': [question(), waiting({ prefill: { done: 300, total: 800, cached: 120 }, for_ms: 1500 })],
  'answer-looking': [question({ pictures }), waiting({ pictures: { done: 1, total: 2 }, for_ms: 1500 })],
  'answer-writing': [question(), { ...answer({ state: 'writing', ending: undefined }, []), tail: 'This is the story of Sprout, a young' }],
  'answer-thinking': [question(), { ...answer({ state: 'writing', thinking: true, ending: undefined }, []), text: '', reasoning: 'It wants a story.' }],
  'answer-done': [question(), answer()],
  'answer-figures': [question(), answer({ tokens: 58, pace: { every_ms: 200, tokens: [2, 6, 7, 6, 0, 0, 5, 7, 8, 7, 6, 3] } })],
  'answer-stopped': [question(), answer({ state: 'stopped', ending: { kind: 'stopped', text: 'stopped by you at token 12' } })],
  'answer-length': [question(), answer({ reason: 'length', ending: { kind: 'length', text: 'length limit, 12 tokens' } })],
  'answer-stop-string': [question(), answer({ ending: { kind: 'stop_string', text: 'stop string', code: '\n\n' } })],
  'answer-loop': [question(), answer({ reason: 'repetition', repeated: 24, ending: { kind: 'repetition', text: 'paused: it repeats itself' } })],
  'answer-interrupted': [question(), answer({ state: 'interrupted', ending: { kind: 'interrupted', text: 'the server stopped here' } })],
  'answer-context': [question(), answer({ by_context: true, reason: 'length', ending: { kind: 'context', text: 'context full, 1,024 tokens' } })],
  'answer-edited': [question(), answer({ edited: true, tokens: 0, ending: { kind: 'edited', text: 'edited' } })],
  'answer-failed': [question(), { ...answer({ state: 'failed', tokens: 0, error: { code: 'device', title: 'The device failed', message: 'It was opened again. Try again.' }, ending: { kind: 'failed', text: 'failed' } }, []), text: '' }],
  'answer-too-long': [question(), { ...answer({ state: 'failed', tokens: 0, error: { code: 'context_length_exceeded', title: 'The message does not fit', message: 'x', prompt_tokens: 1400, context_length: 1024 }, ending: { kind: 'failed', text: 'failed' } }, []), text: '' }],
  'answer-versions': [question({ versions: { index: 2, count: 2 } }), { ...answer(), versions: { index: 3, count: 4 } }],
  'answer-formulas': [question({ text: 'Solve it.' }), answer({}, [formula])],
  'answer-code': [question({ text: 'Add two numbers.' }), answer({}, [code])],
  'answer-call': [question({ text: 'Which weather has Oslo?' }), called],
  'answer-result': [question({ text: 'Which weather has Oslo?' }), called, { ...question({ text: '4 degrees and rain' }), id: 3, parent: 2, role: 'tool' }, { ...answer(), id: 4, parent: 3 }],
  'question-guest': [question({ author: 'Wanda' }), answer()],
  'question-pictures': [question({ text: 'Which of them has more sky?', pictures }), answer()],
  'question-picture': [question({ text: '', pictures: pictures.slice(0, 1) }), answer()],
  'question-file': [question({ text: 'What is it?\n\nFile add.go:\n```go\nfunc add(a, b int) int {\n\treturn a + b\n}\n```' }), answer()],
}
for (const state of ['running', 'equal', 'differs', 'stopped', 'failed']) messages[`replay-${state}`] = [question(), answer()]
for (const state of ['tokens', 'tokens-hints', 'tokens-entropy', 'tokens-candidates', 'tokens-judged', 'tokens-stored', 'microscope', 'microscope-reason', 'answer-judged', 'tokens-forked', 'scoring', 'scoring-failed', 'prompt-scored', 'models-compared', 'models-compare', 'branches']) messages[state] = [question(), answer()]

const [{ Chat }, { Tokens }, { Tree }, { Judge }] = await Promise.all(['chat.js', 'tokens.js', 'tree.js', 'judge.js'].map(file => import(base + file)))
localStorage[name === 'tokens-hints' ? 'removeItem' : 'setItem']('m40.hints', 'done')
const chat = new Chat(() => '/c/one')
chat.show({ title: 'A story about a fox', messages: messages[name] })
for (const img of document.querySelectorAll('.pics img')) { // there is no server that has them
  img.src = `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" width="${img.width}" height="${img.height}"><rect width="100%" height="100%" fill="#5ab"/><circle cx="30%" cy="70%" r="25%" fill="#384"/></svg>`)}`
}
$('#empty')?.setAttribute('hidden', '')
const shown = chat.last
const view = new Tokens({ chat: () => 'one', inspect() {}, fork() {}, opened() {}, closed() {}, biases: () => ({ of: () => 0 }), bans: () => false, failed() {} })
const judge = new Judge({ chat: () => 'one', shown: () => [shown], view: answer => view.views.get(answer) })
const until = async what => { for (let i = 0; !what() && i < 200; i++) await new Promise(done => setTimeout(done, 10)) }
const click = q => $(q).click()
const look = async by => {
  await view.toggle(shown)
  if (by) click(`[data-by=${by}]`)
}
const open = async i => {
  document.querySelectorAll('.toks:not(.prompt) .tok')[i].click()
  await until(() => $('.token .alt'))
}

await {
  'answer-queued': () => shown.showWait(), 'answer-loading': () => shown.showWait(), 'answer-reading': () => shown.showWait(), 'answer-looking': () => shown.showWait(),
  'answer-figures': () => { $('.made').open = true },
  'question-file': () => { $('.file').open = true },
  'replay-running': () => chat.replayed(replay({})),
  'replay-equal': () => chat.replayed(replay({ state: 'equal', equal: 12 })),
  'replay-differs': () => chat.replayed(replay({ state: 'differs', was: ' fox', is: ' cat', changes: [{ what: 'device', was: 'CPU', is: 'GPU' }] })),
  'replay-stopped': () => chat.replayed(replay({ state: 'stopped' })),
  'replay-failed': () => chat.replayed(replay({ state: 'failed', error: { title: 'The model does not fit', message: 'It needs 5.0 GB.' } })),
  tokens: () => look(),
  'tokens-hints': async () => { await look(); await open(9); await until(() => $('.hints [data-done]')) },
  'tokens-entropy': () => look('entropy'),
  'tokens-candidates': async () => { await look(); await open(9) },
  'answer-judged': async () => { judge.moved(settings); await until(() => !$('.judged').hidden) },
  'tokens-forked': async () => { view.forked = { at: 9 }; await view.written(shown); await until(() => $('.token .alt')) },
  'tokens-judged': async () => { await look(); view.close(false); judge.moved(settings); await until(() => $('.tok.gone')) },
  'tokens-stored': async () => { await look(); click('[data-more-tokens]'); $('.stored').open = true; await until(() => $('[data-stored]').textContent) },
  microscope: async () => { await look(); await view.inspect(view.views.get(shown), 9); await until(() => $('.micro .chosen')); view.pop.remove() },
  'microscope-reason': async () => { await look(); await view.inspect(view.views.get(shown), 9); await until(() => !$('.why[hidden]')); view.pop.remove() },
  scoring: async () => { await look(); click('[data-score]'); await until(() => $('[data-pass-amount]')?.textContent) },
  'scoring-failed': async () => { await look(); click('[data-score]'); await until(() => $('.trouble').textContent) },
  'prompt-scored': async () => { await look(); click('[data-score]'); await until(() => $('.toks.prompt')) },
  'models-compare': async () => { await look(); click('[data-xray]'); await until(() => $('#against option')) },
  'models-compared': async () => {
    await look()
    click('[data-xray]')
    await until(() => $('#against option'))
    click('.scorebox form button')
    await until(() => $('.klsum')?.hidden === false)
  },
  branches: async () => { new Tree({ chat: 'one', command: async () => {}, failed() {} }); await until(() => $('.tree')?.open) },
}[name]?.()
for (let frames = 0; frames < 3; frames++) await new Promise(requestAnimationFrame)
document.documentElement.dataset.ready = ''
