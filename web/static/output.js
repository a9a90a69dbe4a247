// The setting for the format of answers: text, JSON, a JSON schema or a grammar. It has the interface of Param. A schema has two
// views, a form and its text: the text is what counts, and the form writes it.
import { t } from './lang.js'

const loadForm = () => import('./schemaform.js')

const names = { '': t('text'), json: 'JSON', json_schema: t('JSON schema'), grammar: 'GBNF' }
const about = {
  '': t('The answer is free text.'),
  json: t('The answer is a JSON object. Say in your message what it should contain.'),
  json_schema: t('The answer is JSON that matches this schema. The model does not see the schema: say in your message what you want.'),
  grammar: t('The answer matches this grammar, in the notation of llama.cpp, thoughts included.'),
}

export class OutputFormat {
  constructor(el, changed) {
    Object.assign(this, { el, changed, key: el.dataset.param, label: t('Output format'), preset: {}, type: '', wrong: '', missing: {} })
    this.buttons = [...el.querySelectorAll('[data-format]')]
    this.schema = el.querySelector('#n-schema')
    this.grammar = el.querySelector('#n-grammar')
    this.views = [...el.querySelectorAll('[data-view]')]
    this.error = el.querySelector('.fielderr')
    for (const button of this.buttons) button.addEventListener('click', () => this.choose(button.dataset.format))
    for (const button of this.views) button.addEventListener('click', () => this.look(button.dataset.view))
    for (const field of [this.schema, this.grammar]) field.addEventListener('input', () => this.refresh())
    el.querySelector('.reset').addEventListener('click', () => {
      this.set(this.preset)
      this.field.focus()
    })
    el.closest('details').addEventListener('toggle', () => this.draw())
    this.view = 'form'
    this.set({})
  }

  // value has what applies alone: what was written for another format stays in its field.
  get value() {
    if (this.type === 'json_schema') return { type: this.type, schema: this.schema.value }
    if (this.type === 'grammar') return { type: this.type, grammar: this.grammar.value }
    return this.type ? { type: this.type } : {}
  }

  get modified() { return JSON.stringify(this.value) !== JSON.stringify(this.preset) }

  get valid() { return !this.wrong }

  get field() {
    if (this.type === 'grammar') return this.grammar
    if (this.type === 'json_schema' && !this.schema.hidden) return this.schema
    return this.form?.wrongField ?? this.buttons.find(b => b.dataset.format === this.type)
  }

  word({ type = '', schema, grammar }) { return [names[type], schema ?? grammar].filter(Boolean).join(': ') }

  accepts(v) { return v !== null && typeof v === 'object' && (v.type ?? '') in names }

  set({ type = '', schema = '', grammar = '' }) {
    this.type = type
    if (type === 'json_schema') this.schema.value = schema
    if (type === 'grammar') this.grammar.value = grammar
    this.refresh()
  }

  rebase(v) {
    this.preset = v
    this.refresh()
  }

  async choose(type) {
    if (type === 'json_schema' && !this.schema.value.trim()) {
      const { sample, textOf } = await loadForm()
      this.schema.value ||= textOf(sample)
    }
    this.type = type
    this.refresh()
  }

  look(view) {
    this.view = view
    this.draw()
  }

  // lack says which formats the engine of the model does not have.
  lack(lacks) {
    const missing = lacks?.settings ?? []
    this.missing = { json: missing.includes('json_schema'), json_schema: missing.includes('json_schema'), grammar: missing.includes('grammar') }
    this.limit()
  }

  // raw says whether the chat has no place for a format.
  raw(on) {
    this.isRaw = on
    this.limit()
  }

  limit() {
    for (const button of this.buttons) button.disabled = this.type !== button.dataset.format && Boolean(this.isRaw ? button.dataset.format : this.missing[button.dataset.format])
    const gone = this.buttons.filter(b => this.missing[b.dataset.format]).map(b => names[b.dataset.format])
    const why = this.el.querySelector('[data-lacking]')
    why.hidden = !this.isRaw && !gone.length
    why.textContent = this.isRaw ? t('A raw chat has no output format: the model writes on from your text.') : t('The engine that runs this model has no %s.', gone.join(', '))
    this.el.classList.toggle('lacking', Boolean(this.isRaw || this.missing[this.type]))
  }

  refresh() {
    this.complain('')
    this.el.classList.toggle('mod', this.modified)
    this.draw()
    this.changed()
  }

  draw() {
    for (const button of this.buttons) button.setAttribute('aria-pressed', button.dataset.format === this.type)
    this.el.querySelector('[data-about]').textContent = about[this.type]
    this.el.querySelector('[data-schema]').hidden = this.type !== 'json_schema'
    this.grammar.hidden = this.type !== 'grammar'
    this.limit()
    if (this.type === 'json_schema' && this.el.closest('details').open) this.drawSchema()
  }

  async drawSchema() {
    if (!this.form) {
      const { SchemaForm } = await loadForm()
      this.form ??= new SchemaForm(this.el.querySelector('[data-form]'), {
        wrote: text => {
          this.schema.value = text
          this.refresh()
        },
        failed: text => this.complain(text),
      })
    }
    if (this.type !== 'json_schema') return
    const { error, unshown, example } = this.form.show(this.schema.value)
    const inForm = this.view === 'form' && !error && !unshown
    this.form.el.hidden = !inForm
    this.schema.hidden = inForm
    for (const button of this.views) {
      button.setAttribute('aria-pressed', (button.dataset.view === 'form') === inForm)
      button.disabled = button.dataset.view === 'form' && Boolean(error || unshown)
    }
    const why = this.el.querySelector('[data-unshown]')
    why.hidden = !unshown
    why.textContent = unshown ? t('The form does not show %s. The schema still applies.', unshown) : ''
    const shown = this.el.querySelector('[data-example]')
    shown.hidden = example === undefined
    shown.querySelector('pre').textContent = example ?? ''
    if (error) this.complain(error)
  }

  disable() {}

  complain(text) {
    this.wrong = text
    this.error.textContent = text
    this.error.hidden = !text
    for (const field of [this.schema, this.grammar]) {
      if (text) field.setAttribute('aria-invalid', 'true')
      else field.removeAttribute('aria-invalid')
    }
  }
}
