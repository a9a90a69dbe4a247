// Wires the page: what a person does becomes a command, what the server says
// becomes elements.
import { Chat, showError } from './chat.js'
import { showEngine } from './engine.js'
import { count, percent } from './format.js'
import { Params } from './params.js'
import { Link } from './socket.js'

const $ = q => document.querySelector(q)
const $$ = q => document.querySelectorAll(q)
const remember = (key, value) => { try { localStorage.setItem(key, value) } catch { /* storage is off */ } }
const recall = key => { try { return localStorage.getItem(key) } catch { return null } }

const chat = new Chat()
const params = new Params()
const message = $('#message')
const system = $('#system')
const scroller = $('#scroll')
let engine = { context: 0 }
let offline = false

// ---- the connection ----

const link = new Link(document.body.dataset.chat, {
  frame(f) {
    const apply = {
      engine: () => { engine = f.engine; showEngine(engine) },
      snapshot: () => {
        chat.show(f.chat)
        if (!systemTouched) setSystem(f.chat.system)
        if (chat.last) params.used(chat.last.info.settings.seed)
        if (chat.last?.speed && !chat.running) params.speed(chat.last.speed)
      },
      resumed: () => {},
      events: () => f.events.forEach(e => { chat.apply(e); noticeEvent(e) }),
    }[f.type]
    apply?.()
    refresh()
    if (f.type === 'snapshot') toEnd()
  },
  back(again) {
    const bar = $('#connbar')
    if (!offline) {
      bar.hidden = true
      return
    }
    offline = false
    if (!again) {
      bar.hidden = true
      return
    }
    bar.classList.replace('warn', 'ok')
    $('[data-connbar]').textContent = 'Back. Nothing is missing.'
    $('[data-reconnect]').hidden = true
    setTimeout(() => { if (!offline) bar.hidden = true }, 2000)
  },
  trying() {},
  lost(seconds) {
    offline = true
    const bar = $('#connbar')
    bar.classList.replace('ok', 'warn')
    $('[data-connbar]').textContent = (chat.running ? 'Connection lost. The answer goes on being written on the server. ' : 'Connection lost. ') + `Trying again in ${seconds} s.`
    $('[data-reconnect]').hidden = false
    bar.hidden = false
  },
  refused(error) {
    fail(error)
    $('#connbar').hidden = true
    link.chat = ''
    history.replaceState(null, '', '/')
    chat.clear()
    refresh()
  },
})

$('[data-reconnect]').addEventListener('click', () => link.now())

// ---- what follows from an event ----

function noticeEvent(e) {
  if (e.type === 'message' && e.message.answer) params.used(e.message.answer.settings.seed)
  if (e.type === 'end' && chat.answers.get(e.id)?.speed) params.speed(chat.answers.get(e.id).speed)
}

function refresh() {
  const running = chat.running
  $('#empty').hidden = !chat.empty
  chat.el.hidden = chat.empty
  $('[data-stop]').hidden = !running
  $('[data-send]').hidden = Boolean(running)
  for (const el of $$('[data-clear]')) el.hidden = chat.empty || Boolean(running)
  const first = chat.questions.values().next().value
  const title = first ? short(first) : 'New chat'
  for (const el of $$('[data-title]')) el.textContent = title
  document.title = `${title} · m40-llm`
  showContext()
}

function short(text) {
  const line = text.trim().replace(/\s+/g, ' ')
  return line.length <= 80 ? line : `${line.slice(0, 79)}…`
}

function showContext() {
  const last = [...chat.answers.values()].findLast(a => a.info.prompt_tokens > 0)
  const all = engine.context || last?.info.context || 0
  const prompt = last?.info.prompt_tokens ?? 0, answer = last?.info.tokens ?? 0, used = prompt + answer
  $('[data-context]').textContent = all ? `${count(used)} / ${count(all)}` : '–'
  const share = all ? used / all : 0
  const bar = $('[data-context-bar]')
  bar.setAttribute('aria-label', all ? `Context: ${count(used)} of ${count(all)} tokens used` : 'Context: size not known yet')
  bar.classList.toggle('near', share > 0.8 && share < 1)
  bar.classList.toggle('full', share >= 1)
  $('[data-context-prompt]').setAttribute('width', percent(all ? prompt / all : 0))
  $('[data-context-answer]').setAttribute('x', percent(all ? prompt / all : 0))
  $('[data-context-answer]').setAttribute('width', percent(all ? answer / all : 0))
  $('[data-context-legend]').hidden = used === 0
  $('[data-context-prompt-n]').textContent = count(prompt)
  $('[data-context-answer-n]').textContent = count(answer)
  $('[data-cost]').textContent = all && used ? `${count(used)} of ${count(all)} tokens used` : ''
}

// ---- scrolling: follows the text unless the reader has scrolled up ----

let following = true
function toEnd() {
  following = true
  scroller.scrollTop = scroller.scrollHeight
}
scroller.addEventListener('scroll', () => {
  following = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 48
  $('#tobottom').hidden = following || chat.empty
}, { passive: true })
$('#tobottom').addEventListener('click', toEnd)
const sizes = new ResizeObserver(() => { if (following) toEnd() })
sizes.observe(scroller)
sizes.observe(chat.el)

// ---- commands ----

function fail(error) {
  const field = error.param && params.refuse(error.param, error.message)
  if (field) {
    openSheet(true)
    field.focus()
    return
  }
  showError($('#senderror'), error)
  $('#senderror').hidden = false
}

// usable returns the settings, or leads to the field that is wrong.
function usable() {
  const wrong = params.firstInvalid()
  if (wrong) {
    openSheet(true)
    wrong.focus()
    return null
  }
  $('#senderror').hidden = true
  return params.values()
}

