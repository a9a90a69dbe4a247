// The menu of models, and the texts about the model that is selected for the next answers. The
// selection is a name, or '' for the model that is loaded when the chat begins.
import { route } from './base.js'
import { fragment } from './html.js'
import { t } from './lang.js'
import { place } from './menu.js'
import { released } from './press.js'
import { request } from './request.js'

const $$ = q => document.querySelectorAll(q)

// states names the states of models in memory, as the server calls them.
const states = { 'in use': t('in use'), loaded: t('loaded'), loading: t('loading') }

export class Picker {
  // on: {chat(), changed(), failed(error)}
  constructor(on) {
    this.on = on
    this.menu = document.getElementById('model-menu')
    this.name = this.menu.dataset.model
    this.preferred = this.menu.dataset.preferred // default for new chats
    this.engine = {}
    this.menu.addEventListener('toggle', e => {
      if (e.newState === 'open') place(this.menu, this.opener, 'right')
    })
    for (const button of $$('[data-picker]')) button.addEventListener('click', () => { this.opener = button })
    this.menu.addEventListener('submit', e => {
      e.preventDefault()
      this.chosen(e.submitter.value)
    })
  }

  get buttons() { return [...this.menu.querySelectorAll('form button')] }

  // missing reports whether the selected model is absent from the list of models; false if the
  // list could not be read, or if the model is loaded: it answers, whatever the list says.
  get missing() { return this.elsewhere && !('unread' in this.menu.dataset) && !this.buttons.some(b => b.value === this.name) }

  // elsewhere reports whether the selected model is not the loaded one.
  get elsewhere() { return this.name !== '' && this.name !== this.engine.id }

  // button is that of the selected model; undefined if it is not listed.
  get button() { return this.buttons.find(b => b.value === (this.name || this.engine.id)) }

  // where is where another engine runs the selected model; '' if this machine does.
  get where() { return this.button?.dataset.where ?? '' }

  // thinking lists how the model's thinking can be controlled, as the server says it.
  get thinking() { return this.where ? this.button.dataset.thinking : this.engine.thinking ?? '' }

  // continues reports whether the selected model has no chat template, so that it continues text.
  get continues() { return this.button?.dataset.continues !== undefined }

  // sees reports whether the selected model reads pictures, or may do so: of a model that is not listed nothing is known.
  get sees() { return !this.button || this.button.dataset.sees !== undefined }

  // seer is the name of another model that reads pictures; undefined if there is none.
  get seer() { return this.buttons.find(b => b.dataset.sees === 'true')?.value }

  // lacks has the settings without effect and why; null if all have one.
  get lacks() {
    const set = this.where && this.menu.querySelectorAll('[data-lack-set]')[this.button.dataset.lacks - 1]
    return set ? { settings: set.dataset.settings.split(' '), why: set.textContent } : null
  }

  // context is that of a selected model of another engine, in tokens; 0: it does not say, or the model is of this machine.
  get context() { return (this.where && parseInt(this.button.dataset.contextLength.replaceAll(',', ''))) || 0 }

  // counts reports whether the server can count the tokens of a draft for the selected model: other engines do not show them.
  get counts() { return !this.lacks }

  // who is what the model for the next answers is called.
  get who() { return this.elsewhere ? this.name : this.engine.name }

  // open opens the menu at another button than its own.
  open(button) {
    this.opener = button
    this.menu.showPopover({ source: button })
  }

  async chosen(name) {
    this.menu.hidePopover()
    const chat = this.on.chat()
    if (!chat) {
      this.preferred = name
      this.choose(name)
      history.replaceState(null, '', name ? route(`/?${new URLSearchParams({ model: name })}`) : route('/'))
      return
    }
    const refused = error => this.on.failed({ ...error, title: t('The model was not changed') })
    if (!await request(route(`/c/${chat}/model`), new URLSearchParams({ model: name }), refused)) return
    this.preferred = name
    this.choose(name)
  }

  // choose sets the selected model of the chat.
  choose(name) {
    this.name = name ?? ''
    this.show()
    this.on.changed()
  }

  setEngine(engine) {
    this.engine = engine
    this.mark()
    this.show()
  }

  // memory has the state of each model in memory by its name: loading, loaded, in use.
  get memory() { return new Map((this.engine.loaded ?? '').split('\n').filter(Boolean).map(line => line.split('\t').reverse())) }

  // mark says in the menu which models are in memory.
  mark() {
    const memory = this.memory
    for (const b of this.buttons.filter(b => !b.dataset.where)) {
      const state = memory.get(b.value), shown = states[state] ?? state ?? b.dataset.idle, chip = b.querySelector('[data-memory]')
      if ((chip?.textContent ?? '') === shown) continue
      chip?.remove()
      if (!shown) continue
      const fresh = document.createElement('span')
      fresh.className = state === 'in use' ? 'chip accent' : 'chip'
      fresh.dataset.memory = ''
      const dot = { 'in use': 'live', loaded: 'ok', loading: 'busy' }[state]
      if (dot) fresh.append(Object.assign(document.createElement('span'), { className: `dot ${dot}` }))
      fresh.append(shown)
      b.querySelector('.grow').after(fresh)
    }
  }

  show() {
    const other = this.elsewhere
    for (const el of $$('[data-loaded]')) el.hidden = other
    for (const el of $$('[data-chosen]')) el.hidden = !other
    for (const el of $$('[data-model-gone]')) el.hidden = !this.missing
    for (const el of $$('[data-notice]')) el.hidden = other || !this.engine.notice || el.dataset.closed === this.engine.notice // it is about the loaded model
    for (const el of $$('[data-chosen-name]')) el.textContent = this.who
    const where = this.where, state = this.memory.get(this.name)
    const ready = state === 'loaded' || state === 'in use'
    const note = ready ? t('loaded') : state === 'loading' ? t('is being loaded') : t('loads with the next message')
    for (const el of $$('[data-chosen-note]')) el.textContent = this.missing ? t('not on this machine') : where ? t('at %s', where) : note
    for (const el of $$('[data-chosen-dot]')) el.classList.toggle('ok', ready)
    for (const el of $$('[data-chosen-loads]')) el.textContent = where ? t('It runs at %s.', where) : ready ? t('It is in memory.') : t('It is loaded when the first message is sent.')
    for (const el of $$('[data-chosen-good]')) el.textContent = this.button?.dataset.good ?? ''
    for (const el of $$('[data-here]')) el.hidden = where !== ''
    for (const el of $$('[data-there]')) el.hidden = where === ''
    for (const [at, text] of Object.entries({ server: where, engine: this.button?.dataset.engineName, context: this.button?.dataset.contextLength })) {
      for (const el of $$(`[data-there-${at}]`)) el.textContent = text ?? ''
    }
    this.on.shown?.()
    for (const b of this.buttons) b.setAttribute('aria-pressed', b.value === (this.name || this.engine.id))
  }

  // news fetches the list of models if its version has changed.
  async news({ version }) {
    if (this.menu.dataset.version === String(version)) return
    this.menu.dataset.version = version
    const response = await fetch(route('/models'), { headers: { Accept: 'text/html' } }).catch(() => null)
    const form = response?.ok && fragment(await response.text()).querySelector('#model-menu form')
    if (!form) return
    await released()
    this.menu.querySelector('form').replaceChildren(...form.children)
    delete this.menu.dataset.unread
    this.mark()
    this.show()
  }
}
