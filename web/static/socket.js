// The connection to the server: commands with responses, numbered events without gaps and
// duplicates, and reconnecting. handlers/stream/protocol.go describes the messages.
import { route } from './base.js'
import { t } from './lang.js'
import { unseen } from './sequence.js'
import { Events, Socket } from './transport.js'

const delays = [300, 1000, 2000, 4000, 8000]
const stopping = 1012
const tryAgainLater = 1013
const loggedOut = 401
const blocked = 2 // failed attempts to open a transport, with the server reachable by HTTP, before the other is tried
const notConnected = { title: t('Not connected'), message: t('The server cannot be reached just now. Nothing was sent.') }

// The transport that works is remembered for the other pages of this tab.
const remember = way => { try { sessionStorage.setItem('m40.way', way) } catch { /* storage is off */ } }
const recalled = () => { try { return sessionStorage.getItem('m40.way') } catch { return null } }

export class Link {
  // on: {before(type of the command), frame(f), back(resumed), lost(secondsLeft, code), trying(), refused(error)}
  // at is the message in the middle of the first snapshot; 0: the end of the chat.
  constructor(chat, on, at) {
    this.chat = chat
    this.at = at
    this.seq = 0
    this.on = on
    this.refs = new Map() // commands that were sent and have no response
    this.waiting = [] // commands that are sent when the connection is open
    this.lastRef = 0
    this.failures = 0
    this.wasLost = false
    this.timer = 0
    this.way = recalled() === Events.name ? Events : Socket
    this.unopened = 0
    this.connect()
    addEventListener('online', () => this.now())
    document.addEventListener('visibilitychange', () => {
      if (document.visibilityState === 'visible') this.check()
    })
  }

  get ready() { return Boolean(this.socket?.ready) }

  connect() {
    clearTimeout(this.timer)
    this.timer = 0
    this.on.trying()
    let opened = false, farewell = 0
    const socket = new this.way({
      open: () => {
        if (this.socket !== socket) return
        opened = true
        this.unopened = 0
        if (this.chat) this.command('open', { chat: this.chat, since: this.seq, at: this.seq ? 0 : this.at }).catch(error => this.notOpened(socket, error))
        else this.on.back(false)
        for (const { send } of this.waiting.splice(0)) send()
      },
      text: data => {
        if (this.socket !== socket) return
        const frame = JSON.parse(data)
        if (frame.type === 'close') farewell = frame.code
        else this.take(frame)
      },
      close: code => {
        if (this.socket !== socket) return
        if (!opened) this.unopened++
        this.lost(farewell || code)
        if (this.unopened >= blocked) this.change()
      },
    })
    this.socket = socket
  }

  // notOpened closes the chat if it does not exist. All other errors may be temporary, such as a
  // server that is stopping or has no free connections, so it reconnects.
  notOpened(socket, error) {
    if (this.socket !== socket) return
    if (error.code === 'chat_not_found') {
      this.on.refused(error)
      return
    }
    this.socket = null
    socket.close()
    this.lost(error.code === 'closed' ? stopping : 0)
  }

  // change switches to the other transport if the server can be reached by HTTP, because a proxy may
  // block this one. It gives up if this device was logged out.
  async change() {
    const answer = await fetch(route('/rail'), { method: 'HEAD', cache: 'no-store' }).catch(() => null)
    if (!answer || this.socket || this.unopened < blocked) return
    if (answer.status === loggedOut) {
      clearTimeout(this.timer)
      this.code = loggedOut
      this.on.lost(0, loggedOut)
      return
    }
    this.unopened = 0
    this.way = this.way === Socket ? Events : Socket
    remember(this.way.name)
    this.connect()
  }

  take(f) {
    if (f.type === 'ack' || f.type === 'error') {
      const waiting = this.refs.get(f.ref)
      this.refs.delete(f.ref)
      if (f.type === 'ack') waiting?.resolve(f)
      else waiting?.reject(f.error)
      return
    }
    if (f.type === 'snapshot') {
      this.seq = f.seq
      this.chat = f.chat.id
    }
    if (f.type === 'snapshot' || f.type === 'resumed') {
      const again = this.wasLost
      this.wasLost = false
      this.on.frame(f)
      this.on.back(again)
      return
    }
    if (f.type === 'engine') this.failures = 0
    if (f.type === 'events') {
      const { events, seq, gap } = unseen(f.events, this.seq)
      this.seq = seq
      if (events.length > 0) this.on.frame({ ...f, events })
      if (gap) this.socket.close() // the next connection asks for what follows seq
      return
    }
    this.on.frame(f)
  }

  // command sends a command, at once or when the connection that is being opened is open. The promise
  // resolves with its ack or rejects with its error.
  command(type, fields = {}) {
    this.on.before?.(type)
    if (!this.socket) return Promise.reject(notConnected)
    const ref = ++this.lastRef
    const text = JSON.stringify({ type, ref, ...fields })
    return new Promise((resolve, reject) => {
      const send = () => {
        this.refs.set(ref, { resolve, reject })
        this.socket.send(text)
      }
      if (this.ready) send()
      else this.waiting.push({ send, reject })
    })
  }

  lost(code) {
    this.socket = null
    this.code = code
    for (const { reject } of this.refs.values()) reject({ title: t('Connection lost'), message: t('It is not known whether the server got this.') })
    this.refs.clear()
    for (const { reject } of this.waiting.splice(0)) reject(notConnected)
    const delay = code === tryAgainLater ? delays[0] : delays[Math.min(this.failures, delays.length - 1)]
    this.failures++
    this.wasLost = true
    this.due = Date.now() + delay
    this.count()
  }

  count() {
    const left = this.due - Date.now()
    if (left <= 0) return this.connect()
    this.on.lost(Math.ceil(left / 1000), this.code)
    this.timer = setTimeout(() => this.count(), Math.min(left, 1000))
  }

  now() {
    if (!this.socket) this.connect()
  }

  // reopen requests a new snapshot of the chat, of its end or around a message.
  reopen(at = 0) {
    const { socket } = this
    this.command('open', { chat: this.chat, since: 0, at }).catch(error => this.notOpened(socket, error))
  }

  // leave closes the chat, so that the next message starts a new one. It reconnects, because frames
  // in transit belong to the old chat.
  leave() {
    this.chat = ''
    this.seq = 0
    const old = this.socket
    this.socket = null
    old?.close()
    for (const { reject } of [...this.refs.values(), ...this.waiting.splice(0)]) reject({ title: t('Not sent'), message: t('This chat was left before the server answered.') })
    this.refs.clear()
    this.wasLost = false
    this.connect()
  }

  // check detects a connection that broke while the machine slept.
  check() {
    if (!this.ready) return this.now()
    const socket = this.socket
    const timer = setTimeout(() => {
      if (this.socket !== socket) return
      this.socket = null
      socket.close()
      this.lost(0)
    }, 4000)
    this.command('ping').catch(() => {}).finally(() => clearTimeout(timer))
  }
}
