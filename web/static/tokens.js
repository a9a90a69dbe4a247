// The tokens of an answer: each coloured by how likely it was, and the candidates in its place.
import { route } from './base.js'
import { BiasButtons } from './biases.js'
import { copyOf } from './html.js'
import { bytes, count, figure, ordinal, percent, tokenCount, visible } from './format.js'
import { t } from './lang.js'
import { hang } from './menu.js'
import { request } from './request.js'

// scales have for each way of colouring the bounds of the five steps, which side of them a token has to be on, and the
// legend with its unit.
export const scales = {
  p: { bounds: [0.9, 0.5, 0.2, 0.05, 0.01], step: (t, bounds) => bounds.filter(b => t.p < b).length, words: ['≥ 90 %', '50–90 %', '20–50 %', '5–20 %', '1–5 %', '< 1 %'] },
  rank: { bounds: [1, 2, 4, 10, 40], step: (t, bounds) => bounds.filter(b => t.rank >= b).length, words: [ordinal(1), ordinal(2), '3–4', '5–10', '11–40', '41+'] },
  entropy: { bounds: [0.3, 0.9, 1.6, 2.4, 3.2], step: (t, bounds) => bounds.filter(b => t.entropy >= b).length, words: ['< 0.3', '0.3–0.9', '0.9–1.6', '1.6–2.4', '2.4–3.2', '≥ 3.2'], unit: t('bits') },
  kl: { bounds: [0.001, 0.01, 0.05, 0.2, 1], step: (t, bounds) => bounds.filter(b => t.compared?.kl >= b).length, words: ['< 0.001', '< 0.01', '< 0.05', '< 0.2', '< 1', '≥ 1'], unit: 'nats' },
}

// inPercent returns a probability in percent with two or three digits.
export const inPercent = p => figure(p >= 0.0995 ? (100 * p).toFixed(1) : p >= 0.00095 ? (100 * p).toFixed(2) : p >= 0.0000095 ? (100 * p).toPrecision(1) : '<0.001')

const gap = 6 // px between a token and its candidates
const phone = matchMedia('(max-width: 760px)')

// List is a list of tokens, each a button. at is the address of one of them without its number; forks says
// whether an answer can go on with another token in the place of one.
export class List {
  constructor(owner, answer, tokens, list) {
    Object.assign(this, { owner, answer, tokens, list })
    this.spans = tokens.map((token, i) => this.span(token, i))
    this.list.append(...this.spans)
    this.spans[0].tabIndex = 0
    this.list.addEventListener('click', e => {
      const at = this.spans.indexOf(e.target.closest('.tok'))
      if (at >= 0) this.owner.pick(this, at)
    })
    this.list.addEventListener('keydown', e => this.pressed(e))
  }

  span(token, i) {
    const el = document.createElement('span')
    el.className = 'tok'
    el.setAttribute('role', 'button')
    el.tabIndex = -1
    el.textContent = token.text
    const p = !token.known ? t('probability not stored') : token.at_most ? t('less than %s percent', inPercent(token.p)) : t('%s percent', inPercent(token.p))
    el.setAttribute('aria-label', t('%s, %s, token %s', token.text.trim() || visible(token.text), p, i + 1))
    return el
  }

  // paint colours the tokens by one of the scales.
  paint(by) {
    const { bounds, step } = scales[by]
    const family = by === 'entropy' ? 'e' : 'p'
    for (const [i, t] of this.tokens.entries()) {
      const known = by === 'kl' ? t.compared : t.known
      const n = known ? step(t, bounds) : 0
      const marks = ['gone', 'less', 'forked'].filter(mark => this.spans[i].classList.contains(mark)).map(mark => ` ${mark}`).join('')
      this.spans[i].className = `tok${n ? ` ${family}${n}` : ''}${known ? '' : ' unknown'}${marks}`
    }
  }