async function send(text) {
  if (!text.trim()) {
    message.focus()
    return
  }
  if (chat.running) return
  const settings = usable()
  if (!settings) return
  const draft = message.value
  if (draft === text) message.value = ''
  try {
    const ack = await link.command('send', { text, system: system.value, settings })
    if (location.pathname !== `/c/${ack.chat}`) history.replaceState(null, '', `/c/${ack.chat}`)
    toEnd()
  } catch (error) {
    if (draft === text && !message.value) message.value = draft
    fail(error)
  }
}

function again() {
  if (chat.empty || chat.running) return
  const settings = usable()
  if (settings) link.command('regenerate', { system: system.value, settings }).then(toEnd, fail)
}

function stop() {
  const running = chat.running
  if (running) link.command('stop', { answer: running.id }).catch(error => { if (chat.running === running) fail(error) })
}

$('#composer').addEventListener('submit', e => {
  e.preventDefault()
  send(message.value)
})
message.addEventListener('keydown', e => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
    e.preventDefault()
    send(message.value)
  }
})
$('[data-stop]').addEventListener('click', stop)
for (const card of $$('[data-suggestion]')) card.addEventListener('click', () => send(card.dataset.suggestion))

async function copy(text, button) {
  const label = button.querySelector('span')
  const was = label?.textContent ?? button.title
  const say = text => { if (label) label.textContent = text; else button.title = text }
  try {
    await navigator.clipboard.writeText(text)
    say('Copied')
  } catch {
    say('Copying is not allowed here')
  }
  $('#spoken').textContent = label?.textContent ?? button.title
  setTimeout(() => say(was), 1500)
}

chat.el.addEventListener('click', e => {
  const button = e.target.closest('button')
  if (!button) return
  const answer = chat.answers.get(Number(button.closest('.answer')?.dataset.id))
  if (button.matches('[data-again]')) again()
  else if (button.matches('[data-copy]') && answer) copy(answer.text, button)
  else if (button.matches('[data-copy-code]')) copy(button.closest('.code').querySelector('code').textContent, button)
  else if (button.matches('[data-edit]')) {
    message.value = chat.lastQuestion ?? ''
    message.focus()
  }
})

// ---- system prompt ----

let systemTouched = false
const systemButton = $('[data-system]')
function showSystem(open) {
  $('#sysbox').hidden = !open
  systemButton.setAttribute('aria-expanded', open)
}
function setSystem(text) {
  system.value = text ?? ''
  systemButton.setAttribute('aria-pressed', system.value.trim() !== '')
}
systemButton.addEventListener('click', () => {
  showSystem($('#sysbox').hidden)
  if (!$('#sysbox').hidden) system.focus()
})
system.addEventListener('input', () => {
  systemTouched = true
  setSystem(system.value)
})

// ---- dialogs, sheet, theme ----

const help = $('#help')
const confirmClear = $('#confirm-clear')
for (const button of $$('[data-help]')) button.addEventListener('click', () => help.showModal())
for (const button of $$('[data-close]')) button.addEventListener('click', () => button.closest('dialog').close())
for (const button of $$('[data-clear]')) button.addEventListener('click', () => {
  openSheet(false)
  confirmClear.showModal()
})
$('[data-clear-confirmed]').addEventListener('click', () => {
  confirmClear.close()
  link.command('clear').then(() => message.focus(), fail)
})

const phone = matchMedia('(max-width: 760px)')
const sheetButton = $('[data-sheet-open]')
function openSheet(open) {
  const shown = open && phone.matches
  if (shown) document.body.dataset.sheet = 'open'
  else delete document.body.dataset.sheet
  $('#scrim').hidden = !shown
  sheetButton.setAttribute('aria-expanded', shown)
  for (const el of [$('.top'), $('.main')]) el.inert = shown
  if (shown) $('#inspector').focus()
}
sheetButton.addEventListener('click', () => openSheet(true))
$('[data-sheet-close]').addEventListener('click', () => {
  openSheet(false)
  sheetButton.focus()
})
$('#scrim').addEventListener('click', () => openSheet(false))
phone.addEventListener('change', () => openSheet(false))

for (const button of $$('[data-theme-toggle]')) button.addEventListener('click', () => {
  const root = document.documentElement
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
  root.dataset.theme = dark ? 'light' : 'dark'
  remember('m40.theme', root.dataset.theme)
})

// ---- keyboard ----

const singleKeys = $('[data-single-keys]')
singleKeys.checked = recall('m40.keys') !== 'off'
singleKeys.addEventListener('change', () => remember('m40.keys', singleKeys.checked ? 'on' : 'off'))

const keys = {
  '/': () => message.focus(),
  '?': () => help.showModal(),
  n: () => $('a[data-new]').click(),
  r: again,
  c: () => {
    const last = chat.last
    if (last?.text) copy(last.text, last.el.querySelector('[data-copy]'))
  },
}
addEventListener('keydown', e => {
  if (e.key === 'Escape' && !document.querySelector('dialog[open]')) {
    if (document.body.dataset.sheet) {
      openSheet(false)
      sheetButton.focus()
    } else if (!$('#sysbox').hidden && document.activeElement === system) {
      showSystem(false)
      systemButton.focus()
    } else stop()
    return
  }
  const typing = e.target.closest?.('input:not([type=range]):not([type=checkbox]), textarea, dialog')
  if (typing || e.ctrlKey || e.metaKey || e.altKey || !singleKeys.checked) return
  const act = keys[e.key]
  if (act) {
    e.preventDefault()
    act()
  }
})

refresh()
if (!phone.matches) message.focus()
