// The settings of an answer: sliders with number fields, switches and choices. Each has a value and
// the value of the preset with which it is compared.
import { number, roughly } from './format.js'
import { Biases } from './biases.js'
import { t, tn } from './lang.js'
import { Order } from './order.js'
import { OutputFormat } from './output.js'
import { Strips } from './strips.js'
import { TextList } from './textlist.js'

const parse = text => text.trim() === '' ? NaN : Number(text.trim().replace(',', '.'))

// complain shows an error of a setting in the place of its sentence, so that nothing moves.
function complain({ el, error }, text) {
  error.textContent = text
  error.hidden = !text
  el.querySelector('.say > .about')?.classList.toggle('behind', Boolean(text))
}

class Param {
  constructor(el, changed) {
    const d = el.dataset
    Object.assign(this, { el, changed, key: d.param, label: el.querySelector('label').textContent, log: d.scale === 'log', lo: +d.lo, hi: +d.hi, digits: +d.digits, step: +d.step, preset: +d.default, off: d.off, offAt: +d.offAt })
    this.field = el.querySelector('.nf')
    this.range = el.querySelector('input[type=range]')
    this.keep = el.querySelector('.keep')
    this.moved = el.querySelector('.moved')
    this.error = el.querySelector('.fielderr')
    this.set(this.preset)
    this.range.addEventListener('input', () => this.set(this.atRange()))
    this.range.addEventListener('keydown', e => this.pressed(e))
    this.field.addEventListener('input', () => this.typed())
    this.field.addEventListener('change', () => this.typed() && this.set(this.value))
    el.querySelector('.reset').addEventListener('click', () => {
      this.set(this.preset)
      this.range.focus()
    })
  }

  get valid() { return this.field.getAttribute('aria-invalid') !== 'true' }

  get modified() { return this.value !== this.preset }

  accepts(v) { return typeof v === 'number' && (v >= +this.field.dataset.lo && v <= +this.field.dataset.hi || this.unlimited(v)) }

  // unlimited reports whether v is the value that is shown as a word, such as off or unlimited.
  unlimited(v) { return Boolean(this.off) && v === this.offAt }

  // word returns a value as text for the list of differences.
  word(v) { return this.unlimited(v) ? this.off : this.format(v) }

  format(v) {
    const text = v.toFixed(this.digits)
    return this.digits === 3 ? text.replace(/0$/, '') : text
  }

  round(v) { return +v.toFixed(this.digits) }

  atRange() {
    const v = +this.range.value
    return this.round(this.log ? this.lo * Math.pow(this.hi / this.lo, v / 1000) : v)
  }

  // share returns the position of v on the axis, from 0 to 1. On a logarithmic axis, the value
  // without a limit is at 1.
  share(v) {
    if (!this.log) return Math.min(1, Math.max(0, (v - this.lo) / (this.hi - this.lo)))
    if (this.unlimited(v)) return 1
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
    this.range.setAttribute('aria-valuetext', this.unlimited(v) ? this.off : this.format(v))
    this.moved.setAttribute('x', `${100 * Math.min(at, home)}%`)
    this.moved.setAttribute('width', `${100 * Math.abs(at - home)}%`)
    this.el.classList.toggle('mod', this.modified)
    this.note()
    this.changed()
  }

  // rebase sets the preset's value, with which the setting is compared and to which it can be reset.
  rebase(v) {
    this.preset = v
    const reset = this.el.querySelector('.reset')
    reset.title = t('Back to %s', this.format(v))
    reset.setAttribute('aria-label', t('%s: back to %s', this.label, this.format(v)))
    this.el.querySelector('.pm').setAttribute('x', `${100 * this.share(v)}%`)
    this.take(this.value)
  }

  note(text = '') { this.keep.textContent = this.replaced ? 'mirostat' : this.unlimited(this.value) ? this.off : text }

