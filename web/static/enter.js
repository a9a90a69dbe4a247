// What the Enter key does in the fields of messages.
import { t } from './lang.js'
import { recall, remember } from './storage.js'

// composing reports whether a key belongs to the input method that composes a character. The Enter that ends a
// composition says so in Safari by its old code alone.
export const composing = e => e.isComposing || e.keyCode === 229

// sends reports whether a key sends the message: Enter, if it is set to do so, and Enter with Ctrl or Cmd always.
export function sends(e, enterSends) {
  if (e.key !== 'Enter' || composing(e)) return false
  return e.ctrlKey || e.metaKey || enterSends && !e.shiftKey
}

const key = 'm40.enter'

// enterSends returns the setting. Unless it was made, Enter makes a new line on touch screens, whose keyboards have no
// Shift + Enter.
export function enterSends() {
  const kept = recall(key)
  return kept ? kept === 'sends' : !matchMedia('(pointer: coarse)').matches
}

export function setEnterSends(on) {
  remember(key, on ? 'sends' : 'line')
}

// explain says at a field what Enter does there.
export function explain(field, hint, on) {
  field.enterKeyHint = on ? 'send' : 'enter'
  if (hint) hint.textContent = on ? t('Enter sends, Shift + Enter makes a new line') : t('Enter makes a new line, Ctrl + Enter sends')
}
