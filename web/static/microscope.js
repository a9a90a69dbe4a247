// The sampler microscope: what each stage of the sampler chain did when a token was drawn.
import { count, figure, percent, visible } from './format.js'
import { copyOf } from './html.js'
import { t } from './lang.js'
import { isAbout, Looked } from './looked.js'
import { request } from './request.js'

const svg = name => document.createElementNS('http://www.w3.org/2000/svg', name)
const inPercent = p => figure(p >= 0.9995 ? '100' : p >= 0.0995 ? (100 * p).toFixed(1) : p >= 0.00005 ? (100 * p).toFixed(2) : '<0.01')

function element(name, text, ...classes) {
  const el = document.createElement(name)
  if (text !== undefined) el.textContent = text
  el.classList.add(...classes)
  return el
}

// bar returns a bar of shares of its width: [class, share] from the left.
function bar(...parts) {
  const el = svg('svg')
  el.classList.add('bar')
  el.setAttribute('aria-hidden', 'true')
  let x = 0
  for (const [name, share] of parts) {
    const rect = svg('rect')
    rect.classList.add(name)
    rect.setAttribute('x', percent(x))
    rect.setAttribute('width', percent(share))
    rect.setAttribute('height', 8)
    el.append(rect)
    x += share
  }
  return el
}

// said describes in words what a stage did.
function said(stage, first) {
  if (first) return ''
  if (stage.moves) return stage.removed ? t('%s % moved', inPercent(stage.removed)) : t('unchanged')
  return stage.removed ? `${stage.removed < 0.00005 ? '' : '−'}${inPercent(stage.removed)} %` : t('none cut')
}

const massOf = stage => stage.moves ? bar(['keep', 1]) : bar(['keep', 1 - stage.removed], ['hat', stage.removed])

// walking is how long a token has to be selected before the model is asked about it.
const walking = 250 // ms

export class Microscope {
  // on: {address(view, at), sight(view, at), walk(way), closed(), buttons: the element that gives the token a bias}
  constructor(on) {
    this.on = on
    this.el = copyOf('t-microscope')
    for (const button of this.el.querySelectorAll('[data-walk]')) button.addEventListener('click', () => on.walk(Number(button.dataset.walk)))
    this.find('.micro-scroll').before(on.buttons)
    this.find('[data-close-micro]').addEventListener('click', () => {
      this.close()
      on.closed()
    })
    this.find('[data-ask]').addEventListener('click', () => this.ask())
    this.find('[data-look]').addEventListener('click', () => this.look())
  }

  find(q) { return this.el.querySelector(q) }

  get open() { return this.el.isConnected }

  close() {
    this.at = -1
    this.looked?.cancel()
    this.el.remove()
  }

  // look shows where the answer looked in place of the stages, or the stages again.
  look() {
    this.looked ??= new Looked({ address: this.on.sight, shown: () => this.uncover() })
    const shows = !this.looked.el.isConnected
    this.find('[data-look]').setAttribute('aria-pressed', shows)
    this.find('h2').textContent = shows ? t('Where it looked') : t('Sampler microscope')
    if (shows) {
      this.el.append(this.looked.el)
      this.looked.show(this.view, this.at)
    } else {
      this.looked.cancel()
      this.looked.el.remove()
    }
    this.uncover()
  }

  // show shows the stages of a token.
  async show(view, at) {
    Object.assign(this, { view, at })
    if (!this.open) document.querySelector('#composer').before(this.el)
    this.uncover()
    const about = isAbout(view.answer), looks = this.looked?.el.isConnected
    this.find('[data-look]').hidden = !about
    if (looks && about) this.looked.show(view, at)
    else if (looks) this.look()
    this.find('[data-at]').textContent = `${visible(view.tokens[at].text)} · ${count(at + 1)}`
    const stages = await request(this.on.address(view, at), null, e => this.explain(e.message))
    if (!stages || this.view !== view || this.at !== at) return
    this.fill(stages)
    if (!stages.ask || !stages.loaded) return
    await new Promise(done => setTimeout(done, walking))
    if (this.view === view && this.at === at) await this.ask()
  }

  // ask lets the model compute what is not stored.
  async ask() {
    const { view, at } = this
    const button = this.find('[data-ask]')
    button.disabled = true
    const stages = await request(this.on.address(view, at), {}, e => this.view === view && this.at === at && this.explain(e.message))
    button.disabled = false
    if (stages && this.view === view && this.at === at) this.fill(stages)
  }

