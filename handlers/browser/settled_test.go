package browser

import (
	"fmt"
	"strconv"

	"github.com/chromedp/cdproto/page"
)

// Tests wait for what a page shows. Where a page should go on showing what it shows, they wait until nothing is under way in it
// and look then. What is under way is counted in the page, by what wraps the browser's functions before its scripts run.

// underWay counts, in window.underWay, what a page has started and not ended: commands without a response, requests, and
// timers of up to a second. It also counts the commands that were sent and the
// frames that were received, by type. Timers of uncounted, which is the browser's setTimeout, do not count.
const underWay = `{
	const now = window.underWay = { started: new Set(), sent: {}, received: {} }
	const begin = what => {
		const one = { what }
		now.started.add(one)
		return () => now.started.delete(one)
	}
	const count = (by, { type }) => { by[type] = (by[type] ?? 0) + 1 }

	const set = now.uncounted = setTimeout, clear = clearTimeout, timers = new Map()
	window.setTimeout = (f, ms = 0, ...rest) => {
		const id = set((...given) => {
			timers.get(id)?.()
			timers.delete(id)
			f(...given)
		}, ms, ...rest)
		if (ms <= 1000) timers.set(id, begin('timer of ' + ms + ' ms: ' + f))
		return id
	}
	window.clearTimeout = id => {
		clear(id)
		timers.get(id)?.()
		timers.delete(id)
	}

	const ask = fetch
	window.fetch = (...request) => {
		const end = begin('request of ' + request[0])
		return ask(...request).finally(() => set(end)) // the page takes the response first
	}
	for (const body of ['text', 'json']) {
		const read = Response.prototype[body]
		Response.prototype[body] = function () {
			const end = begin('body of ' + this.url)
			return read.call(this).finally(() => set(end))
		}
	}

	window.WebSocket = class extends WebSocket {
		constructor(...address) {
			super(...address)
			this.commands = new Map()
			this.addEventListener('message', ({ data }) => set(() => { // the page applies the frame first
				const frame = JSON.parse(data)
				count(now.received, frame)
				if (frame.type === 'ack' || frame.type === 'error') this.end(frame.ref)
			}))
			this.addEventListener('close', () => { for (const ref of this.commands.keys()) this.end(ref) })
		}

		send(text) {
			const command = JSON.parse(text)
			count(now.sent, command)
			this.commands.set(command.ref, begin('command ' + text))
			super.send(text)
		}

		end(ref) {
			this.commands.get(ref)?.()
			this.commands.delete(ref)
		}
	}
}`

// countUnderWay counts what is under way in documents that are opened from now on.
func (b *browser) countUnderWay() {
	b.t.Helper()
	command(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: underWay})
}

// settled waits until nothing is under way in the page: it has the responses to all that it has sent, its pictures are
// loaded or have failed, no timer ends soon, and it has drawn what follows from all that.
func (b *browser) settled() {
	b.t.Helper()
	b.frames()
	b.until("(!window.underWay || underWay.started.size === 0) && [...document.images].every(i => i.complete || i.loading === 'lazy')")
	b.frames()
}

// sent returns how many commands of a type the document has sent over its websockets.
func (b *browser) sent(command string) int { return b.counted("sent", command) }

// received returns how many frames of a type the document has received over its websockets, and applied.
func (b *browser) received(frame string) int { return b.counted("received", frame) }

func (b *browser) counted(way, what string) int {
	b.t.Helper()
	n, err := strconv.Atoi(b.value(fmt.Sprintf("underWay.%s.%s ?? 0", way, what)))
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}