  pressed(e) {
    const at = this.spans.indexOf(e.target)
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: this.spans.length - 1, ArrowUp: this.line(at, -1), ArrowDown: this.line(at, 1), Enter: at, ' ': at }[e.key]
    if (at >= 0 && e.key.toLowerCase() === 'u' && !e.ctrlKey && !e.altKey && !e.metaKey) {
      e.preventDefault()
      e.stopPropagation()
      const unsure = this.spans.map((_, i) => i).filter(i => this.tokens[i].known && this.tokens[i].entropy >= scales.entropy.bounds[1])
      const next = e.shiftKey ? unsure.findLast(i => i < at) : unsure.find(i => i > at)
      if (next !== undefined) this.owner.pick(this, next)
      return
    }
    if (at >= 0 && this.forks && e.key === 'm' && !e.ctrlKey && !e.altKey && !e.metaKey) {
      e.preventDefault()
      e.stopPropagation()
      this.owner.inspect(this, at)
      return
    }
    const alternative = this.forks && /^[1-9]$/.test(e.key) && !e.ctrlKey && !e.altKey && !e.metaKey && this.owner.view === this && this.owner.detail?.alternatives?.[e.key - 1]
    if (alternative) {
      e.preventDefault()
      e.stopPropagation()
      this.owner.fork({ token: alternative.id })
      return
    }
    if (at < 0 || to === undefined || !this.spans[to] || e.ctrlKey || e.altKey || e.metaKey) return
    e.preventDefault()
    e.stopPropagation()
    this.owner.pick(this, to)
  }

  // line returns the token above (way -1) or below (way 1) another.
  line(at, way) {
    const here = this.spans[at]?.getClientRects()[0]
    if (!here) return at
    for (let i = at + way, best = at, y = null; ; i += way) {
      const there = this.spans[i]?.getClientRects()[0]
      if (!there || y !== null && Math.abs(there.top - y) > here.height / 2) return best
      if (Math.abs(there.top - here.top) < here.height / 2) continue
      if (y === null || Math.abs(there.left - here.left) < Math.abs(this.spans[best].getClientRects()[0].left - here.left)) best = i
      y = there.top
    }
  }

  // mark marks a token as the selected one; -1: none.
  mark(at) {
    for (const el of this.spans) {
      el.removeAttribute('aria-pressed')
      el.tabIndex = -1
    }
    const el = this.spans[at] ?? this.spans[0]
    el.tabIndex = 0
    if (at < 0) return
    el.setAttribute('aria-pressed', 'true')
    el.focus({ preventScroll: true })
    el.scrollIntoView({ block: 'nearest' })
  }
}

// View is an answer whose tokens are shown.
class View extends List {
  constructor(owner, answer, tokens) {
    const el = copyOf('t-tokens')
    super(owner, answer, tokens, el.querySelector('.toks'))
    this.el = el
    this.forks = true
    this.paint(owner.by)
  }

  get at() { return route(`/c/${this.owner.on.chat()}/tokens/${this.answer.id}`) }

  // place names a token by its number.
  place(at, total) { return total ? t('token %s of %s', count(at + 1), count(total)) : t('token %s', count(at + 1)) }

  // scored returns what scores its prompt.
  async scored() {
    const { Scoring } = await import('./score.js')
    return this.scoring ??= new Scoring(this)
  }

  // paint colours the tokens by probability, rank, entropy or divergence, those of a scored prompt too.
  paint(by) {
    super.paint(by)
    this.scoring?.prompt?.paint(by)
  }

  // sum describes all tokens in figures.
  get sum() {
    const known = this.tokens.filter(t => t.known)
    const facts = [tokenCount(this.tokens.length)]
    if (known.length) {
      const perplexity = Math.exp(-known.reduce((sum, t) => sum + Math.log(t.p), 0) / known.length)
      const least = known.reduce((a, b) => a.p < b.p ? a : b)
      facts.push(t('perplexity %s', figure(perplexity.toFixed(2))), t('least likely %s %', `${least.at_most ? '<' : ''}${inPercent(least.p)}`.replace('<<', '<')))
    }
    if (known.length < this.tokens.length) facts.push(known.length ? t('%s without stored probabilities', count(this.tokens.length - known.length)) : t('all without stored probabilities'))
    return facts.join(', ')
  }

  // least is the token with the highest entropy of those for which among holds; -1: none.
  least(among = () => true) {
    return this.tokens.reduce((best, t, i) => t.known && !(t.entropy <= this.tokens[best]?.entropy) && among(i) ? i : best, -1)
  }

  // judged marks what a verdict says of the tokens; without one, none is marked.
  judged(verdict) {
    const before = verdict?.before ?? [], after = verdict?.after ?? []
    for (const [i, el] of this.spans.entries()) {
      el.classList.toggle('gone', after[i] === 0)
      el.classList.toggle('less', after[i] > 0 && after[i] < before[i] / 2)
    }
  }

