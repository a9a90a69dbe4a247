// chainOf returns the value of the setting for the active stages in their order: empty is the default order.
import { t } from './lang.js'

export const chainOf = (on, usual) => String(on) === String(usual) ? [] : on

// isChain reports whether a list can be the value: known stages, none of them twice.
export const isChain = (list, usual) => Array.isArray(list) && list.every(name => usual.includes(name)) && new Set(list).size === list.length

// summary says how a chain differs from the default order.
export const summary = (on, usual) => chainOf(on, usual).length === 0 ? t('default') : on.length < usual.length ? t('%s of %s on', on.length, usual.length) : t('changed')

// The setting for the order of the sampler chain. It has the interface of Param. Its value is the
// list of the active stages; an empty list is the default order.
export class Order {
  constructor(el, changed) {
    Object.assign(this, { el, changed, key: el.dataset.param, label: el.querySelector('.label').textContent, preset: [] })
    this.rows = el.querySelector('ol')
    this.keep = el.querySelector('.keep')
    this.error = el.querySelector('.fielderr')
    this.said = el.querySelector('[role=status]')
    this.usual = this.stages.map(row => row.dataset.stage)
    this.labels = Object.fromEntries(this.stages.map(row => [row.dataset.stage, row.querySelector('label').textContent.trim()]))
    this.rows.addEventListener('click', e => this.clicked(e))
    this.rows.addEventListener('change', () => this.refresh())
    el.querySelector('.reset').addEventListener('click', () => {
      this.set(this.preset)
      this.field.focus()
    })
    this.set([])
  }

  get stages() { return [...this.rows.children] }

  get on() { return this.stages.filter(row => this.box(row).checked).map(row => row.dataset.stage) }

  get value() { return chainOf(this.on, this.usual) }

  get modified() { return String(this.value) !== String(this.preset) }

  get valid() { return true }

  get field() { return this.box(this.rows.firstElementChild) }

  box(row) { return row.querySelector('input') }

  word(list) { return list.length ? list.map(name => this.labels[name]).join(', ') : 'default' }

  accepts(list) { return isChain(list, this.usual) }

  // set shows the stages of the list first, then the others, which are off.
  set(list) {
    const on = list.length ? list : this.usual
    this.rows.replaceChildren(...on.map(name => this.stages.find(row => row.dataset.stage === name)), ...this.stages.filter(row => !on.includes(row.dataset.stage)))
    for (const row of this.stages) this.box(row).checked = on.includes(row.dataset.stage)
    this.complain('')
    this.refresh()
  }

  rebase(list) {
    this.preset = list
    this.refresh()
  }

  clicked(e) {
    const button = e.target.closest('[data-move]')
    if (!button) return
    const row = button.closest('li')
    if (button.dataset.move === 'up') row.previousElementSibling?.before(row)
    else row.nextElementSibling?.after(row)
    this.refresh()
    // At the first and the last position the clicked button is disabled and loses the focus.
    const next = button.disabled ? row.querySelector('[data-move]:enabled') : button
    next.focus()
    this.said.textContent = `${this.labels[row.dataset.stage]}: ${t('%s of %s', this.stages.indexOf(row) + 1, this.usual.length)}`
  }

  // replace sets whether mirostat replaces the truncating stages.
  replace(replaced) {
    this.replaced = replaced
    this.el.querySelector('[data-replaced]').hidden = !replaced
    this.el.querySelector('[data-usual]').classList.toggle('behind', replaced)
    this.draw()
  }

  disable() { this.draw() }

  refresh() {
    this.draw()
    this.changed()
  }

  draw() {
    const on = this.on
    for (const [i, row] of this.stages.entries()) {
      const replaced = Boolean(this.replaced) && row.hasAttribute('data-cuts')
      row.classList.toggle('replaced', replaced)
      row.querySelector('.keep').textContent = replaced && this.box(row).checked ? 'mirostat' : ''
      row.querySelector('[data-move=up]').disabled = this.lacking || replaced || i === 0
      row.querySelector('[data-move=down]').disabled = this.lacking || replaced || i === this.usual.length - 1
      this.box(row).disabled = this.lacking || replaced || (on.length === 1 && on[0] === row.dataset.stage) // the last active stage, as an empty chain means the default
    }
    this.keep.textContent = summary(on, this.usual)
    this.el.classList.toggle('mod', this.modified)
  }

  complain(text) {
    this.error.textContent = text
    this.error.hidden = !text
  }
}
