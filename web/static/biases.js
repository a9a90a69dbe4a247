// The setting for single tokens that come more often, less often or never. It has the interface of Param. A token belongs to
// a model: other models ignore its bias.
import { visible } from './format.js'
import { copyOf } from './html.js'
import { t } from './lang.js'

// never keeps a token out of an answer; some makes it e² times likelier or less likely.
export const never = -1000, some = 2

const wordOf = bias => bias <= never ? t('never') : bias < 0 ? t('less likely') : t('more likely')
const same = (a, b) => a.id === b.id && a.model === b.model

export class Biases {
  constructor(el, changed) {
    Object.assign(this, { el, changed, key: el.dataset.param, label: el.querySelector('.label').textContent, preset: [], value: [] })
    this.rows = el.querySelector('ul')
    this.error = el.querySelector('.fielderr')
    this.field = el.querySelector('.reset')
    this.field.addEventListener('click', () => this.set(this.preset))
    this.set([])
  }

  get modified() { return JSON.stringify(this.value) !== JSON.stringify(this.preset) }

  get valid() { return true }

  word(list) { return list.length ? list.map(b => `“${visible(b.text)}” ${wordOf(b.bias)}`).join(', ') : 'none' }

  accepts(list) { return Array.isArray(list) && list.every(b => Number.isInteger(b.id) && typeof b.text === 'string' && typeof b.model === 'string' && Number.isFinite(b.bias)) }

  set(list) {
    this.value = list
    this.draw()
    this.changed()
  }

  rebase(list) {
    this.preset = list
    this.draw()
    this.changed()
  }

  // of returns the bias of a token, {id, model}; 0: it has none.
  of(token) { return this.value.find(b => same(b, token))?.bias ?? 0 }

  // give gives a token {id, text, model} a bias; 0 takes it away.
  give(token, bias) {
    const rest = this.value.filter(b => !same(b, token))
    this.set(bias ? [...rest, { ...token, bias }] : rest)
  }

  // writes tells which model writes the next answer: the biases for tokens of others are grey.
  writes(model) {
    this.model = model
    this.draw()
  }

  draw() {
    this.rows.replaceChildren(...this.value.map(token => {
      const el = copyOf('t-bias-chip'), name = visible(token.text), word = wordOf(token.bias)
      el.querySelector('code').textContent = name
      el.querySelector('span').textContent = word
      el.classList.toggle('idle', Boolean(this.model) && this.model !== token.model)
      el.title = t('Token %s of %s, which other models ignore', token.id, token.model)
      const button = el.querySelector('button')
      button.setAttribute('aria-label', t('%s %s: remove', name, word))
      button.addEventListener('click', () => {
        this.give(token, 0)
        ;(this.rows.querySelector('button') ?? this.el.closest('details').querySelector('summary')).focus()
      })
      return el
    }))
    this.el.classList.toggle('mod', this.modified)
  }

  disable() {}

  complain(text) {
    this.error.textContent = text
    this.error.hidden = !text
  }
}

// BiasButtons are the buttons that give a token a bias, or ban its text.
export class BiasButtons {
  // on: {biases(), bans(text), ban(text)}: the setting, whether a text is banned, and what bans it or allows it again.
  constructor(on) {
    this.on = on
    this.el = copyOf('t-bias')
    this.el.addEventListener('click', e => {
      const button = e.target.closest('button')
      if (!button) return
      if (button.matches('[data-ban]')) on.ban(this.token.text)
      else on.biases().give(this.token, button.getAttribute('aria-pressed') === 'true' ? 0 : Number(button.dataset.bias))
      this.show(this.token)
    })
  }

  // show shows the bias of a token {id, text, model}.
  show(token) {
    this.token = token
    const bias = this.on.biases().of(token)
    for (const button of this.el.querySelectorAll('[data-bias]')) button.setAttribute('aria-pressed', bias === Number(button.dataset.bias))
    const ban = this.el.querySelector('[data-ban]')
    ban.setAttribute('aria-pressed', this.on.bans(token.text))
    ban.disabled = !token.text.trim()
  }
}