  // replace sets whether mirostat replaces this setting.
  replace(replaced) {
    this.replaced = replaced
    this.el.classList.toggle('replaced', replaced)
    this.disable()
    this.note()
  }

  disable() { this.range.disabled = this.field.disabled = Boolean(this.replaced || this.lacking) }

  typed() {
    const v = parse(this.field.value), lo = +this.field.dataset.lo, hi = +this.field.dataset.hi
    if (!this.accepts(v)) {
      this.complain(this.digits ? t('%s to %s', number(lo), number(hi)) : t('%s to %s, a whole number', number(lo), number(hi)))
      return false
    }
    this.complain('')
    this.take(this.round(v))
    return true
  }

  complain(text) {
    complain(this, text)
    if (text) this.field.setAttribute('aria-invalid', 'true')
    else this.field.removeAttribute('aria-invalid')
  }

  pressed(e) {
    const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[e.key]
    if (e.key === 'Backspace') {
      e.preventDefault()
      this.set(this.preset)
    } else if (way && !e.altKey && (e.shiftKey || this.log)) {
      e.preventDefault()
      const by = (e.shiftKey ? 10 : 1) * way
      if (!this.log) this.range.value = +this.range.value + by * this.step
      else this.range.value = 1000 * this.share(Math.max(this.lo, Math.min(this.hi, this.value + by * this.step)))
      this.set(this.log ? Math.max(this.lo, Math.min(this.hi, this.value + by * this.step)) : this.atRange())
    }
  }
}

// Switch is a setting that is on or off. Its value is a number, where 0 is off.
class Switch {
  constructor(el, changed) {
    Object.assign(this, { el, changed, key: el.dataset.param, label: el.querySelector('label').textContent, onValue: +el.dataset.on, preset: el.dataset.on ? +el.dataset.default : '' })
    this.field = el.querySelector('input, select, textarea')
    this.keep = el.querySelector('.keep')
    this.error = el.querySelector('.fielderr')
    this.field.addEventListener('change', () => this.refresh())
    el.querySelector('.reset').addEventListener('click', () => {
      this.set(this.preset)
      this.field.focus()
    })
    this.set(this.preset)
  }

  get value() { return this.field.checked ? this.onValue : 0 }

  get modified() { return this.value !== this.preset }

  get valid() { return true }

  disable() { this.field.disabled = this.lacking }

  accepts(v) { return v === 0 || v === this.onValue }

  word(v) { return v ? t('on') : t('off') }

  set(v) {
    this.field.checked = v !== 0
    this.complain('')
    this.refresh()
  }

  rebase(v) {
    this.preset = v
    this.refresh()
  }

  refresh() {
    this.keep.textContent = this.word(this.value)
    this.el.classList.toggle('mod', this.modified)
    this.changed()
  }

  complain(text) { complain(this, text) }
}

// Choice is a setting with a few possible words; '' leaves the decision to the model.
class Choice extends Switch {
  get value() { return this.field.value }

  accepts(v) { return [...this.field.options].some(o => o.value === v) }

  word(v) { return [...this.field.options].find(o => o.value === v)?.textContent ?? v }

  set(v) {
    this.field.value = v
    this.complain('')
    this.refresh()
  }

  refresh() {
    this.el.classList.toggle('mod', this.modified)
    this.changed()
  }

  // offer shows the choices of the given kinds. A selected choice stays visible.
  offer(kinds) {
    this.kinds = kinds
    for (const o of this.field.options) o.hidden = o.disabled = Boolean(o.dataset.kind) && !kinds.includes(o.dataset.kind) && o.value !== this.value
    this.el.hidden = kinds.length === 0
  }
}

// Tools are the definitions of the functions that the model may call, as JSON.
class Tools extends Choice {
  constructor(el, changed) {
    super(el, changed)
    this.field.addEventListener('input', () => this.refresh())
  }

  get value() { return this.field.value.trim() }

  get valid() { return !this.wrong }

  accepts(v) { return typeof v === 'string' }

