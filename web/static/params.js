// The sliders and their number fields: one value each, kept in this browser.
import { roughly } from './format.js'

const storage = 'm40.settings'

function load() {
  try {
    return JSON.parse(localStorage.getItem(storage)) ?? {}
  } catch {
    return {}
  }
}

const parse = text => text.trim() === '' ? NaN : Number(text.trim().replace(',', '.'))

class Param {
  constructor(el, changed) {
    const d = el.dataset
    Object.assign(this, { el, changed, key: d.param, log: d.scale === 'log', lo: +d.lo, hi: +d.hi, digits: +d.digits, step: +d.step, preset: +d.default, off: d.off, offAt: +d.offAt })
    this.field = el.querySelector('.nf')
    this.range = el.querySelector('input[type=range]')
    this.keep = el.querySelector('.keep')
    this.moved = el.querySelector('.moved')
    this.error = el.querySelector('.fielderr')
    this.set(this.preset)
    this.range.addEventListener('input', () => this.set(this.atRange()))
    this.range.addEventListener('keydown', e => this.key(e))
    this.field.addEventListener('input', () => this.typed())
    this.field.addEventListener('change', () => this.typed() && this.set(this.value))
    el.querySelector('.reset').addEventListener('click', () => {
      this.set(this.preset)
      this.range.focus()
    })
  }

  get valid() { return this.field.getAttribute('aria-invalid') !== 'true' }

  format(v) {
    const text = v.toFixed(this.digits)
    return this.digits === 3 ? text.replace(/0$/, '') : text
  }

  round(v) { return +v.toFixed(this.digits) }

  atRange() {
    const v = +this.range.value
    return this.round(this.log ? this.lo * Math.pow(this.hi / this.lo, v / 1000) : v)
  }

  // share is where v lies on the axis, from 0 to 1. A value that removes nothing
  // lies where most is kept.
  share(v) {
    if (!this.log) return Math.min(1, Math.max(0, (v - this.lo) / (this.hi - this.lo)))
    if (this.off && v === this.offAt) return 1
    return Math.min(1, Math.max(0, Math.log(v / this.lo) / Math.log(this.hi / this.lo)))
  }

  set(v) {
    this.field.value = this.format(v)
    this.complain('')
    this.take(v)
  }

  take(v) {
    this.value = v
    const at = this.share(v), home = this.share(this.preset)
    this.range.value = this.log ? Math.round(1000 * at) : v
    this.range.setAttribute('aria-valuetext', this.off && v === this.offAt ? this.off : this.format(v))
    this.moved.setAttribute('x', `${100 * Math.min(at, home)}%`)
    this.moved.setAttribute('width', `${100 * Math.abs(at - home)}%`)
    this.el.classList.toggle('mod', v !== this.preset)
    this.note()
    this.changed()
  }

  note(text = '') { this.keep.textContent = this.off && this.value === this.offAt ? this.off : text }

  typed() {
    const v = parse(this.field.value), lo = +this.field.dataset.lo, hi = +this.field.dataset.hi
    if (!(v >= lo && v <= hi)) {
      this.complain(`${lo.toLocaleString('en')} to ${hi.toLocaleString('en')}${this.digits ? '' : ', a whole number'}`)
      return false
    }
    this.complain('')
    this.take(this.round(v))
    return true
  }

  complain(text) {
    this.error.textContent = text
    this.error.hidden = !text
    if (text) this.field.setAttribute('aria-invalid', 'true')
    else this.field.removeAttribute('aria-invalid')
  }

  key(e) {
    const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[e.key]
    if (e.key === 'Backspace') {
      e.preventDefault()
      this.set(this.preset)
    } else if (way && (e.shiftKey || this.log)) {
      e.preventDefault()
      const by = (e.shiftKey ? 10 : 1) * way
      if (!this.log) this.range.value = +this.range.value + by * this.step
      else this.range.value = 1000 * this.share(Math.max(this.lo, Math.min(this.hi, this.value + by * this.step)))
      this.set(this.log ? Math.max(this.lo, Math.min(this.hi, this.value + by * this.step)) : this.atRange())
    }
  }
}

