// The rail and the settings as overlays on narrow screens, and the dock with one slider on phones.
import { unfold } from './layout.js'

const $ = q => document.querySelector(q)

export class Drawers {
  // on: {dock(): shows the dock, docks(): whether it suits better than all settings}
  constructor(on) {
    this.phone = matchMedia('(max-width: 760px)')
    this.narrow = matchMedia('(max-width: 1120px)')
    this.buttons = { sheet: $('[data-sheet-open]'), rail: $('[data-rail-open]') }
    this.buttons.sheet.addEventListener('click', () => on.docks() && this.shown !== 'dock' ? on.dock() : this.open('sheet'))
    this.buttons.rail.addEventListener('click', () => this.open('rail'))
    $('[data-dock]').addEventListener('click', () => on.dock())
    for (const el of [$('[data-sheet-close]'), $('[data-rail-close]'), $('#scrim')]) el.addEventListener('click', () => this.close())
    for (const width of [this.phone, this.narrow]) width.addEventListener('change', () => this.open(''))
    for (const el of document.querySelectorAll('.skip[href="#inspector"]')) el.addEventListener('click', () => this.open('sheet'))
  }

  // shown is what is open: rail, sheet or dock; undefined: nothing.
  get shown() { return document.body.dataset.open }

  // open opens the rail or the settings as an overlay, or one slider below the answer; '' closes all.
  open(which) {
    if (which) unfold({ rail: 'rail', sheet: 'insp', dock: 'insp' }[which])
    const panel = { rail: this.narrow.matches && $('#rail'), sheet: this.phone.matches && $('#inspector') }[which]
    if (panel || which === 'dock' && this.phone.matches) document.body.dataset.open = which
    else delete document.body.dataset.open
    $('#scrim').hidden = !panel
    for (const [name, button] of Object.entries(this.buttons)) button.setAttribute('aria-expanded', Boolean(panel) && which === name)
    const behind = [$('.top'), ...$('.main').children, $('#inspector')].filter(el => el.id !== 'undo') // the notice is above the overlay
    for (const el of behind) el.inert = Boolean(panel) && el !== panel
    if (panel) panel.focus()
  }

  // close closes what is open, and returns the focus to the button that opens it.
  close() {
    const button = this.shown === 'rail' ? this.buttons.rail : this.buttons.sheet
    this.open('')
    button.focus()
  }
}
