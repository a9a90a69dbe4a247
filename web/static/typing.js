// Who is typing: says it to others while there are keys, and shows others under the message field.
const interval = 2000 // ms between the signals of one who types

let last = 0

// typed calls say, unless it has lately. typed(null) is for a message that was sent.
export function typed(say) {
  if (!say) {
    last = 0
    return
  }
  if (Date.now() - last < interval) return
  last = Date.now()
  say()
}

export function showTyping(names) {
  const line = document.querySelector('[data-typing]')
  const hint = document.querySelector('[data-hint]')
  const text = names.length > 2 ? `${names.length} people are typing` : `${names.join(' and ')} ${names.length > 1 ? 'are' : 'is'} typing`
  line.textContent = names.length ? text : ''
  line.hidden = names.length === 0
  hint.hidden = names.length > 0
}