export class Params {
  constructor() {
    const kept = load()
    this.loading = true
    this.list = [...document.querySelectorAll('[data-param]')].map(el => new Param(el, () => this.changed()))
    for (const p of this.list) {
      const v = kept[p.key]
      if (typeof v === 'number' && v >= +p.field.dataset.lo && v <= +p.field.dataset.hi) p.set(p.round(v))
    }
    this.seedField = document.getElementById('n-seed')
    this.seedNote = document.querySelector('[data-seed-note]')
    this.seedError = document.getElementById('e-seed')
    this.pinButton = document.querySelector('[data-pin]')
    this.pinButton.addEventListener('click', () => this.pin(!this.pinned))
    this.seedField.addEventListener('input', () => this.seedTyped())
    this.resetAll = document.querySelector('[data-reset-all]')
    this.resetAll.addEventListener('click', () => this.list.forEach(p => p.set(p.preset)))
    this.chip = document.querySelector('[data-modified]')
    if (Number.isSafeInteger(kept.seed) && kept.seed >= 0) {
      this.seedField.value = kept.seed
      this.pin(true)
    }
    this.loading = false
    this.changed()
  }

  // pin keeps the seed in the field for the answers to come.
  pin(on) {
    if (on && this.seedField.value === '') this.seedField.value = Math.floor(Math.random() * 1e6)
    this.pinned = on
    this.pinButton.setAttribute('aria-pressed', on)
    this.seedNote.textContent = on ? 'pinned' : 'new for each answer'
    if (!on) this.seedComplain('')
    this.changed()
  }

  seedTyped() {
    const v = parse(this.seedField.value)
    if (this.seedField.value.trim() === '') {
      this.pin(false)
      return
    }
    if (!(Number.isInteger(v) && v >= 0 && v <= +this.seedField.dataset.hi)) {
      this.seedComplain('a whole number, 0 or more')
      return
    }
    this.seedComplain('')
    this.pin(true)
  }

  seedComplain(text) {
    this.seedError.textContent = text
    this.seedError.hidden = !text
    if (text) this.seedField.setAttribute('aria-invalid', 'true')
    else this.seedField.removeAttribute('aria-invalid')
  }

  // used shows the seed of the answer that began last.
  used(seed) {
    if (!this.pinned && document.activeElement !== this.seedField) this.seedField.value = seed
  }

  // speed lets the token limit say how long it may take.
  speed(tokensPerSecond) {
    const limit = this.list.find(p => p.key === 'max_tokens')
    this.rate = tokensPerSecond
    limit?.note(limit.value > 0 ? `up to ≈ ${roughly(1000 * limit.value / tokensPerSecond)}` : '')
  }

  values() {
    const out = Object.fromEntries(this.list.map(p => [p.key, p.value]))
    out.seed = this.pinned ? Number(this.seedField.value) : -1
    return out
  }

  // firstInvalid is the field that keeps a message from being sent.
  firstInvalid() {
    return this.list.find(p => !p.valid)?.field ?? (this.seedField.getAttribute('aria-invalid') === 'true' ? this.seedField : null)
  }

  // refuse shows what the server says about a field; it returns the field.
  refuse(key, message) {
    const p = this.list.find(p => p.key === key)
    if (p) p.complain(message)
    else if (key === 'seed') this.seedComplain(message)
    return p?.field ?? (key === 'seed' ? this.seedField : null)
  }

  changed() {
    if (this.loading) return
    const n = this.list.filter(p => p.value !== p.preset).length
    this.chip.textContent = n ? `modified · ${n}` : 'unchanged'
    this.chip.classList.toggle('accent', n > 0)
    this.resetAll.hidden = n === 0
    if (this.rate) this.speed(this.rate)
    try {
      localStorage.setItem(storage, JSON.stringify(this.values()))
    } catch { /* storage is off: the values last as long as the page */ }
  }
}
