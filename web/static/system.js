// The system prompt: its field, the line above the first message, and how many tokens it has.
import { route } from './base.js'
import { count, tokenCount } from './format.js'
import { request } from './request.js'

const $ = q => document.querySelector(q)
const pause = 200 // ms between the last input and counting

export class SystemPrompt {
  // on: {hides(): whether there is no place for the line, model(): name of the model that counts, changed()}
  constructor(on) {
    this.on = on
    this.field = $('#system')
    this.button = $('[data-system]')
    this.button.addEventListener('click', () => this.isOpen ? this.open(false) : this.edit())
    this.field.addEventListener('input', () => {
      this.set(this.field.value)
      on.changed()
    })
  }

  get text() { return this.field.value }

  get isOpen() { return !$('#sysbox').hidden }

  open(on) {
    $('#sysbox').hidden = !on
    this.button.setAttribute('aria-expanded', on)
  }

  edit() {
    this.open(true)
    this.field.focus()
  }

  // close returns the focus from the field to its button; it reports whether the field had it.
  close() {
    if (!this.isOpen || document.activeElement !== this.field) return false
    this.open(false)
    this.button.focus()
    return true
  }

  set(text) {
    this.field.value = text ?? ''
    const line = $('[data-system-line]')
    line.textContent = $('[data-system-text]').textContent = this.text
    line.title = this.text.slice(0, 500)
    this.button.setAttribute('aria-pressed', this.text.trim() !== '')
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.count(), pause)
    this.showLine()
  }

  // showLine shows the system prompt above the first message.
  showLine() { $('#sysline').hidden = this.on.hides() || !this.text.trim() }

  // count shows the number of tokens, if the server can count them.
  async count() {
    const { text } = this
    const counted = text.trim() && await request(route('/tokenize'), { content: text, model: this.on.model(), parse_special: false }, () => {})
    if (text !== this.text) return
    const n = counted ? counted.tokens.length : 0
    $('[data-system-count]').textContent = n ? count(n) : ''
    $('[data-system-tokens]').textContent = n ? tokenCount(n) : ''
  }
}
