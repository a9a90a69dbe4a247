// Times in the zone of the reader: the server writes them in its own.
import { clock } from './format.js'

const days = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat']
const months = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

const midnight = t => Date.UTC(t.getFullYear(), t.getMonth(), t.getDate())

// when says when a chat was last used, as short as its age allows, as the server does.
export function when(at, now = new Date()) {
  const ago = (midnight(now) - midnight(at)) / 86_400_000
  if (ago <= 1) return clock(at.getTime())
  if (ago < 7) return days[at.getDay()]
  if (at.getFullYear() === now.getFullYear()) return `${at.getDate()} ${months[at.getMonth()]}`
  return `${months[at.getMonth()]} ${at.getFullYear()}`
}

// localise rewrites the times of messages and of the list of chats below root.
export function localise(root) {
  for (const el of root.querySelectorAll('time[datetime]:is(.when, .mono)')) {
    const at = new Date(el.dateTime)
    if (!Number.isNaN(at.getTime())) el.textContent = el.matches('.when') ? when(at) : clock(at.getTime())
  }
}
