// The settings panel: the settings, the preset with which they are compared, and the system
// prompt. The server stores them for each chat. This browser stores the last preset for the next new
// chat, which begins with its settings: no changed slider and no pinned seed comes along.
import { t, tn } from './lang.js'
import { notify, withdraw } from './notice.js'
import { Params } from './params.js'
import { Presets, own } from './presets.js'
import { recallObject, remember } from './storage.js'

const storage = 'm40.settings'
const pause = 300 // ms between the last change and sending it

export class Panel {
  // on: {system(), setSystem(text), address(preset), keep(fields), unpinned(), moved(settings), failed(error)}.
  // keep returns a promise, or null if no chat is open.
  constructor(on) {
    this.on = on
    this.dirty = false // there are unsent changes
    this.sent = 0 // number of changes sent and not acknowledged
    this.flushes = 0
    this.ours = 0 // seq of the event of our last acknowledged change
    this.pending = null // the last panel event, while changes of this page are not acknowledged
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

  // fresh shows the settings for a new chat.
  fresh() {
    this.params.show({})
    this.presets.pristine = true
    this.presets.choose(recallObject(storage).preset, true)
    this.settle()
  }

  // show shows the settings of a snapshot, unless this page has unsent changes; it sends those.
  show(chat) {
    this.pending = null
    this.ours = 0
    if (this.dirty) {
      this.flush()
      return
    }
    this.put(chat)
  }

  put({ settings, system, preset }) {
    withdraw(this.undo) // Undo would restore settings from before this
    this.params.show(settings)
    this.on.setSystem(system ?? '')
    this.presets.choose(preset)
    this.settle()
    if (this.presets.missing) this.presets.load() // the preset may be newer than the list
  }

  // settle makes what the panel shows that to which back() returns.
  settle() { this.settled = { settings: this.params.values(), preset: this.presets.id } }

  // back returns to what was settled.
  back() {
    this.params.show(this.settled.settings)
    this.presets.choose(this.settled.preset)
    this.changed(true)
  }

  // follow applies a panel event if another page caused it. The server also sends the events of our
  // own changes; their acknowledgements have the seq of the event.
  follow(event = this.pending) {
    this.pending = event?.settings ? event : null
    if (!this.pending || this.sent > 0) return
    this.pending = null
    if (event.seq > this.ours && !this.dirty) this.put(event)
  }

  // use applies the settings and the seed with which an answer was generated.
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
    const what = moved === 0 ? t('Its settings were in the panel already') : tn(moved, '%s setting of the panel has changed', '%s settings of the panel have changed', moved)
    notify(`${what}; ${t('the seed %s is pinned', settings.seed)}`, { does: this.undo })
  }

  changed(person) {
    this.presets?.refresh()
    if (!person) return
    withdraw(this.undo) // Undo would also revert this change
    this.presets.untouched = this.presets.pristine = false
    this.on.moved(this.params.values())
    this.dirty = true
    this.remember()
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.flush(), pause)
  }

  // remember stores the preset, unless it is the loaded model's own: the next chat may be with another
  // model.
  remember() {
    remember(storage, this.presets.id === own ? '' : JSON.stringify({ preset: this.presets.id }))
  }

  // flush sends the unsent changes, if all fields are valid.
  flush() {
    clearTimeout(this.timer)
    if (!this.dirty || this.params.firstInvalid()) return
    const sent = this.on.keep({ settings: this.params.values(), system: this.on.system(), preset: this.presets.id })
    this.dirty = false
    if (!sent) return
    this.sent++
    const flush = ++this.flushes
    sent.then(ack => { this.ours = ack.seq ?? 0 }, error => {
      const changed = this.dirty || flush !== this.flushes // since then: the error is about other values than the panel has
      this.dirty = true // sent again after reconnecting, or with the next change
      if (error.code && !changed) this.on.failed(error)
    }).finally(() => {
      this.sent--
      this.follow()
    })
  }
}
