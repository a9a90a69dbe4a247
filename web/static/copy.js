// Copying. Browsers give pages access to the clipboard on https and localhost alone; elsewhere a page copies what is
// selected.
import { t } from './lang.js'

export const copied = t('Copied')

// copy copies text and returns what to say of it. Where no way of copying is allowed, it selects shown, an element that
// shows the text, for the user to copy.
export async function copy(text, shown) {
  const allowed = await navigator.clipboard?.writeText(text).then(() => true, () => false)
  if (allowed || copySelected(text)) return copied
  if (!shown) return t('Copying is not allowed here')
  if (shown.select) shown.select()
  else getSelection().selectAllChildren(shown)
  return t('Selected: press Ctrl C')
}

// copySelected copies text by selecting it in a field that is there for that long. What was selected and focused is again
// afterwards.
function copySelected(text) {
  const focused = document.activeElement, selection = getSelection()
  const ranges = Array.from({ length: selection.rangeCount }, (_, i) => selection.getRangeAt(i))
  const field = document.createElement('textarea')
  field.value = text
  field.readOnly = true
  field.style.position = 'fixed'
  field.style.opacity = '0'
  // Nothing outside a modal dialog can be focused.
  const dialogs = document.querySelectorAll('dialog[open]')
  ;(dialogs[dialogs.length - 1] ?? document.body).append(field)
  field.select()
  let done = false
  try { done = document.execCommand('copy') } catch { /* the browser has no such command */ }
  field.remove()
  focused?.focus({ preventScroll: true })
  selection.removeAllRanges()
  for (const range of ranges) selection.addRange(range)
  return done
}
