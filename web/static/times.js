// Times in the zone of the reader: the server writes them in its own.
import { clock } from './format.js'
import { t } from './lang.js'

const days = [t('Sun'), t('Mon'), t('Tue'), t('Wed'), t('Thu'), t('Fri'), t('Sat')]
const months = [t('Jan'), t('Feb'), t('Mar'), t('Apr'), t('May'), t('Jun'), t('Jul'), t('Aug'), t('Sep'), t('Oct'), t('Nov'), t('Dec')]

const date = at => t('%s %s', at.getDate(), months[at.getMonth()]) // a day and a month

const midnight = at => Date.UTC(at.getFullYear(), at.getMonth(), at.getDate())

// when says when a chat was last used, as short as its age allows, as the server does.
export function when(at, now = new Date()) {
  const ago = (midnight(now) - midnight(at)) / 86_400_000
  if (ago <= 1) return clock(at.getTime())
  if (ago < 7) return days[at.getDay()]
  if (at.getFullYear() === now.getFullYear()) return date(at)
  return `${months[at.getMonth()]} ${at.getFullYear()}`
}

const clockOf = at => clock(at.getTime())

// forms write the times of pages as the server does: with the year, or with the day of the week.
const forms = {
  day: at => `${date(at)} ${at.getFullYear()}, ${clockOf(at)}`,
  ends: at => `${days[at.getDay()]} ${date(at)}, ${clockOf(at)}`,
}

const headings = [t('Today'), t('Yesterday'), t('Last week'), t('Older')]
const [today, yesterday, lastWeek, older] = headings

// heading is that under which the list of chats has one, as the server has it.
export function heading(at, now = new Date()) {
  const ago = (midnight(now) - midnight(at)) / 86_400_000
  return ago <= 0 ? today : ago === 1 ? yesterday : ago <= 7 ? lastWeek : older
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
  for (const day of headings) {
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
