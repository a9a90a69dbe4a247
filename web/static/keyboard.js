// Who besides the owner writes in the open chat, or asks to: the notices above the messages, and who
// is typing. handlers/stream/protocol.go describes the frame.
import { route } from './base.js'
import { copyOf } from './html.js'
import { request } from './request.js'
import { showTyping } from './typing.js'

const $ = q => document.querySelector(q)
const nothing = { links: 0, readers: 0, asks: [], writers: [], typing: [] }
const asks = $('[data-asks]'), writers = $('#keyboard [data-writers]')
const armed = 500 // ms in which a new name's buttons ignore clicks, which were meant for the one before

let held = nothing, changed = 0

// chat: () => id of the open chat. failed is called with errors.
let chat, failed
export function keyboard(on) {
  ({ chat, failed } = on)
}

// shared reports whether others write in the open chat.
export const shared = () => held.writers.length > 0

export function showKeyboard(now = nothing) {
  const [first] = now.asks
  if (first && first.id !== held.asks[0]?.id) {
    asks.querySelector('[data-asker]').textContent = first.name
    changed = performance.now()
  }
  held = now
  asks.hidden = !first
  const more = now.asks.length - 1
  asks.querySelector('[data-more-ask]').textContent = more > 0 ? `${more} more ${more === 1 ? 'asks' : 'ask'}.` : ''
  const shown = [...writers.querySelectorAll('li')]
  for (const li of shown) if (!now.writers.some(w => String(w.id) === li.dataset.id)) li.remove()
  for (const w of now.writers) {
    if (shown.some(li => li.dataset.id === String(w.id))) continue
    const li = copyOf('t-writer')
    li.dataset.id = w.id
    li.querySelector('b').textContent = w.name
    writers.querySelector('ul').append(li)
  }
  writers.hidden = now.writers.length === 0
  $('[data-shared]').textContent = !now.links ? 'Share' : now.readers ? `Shared · ${now.readers} reading` : 'Shared'
  showTyping(now.typing)
}

function post(action, fields) {
  request(route(`/c/${chat()}/share/${action}`), new URLSearchParams(fields), failed)
}

$('#keyboard').addEventListener('click', e => {
  const button = e.target.closest('button')
  if (!button) return
  const [first] = held.asks, row = button.closest('li')
  if (row) post('writers', { writer: row.dataset.id, state: button.dataset.set })
  else if (!first || performance.now() - changed < armed) return
  else if (button.matches('[data-no-requests]')) post('requests', { share: first.share, accept: false })
  else post('writers', { writer: first.id, state: button.dataset.set })
})
