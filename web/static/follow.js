// The page of a shared chat, which shows the chat live. handlers/share/follow.go describes the
// frames of its stream.
import { copy } from './copy.js'
import { figure, tokenCount } from './format.js'
import { fragment } from './html.js'
import { t } from './lang.js'
import { announce, conclude } from './speak.js'
import './toggle.js'
import { showRunning, showWriting, writing } from './write.js'

const $ = q => document.querySelector(q)
const thread = $('#thread'), scroll = $('#scroll'), address = document.body.dataset.follow
const delays = [500, 1000, 2000, 4000, 8000]
const near = 60 // px from the end within which the page follows new text
const figures = $('[data-figures]'), button = $('[data-following]')
const atRest = $('[data-status]').textContent

let source, failures = 0, over = false, following = true, timer = 0

const turn = id => thread.querySelector(`[data-id="${id}"]`)

// status sets the line under the title.
function status(text, live) {
  $('[data-status]').textContent = text
  $('[data-dot]').classList.toggle('live', live)
}

function toEnd() {
  if (following) scroll.scrollTop = scroll.scrollHeight
}

function follow(on) {
  following = on
  button.setAttribute('aria-pressed', on)
  button.querySelector('span').textContent = on ? t('Following') : t('To the end')
  toEnd()
}

// tail returns the element for the incomplete last block of an answer.
function tail(el) {
  let node = el.querySelector('[data-tail]')
  if (!node) {
    node = document.createElement('p')
    node.className = 'plain tail'
    node.dataset.tail = ''
    el.querySelector('[data-prose]').append(node)
  }
  return node
}

function wait(el, text) {
  const line = el.querySelector('[data-wait]')
  if (!line) return
  line.textContent = text
  line.hidden = !text
}

const take = {
  turns({ id, html }) {
    if (!id) thread.replaceChildren(fragment(html))
    else {
      const after = turn(id)
      while (after?.nextElementSibling) after.nextElementSibling.remove()
      thread.append(fragment(html))
    }
    figures.textContent = ''
  },
  text({ id, text = '', thinking, tokens, rate }) {
    const el = turn(id)
    if (!el) return
    wait(el, thinking ? t('Thinking') : '')
    if (text) {
      const node = tail(el)
      if (!node.firstChild) node.append('')
      node.firstChild.appendData(text)
      announce(text)
    }
    figures.textContent = `${rate ? `${figure(rate.toFixed(1))} tok/s · ` : ''}${tokenCount(tokens)}`
  },
  block({ id, html, chars = 0 }) {
    const el = turn(id)
    if (!el) return
    const node = tail(el), rest = node.textContent.slice(chars).replace(/^\n+/, '')
    node.before(fragment(html))
    node.textContent = rest
  },
  turn({ id, html }) {
    const opened = turn(id)?.querySelector('.thought[open]')
    const el = fragment(html)
    if (opened) el.querySelector('.thought')?.toggleAttribute('open', true)
    turn(id)?.replaceWith(el)
    conclude(t('Answer finished.'))
    figures.textContent = ''
  },
  wait({ id, text }) {
    if (turn(id)) wait(turn(id), text)
  },
  title({ text }) {
    $('[data-title]').textContent = $('[data-title]').title = text
    document.title = `${text} · m40-llm`
  },
  keyboard({ keyboard }) { showWriting(keyboard) },
  over() {
    over = true
    showWriting({ state: '', accepts: false, name: '', typing: [], said: '' })
    source.close()
    status(t('This link has ended'), false)
    figures.closest('.vfoot').hidden = true
  },
}

function open() {
  clearTimeout(timer)
  source?.close()
  const mine = source = new EventSource(address)
  mine.onmessage = e => {
    failures = 0
    status(atRest, true)
    for (const f of JSON.parse(e.data)) take[f.type]?.(f)
    showRunning()
    toEnd()
  }
  mine.onerror = () => {
    if (mine !== source || over) return
    mine.close()
    lost()
  }
}

// lost reconnects after a delay. If the link has ended in the meantime, its page is gone.
async function lost() {
  status(t('Connection lost, trying again'), false)
  const answer = await fetch(location.pathname, { method: 'HEAD', cache: 'no-store' }).catch(() => null)
  if (answer?.status === 404) return take.over()
  timer = setTimeout(open, delays[Math.min(failures++, delays.length - 1)])
}

document.addEventListener('click', async e => {
  const button = e.target.closest('[data-copy-code]')
  if (!button) return
  const code = button.closest('.code').querySelector('code')
  button.querySelector('span').textContent = await copy(code.textContent, code)
})

if (address) {
  // A device that is turned scrolls too: who followed goes on to.
  let width = scroll.clientWidth, height = scroll.clientHeight
  const turned = () => {
    if (width === scroll.clientWidth && height === scroll.clientHeight) return false
    width = scroll.clientWidth
    height = scroll.clientHeight
    toEnd()
    return true
  }
  new ResizeObserver(turned).observe(scroll)
  scroll.addEventListener('scroll', () => {
    if (turned()) return
    const atEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < near
    if (atEnd !== following) follow(atEnd)
  })
  button.addEventListener('click', () => follow(true))
  // After a device has slept, its stream may be broken without an 'error' event.
  document.addEventListener('visibilitychange', () => {
    if (document.visibilityState === 'visible' && !over) open()
  })
  addEventListener('online', () => { if (!over) open() })
  writing(open)
  open()
}
