// What a reader of a shared chat does besides reading: asks to write, and writes. The stream stays
// read-only; everything is sent by POST. handlers/share/keyboard.go describes the requests.
import { enterSends, explain, sends } from './enter.js'
import { t } from './lang.js'
import { isFirst } from './press.js'
import { request } from './request.js'
import { Typing, showTyping } from './typing.js'

const $ = q => document.querySelector(q)
const address = document.body.dataset.write
const dialog = $('#ask'), composer = $('#composer'), message = $('#message'), thread = $('#thread')

let held = { state: '', accepts: false, name: '', typing: [], said: '' }
let reopen = () => {}
let sending = false

// writing connects this page with its stream: again requests a new one, which knows this browser.
export function writing(again) {
  reopen = again
}

const post = (fields, refused) => request(address, fields, refused)
const typing = new Typing(() => post({ do: 'typing' }, () => {}))

// showWriting shows the state of the request to write.
export function showWriting(now) {
  const before = held.state
  held = now
  const writes = now.state === 'writes'
  $('[data-ask-write]').hidden = writes || now.state === 'asks' || !now.accepts
  $('[data-ask-write] span').textContent = now.said ? t('Ask again') : t('Ask to write')
  $('#asked').hidden = !now.said
  $('[data-asked]').textContent = now.said
  $('#asked [data-leave]').hidden = now.state !== 'asks'
  composer.hidden = !writes
  $('[data-own-name]').textContent = now.name
  showTyping(writes ? now.typing : [])
  if (writes && before !== 'writes') {
    problem()
    if (!matchMedia('(pointer: coarse)').matches) message.focus()
  }
  showRunning()
}

// showRunning shows which of Send and Stop fits: an answer to another's message cannot be stopped here.
export function showRunning() {
  const running = thread.querySelector('[aria-busy]')
  const own = running?.previousElementSibling?.dataset.author === held.name && held.name !== ''
  $('[data-stop]').hidden = !own
  $('[data-send]').hidden = own
  $('[data-send]').disabled = Boolean(running) || sending
}

function problem(error) {
  const box = $('#writeerror')
  box.hidden = !error
  if (!error) return
  box.querySelector('[data-title-of-error]').textContent = error.title
  box.querySelector('[data-error]').textContent = error.message
}

async function send() {
  const text = message.value
  if (!text.trim() || sending || $('[data-send]').disabled) return
  sending = true
  showRunning()
  problem()
  typing.sent()
  const sent = await post({ do: 'send', text }, problem)
  if (sent && message.value.startsWith(text)) message.value = message.value.slice(text.length).trimStart() // what was typed meanwhile
  sending = false
  showRunning()
}

if (address) {
  $('[data-ask-write]').addEventListener('click', () => {
    $('#e-name').textContent = ''
    dialog.showModal()
    $('#name').focus()
  })
  dialog.querySelector('[data-close]').addEventListener('click', () => dialog.close())
  dialog.addEventListener('submit', async e => {
    e.preventDefault()
    const asked = await post({ do: 'ask', name: $('#name').value }, error => { $('#e-name').textContent = error.message })
    if (!asked) return
    dialog.close()
    reopen()
  })
  composer.addEventListener('submit', e => {
    e.preventDefault()
    send()
  })
  explain(message, $('[data-hint]'), enterSends())
  message.addEventListener('keydown', e => {
    if (!sends(e, enterSends())) return
    e.preventDefault()
    send()
  })
  message.addEventListener('input', () => {
    if (message.value) typing.typed()
  })
  const refuse = () => problem({ title: t('The file was not attached'), message: t('Only the owner of a shared chat can attach files.') })
  for (const kind of ['dragover', 'drop']) document.addEventListener(kind, e => {
    if (composer.hidden || !e.dataTransfer?.types.includes('Files')) return
    e.preventDefault() // the browser would open the file, and what is written here would be gone
    if (kind === 'drop') refuse()
  })
  message.addEventListener('paste', e => {
    const { files, types } = e.clipboardData
    if (files.length && !types.includes('text/plain')) refuse() // programs give text as a picture, too
  })
  $('[data-stop]').addEventListener('click', e => { if (isFirst(e)) post({ do: 'stop' }, problem) })
  for (const button of document.querySelectorAll('[data-leave]')) button.addEventListener('click', () => post({ do: 'leave' }, problem))
}
