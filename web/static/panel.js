// The panel beside the chat: the settings, the preset that they are compared with, and
// the system prompt. The server keeps them for each chat; what was used last is kept in
// this browser for the next new one.
import { notify, withdraw } from './notice.js'
import { Params } from './params.js'
import { Presets } from './presets.js'

const storage = 'm40.settings'
const pause = 300 // ms after a change before it is sent

// recalled returns the object that this browser keeps under key; an empty one if it keeps none.
export function recalled(key) {
  try {
    const kept = JSON.parse(localStorage.getItem(key))
    return kept instanceof Object ? kept : {}
  } catch {
    return {}
  }
}

export class Panel {
  // on: {system(), setSystem(text), address(preset), keep(fields), unpinned(), failed(error)}; keep returns a promise, or null if no chat is open
  constructor(on) {
    this.on = on
    this.dirty = false // a change is not sent yet
    this.sent = 0 // changes that the server has not acknowledged yet
    this.ours = 0 // number of the event that is our last change, of those acknowledged
    this.heard = null // the last event of type panel, until it is known whether it is older
    this.params = new Params({ changed: person => this.changed(person) })
    this.presets = new Presets({
      params: this.params,
      system: on.system,
      setSystem: on.setSystem,
      address: on.address,
      changed: () => this.changed(true),
      failed: on.failed,
    })
    addEventListener('pagehide', () => this.flush())
    this.fresh()
    this.presets.load()
  }

  // fresh is the panel of a new chat.
  fresh() {
    const kept = recalled(storage)
    this.params.show(kept)
    this.presets.choose(kept.preset, true)
  }

  // show puts in what the server keeps, unless something newer is on its way there.
  show(chat) {
    this.heard = null
    this.ours = 0
    if (this.dirty) {
      this.flush()
      return
    }
    this.put(chat)
  }

  put({ settings, system, preset }) {
    withdraw(this.undo) // it belongs to what was there
    this.params.show(settings)
    this.on.setSystem(system ?? '')
    this.presets.choose(preset)
    if (this.presets.missing) this.presets.load() // it may be newer than our list
  }

  // follow takes over what another page has changed. The server tells of our own changes
  // too, and its acknowledgement says which those are.
  follow(event = this.heard) {
    this.heard = event?.settings ? event : null
    if (!this.heard || this.sent > 0) return
    this.heard = null
    if (event.seq > this.ours && !this.dirty) this.put(event)
  }

  // use takes over the settings and the seed that an answer was made with.
  use(settings) {
    const before = { ...this.params.values(), seed: this.params.pinned ? this.params.values().seed : -1 }
    const moved = this.params.list.filter(p => JSON.stringify(p.value) !== JSON.stringify(settings[p.key] ?? p.value)).length
    this.params.show(settings)
    this.changed(true)
    this.undo = () => {
      this.params.show(before)
      this.changed(true)
      this.on.unpinned()
    }
    const what = moved === 0 ? 'Its settings were in the panel already' : moved === 1 ? '1 setting of the panel has changed' : `${moved} settings of the panel have changed`
    notify(`${what}; the seed ${settings.seed} is pinned`, { does: this.undo })
  }

  changed(person) {
    this.presets?.refresh()
    if (!person) return
    withdraw(this.undo) // it would take back more than its line says
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
    if (!sent) return
    this.sent++
    sent.then(ack => { this.ours = ack.seq ?? 0 }, error => {
      this.dirty = true // until the connection is back, or the next change
      if (error.code) this.on.failed(error)
    }).finally(() => {
      this.sent--
      this.follow()
    })
  }
}
