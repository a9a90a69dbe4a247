// Deletes one message of a chat: it disappears at once, and is deleted when the notice with Undo closes, or before anything
// else happens in the chat.
import { hang } from './menu.js'
import { messageCount } from './format.js'
import { t } from './lang.js'
import { dismiss, notify } from './notice.js'

const menu = document.getElementById('delete-menu')

// deleteMenu handles the question, and returns what asks it at a button. on: {at(el), after(turn), remove(turn)}; after
// returns how many shown messages follow.
export function deleteMenu(on) {
  let turn, opener
  menu.addEventListener('click', e => {
    const item = e.target.closest('.item')
    if (!item) return
    menu.hidePopover()
    if (item.matches('[data-delete-now]')) on.remove(turn)
    else opener.focus()
  })
  return hang(menu, button => {
    opener = button
    turn = on.at(button)
    menu.querySelector('[data-what]').textContent = about(turn, on.after(turn))
  })
}

// about returns what deleting a turn means; after is the number of messages that follow it.
function about(turn, after) {
  const { count } = turn.versions
  if (count === 1) return after ? t('Deletes this message. What follows stays.') : t('Deletes this message.')
  const left = count === 2 ? t('The other version is shown then.') : t('%s other versions stay.', count - 1)
  return after ? `${t('Deletes this version, and %s after it.', messageCount(after))} ${left}` : `${t('Deletes this version.')} ${left}`
}

let deleting = null // what deletes the message that disappeared

// deleteSoon hides turns, and calls remove when the notice closes without Undo. focused is what gets the focus.
export function deleteSoon(turns, remove, focused) {
  for (const { el } of turns) el.hidden = true
  deleting = () => {
    deleting = null
    remove()
  }
  notify(turns.length === 1 ? t('Deleted the message') : t('Deleted %s', messageCount(turns.length)), {
    does() {
      deleting = null
      for (const { el } of turns) el.hidden = false
      turns[0].el.focus()
    },
    then: deleting,
  })
  focused.focus({ preventScroll: true })
}

// independent are the commands to which it does not matter whether the hidden message is deleted yet.
const independent = new Set(['delete', 'panel', 'typing', 'older', 'newer', 'ping', 'stop'])

// settleDeletion deletes what disappeared, if it is not deleted yet, before a command of that type.
export function settleDeletion(type) {
  if (deleting && !independent.has(type)) dismiss()
}
addEventListener('pagehide', () => settleDeletion())
