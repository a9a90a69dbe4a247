// The page of what the engine does at this moment. The server renders the list; this script puts each
// newer one into its place and stops answers without a reload. A hidden page asks for no list.
import { fragment, replaceChanged } from './html.js'
import { released } from './press.js'
import { request } from './request.js'
import { Link } from './socket.js'

const $ = q => document.querySelector(q)
const list = $('#activity'), answers = list.querySelector('ul')

// update shows the newest list.
let newest = ''
async function update(html) {
  newest = html
  await released()
  if (html === newest) show(html)
}

// show replaces what differs. The rows stay, so that the button that has the focus keeps it.
function show(html) {
  const next = fragment(html).firstElementChild
  replaceParts(list, next)
  const rows = new Map([...answers.children].map(row => [row.dataset.answer, row]))
  for (const row of next.querySelectorAll('li')) {
    const old = rows.get(row.dataset.answer)
    if (old) replaceParts(old, row)
    else answers.append(row) // they are in the order of their numbers
    rows.delete(row.dataset.answer)
  }
  for (const ended of rows.values()) {
    if (ended.contains(document.activeElement)) focusNext(ended)
    ended.remove()
  }
}

function replaceParts(old, next) {
  for (const part of next.querySelectorAll(':scope > [data-part]')) {
    replaceChanged(old.querySelector(`:scope > [data-part="${part.dataset.part}"]`), part)
  }
}

// focusNext moves the focus from a row that goes to its neighbour.
function focusNext(row) {
  const neighbour = row.nextElementSibling ?? row.previousElementSibling
  const heading = $('h1')
  heading.tabIndex = -1
  ;(neighbour?.querySelector('button') ?? heading).focus({ preventScroll: true })
}

function problem(text) {
  $('#problem').hidden = !text
  $('#problem span').textContent = text
}

addEventListener('submit', async e => {
  e.preventDefault()
  const form = e.target
  if (form.ariaBusy === 'true') return
  form.ariaBusy = 'true' // a disabled button would lose the focus
  problem('')
  await request(new URL(form.action).pathname, new URLSearchParams(), ({ title, message, status }) => {
    if (status !== 404) problem(`${title}. ${message}`) // it has ended by itself
  })
  form.ariaBusy = 'false'
})

const watch = () => link.command('activity', { on: document.visibilityState === 'visible' }).catch(() => {})
document.addEventListener('visibilitychange', watch)

const link = new Link('', {
  frame(f) { if (f.type === 'activity') update(f.html) },
  back() {
    $('#connbar').hidden = true
    watch()
  },
  trying() {},
  lost() { $('#connbar').hidden = false },
  refused() {},
})