  explain(reason, ask) {
    this.find('.why').hidden = !reason
    this.find('.why p').textContent = reason ?? ''
    this.find('[data-ask]').hidden = !ask
    this.find('[data-ask]').textContent = ask?.loaded ? t('Compute one step of the model') : t('Load the model and compute one step')
    this.find('.micro-scroll').hidden = this.find('[data-source]').hidden = Boolean(reason)
  }

  fill(stages) {
    this.explain(stages.source ? '' : stages.reason, stages.ask && stages)
    if (!stages.source) return
    this.find('[data-source]').textContent = stages.source === 'stored' ? t('from stored candidates') : t('from one step of the model')
    const { u, from, to } = stages.drawn
    this.find('[data-draw]').textContent = stages.reason || t('The random number was %s; this token owns %s to %s.', ...[u, from, to].map(v => figure(v.toFixed(4))))
    this.table(stages)
    this.ledger(stages)
    this.uncover()
  }

  // uncover scrolls the token into what the microscope leaves of the chat.
  uncover() { this.view.spans[this.at]?.scrollIntoView({ block: 'nearest' }) }

  table({ stages, tokens, reason }) {
    const names = element('tr'), masses = element('tr', undefined, 'mass')
    names.append(element('td', t('percent')))
    masses.append(element('th', t('probability')))
    masses.firstChild.scope = 'row'
    for (const [i, s] of stages.entries()) {
      const head = element('th', s.name), cell = element('td')
      head.scope = 'col'
      if (s.value) head.append(' ', element('span', s.value, 'mono'))
      cell.append(massOf(s), element('span', count(s.kept), 'mono'), element('span', said(s, i === 0), 'mono', 'did'))
      names.append(head)
      masses.append(cell)
    }
    this.find('table').style.setProperty('min-width', `${112 + 104 * stages.length}px`)
    this.find('thead').replaceChildren(names, masses)
    this.find('tbody').replaceChildren(...tokens.map((t, n) => this.row(t, n === 0, reason)), this.rest(stages, tokens))
  }

  // row is the way of one token.
  row(token, chosen, notDrawn) {
    const row = element('tr'), name = element('th')
    name.scope = 'row'
    name.append(element('code', visible(token.text)))
    row.append(name)
    row.classList.toggle('chosen', chosen)
    if (chosen) name.append(element('span', ` (${notDrawn ? t('this token') : t('drawn')})`, 'vh'))
    const cut = token.p.indexOf(0)
    for (const [i, p] of token.p.entries()) row.append(this.cell(p, cut < 0 || i < cut ? '' : i === cut ? 'cut' : 'dead', token.p[i - 1]))
    return row
  }

  cell(p, state, before) {
    const cell = element('td')
    if (state) {
      cell.classList.add(state)
      if (state === 'cut') cell.append(bar(['hat', before ?? 0]), element('span', t('cut'), 'mono'))
      return cell
    }
    cell.append(bar(['keep', Math.max(0, p)]), element('span', p < 0 ? t('not stored') : inPercent(p), 'mono'))
    return cell
  }

  // rest is the row of all other tokens.
  rest(stages, tokens) {
    const row = element('tr', undefined, 'rest'), name = element('th', t('%s more', count(Math.max(0, stages[0].kept - tokens.length))))
    name.scope = 'row'
    row.append(name)
    for (const [i, s] of stages.entries()) {
      const shown = tokens.filter(t => t.p[i] !== 0), left = s.kept - shown.length
      const p = Math.max(0, 1 - shown.reduce((sum, t) => sum + Math.max(0, t.p[i]), 0))
      row.append(left > 0 ? this.cell(p, '') : this.cell(0, 'dead'))
    }
    return row
  }

  // ledger is the way of the drawn token as a list, for narrow screens.
  ledger({ stages, tokens: [chosen] }) {
    this.find('.ledger').replaceChildren(...stages.map((s, i) => {
      const item = element('li'), name = element('b', s.name)
      if (s.value) name.append(' ', element('span', s.value, 'mono'))
      const facts = element('span', [t('%s left', count(s.kept)), said(s, i === 0)].filter(Boolean).join(', '), 'mono')
      const own = chosen.p[i] < 0 ? t('not stored') : `${inPercent(chosen.p[i])} %`
      item.append(name, facts, massOf(s), element('span', t('this token %s', own), 'dim'))
      return item
    }))
  }
}