  word(v) { return v ? t('others') : t('none') }

  refresh() {
    let list = []
    this.wrong = ''
    try {
      if (this.value) list = JSON.parse(this.value)
      if (!Array.isArray(list)) this.wrong = t('an array: begin with [')
    } catch (error) {
      this.wrong = error.message
    }
    this.complain(this.wrong)
    this.count = this.wrong ? 0 : list.length
    this.keep.textContent = this.wrong ? '' : list.length || t('none')
    super.refresh()
  }

  complain(text) {
    super.complain(text)
    if (text) this.field.setAttribute('aria-invalid', 'true')
    else this.field.removeAttribute('aria-invalid')
  }
}

const kinds = { biases: Biases, slider: Param, switch: Switch, choice: Choice, texts: TextList, order: Order, output: OutputFormat, json: Tools }

export class Params {
  // on: {changed(person)}; person is true if the user changed a value, false if show did
  constructor(on) {
    this.on = on
    this.showing = true // changes from here on are not made by the user
    const changed = () => this.changed()
    this.list = [...document.querySelectorAll('[data-param]')].map(el => new kinds[el.dataset.kind](el, changed))
    this.byKey = Object.fromEntries(this.list.map(p => [p.key, p]))
    this.seedField = document.getElementById('n-seed')
    this.seedNote = document.querySelector('[data-seed-note]')
    this.seedError = document.getElementById('e-seed')
    this.more = document.getElementById('more')
    this.moreNote = document.querySelector('[data-more-note]')
    this.pinButton = document.querySelector('[data-pin]')
    this.pinButton.addEventListener('click', () => this.pin(!this.pinned))
    this.seedField.addEventListener('input', () => this.seedTyped())
    document.getElementById('n-budget').addEventListener('input', e => this.budget(parse(e.target.value)))
    this.defaults = Object.fromEntries(this.list.map(p => [p.key, p.preset]))
    this.strips = new Strips(this)
    this.showing = false
  }

  // show shows settings. Values that are missing or invalid become the defaults.
  show(settings) {
    this.showing = true
    for (const p of this.list) p.set(p.accepts(settings[p.key]) ? settings[p.key] : this.defaults[p.key])
    const pinned = Number.isSafeInteger(settings.seed) && settings.seed >= 0
    if (pinned) this.seedField.value = settings.seed
    this.pin(pinned)
    this.more.open ||= this.list.some(p => p.modified && this.more.contains(p.el))
    this.showing = false
    this.changed(false)
  }

  // rebase sets the preset's settings, with which the panel is compared.
  rebase(settings) {
    this.showing = true
    for (const p of this.list) p.rebase(settings[p.key] ?? this.defaults[p.key])
    this.showing = false
    this.changed(false)
  }

  // reset shows the preset's settings. It does not count as a change by the user.
  reset() {
    this.showing = true
    for (const p of this.list) p.set(p.preset)
    this.showing = false
    this.changed(false)
  }

