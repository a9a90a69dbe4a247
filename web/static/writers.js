// Who besides the owner writes in the open chat, or asks to: the notices above the messages, and who
// is typing. handlers/stream/protocol.go describes the frame.
import { route } from './base.js'
import { copyOf } from './html.js'
import { t, tn } from './lang.js'
import { request } from './request.js'
import { Typing, showTyping } from './typing.js'

const $ = q => document.querySelector(q)
const noOne = { links: 0, readers: 0, asks: [], writers: [], typing: [] }
const fresh = 500 // ms in which a new name's buttons ignore clicks, which were meant for the one before

export class Writers {
  // on: {chat(): id of the open chat, typing(): tells the others that the owner is typing, failed(error)}
  constructor(on) {
    this.on = on
    this.state = noOne
    this.renamed = 0 // timer; while it runs, the name is new
    this.asks = $('[data-asks]')
    this.list = $('#keyboard [data-writers]')
    this.typing = new Typing(on.typing)
    $('#keyboard').addEventListener('click', e => this.clicked(e.target.closest('button')))
  }

  // typed is called when the owner types, sent when the message was sent.
  typed() { if (this.state.writers.length) this.typing.typed() }

  sent() { this.typing.sent() }

  show(state = noOne) {
    const [first] = state.asks
    if (first && first.id !== this.state.asks[0]?.id) {
      this.asks.querySelector('[data-asker]').textContent = first.name
      clearTimeout(this.renamed)
      this.renamed = setTimeout(() => { this.renamed = 0 }, fresh)
    }
    this.state = state
    this.asks.hidden = !first
    const more = state.asks.length - 1
    this.asks.querySelector('[data-more-ask]').textContent = more > 0 ? tn(more, '%s more asks.', '%s more ask.', more) : ''
    this.showWriters(state.writers)
    $('[data-shared]').textContent = !state.links ? t('Share') : state.readers ? t('Shared · %s reading', state.readers) : t('Shared')
    showTyping(state.typing)
  }

  showWriters(writers) {
    const shown = [...this.list.querySelectorAll('li')]
    for (const li of shown) if (!writers.some(w => String(w.id) === li.dataset.id)) li.remove()
    for (const w of writers) {
      if (shown.some(li => li.dataset.id === String(w.id))) continue
      const li = copyOf('t-writer')
      li.dataset.id = w.id
      li.querySelector('b').textContent = w.name
      this.list.querySelector('ul').append(li)
    }
    this.list.hidden = writers.length === 0
  }

  post(action, fields) {
    request(route(`/c/${this.on.chat()}/share/${action}`), new URLSearchParams(fields), this.on.failed)
  }

  clicked(button) {
    if (!button) return
    const [first] = this.state.asks, row = button.closest('li')
    if (row) this.post('writers', { writer: row.dataset.id, state: button.dataset.set })
    else if (!first || this.renamed) return
    else if (button.matches('[data-no-requests]')) this.post('requests', { share: first.share, accept: false })
    else this.post('writers', { writer: first.id, state: button.dataset.set })
  }
}
