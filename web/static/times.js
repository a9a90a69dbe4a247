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

const clockOf = at => clock(at.getTime())

// forms write the times of pages as the server does: with the year, or with the day of the week.
const forms = {
  day: at => `${at.getDate()} ${months[at.getMonth()]} ${at.getFullYear()}, ${clockOf(at)}`,
  ends: at => `${days[at.getDay()]} ${at.getDate()} ${months[at.getMonth()]}, ${clockOf(at)}`,
}

// heading is that under which the list of chats has one, as the server has it.
export function heading(at, now = new Date()) {
  const ago = (midnight(now) - midnight(at)) / 86_400_000
  return ago <= 0 ? 'Today' : ago === 1 ? 'Yesterday' : ago <= 7 ? 'Last week' : 'Older'
}

// regroup moves chats between the headings of days below root, where the reader's day is not the server's.
function regroup(root) {
  const groups = [...root.querySelectorAll('[data-day]')]
  if (!groups.length) return
  const rows = groups.flatMap(ul => [...ul.children])
  const first = groups[0].previousElementSibling, lists = new Map()
  for (const [i, ul] of groups.entries()) lists.set(ul.dataset.day, { ul, title: i ? ul.previousElementSibling : first })
  let end = groups.at(-1)
  for (const row of rows) {
    const time = row.querySelector('time.when')
    const day = time ? heading(new Date(time.dateTime)) : row.closest('[data-day]').dataset.day // an answer is being written
    if (!lists.has(day)) {
      const title = first.cloneNode(), ul = groups[0].cloneNode()
      title.textContent = ul.dataset.day = day
      lists.set(day, { ul, title })
    }
    row.remove()
    lists.get(day).ul.append(row)
  }
  for (const day of ['Today', 'Yesterday', 'Last week', 'Older']) {
    const list = lists.get(day)
    if (!list) continue
    if (list.ul.childElementCount) {
      end.after(list.title, list.ul)
      end = list.ul
    } else {
      list.title.remove()
      list.ul.remove()
    }
  }
}

// localise rewrites the times of messages, of the list of chats and of pages below root.
export function localise(root) {
  for (const el of root.querySelectorAll('time[datetime]:is(.when, .mono, [data-time])')) {
    const at = new Date(el.dateTime)
    if (Number.isNaN(at.getTime())) continue
    const form = el.matches('.when') ? when : forms[el.dataset.time] ?? clockOf
    el.textContent = form(at)
  }
  regroup(root)
}
