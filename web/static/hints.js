// Three hints that lead through the tokens the first time that they are shown in this browser: click a word, open
// its microscope, move a slider. A hint is ticked off by doing what it says.
import { copyOf } from './html.js'

const key = 'm40.hints'

export class Hints {
  constructor() {
    try { this.over = localStorage.getItem(key) === 'done' } catch { this.over = true } // else they would come each time
    this.el = copyOf('t-hints')
    this.steps = [...this.el.querySelectorAll('li')]
    this.el.querySelector('[data-hide]').addEventListener('click', () => {
      this.end()
      this.el.remove()
      document.querySelector('.tok[tabindex="0"]')?.focus()
    })
    this.mark()
  }

  // show shows the hints above the message field, or not.
  show(on) {
    if (!on) this.el.remove()
    else if (!this.over && !this.el.isConnected) document.getElementById('composer').before(this.el)
  }

  // did ticks off a step: pick, inspect or judge.
  did(step) {
    const el = this.steps.find(el => el.dataset.step === step)
    if (this.over || 'done' in el.dataset) return
    el.dataset.done = ''
    this.mark()
    if (this.steps.every(el => 'done' in el.dataset)) this.end()
  }

  // mark marks the first step that is not done as the current one.
  mark() {
    const next = this.steps.find(el => !('done' in el.dataset)) ?? this.steps.at(-1)
    for (const el of this.steps) {
      if (el === next) el.setAttribute('aria-current', 'step')
      else el.removeAttribute('aria-current')
    }
  }

  // end keeps the hints from coming again. They stay until the tokens are closed, so that nothing moves.
  end() {
    this.over = true
    try { localStorage.setItem(key, 'done') } catch { /* storage is off */ }
  }
}
