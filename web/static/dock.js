// On a phone the sheet of parameters covers the answer. The dock shows one slider below it in place of the sheet.
import { t } from './lang.js'

export class Dock {
  // on: {open(on)} shows or hides the dock. Sliders whose setting is greyed are left out.
  constructor(params, on) {
    this.params = params
    this.on = on
    this.bar = document.querySelector('.dockbar')
    this.keep = this.bar.querySelector('[data-dock-keep]')
    this.undo = this.bar.querySelector('[data-dock-undo]')
    for (const button of this.bar.querySelectorAll('[data-dock-step]')) button.addEventListener('click', () => this.step(Number(button.dataset.dockStep)))
    this.undo.addEventListener('click', () => this.shown.set(this.before))
    this.keep.addEventListener('click', () => on.open(false))
    for (const p of this.sliders) p.range.addEventListener('input', () => { this.last = p })
  }

  get sliders() { return this.params.list.filter(p => p.range && !p.el.closest('details')) }

  // show shows the slider of a setting; without a key the one that was moved last, or top-p.
  show(key) {
    this.choose(this.params.byKey[key] ?? this.last ?? this.params.byKey.top_p)
    this.on.open(true)
    this.shown.range.focus({ preventScroll: true })
  }

  choose(p) {
    this.shown?.el.classList.remove('docked')
    this.shown = p
    this.before = p.value
    p.el.classList.add('docked')
    this.name()
  }

  // step goes to the next slider, or to the one before, and from the last to the first.
  step(by) {
    const list = this.sliders.filter(p => !p.range.disabled)
    this.choose(list.at((list.indexOf(this.shown) + by) % list.length))
  }

  // name names the value that is kept.
  name() {
    if (!this.shown) return
    const { value, label } = this.shown
    this.keep.textContent = t('Keep %s', this.shown.format(value))
    this.bar.setAttribute('aria-label', label)
    this.undo.disabled = value === this.before
  }
}
