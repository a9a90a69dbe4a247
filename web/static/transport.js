// The two ways to the server. Both carry the same frames; handlers/stream/protocol.go
// describes them. on: {open(), text(data), close(code)}; close comes once.
const patience = 8000 // ms for a connection to open

class Transport {
  constructor(on) {
    this.on = on
    this.ready = false
    this.ended = false
    this.timer = setTimeout(() => this.close(), patience)
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
    this.socket = new WebSocket(`${scheme}//${location.host}/ws`)
    this.socket.onopen = () => this.opened()
    this.socket.onmessage = message => { if (!this.ended) on.text(message.data) }
    this.socket.onclose = event => this.end(event.code)
  }

  send(text) { this.socket.send(text) }

  close() { this.socket.close() }
}

// Events is for where something on the way blocks websockets: a stream of events, and a
// request for each command.
export class Events extends Transport {
  constructor(on) {
    super(on)
    this.sent = Promise.resolve()
    this.source = new EventSource('/events')
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

  // send keeps the order: a command waits for the one before it.
  send(text) {
    this.sent = this.sent.then(async () => {
      if (this.ended) return
      const response = await fetch('/command', {
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
