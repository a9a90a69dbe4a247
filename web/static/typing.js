// Who is typing: tells it to others while keys are pressed, and shows others under the message field.
import { t } from './lang.js'

const interval = 2000 // ms between the signals of one who types

export class Typing {
  // signal tells others that this user is typing.
  constructor(signal) {
    this.signal = signal
    this.last = -Infinity
  }

  // typed is called for each input; it signals at most once in an interval.
  typed() {
    if (Date.now() - this.last < interval) return
    this.last = Date.now()
    this.signal()
  }

  // sent is called when the message was sent: the next input is signalled at once.
  sent() { this.last = -Infinity }
}

// typingText says who is typing.
export function typingText(names) {
  if (names.length === 0) return ''
  return names.length > 2 ? t('%s people are typing', names.length) : names.length > 1 ? t('%s and %s are typing', ...names) : t('%s is typing', ...names)
}

export function showTyping(names) {
  const line = document.querySelector('[data-typing]')
  line.textContent = typingText(names)
  line.hidden = names.length === 0
  document.querySelector('[data-hint]').hidden = names.length > 0
}
