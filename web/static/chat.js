// The messages of the chat. Streamed text is appended to one text node. When a block of Markdown
// is complete, its rendered HTML replaces that text within the same frame, without flicker.
import { show } from './attach.js'
import { advice } from './context.js'
import { clock, count, duration, bytes, figure, inQueue, percent, rate, roughly, tokenCount } from './format.js'
import { codeBox, copyOf, fragment } from './html.js'
import { t, tn } from './lang.js'
import { lookup, reads, timeline } from './pace.js'
import { list } from './pictures.js'
import { showReplay } from './receipt.js'
import { announce, conclude } from './speak.js'
import { WordCounter } from './words.js'

const waitShownAfter = 250 // ms of waiting before it is shown
const minRead = 16 // tokens; the speed of reading fewer is not measured
const minRateTime = 20 // ms; the speed of shorter generations is not shown

const use = (el, href) => el.setAttribute('href', `#i-${href}`)

// open returns how to show the incomplete last block of an answer: the kind of element, the
// text to show and, for code, the language.
function open(source) {
  const text = source.replace(/^\s*\n/, '')
  const fence = /^ {0,3}(`{3,}|~{3,})([^`\n]*)(\n|$)/.exec(text)
  if (fence) {
    const body = text.slice(fence[0].length)
    return { kind: 'code', language: fence[2].trim().split(/\s+/)[0], text: body.replace(/(^|\n) {0,3}[`~]*\n?$/, '') }
  }
  const heading = /^(#{1,6}) +/.exec(text)
  if (heading) return { kind: `h${heading[1].length}`, text: text.slice(heading[0].length).trimEnd() }
  return { kind: 'p', text: text.trimEnd() }
}

const shownCode = text => JSON.stringify(text).slice(1, -1)

const shownChance = p => figure((Math.floor(100 * p) / 100).toFixed(2))

// ending returns a text about how an answer ended, with the probability of the end token.
function ending([, , text, code], probability) {
  const how = code ? `${text} ${shownCode(code)}` : text
  return probability ? t('%s, with probability %s', how, shownChance(probability)) : how
}

// raised returns the DRY multiplier to try where one did not prevent a repetition.
export const raised = multiplier => multiplier ? Math.min(4, Math.round(30 * multiplier) / 20) : 0.8

// Turn is the element of a message, with its position in the branch and its versions.
class Turn {
  constructor(template, m) {
    this.el = copyOf(template)
    this.el.dataset.id = m.id
    this.el.id = `m-${m.id}`
    this.el.querySelector('time').textContent = clock(m.at)
    this.versions = m.versions
    this.el.querySelector('.vers').hidden = m.versions.count < 2
    this.el.querySelector('.vers span').textContent = `${m.versions.index}/${m.versions.count}`
    this.el.querySelector('[data-version="-1"]').disabled = m.versions.index === 1
    this.el.querySelector('[data-version="1"]').disabled = m.versions.index === m.versions.count
    this.id = m.id
    this.parent = m.parent
    this.text = m.text ?? ''
    this.reasoning = m.reasoning ?? ''
  }
}

class Question extends Turn {
  // address is that of its chat
  constructor(m, address) {
    super('t-question', m)
    this.el.setAttribute('aria-label', m.author ? t('%s, guest', m.author) : t('You'))
    if (m.author) {
      const name = this.el.querySelector('.who b')
      name.textContent = name.title = m.author
      this.el.querySelector('[data-guest]').hidden = false
    }
    if (m.role === 'tool') {
      this.el.setAttribute('aria-label', t('Result'))
      this.el.querySelector('.who b').textContent = t('Result')
      this.el.classList.add('result')
    }
    this.pictures = m.pictures ?? []
    if (this.pictures.length) this.el.querySelector('.prose').before(list(address, this.pictures))
    show(this.el.querySelector('.prose'), this.text)
  }
}

class Answer extends Turn {
  // first: the answer belongs to the first question of its chat
  constructor(m, first) {
    super('t-answer', m)
    this.first = first
    this.prose = this.el.querySelector('.prose')
    this.waitBox = this.el.querySelector('.wait')
    this.foot = Object.fromEntries([...this.el.querySelectorAll('[data-f]')].map(el => [el.dataset.f, el]))
    this.began = performance.now()
    this.tail = ''
    this.shown = this.thought = null
    this.describe(m.answer)
    this.write(m)
    if (this.running) {
      this.busy(true)
      if (m.answer.progress) this.wait(m.answer.progress)
    } else this.settle(m.answer)
  }

  // write shows the text of the message m.
  write(m) {
    for (const html of m.html ?? []) this.prose.append(fragment(html))
    if (m.answer.thinking) this.think()
    if (!m.tail) return
    this.tail = m.tail
    this.draw()
  }

  // length is the number of characters of the reasoning and the text.
  get length() { return this.reasoning.length + this.text.length }

  get running() { return this.info.state === 'waiting' || this.info.state === 'writing' }

  // thinks reports whether the model is thinking now, before the first word of the answer.
  get thinks() { return this.running && this.reasoning !== '' && this.text === '' }

  // lose(true) stops the animations of a running answer, whose state is unknown while the
  // connection is lost; lose(false) starts them again.
  lose(on) {
    this.lost = on
    this.busy(!on)
    this.el.toggleAttribute('data-lost', on)
    this.describe(this.info)
    if (on) {
      clearTimeout(this.waitTimer)
      this.waitBox.hidden = true
    } else this.showWait()
    this.why(on ? ['warn', 'offline', t('connection lost')] : null)
  }

  busy(on) {
    if (on) this.el.setAttribute('aria-busy', 'true')
    else this.el.removeAttribute('aria-busy')
  }

  describe(info) {
    this.info = info
    const speaker = this.el.querySelector('.who b')
    speaker.textContent = info.name || t('Answer')
    speaker.title = info.name ?? ''
    this.el.setAttribute('aria-label', this.lost ? t('Answer, connection lost') : this.running ? t('Answer, being written') : t('Answer'))
    this.figures(info.tokens, info.timings)
    this.put('seed', info.edited ? '' : String(info.settings.seed))
    this.put('model', info.model)
    this.put('device', info.device)
  }

  // put shows the figure with this name; '' hides it.
  put(name, text) {
    this.foot[name].textContent = text || ''
    this.foot[name].parentElement.hidden = !text
  }

  // follows shows the device that generated the answer, and what the chat template required, if they
  // differ from those of the previous answer.
  follows(before) {
    const moved = before?.info.device && this.info.device && before.info.device !== this.info.device
    this.foot.elsewhere.textContent = moved ? this.info.device : ''
    this.foot.elsewhere.hidden = !moved
    const notes = this.info.notes ?? '', box = this.el.querySelector('[data-notes]')
    box.textContent = notes
    box.hidden = !notes || notes === before?.info.notes // said once for the answers that share it
  }

  // figures fills in the line of figures under the answer and its details.
  figures(tokens, spent) {
    const speed = tokens > 1 && spent.decode_ms >= minRateTime ? 1000 * (tokens - 1) / spent.decode_ms : 0
    const { prompt_tokens: read, cached_tokens: cached } = this.info
    this.speed = speed
    this.el.querySelector('.made').hidden = !tokens
    this.put('rate', speed && !this.lost && rate(speed))
    this.put('first', spent.first_ms && duration(spent.first_ms))
    this.put('prompt', read && (cached ? t('%s, %s of them cached', tokenCount(read), count(cached)) : tokenCount(read)))
    this.put('tokens', tokens && count(tokens))
    const limit = this.info.settings.max_tokens
    this.foot['tokens-label'].textContent = this.running && limit > 0 ? t('of up to %s tokens', count(limit)) : tn(tokens, 'token', 'tokens')
    const queue = spent.queue_ms + spent.load_ms, prompt = spent.prefill_ms || Math.max(0, spent.first_ms - queue)
    const total = queue + prompt + spent.decode_ms
    let x = 0
    for (const [cls, ms] of [['q', queue], ['pf', prompt], ['dc', spent.decode_ms]]) {
      const bar = this.el.querySelector(`.lat .${cls}`)
      bar.setAttribute('x', percent(total ? x / total : 0))
      bar.setAttribute('width', percent(total ? ms / total : 0))
      x += ms
    }
    const time = [
      t('waiting %s', duration(spent.queue_ms)), spent.load_ms && t('loading the model %s', duration(spent.load_ms)),
      t('reading the prompt %s', duration(prompt)), t('writing %s', duration(spent.decode_ms)),
    ].filter(Boolean).join(', ')
    this.put('time', spent.first_ms && time)
    this.el.querySelector('.lat').toggleAttribute('hidden', spent.first_ms === 0)
    this.el.querySelector('.lat').setAttribute('aria-label', t('Time: %s', time))
  }

  // reading is the speed at which the prompt was read, in tokens per second; 0: too short to tell.
  get reading() {
    const { prompt_tokens: all, cached_tokens: cached, timings: t } = this.info
    return all - cached >= minRead && t.prefill_ms >= minRateTime ? 1000 * (all - cached) / t.prefill_ms : 0
  }

  wait(p) {
    this.progress = p
    if (p.prefill) this.info.prompt_tokens = p.prefill.total
    const waited = performance.now() - this.began
    if (waited >= waitShownAfter) this.showWait()
    else if (!this.waitTimer) this.waitTimer = setTimeout(() => this.showWait(), waitShownAfter - waited)
  }

  showWait() {
    const p = this.progress
    if (!p || this.info.state !== 'waiting') return
    const put = (name, text) => { this.waitBox.querySelector(`[${name}]`).textContent = text }
    const facts = []
    let share = 0, cached = 0
    if (p.pictures) {
      const { done, total } = p.pictures
      share = done / total
      put('data-wait', total > 1 ? t('Reading the pictures') : t('Reading the picture'))
      put('data-wait-amount', total > 1 ? t('%s of %s', Math.min(done + 1, total), total) : '')
    } else if (p.queued) {
      const ahead = p.queued.position - 1
      put('data-wait', ahead === 0 ? t('Waiting, you are next') : t('Waiting, %s ahead of you', count(ahead)))
      put('data-wait-amount', inQueue(p.queued))
      if (p.queued.for_memory) facts.push(t('Another model has to be unloaded first.'))
      if (p.queued.wait_s) facts.push(t('If the answers before yours are as long as the last ones were.'))
      facts.push(t('Your message is kept and will be answered in turn.'))
    } else if (p.loading) {
      const { done, total, model, kernels = 0, kernels_total: compiled, left_s: left, in_place_of: unloaded } = p.loading
      share = compiled ? kernels / compiled : total ? done / total : 0
      put('data-wait', t('Loading %s', model))
      if (unloaded) facts.push(t('in place of %s', unloaded))
      put('data-wait-amount', compiled ? t('compiling kernels, %s of %s', kernels, compiled) : t('%s of %s', bytes(done), bytes(total)))
      if (!compiled && p.for_ms > 200 && done > 0) facts.push(`${bytes(1000 * done / p.for_ms)}/s`, t('about %s left', roughly(p.for_ms * (total - done) / done)))
      else if (!compiled && left) facts.push(t('about %s left', roughly(1000 * left)))
      facts.push(t('Your message is kept and will be answered as soon as the model is there.'))
    } else if (p.prefill) {
      const { done, total } = p.prefill
      cached = total ? p.prefill.cached / total : 0
      share = total ? done / total : 0
      put('data-wait', t('Reading the prompt'))
      put('data-wait-amount', total ? t('%s of %s tokens', count(done), count(total)) : '') // other engines do not say how many
      const read = done - p.prefill.cached
      if (p.for_ms > 0 && read > 0) facts.push(`${rate(1000 * read / p.for_ms)} tok/s`, t('first word in about %s', roughly(p.for_ms * (total - done) / read)))
      if (p.prefill.cached) facts.push(t('%s tokens were still in the cache', count(p.prefill.cached)))
    }
    const bar = this.waitBox.querySelector('.bar')
    bar.toggleAttribute('hidden', Boolean(p.queued || p.pictures?.total === 1 || p.prefill && !p.prefill.total))
    bar.setAttribute('aria-valuenow', Math.round(100 * share))
    bar.setAttribute('aria-label', this.waitBox.querySelector('[data-wait]').textContent)
    bar.querySelector('.fg2').setAttribute('width', percent(cached))
    bar.querySelector('.fg').setAttribute('x', percent(cached))
    bar.querySelector('.fg').setAttribute('width', percent(Math.max(0, share - cached)))
    this.waitBox.querySelector('[data-wait-facts]').replaceChildren(...facts.map(text => {
      const span = document.createElement('span')
      span.textContent = text
      return span
    }))
    this.waitBox.hidden = false
  }

  append(e) {
    this.info.state = 'writing'
    this.progress = null
    this.waitBox.hidden = true
    this.text += e.text ?? ''
    this.tail += e.text ?? ''
    this.reasoning += e.reasoning ?? ''
    this.info.tokens = e.tokens
    this.info.repeated = e.repeated ?? 0
    this.showLoop()
    this.info.candidates = e.candidates ?? this.info.candidates
    Object.assign(this.info.timings, { decode_ms: e.decode_ms, first_ms: e.first_ms })
    this.figures(e.tokens, this.info.timings)
    if (e.reasoning) this.think()
    if (e.text) {
      this.draw()
      announce(e.text)
    }
  }

  // think shows the reasoning as plain text while it is streamed.
  think() {
    if (!this.thought) {
      const reads = this.reads
      this.prose.querySelector(':scope > .thought')?.remove()
      const el = document.createElement('details'), node = document.createTextNode('')
      el.className = 'thought'
      el.append(document.createElement('summary'), document.createElement('p'))
      el.lastChild.className = 'tail'
      el.lastChild.append(node)
      this.prose.prepend(el)
      this.thought = { el, node, seen: 0, words: new WordCounter() }
      this.reads = reads
    }
    const { thought } = this, { el, node } = thought
    let piece = this.reasoning.slice(thought.seen)
    if (node.length === 0) piece = piece.trimStart()
    const shown = piece.trimEnd() // the white space comes with what follows it
    thought.seen = this.reasoning.length - (piece.length - shown.length)
    node.appendData(shown)
    thought.words.add(shown)
    el.hidden = node.length === 0
    el.firstChild.textContent = tn(thought.words.count, 'Thinking, %s word', 'Thinking, %s words', count(thought.words.count))
  }

  // renderReasoning replaces the plain text of the reasoning by its rendered HTML.
  renderReasoning(html) {
    const reads = this.reads
    this.thought?.el.remove()
    this.thought = null
    this.prose.prepend(fragment(html))
    this.reads = reads
  }

  // draw shows the incomplete last block. It replaces the element only if its kind changes, and
  // otherwise appends the new text.
  draw() {
    const o = open(this.tail)
    if (o.text === '' && o.kind !== 'code') {
      this.undraw()
      return
    }
    if (this.shown?.kind !== o.kind || this.shown.language !== o.language) {
      this.undraw()
      const node = document.createTextNode('')
      let el
      if (o.kind === 'code') {
        const [box, inner] = codeBox(o.language)
        inner.append(node)
        el = box
      } else {
        el = document.createElement(o.kind)
        el.append(node)
      }
      el.classList.add('tail')
      this.prose.append(el)
      this.shown = { el, node, kind: o.kind, language: o.language }
    }
    const { node } = this.shown
    if (o.text.length >= node.length) node.appendData(o.text.slice(node.length))
    else node.data = o.text
  }

  undraw() {
    this.shown?.el.remove()
    this.shown = null
  }

  block(e) {
    if (e.thinking) {
      this.renderReasoning(e.html)
      return
    }
    this.undraw()
    this.prose.append(fragment(e.html))
    this.tail = this.tail.slice(e.chars)
    this.draw()
  }

  // reads reports whether the user has unfolded the reasoning.
  get reads() { return Boolean(this.prose.querySelector('.thought[open]')) }

  set reads(on) { this.prose.querySelector('.thought')?.toggleAttribute('open', on) }

  // said is the text to copy: the answer without its reasoning, or the reasoning if there is no
  // other text.
  get said() { return this.text || this.reasoning }

  // end shows the final text of the answer and how it ended.
  end(e) {
    this.rewrite(e)
    this.nothing = this.begun === this.length && e.answer.state === 'done' && e.answer.reason === 'stop'
    this.settle(e.answer)
    if (this.nothing) conclude(t('The model has nothing to add.'))
    else conclude({ done: t('Answer finished.'), stopped: t('Answer stopped.'), interrupted: t('The server stopped here.') }[e.answer.state] ?? t('The answer failed.'))
  }

  // rewrite shows the final text.
  rewrite(e) {
    const read = this.reads
    this.undraw()
    this.tail = ''
    this.thought = null
    if (e.html !== undefined) this.prose.replaceChildren(fragment(e.html))
    else if (e.rest) this.prose.append(fragment(e.rest))
    this.reads = read
  }

  settle(info) {
    clearTimeout(this.waitTimer)
    this.waitBox.hidden = true
    this.describe(info)
    this.busy(false)
    this.el.querySelector('[data-copy]').hidden = this.length === 0
    this.el.querySelector('[data-tokens]').hidden = Boolean(info.edited) || !info.tokens
    this.el.classList.toggle('mine', Boolean(info.edited))
    this.el.querySelector('.why [data-edited]').hidden = !info.edited && !info.begun
    const reason = this.reason(info)
    this.why(reason)
    this.el.querySelector('.why [data-end]').hidden = info.edited || reason[1] === 'check' // the normal end is not shown
    this.put('end', info.edited ? '' : ending(reason, info.end_prob))
    this.el.querySelector('[data-continue]').hidden = !this.unfinished
    this.showLoop()
    this.showCall(info.call)
    this.put('pace', timeline(this.el.querySelector('.pace'), info))
    this.put('reads', reads(info))
    this.put('lookup', lookup(info))
    const box = this.el.querySelector('.errbox')
    box.hidden = !info.error
    if (info.error) showError(box, info.error, this.first ? advice.first : advice.later)
  }

  // showLoop offers to rewind an answer that repeats itself.
  showLoop() {
    const { repeated, edited, settings } = this.info, box = this.el.querySelector('.loop')
    box.hidden = !repeated || Boolean(edited)
    if (box.hidden) return
    box.querySelector('[data-loop]').textContent = tn(repeated, 'The last %s token repeats those before it.', 'The last %s tokens repeat those before them.', count(repeated))
    box.querySelector('[data-rewind]').textContent = t('Rewind %s and raise DRY to %s', tokenCount(repeated), raised(settings.dry_multiplier))
  }

  // showCall asks for the result of the call with which the answer ended.
  showCall(call) {
    const form = this.el.querySelector('.giving'), field = form.querySelector('textarea')
    form.hidden = !call
    if (!call) return
    form.querySelector('[data-called]').textContent = call.name
    field.id = form.querySelector('label').htmlFor = `result-${this.id}`
  }

  // pastEnd says how an answer that the model or a stop string ended goes on; '' if it does not.
  get pastEnd() {
    const { state, edited, reason, end_prob: probability, ending } = this.info
    if (state !== 'done' || edited || reason !== 'stop') return ''
    if (ending?.code) return t('Go on without the stop string %s', shownCode(ending.code))
    return probability ? t('Go on, with the end banned once. The model ended it here, with probability %s', shownChance(probability)) : t('Go on, with the end banned once. The model ended it here')
  }

  // why shows the reason why the answer ended; without an argument it hides the reason.
  why(reason) {
    const chip = this.el.querySelector('.why [data-end]')
    const [cls, symbol, text, code] = reason ?? ['']
    chip.className = `chip ${cls}`
    chip.hidden = !reason
    const said = document.createElement('span')
    said.textContent = text ?? ''
    chip.replaceChildren(...reason ? [icon(symbol), said] : [])
    if (!code) return
    const el = document.createElement('code')
    el.textContent = shownCode(code)
    chip.append(el)
  }

  // unfinished reports whether the answer can be continued.
  get unfinished() {
    const { state, edited, reason, by_context } = this.info
    if (this.running || by_context || this.length === 0) return false
    return state !== 'done' || edited || reason === 'length'
  }

  // reason returns [class, symbol, text, code] of the ending.
  reason({ ending }) {
    if (this.nothing) return ['', 'stop', t('nothing to add: the model ended the answer at once')]
    return [...looks[ending.kind], ending.text, ending.code]
  }
}

// looks has the class and the symbol for each kind of ending.
const looks = {
  interrupted: ['warn', 'warn'], edited: ['', 'edit'], failed: ['err', 'warn'], stopped: ['', 'stop'],
  context: ['err', 'warn'], length: ['warn', 'warn'], stop_string: ['', 'stop'], repetition: ['warn', 'again'], call: ['', 'go'], finished: ['', 'check'],
}

// RawAnswer is an answer in a raw chat. Its text is not rendered, and continues on the line where
// the message before it ends.
class RawAnswer extends Answer {
  write(m) {
    this.prose.classList.add('plain')
    this.node = this.prose.appendChild(document.createTextNode(m.text ?? ''))
  }

  draw() { this.node.appendData(this.text.slice(this.node.length)) }

  block() {}

  rewrite() {}

  get unfinished() { return !this.running && !this.info.by_context && this.text !== '' }
}

function icon(name) {
  const ns = 'http://www.w3.org/2000/svg'
  const svg = document.createElementNS(ns, 'svg')
  svg.setAttribute('class', 'i')
  svg.setAttribute('viewBox', '0 0 16 16')
  svg.setAttribute('aria-hidden', 'true')
  const ref = document.createElementNS(ns, 'use')
  use(ref, name)
  svg.append(ref)
  return svg
}

// showError shows an error in a box. advice is the text to show for a prompt that is too long.
export function showError(box, error, advice) {
  box.querySelector('[data-title-of-error]').textContent = error.title
  box.querySelector('[data-error]').textContent = error.context_length && advice && !error.part ? t('Nothing was cut. %s', advice) : error.message
  const sum = box.querySelector('.sum')
  if (!sum) return
  box.querySelector('[data-edit-system]').hidden = error.part !== 'system'
  box.querySelector('[data-edit-question]').hidden = ['system', 'tools'].includes(error.part)
  box.querySelector('[data-choose-model]').hidden = !['model_not_found', 'model_file', 'out_of_memory'].includes(error.code)
  sum.hidden = !error.context_length
  if (error.context_length) {
    sum.querySelector('[data-needed]').textContent = count(error.prompt_tokens)
    sum.querySelector('[data-room]').textContent = count(error.context_length)
    const over = error.prompt_tokens - error.context_length
    sum.querySelector('.bad').hidden = over < 1
    sum.querySelector('[data-over]').textContent = count(over)
  }
}

const most = 300 // turns kept in the document

// Chat is the loaded part of one branch of the conversation. turns is a Map of the turns by id, in
// order.
export class Chat {
  // address returns that of the chat
  constructor(address) {
    this.address = address
    this.el = document.getElementById('thread')
    this.turns = new Map()
    this.title = ''
    this.more = false // the server has messages before the first loaded one
  }

  get answers() { return [...this.turns.values()].filter(t => t instanceof Answer) }

  get questions() { return [...this.turns.values()].filter(t => t instanceof Question) }

  get running() { return this.answers.findLast(a => a.running) }

  get last() { return this.answers.at(-1) }

  get first() { return this.turns.values().next().value }

  get end() { return [...this.turns.values()].at(-1) }

  get empty() { return this.turns.size === 0 }

  // texts is a Map of the texts of the answers, with their reasoning, by id.
  get texts() { return new Map(this.answers.map(a => [a.id, a.reasoning + a.text])) }

  // lacks returns how many characters of the texts in shown this chat does not have, and the
  // answer that lacks them; null if an answer cannot be compared because it is not loaded.
  lacks(shown) {
    let missing = 0, of = null
    for (const [id, text] of shown) {
      const turn = this.turns.get(id)
      if (!turn && !(this.more && id < this.first?.id)) return null
      const here = turn && turn.reasoning + turn.text
      if (!turn || here.startsWith(text)) continue
      let same = 0
      while (text[same] === here[same]) same++
      missing += [...text.slice(same)].length
      of = turn
    }
    return { missing, of }
  }

  // at returns the turn that contains an element.
  at(el) { return this.turns.get(Number(el?.closest('.turn')?.dataset.id)) }

  show(snapshot) {
    this.clear()
    this.title = snapshot.title
    this.raw = Boolean(snapshot.raw)
    this.el.classList.toggle('raw', this.raw)
    for (const m of snapshot.messages) this.append(m)
    this.more = Boolean(snapshot.more)
    this.cut = Boolean(snapshot.later)
    this.origin = snapshot.origin
    this.compare()
    if (snapshot.replay) this.replayed(snapshot.replay)
  }

  // compare makes each answer show how it differs from the one before it.
  compare() {
    let before
    for (const answer of this.answers) {
      answer.follows(before)
      before = answer
    }
  }

  // cut is whether the server has messages after the last loaded one.
  get cut() { return this.el.classList.contains('cut') }

  set cut(on) { this.el.classList.toggle('cut', on) }

  clear() {
    this.el.replaceChildren()
    this.turns.clear()
    this.title = ''
    this.more = this.cut = false
    this.origin = null
    this.replay = null
  }

  // cutAfter removes the turns after a message; if the message is not loaded, all turns.
  cutAfter(id) {
    this.cut = false
    if (!this.turns.has(id)) {
      this.el.replaceChildren()
      this.turns.clear()
      this.more = Boolean(id)
      return
    }
    for (const later of [...this.turns.keys()].reverse()) {
      if (later === id) return
      this.drop(later)
    }
  }

  drop(id) {
    this.turns.get(id).el.remove()
    this.turns.delete(id)
  }

  append(m) {
    const question = this.turns.get(m.parent), first = Boolean(question) && !question.parent
    const turn = m.role !== 'model' ? new Question(m, this.address()) : this.raw ? new RawAnswer(m, first) : new Answer(m, first)
    this.turns.set(m.id, turn)
    this.el.append(turn.el)
  }

  // place inserts a message, in place of its previous version if that is loaded, else after its parent.
  place(m) {
    const old = this.turns.get(m.id)
    if (!old && this.cut && m.parent && !this.turns.has(m.parent)) return // it comes after the loaded messages
    if (old) {
      this.cutAfter(m.id)
      this.drop(m.id)
    } else this.cutAfter(m.parent ?? 0)
    this.append(m)
    const turn = this.turns.get(m.id)
    if (turn.running && turn.length) turn.begun = turn.length
  }

  // prepend adds messages before the first turn. It then removes turns beyond the limit at the
  // other end, except a running answer.
  prepend(f) {
    if (f.before !== this.first?.id) return
    const here = [...this.turns]
    this.turns.clear()
    const before = document.createDocumentFragment()
    for (const m of f.messages ?? []) {
      this.append(m)
      before.append(this.turns.get(m.id).el)
    }
    for (const [id, turn] of here) this.turns.set(id, turn)
    this.el.prepend(before)
    this.more = Boolean(f.more)
    while (this.turns.size > most && !this.running) {
      this.drop(this.end.id)
      this.cut = true
    }
    this.compare()
  }

  // extend adds messages after the last turn, and removes turns beyond the limit at the start.
  extend(f) {
    if (!this.cut || f.after !== this.end?.id) return
    for (const m of f.messages ?? []) this.append(m)
    this.cut = Boolean(f.more)
    this.trim()
    this.compare()
  }

  // trim removes the first turns beyond the limit. Call it only while the end is in view.
  trim() {
    while (this.turns.size > most) {
      this.drop(this.first.id)
      this.more = true
    }
  }

  // replayed shows the progress or the result of a replay at its answer.
  replayed(r) {
    this.replay = r
    const answer = this.turns.get(r.answer)
    if (answer) showReplay(answer.el.querySelector('.replay'), r)
  }

  apply(e) {
    const answer = this.turns.get(e.id)
    switch (e.type) {
      case 'message': {
        this.place(e.message)
        this.compare()
        break
      }
      case 'progress': answer?.wait(e.progress); break
      case 'text': answer?.append(e); break
      case 'block': answer?.block(e); break
      case 'end': {
        answer?.end(e)
        this.compare()
        break
      }
      case 'title': this.title = e.text; break
      case 'replay': this.replayed(e.replay); break
      case 'branch': {
        const known = this.turns.has(e.id)
        this.cutAfter(e.id ?? 0)
        for (const m of e.messages ?? []) this.append(m)
        if (!known) this.more = Boolean(e.more)
        this.compare()
      }
    }
  }
}