  say(text) {
    const el = this.el.querySelector('.trouble')
    el.textContent = text
    el.hidden = !text
  }
}

// Tokens shows the tokens of answers, in the place of their text, and what is done with them.
export class Tokens {
  // on: {chat(), inspect(candidates, name), fork(answer, at, next), opened(answer), closed(answer), failed(error)}, and what
  // BiasButtons need. inspect is called with nothing when no token is selected any more.
  constructor(on) {
    this.on = on
    this.by = 'p'
    this.views = new Map() // by answer
    this.forked = null // {at}: the tokens of the version that is written are shown when it is there
    this.row = document.getElementById('token-row')
    for (const button of this.row.querySelectorAll('[data-by]')) button.addEventListener('click', () => this.colour(button.dataset.by))
    this.row.querySelector('[data-least]').addEventListener('click', () => this.pickLeast())
    this.row.querySelector('[data-close-tokens]').addEventListener('click', () => {
      const answer = this.current?.answer
      this.forked = null
      for (const answer of this.views.keys()) this.read(answer)
      answer?.el.querySelector('[data-tokens]').focus()
      this.draw()
    })
    this.menu()
    this.pop = copyOf('t-token')
    this.biases = [new BiasButtons(on), new BiasButtons(on)] // of the popover and of the microscope
    this.pop.querySelector('.alts').after(this.biases[0].el)
    this.pop.querySelector('[data-close-token]').addEventListener('click', () => this.close(true))
    this.pop.querySelector('[data-stages]').addEventListener('click', () => this.inspect(this.view, this.at, true))
    this.pop.querySelector('[data-all]').addEventListener('click', () => {
      if (!this.detail) return
      this.list(Infinity)
      if (this.view.forks) this.pop.querySelector('.alts button').focus()
      else this.view.spans[this.at].focus()
    })
    this.pop.querySelector('.alts').addEventListener('click', e => {
      const button = e.target.closest('.alt')
      if (button) this.fork({ token: Number(button.dataset.id) })
    })
    this.pop.querySelector('.own').addEventListener('submit', e => {
      e.preventDefault()
      const text = e.target.querySelector('input').value
      if (text) this.fork({ text })
    })
    this.word(this.pop.querySelector('.own input'))
    this.pop.addEventListener('keydown', e => this.walked(e))
    const moved = () => this.view && this.place()
    addEventListener('resize', moved)
    this.sizes = new ResizeObserver(moved) // what is above the tokens moves them
    document.addEventListener('keydown', e => this.escape(e), true) // before it stops an answer
    document.addEventListener('click', e => { if (this.view && !e.target.closest('.tok, .token, .micro, .minimap, .insp, .tokbar, #token-menu, [data-worst]')) this.close(false) })
  }

  // current is the view that the row is about: that of the selected token, or the last one; undefined: none is shown.
  get current() { return this.views.get(this.view?.answer) ?? [...this.views.values()].at(-1) }

  // menu handles the menu of the row.
  menu() {
    const menu = document.getElementById('token-menu'), more = this.row.querySelector('[data-more-tokens]')
    const find = q => menu.querySelector(q)
    hang(menu, () => {
      const { scoring, sum } = this.current
      find('[data-sum]').textContent = sum
      find('[data-score]').disabled = Boolean(scoring?.asked || scoring?.prompt)
      find('[data-xray]').disabled = Boolean(scoring?.asked)
      if (find('.stored').open) this.store(null)
    })
    menu.addEventListener('click', async e => {
      const item = e.target.closest('button.item'), { current } = this
      if (!item) return
      menu.hidePopover()
      more.focus()
      const scoring = await current.scored()
      if (item.matches('[data-score]')) scoring.ask({})
      else {
        this.close(false) // the candidates would cover the form
        scoring.offer()
      }
    })
    find('.stored').addEventListener('toggle', () => find('.stored').open && this.store(null))
    find('.stored form').addEventListener('submit', e => {
      e.preventDefault()
      this.store({ days: e.target.days.valueAsNumber || 0, megabytes: e.target.megabytes.valueAsNumber || 0 })
    })
  }

