// The panel beside the chat: the settings, the preset that they are compared with, and
// the system prompt. The server keeps them for each chat; what was used last is kept in
// this browser for the next new one.
import { Params } from './params.js'
import { Presets } from './presets.js'

const storage = 'm40.settings'
const pause = 300 // ms after a change before it is sent

function lastUsed() {
  try {
    return JSON.parse(localStorage.getItem(storage)) ?? {}
  } catch {
    return {}
  }
}

export class Panel {
  // on: {system(), setSystem(text), keep(fields), failed(error)}; keep returns a promise, or null if no chat is open
  constructor(on) {
    this.on = on
    this.dirty = false // a change is not sent yet
    this.params = new Params({ changed: person => this.changed(person) })
    this.presets = new Presets({
      params: this.params,
      system: on.system,
      setSystem: on.setSystem,
      changed: () => this.changed(true),
      failed: on.failed,
    })
    addEventListener('pagehide', () => this.flush())
    this.fresh()
    this.presets.load()
  }

  // fresh is the panel of a new chat.
  fresh() {
    const kept = lastUsed()
    this.params.show(kept)
    this.presets.choose(kept.preset, true)
  }

  // show puts in what the server keeps, unless something newer is on its way there.
  show(chat) {
    if (this.dirty) {
      this.flush()
      return
    }
    this.params.show(chat.settings)
    this.on.setSystem(chat.system)
    this.presets.choose(chat.preset)
  }

  changed(person) {
    this.presets?.refresh()
    if (!person) return
    this.dirty = true
    this.remember()
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.flush(), pause)
  }

  remember() {
    try {
      localStorage.setItem(storage, JSON.stringify({ ...this.params.values(), preset: this.presets.id }))
    } catch { /* storage is off: the values last as long as the page */ }
  }

  // flush sends what has changed.
  flush() {
    clearTimeout(this.timer)
    if (!this.dirty || this.params.firstInvalid()) return
    const sent = this.on.keep({ settings: this.params.values(), system: this.on.system(), preset: this.presets.id })
    this.dirty = false
    sent?.catch(error => {
      this.dirty = true // until the connection is back, or the next change
      if (error.code) this.on.failed(error)
    })
  }
}
