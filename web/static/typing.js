// Who is typing: tells it to others while keys are pressed, and shows others under the message field.
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
  return names.length > 2 ? `${names.length} people are typing` : `${names.join(' and ')} ${names.length > 1 ? 'are' : 'is'} typing`
}

export function showTyping(names) {
  const line = document.querySelector('[data-typing]')
  line.textContent = typingText(names)
  line.hidden = names.length === 0
  document.querySelector('[data-hint]').hidden = names.length > 0
}