  // store shows how much the stored candidates of all chats take and how long they are kept, after limits, if
  // any, are set.
  async store(limits) {
    const menu = document.getElementById('token-menu')
    const stored = await request(route('/candidates'), limits, this.on.failed)
    if (!stored) return
    menu.querySelector('[data-stored]').textContent = t('%s of %s MB in all chats, for %s days', bytes(stored.bytes), count(stored.megabytes), count(stored.days))
    const form = menu.querySelector('form')
    form.hidden = !stored.may
    form.days.value = stored.days
    form.megabytes.value = stored.megabytes
  }

  // colour colours the tokens of all answers by probability, rank, entropy or divergence.
  colour(by) {
    this.by = by
    for (const view of this.views.values()) view.paint(by)
    this.draw()
  }

  // draw shows the row while tokens are shown, or come. The messages stay where they are.
  draw() {
    const { row, by } = this, { words, unit } = scales[by], family = by === 'entropy' ? 'e' : 'p'
    const hidden = !this.views.size && !this.forked
    if (hidden && row.hidden) return
    row.querySelector('[data-by="kl"]').hidden = ![...this.views.values()].some(view => view.scoring?.compared)
    for (const button of row.querySelectorAll('[data-by]')) button.setAttribute('aria-pressed', button.dataset.by === by)
    row.querySelector('.scale').replaceChildren(...words.map((word, n) => {
      const el = document.createElement('span')
      el.className = `tok${n ? ` ${family}${n}` : ''}`
      el.textContent = word
      return el
    }), unit ? ` ${unit}` : '')
    if (hidden === row.hidden) return
    const scroller = row.nextElementSibling, top = scroller.offsetTop
    row.hidden = hidden
    scroller.scrollTop += scroller.offsetTop - top
  }

  // shows reports whether the tokens of an answer are shown.
  shows(answer) { return this.views.get(answer)?.el.isConnected ?? false }

  // toggle shows the tokens of an answer in place of its text, or its text again.
  async toggle(answer) {
    if (this.shows(answer)) this.read(answer)
    else await this.open(answer)
  }

  // open shows the tokens of an answer, with the candidates of one of them: by default the one of which the model was least
  // certain among those in sight; -1: of none.
  async open(answer, at) {
    const list = await this.load(answer)
    if (list && !list.length) {
      this.on.failed({ title: t('There are no tokens to show'), message: t('The engine that wrote this answer sent its text without the tokens. Ask a model of this machine to see them.') })
      return
    }
    if (!list || answer.running || !answer.el.isConnected || this.shows(answer)) return
    if (this.by === 'kl') this.colour('p')
    const view = new View(this, answer, list)
    this.views.set(answer, view)
    answer.prose.hidden = true
    answer.prose.after(view.el)
    answer.el.querySelector('[data-tokens]').setAttribute('aria-pressed', 'true')
    this.draw()
    const { Minimap } = await import('./minimap.js')
    this.minimap ??= new Minimap(document.querySelector('#scroll'), () => [...this.views.values()].filter(view => view.el.isConnected), (view, at) => this.pick(view, at))
    this.minimap.soon()
    const { Hints } = await import('./hints.js')
    this.hints ??= new Hints()
    this.hints.show(this.views.size > 0)
    this.on.opened(answer)
    if (!this.shows(answer) || this.view) return
    const first = at ?? view.least(i => this.sees(view.spans[i]))
    if (first >= 0) await this.pick(view, first, false)
  }

  // sees reports whether a token is in sight.
  sees(el) {
    const scroller = document.getElementById('scroll').getBoundingClientRect(), box = el.getBoundingClientRect()
    return box.top >= scroller.top && box.bottom <= scroller.bottom
  }

  // pickLeast selects the token of which the model was least certain.
  pickLeast() {
    const { current } = this, at = current?.least() ?? -1
    if (at >= 0) this.pick(current, at)
  }

  // written shows the tokens of a version that was forked, now that it is there, and marks where.
  async written(answer) {
    const { forked } = this
    this.forked = null
    if (forked && answer.info.tokens > forked.at) await this.open(answer, forked.at)
    const view = this.views.get(answer)
    if (view && forked) {
      const el = view.spans[forked.at]
      el.classList.add('forked')
      el.title = t('Another word from here')
    }
    this.draw()
  }

  // reach moves the focus to the tokens of an answer, from which the arrow keys, Enter and m go on.
  async reach(answer) {
    await this.toggle(answer)
    if (this.shows(answer)) (this.view?.answer === answer ? this.view.spans[this.at] : this.views.get(answer).spans[0])?.focus()
  }

