import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import './page.js'

globalThis.setTimeout = () => 0 // no test waits for a time

// Each socket that the page opens, with what it has sent.
let sockets = []
globalThis.location = { protocol: 'http:', host: 'server' }
globalThis.WebSocket = class {
  constructor(address) {
    Object.assign(this, { address, sent: [], closed: false })
    sockets.push(this)
  }

  send(text) { this.sent.push(JSON.parse(text)) }

  close() {
    this.closed = true
    this.onclose({ code: 1006 })
  }

  take(frame) { this.onmessage({ data: JSON.stringify(frame) }) }
}

const { Link } = await import('../static/socket.js')

let told
const on = { frame: f => told.push(f), back: again => told.push(again ? 'back' : 'open'), lost: (_, code) => told.push(`lost ${code}`), trying() {}, refused: e => told.push(`refused ${e.code}`) }

// opened returns a link whose socket is open, and that has the snapshot of a chat.
function opened() {
  const link = new Link('a', on, 7), [socket] = sockets
  socket.onopen()
  socket.take({ type: 'ack', ref: 1 })
  socket.take({ type: 'snapshot', seq: 4, chat: { id: 'a' } })
  told = []
  return [link, socket]
}

beforeEach(() => {
  sockets = []
  told = []
})

const numbered = (...numbers) => ({ type: 'events', events: numbers.map(seq => ({ seq })) })

test('the chat is opened at the message in the address, and commands that waited follow', async () => {
  const link = new Link('a', on, 7), [socket] = sockets
  const done = link.command('title', { text: 'x' })
  assert.deepEqual(socket.sent, [])
  socket.onopen()
  assert.deepEqual(socket.sent, [{ type: 'open', ref: 2, chat: 'a', since: 0, at: 7 }, { type: 'title', ref: 1, text: 'x' }])
  socket.take({ type: 'ack', ref: 1, seq: 3 })
  assert.deepEqual(await done, { type: 'ack', ref: 1, seq: 3 })
})

test('events are shown once and without gaps, and what follows a gap is asked for', () => {
  const [link, socket] = opened()
  socket.take(numbered(3, 4, 5))
  socket.take(numbered(6, 8))
  assert.deepEqual(told, [numbered(5), numbered(6), 'lost 1006'])
  assert.ok(socket.closed)
  link.now()
  sockets[1].onopen()
  assert.deepEqual(sockets[1].sent, [{ type: 'open', ref: 2, chat: 'a', since: 6, at: 0 }])
  sockets[1].take({ type: 'resumed' })
  assert.deepEqual(told.slice(3), [{ type: 'resumed' }, 'back'])
})

test('a command that was sent before the connection was lost may have arrived', async () => {
  const [link, socket] = opened(), sent = link.command('title')
  socket.close()
  await assert.rejects(sent, e => e.title === 'Connection lost')
  await assert.rejects(link.command('title'), e => e.title === 'Not connected')
})

test('what a closed connection still brings is not shown', () => {
  const [link, socket] = opened()
  link.leave()
  told = []
  socket.take(numbered(5))
  assert.deepEqual(told, [])
  assert.deepEqual([link.chat, link.seq, sockets.length], ['', 0, 2])
})

test('a chat that does not exist is refused, and not opened again', async () => {
  new Link('a', on, 0)
  const [socket] = sockets
  socket.onopen()
  socket.take({ type: 'error', ref: 1, error: { code: 'chat_not_found' } })
  await Promise.resolve()
  await Promise.resolve()
  assert.deepEqual(told, ['refused chat_not_found'])
  assert.equal(sockets.length, 1)
})

test('the close code that the server announces counts', () => {
  const [, socket] = opened()
  socket.take({ type: 'close', code: 1012 })
  socket.close()
  assert.deepEqual(told, ['lost 1012'])
})
