// The models page. The server renders it; this script submits its forms without a reload, replaces
// the changed parts, and shows the progress of downloads.
import { route } from './base.js'
import { showEngine } from './engine.js'
import { fragment, replaceChanged } from './html.js'
import { t } from './lang.js'
import { Picker } from './picker.js'
import { released } from './press.js'
import { Link } from './socket.js'
import './toggle.js'

const $ = q => document.querySelector(q)
const part = (root, name) => root.querySelector(`[data-part="${name}"]`)
const live = ['summary', 'side', 'downloads', 'memory', 'list', 'setup']
const all = [...live, 'problem', 'details']

// swap fetches the page and replaces the parts of this one that differ. parts returns their names; it is called when the page has arrived.
async function swap(address, parts, options) {
  const response = await fetch(address, { ...options, headers: { Accept: 'text/html' } })
  const page = fragment(await response.text())
  if (!part(page, 'list')) {
    location.assign(options && !response.redirected ? route('/models') : response.url) // to the login page; the address of a form has no GET route
    return null
  }
  await released()
  const focused = document.activeElement
  const card = focused.closest('[data-download]')?.dataset.download
  const href = focused.getAttribute('href'), id = focused.id
  const unfolded = part(document, 'details').querySelector('details')?.open
  for (const name of parts()) replaceChanged(part(document, name), part(page, name))
  if (!focused.isConnected) {
    const again = card ? $(`[data-download="${CSS.escape(card)}"] :is(button, a)`) : href ? $(`[href="${CSS.escape(href)}"]`) : id && document.getElementById(id)
    ;(again || $('#models')).focus({ preventScroll: true })
  }
  const fold = part(document, 'details').querySelector('details')
  if (fold && unfolded) fold.open = true
  return response
}

function problem(text) {
  $('#problem').hidden = false
  $('#problem p').textContent = text
}
const unreachable = () => problem(t('The server cannot be reached just now. Nothing was changed.'))

// refresh updates the page. A call during an update causes one more update.
let refreshing = false, again = false
async function refresh() {
  again = refreshing
  if (refreshing) return
  refreshing = true
  const typing = () => part(document, 'setup').contains(document.activeElement) // must not lose what is typed, even during the fetch
  await swap(location.href, () => live.filter(name => name !== 'setup' || !typing())).catch(() => {})
  refreshing = false
  if (again) refresh()
}

// ---- user actions ----

addEventListener('click', async e => {
  const link = e.target.closest('a[data-swap]')
  if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button !== 0) return
  e.preventDefault()
  try {
    const response = await swap(link.href, () => all)
    if (!response) return
    history.pushState(null, '', link.href)
    const details = $('#details')
    if ('open' in details.dataset || link.closest('.insp')) (details.querySelector('[data-first]') ?? details).focus({ preventScroll: true })
  } catch { unreachable() }
})
addEventListener('popstate', () => swap(location.href, () => all).catch(unreachable))

addEventListener('submit', async e => {
  const form = e.target, button = e.submitter
  if (!form.action.includes('/models/')) return
  e.preventDefault()
  if (form.ariaBusy === 'true') return
  form.ariaBusy = 'true'
  const said = [...button.childNodes]
  if (button.dataset.wait) button.textContent = button.dataset.wait
  const find = form.closest('#find'), deleting = form.action.endsWith('/delete')
  const body = new URLSearchParams(new FormData(form, button))
  if (deleting) history.replaceState(null, '', route('/models')) // the model in the address is about to be deleted
  try {
    await swap(form.action, () => [...(deleting ? all : [...live, 'problem']), ...(find ? ['find'] : [])], { method: 'POST', body })
    if (find) ($('#found') ?? $('#find .fielderr') ?? $('#name')).scrollIntoView({ block: 'nearest' })
    $('#spoken').textContent = $('#found .verdict')?.innerText ?? ''
  } catch {
    unreachable()
  }
  if (form.isConnected) {
    button.replaceChildren(...said)
    form.ariaBusy = 'false'
  }
})

// ---- server events ----

const picker = new Picker({ chat: () => '', changed() {}, failed() {} })
// Choosing a model on this page starts a new chat.
picker.chosen = name => location.assign(name ? route(`/?${new URLSearchParams({ model: name })}`) : route('/'))

let shown = ''
function follow({ version, downloads }) {
  let stale = $('#model-menu').dataset.version !== String(version)
  for (const d of downloads) {
    const card = $(`[data-download="${CSS.escape(d.file)}"]`)
    if (card?.dataset.state !== d.state) {
      stale = true
      continue
    }
    for (const el of card.querySelectorAll('[data-field]')) if (el.textContent !== d[el.dataset.field]) el.textContent = d[el.dataset.field]
    card.querySelector('[data-share]')?.setAttribute('width', `${d.share}%`)
    card.querySelector('[role=progressbar]')?.setAttribute('aria-valuenow', Math.round(d.share))
  }
  if (stale) refresh()
}

new Link('', {
  frame(f) {
    if (f.type === 'engine') {
      showEngine(f.engine)
      picker.setEngine(f.engine)
      const state = `${f.engine.id} ${f.engine.state}`
      if (shown && shown !== state) refresh()
      shown = state
    }
    if (f.type === 'models') {
      follow(f.models)
      picker.news(f.models)
    }
  },
  back() { $('#connbar').hidden = true },
  trying() {},
  lost() { $('#connbar').hidden = false },
  refused() {},
})