  // load returns the tokens of an answer, which come in parts; null if a part does not come.
  async load({ id }) {
    const list = []
    for (let total = 1; list.length < total;) {
      const said = await request(route(`/c/${this.on.chat()}/tokens/${id}?from=${list.length}`), null, this.on.failed)
      if (!said || said.total && !said.tokens.length) return null
      list.push(...said.tokens)
      total = said.total
    }
    return list
  }

  // replaced forgets the answers that the chat does not show any more.
  replaced() {
    if (this.view && !this.view.el.isConnected) this.close(false)
    for (const [answer, view] of this.views) if (!view.el.isConnected) this.views.delete(answer)
    this.draw()
    if (!this.views.size) this.hints?.show(false)
    this.minimap?.soon()
  }

  // read shows the text of an answer again.
  read(answer) {
    if (this.view?.answer === answer) this.close(false)
    this.views.get(answer).scoring?.cancel()
    this.views.get(answer).el.remove()
    this.views.delete(answer)
    if (!this.views.size) this.hints?.show(false)
    answer.prose.hidden = false
    this.minimap?.soon()
    answer.el.querySelector('[data-tokens]').setAttribute('aria-pressed', 'false')
    this.draw()
    this.on.closed(answer)
  }

  // inspect opens the microscope at a token, or closes it there.
  async inspect(view, at, focus) {
    const { Microscope } = await import('./microscope.js')
    this.microscope ??= new Microscope({
      address: (view, at) => route(`/c/${this.on.chat()}/tokens/${view.answer.id}/${at}/stages`),
      sight: (view, at) => route(`/c/${this.on.chat()}/looked/${view.answer.id}/${at}`),
      walk: way => this.view?.spans[this.at + way] && this.pick(this.view, this.at + way),
      closed: () => this.view?.spans[this.at].focus(),
      buttons: this.biases[1].el,
    })
    if (this.microscope.open && this.view === view && this.at === at) {
      this.microscope.close()
      return
    }
    this.hints?.did('pick')
    this.hints?.did('inspect')
    await this.microscope.show(view, at)
    if (this.view !== view || this.at !== at) await this.pick(view, at)
    if (focus) this.microscope.el.focus()
    view.spans[at].scrollIntoView({ block: 'nearest' })
  }

  // word begins the field for another word with the space that the token begins with.
  word(field) {
    field.addEventListener('focus', () => {
      if (!field.value && this.detail?.text.startsWith(' ')) field.value = ' '
    })
    field.addEventListener('blur', () => {
      if (field.value === ' ') field.value = ''
    })
  }

  // walked moves between the candidates.
  walked(e) {
    const list = [...this.pop.querySelectorAll('.alt')], at = list.indexOf(e.target)
    const to = list[at + { ArrowDown: 1, ArrowUp: -1 }[e.key]]
    if (at < 0 || !to) return
    e.preventDefault()
    to.focus()
  }

  // fork goes on with something else in the place of a token, by default of the selected one: {token} or {text}; without either
  // the model draws it.
  fork(next, view = this.view, at = this.at) {
    if (!view.forks || view === this.view && !this.detail || next.token === view.tokens[at].id) return
    this.hints?.did('pick')
    this.forked = { at }
    this.close(false)
    this.on.fork(view.answer, at, next)
  }

