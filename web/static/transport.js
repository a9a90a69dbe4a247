// The two transports. Both carry the same frames, which handlers/stream/protocol.go describes.
// on: {open(), text(data), close(code)}; close is called once.
import { route } from './base.js'

const openTimeout = 8000 // ms until a connection must be open

class Transport {
  constructor(on) {
    this.on = on
    this.ready = false
    this.ended = false
    this.timer = setTimeout(() => this.close(), openTimeout)
  }

  opened() {
    clearTimeout(this.timer)
    this.ready = true
    this.on.open()
  }

  end(code) {
    if (this.ended) return
    this.ended = true
    this.ready = false
    clearTimeout(this.timer)
    this.on.close(code)
  }
}

export class Socket extends Transport {
  constructor(on) {
    super(on)
    const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:'
    this.socket = new WebSocket(`${scheme}//${location.host}${route('/ws')}`)
    this.socket.onopen = () => this.opened()
    this.socket.onmessage = message => { if (!this.ended) on.text(message.data) }
    this.socket.onclose = event => this.end(event.code)
  }

  send(text) { this.socket.send(text) }

  close() { this.socket.close() }
}

// Events is the transport for networks that block websockets: server-sent events, and one HTTP
// request per command.
export class Events extends Transport {
  constructor(on) {
    super(on)
    this.sent = Promise.resolve()
    this.source = new EventSource(route('/events'))
    this.source.onmessage = message => {
      if (this.ended) return
      const frame = JSON.parse(message.data)
      if (frame.type === 'session') {
        this.session = frame.session
        this.opened()
      } else on.text(message.data)
    }
    this.source.onerror = () => this.close(0)
  }

  // send waits for the previous command, so that commands arrive in order.
  send(text) {
    this.sent = this.sent.then(async () => {
      if (this.ended) return
      const response = await fetch(route('/command'), {
        method: 'POST', body: text, headers: { Accept: 'application/json', 'Content-Type': 'application/json', 'X-Session': this.session },
      }).catch(() => null)
      if (!response?.ok) this.close(0)
    })
  }

  close(code = 0) {
    this.source.close()
    this.end(code)
  }
}