  // pin sets whether the next answers use the seed in the field.
  pin(on) {
    if (on && this.seedField.value === '') this.seedField.value = Math.floor(Math.random() * 1e6)
    this.pinned = on
    this.pinButton.setAttribute('aria-pressed', on)
    this.namePin()
    this.seedNote.textContent = on ? t('pinned') : t('new each time')
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
      this.seedComplain(t('a whole number, 0 or more'))
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

  // view shows the seed of the answer in the viewport; the button pins it.
  view(seed) {
    if (this.pinned || document.activeElement === this.seedField || this.seedField.value === String(seed)) return
    this.seedField.value = seed
    this.namePin()
  }

  namePin() {
    const name = this.pinned ? t('The seed %s is pinned', this.seedField.value) : this.seedField.value ? t('Pin %s, the seed of the answer in view', this.seedField.value) : t('Pin a seed')
    this.pinButton.title = name
    this.pinButton.setAttribute('aria-label', name)
  }

  // lack greys the settings that have no effect with the selected model, and says why; null: all have one.
  lack(lacks) {
    const note = document.querySelector('[data-lacks-note]')
    note.hidden = !lacks
    note.textContent = lacks?.why ?? ''
    for (const p of this.list) {
      if (p.lack) {
        p.lack(lacks)
        continue
      }
      p.lacking = Boolean(lacks?.settings.includes(p.key))
      p.el.classList.toggle('lacking', p.lacking)
      if (p.lacking) p.el.setAttribute('aria-describedby', note.id)
      else p.el.removeAttribute('aria-describedby')
      p.disable()
    }
  }

  // thinking shows the choices that the model supports.
  thinking(kinds) { this.byKey.thinking.offer(kinds) }

  // budget sets the token limit to what is written in a time, in seconds.
  budget(seconds) {
    const limit = this.byKey.max_tokens
    if (seconds > 0 && this.rate) limit.set(Math.min(+limit.field.dataset.hi, Math.max(1, Math.floor(seconds * this.rate))))
  }

  // speed sets the speed from which the token limit shows a duration; 0: unknown.
  speed(tokensPerSecond) {
    const limit = this.byKey.max_tokens
    this.rate = tokensPerSecond
    document.getElementById('n-budget').disabled = !this.rate
    limit.note(limit.value > 0 && this.rate ? t('up to ≈ %s', roughly(1000 * limit.value / this.rate)) : '')
  }

  values() {
    const out = Object.fromEntries(this.list.map(p => [p.key, p.value]))
    out.seed = this.pinned ? Number(this.seedField.value) : -1
    return out
  }

  // firstInvalid returns the first field with an invalid value, which prevents sending.
  firstInvalid() {
    const p = this.list.find(p => !p.valid)
    if (p) this.unfold(p)
    return p?.field ?? (this.seedField.getAttribute('aria-invalid') === 'true' ? this.seedField : null)
  }

  unfold(p) {
    const fold = p.el.closest('details')
    if (fold) fold.open = true
  }

  // refuse shows the server's error at the field of a setting and returns the field.
  refuse(key, message) {
    const p = this.byKey[key]
    if (p) {
      p.complain(message)
      this.unfold(p)
    } else if (key === 'seed') this.seedComplain(message)
    return p?.field ?? (key === 'seed' ? this.seedField : null)
  }

  // depend dims settings that have no effect because another one is off, and disables settings
  // that mirostat replaces. None is hidden, so that nothing moves.
  depend() {
    const mirostat = this.byKey.mirostat.value !== 0
    for (const p of this.list) {
      const of = p.el.dataset.of
      if (of) p.el.classList.toggle('idle', this.byKey[of].value === 0)
      if (p.el.hasAttribute('data-cuts') && Boolean(p.replaced) !== mirostat) p.replace(mirostat)
    }
  }

  // tell shows the value of a folded section in its summary: what of the list there is.
  tell(section, list) {
    document.querySelector(`[data-value-of="${section}"]`).textContent = list.filter(Boolean).join(', ') || t('none')
  }

  changed(person = true) {
    if (this.showing) return
    this.depend()
    const folded = this.list.filter(p => p.modified && this.more.contains(p.el)).length
    this.moreNote.textContent = folded ? t('%s modified', folded) : ''
    this.tell('output', [this.byKey.output_format.word({ type: this.byKey.output_format.type })])
    this.tell('tools', [this.byKey.tools.count, this.byKey.must_call.value && t('must call')])
    const { stop, banned_strings: banned, token_biases: biased } = this.byKey
    this.tell('texts', [stop.value.length && tn(stop.value.length, '%s stop', '%s stops', stop.value.length), banned.value.length && t('%s banned', banned.value.length), biased.value.length && t('%s biased', biased.value.length)])
    if (this.rate) this.speed(this.rate)
    this.strips.draw()
    this.on.changed(person)
  }
}