  // pick selects a token and shows the candidates in its place. person says whether a person chose it.
  async pick(view, at, person = true) {
    this.view?.mark(-1)
    this.view = view
    this.at = at
    this.detail = null // until the response comes, the candidates shown are those of another token
    view.mark(at)
    if (this.microscope?.open) this.microscope.show(view, at)
    const detail = await request(`${view.at}/${at}`, null, this.on.failed)
    if (!detail || this.view !== view || this.at !== at) return
    this.detail = detail
    if (person) this.hints?.did('pick')
    const name = visible(detail.text)
    this.pop.querySelector('[data-name]').textContent = name
    this.pop.querySelector('[data-p]').textContent = detail.known ? `${detail.at_most ? '< ' : ''}${inPercent(detail.p)} %`.replace('< <', '<') : ''
    this.pop.querySelector('[data-place]').textContent = view.place(at, detail.total)
    this.pop.setAttribute('aria-label', `${view.place(at)}: ${name}`)
    this.pop.classList.toggle('readonly', !view.forks)
    for (const el of this.pop.querySelectorAll('.own, [data-stages]')) el.hidden = !view.forks
    const hex = [...atob(detail.bytes)].map(c => c.charCodeAt(0).toString(16).padStart(2, '0')).join(' ')
    const facts = detail.known ? [detail.at_most ? t('rank below %s', count(detail.rank)) : t('rank %s', count(detail.rank + 1)), t('%s bits', figure(detail.entropy.toFixed(2)))] : [t('probability not stored')]
    const { compared } = view.tokens[at]
    if (compared) facts.push(t('divergence %s nats', figure(compared.kl.toPrecision(2))), t('other model %s %, rank %s', inPercent(compared.p), count(compared.rank + 1)))
    this.pop.querySelector('[data-facts]').textContent = facts.join(' · ')
    this.pop.querySelector('[data-id-bytes]').textContent = `id ${detail.id} · ${hex}`
    this.pop.querySelector('.own input').value = ''
    this.biases[0].el.hidden = !view.forks
    this.biased()
    this.list(phone.matches ? 4 : 8)
    this.place()
    this.sizes.observe(view.el)
    this.on.inspect(detail.candidates, `${view.place(at)}, ${name}`)
  }

  // biased shows the bias of the selected token.
  biased() {
    if (!this.detail) return
    for (const buttons of this.biases) buttons.show({ id: this.detail.id, text: this.detail.text, model: this.view.answer.info.model })
  }

  // list lists the first alternatives.
  list(most) {
    const { alternatives = [], id } = this.detail
    const shown = alternatives.slice(0, most)
    const chosen = alternatives.find(a => a.id === id)
    if (chosen && !shown.includes(chosen)) shown.push(chosen)
    this.pop.querySelector('.alts').replaceChildren(...shown.map(a => {
      const el = copyOf('t-alternative')
      el.firstElementChild.classList.toggle('chosen', a.id === id)
      const button = el.querySelector('.alt')
      button.dataset.id = a.id
      if (a.id === id) button.setAttribute('aria-current', 'true')
      else if (!this.view.forks) button.title = `id ${a.id}`
      else button.title = t('Continue with this one (id %s)', a.id)
      el.querySelector('code').textContent = visible(a.text)
      el.querySelector('.fg').setAttribute('width', percent(a.p))
      el.querySelector('.mono').textContent = `${inPercent(a.p)} %`
      return el
    }))
    const all = this.pop.querySelector('[data-all]')
    all.hidden = shown.length >= alternatives.length
    all.textContent = t('All %s', count(alternatives.length))
    this.pop.querySelector('[data-id-bytes]').hidden = !all.hidden
  }

  // place puts the popover under its token, or above it if there is room there alone; on a phone below the answer, in place of
  // the message field.
  place() {
    if (phone.matches) {
      const composer = document.getElementById('composer')
      if (composer.previousElementSibling !== this.pop) composer.before(this.pop)
      this.view.spans[this.at].scrollIntoView({ block: 'nearest' })
      return
    }
    if (this.pop.parentElement !== this.view.el) this.view.el.append(this.pop)
    const box = this.view.el.getBoundingClientRect(), t = this.view.spans[this.at].getClientRects()[0]
    const scroller = document.getElementById('scroll').getBoundingClientRect(), height = this.pop.offsetHeight + gap
    const above = t.bottom + height > scroller.bottom && t.top - height >= scroller.top
    const x = Math.max(0, Math.min(t.left - box.left - 40, box.width - this.pop.offsetWidth))
    this.pop.style.setProperty('left', `${x}px`)
    this.pop.style.setProperty('top', `${above ? t.top - box.top - height : t.bottom - box.top + gap}px`)
    this.pop.scrollIntoView({ block: 'nearest' })
  }

  escape(e) {
    if (e.key !== 'Escape' || !this.view || document.querySelector(':popover-open')) return
    e.preventDefault()
    e.stopPropagation()
    this.close(true)
  }

  // close closes the popover. focus says whether its token gets the focus.
  close(focus) {
    if (!this.view) return
    const { view, at } = this
    this.view = this.detail = null
    this.pop.remove()
    this.sizes.disconnect()
    this.microscope?.close()
    view.mark(-1)
    if (focus) view.spans[at].focus()
    this.on.inspect()
  }
}
