// A setting that is a list of strings, such as the stop strings. It has the interface of Param.
import { composing } from './enter.js'
import { copyOf } from './html.js'
import { t } from './lang.js'

const escapes = { '\n': '\\n', '\t': '\\t', '\r': '\\r', '\\': '\\\\' }
const unescapes = Object.fromEntries(Object.entries(escapes).map(([is, written]) => [written, is]))

export const escaped = text => text.replace(/[\n\t\r\\]/g, c => escapes[c])
const unescaped = text => text.replace(/\\[ntr\\]/g, c => unescapes[c])
const bytes = text => new TextEncoder().encode(text).length

export class TextList {
  constructor(el, changed) {
    const d = el.dataset
    Object.assign(this, { el, changed, key: d.param, one: d.one, label: el.querySelector('.label').textContent, most: +d.most, bytes: +d.bytes, preset: JSON.parse(d.default) })
    this.rows = el.querySelector('ul')
    this.add = el.querySelector('[data-add]')
    this.error = el.querySelector('.fielderr')
    this.help = el.querySelector('[data-escapes]')
    this.note = el.querySelector('.keep')
    this.add.addEventListener('click', () => this.row('').querySelector('input').focus())
    el.querySelector('.reset').addEventListener('click', () => {
      this.set(this.preset)
      this.add.focus()
    })
    this.set(this.preset)
  }

  get fields() { return [...this.rows.querySelectorAll('input')] }

  get value() { return this.fields.map(f => unescaped(f.value)).filter(Boolean) }

  get modified() { return JSON.stringify(this.value) !== JSON.stringify(this.preset) }

  get valid() { return !this.wrong }

  get field() { return this.wrong ?? this.add }

  word(list) { return list.length ? list.map(text => `“${escaped(text)}”`).join(' ') : 'none' }

  accepts(list) { return Array.isArray(list) && list.length <= this.most && list.every(text => typeof text === 'string' && text !== '' && bytes(text) <= this.bytes) }

  set(list) {
    this.rows.replaceChildren()
    for (const text of list) this.row(text)
    this.refresh()
  }

  // What is in the list can be removed in any case.
  disable() { this.add.disabled = this.lacking }

  rebase(list) {
    this.preset = list
    this.refresh()
  }

  row(text) {
    const row = copyOf('t-text'), field = row.querySelector('input')
    field.value = escaped(text)
    field.setAttribute('aria-describedby', this.error.id)
    field.addEventListener('input', () => this.refresh())
    field.addEventListener('keydown', e => this.pressed(e, row))
    row.querySelector('button').addEventListener('click', () => this.remove(row))
    this.rows.append(row)
    this.refresh()
    return row
  }

  remove(row) {
    const next = row.nextElementSibling ?? row.previousElementSibling
    row.remove()
    this.refresh()
    ;(next?.querySelector('input') ?? this.add).focus()
  }

  pressed(e, row) {
    if (e.key === 'Enter' && !composing(e)) {
      e.preventDefault()
      if (!this.add.disabled && e.target.value) this.add.click()
    } else if (e.key === 'Backspace' && e.target.value === '') {
      e.preventDefault()
      this.remove(row)
    }
  }

  refresh() {
    const fields = this.fields
    fields.forEach((field, i) => {
      const name = `${this.one} ${i + 1}`
      field.setAttribute('aria-label', name[0].toUpperCase() + name.slice(1))
      field.nextElementSibling.setAttribute('aria-label', t('Remove %s', name))
    })
    this.wrong = fields.find(f => bytes(unescaped(f.value)) > this.bytes)
    this.complain(this.wrong ? t('at most %s bytes each', this.bytes) : '')
    this.add.disabled = fields.length >= this.most
    this.note.textContent = this.add.disabled ? t('%s at most', this.most) : fields.length ? '' : t('none')
    this.help.hidden = fields.length === 0
    this.el.classList.toggle('mod', this.modified)
    this.changed()
  }

  complain(text) {
    this.error.textContent = text
    this.error.hidden = !text
    for (const field of this.fields) {
      if (text && (!this.wrong || field === this.wrong)) field.setAttribute('aria-invalid', 'true')
      else field.removeAttribute('aria-invalid')
    }
  }
}
