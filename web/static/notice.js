// The notice between the messages and the message field: reports an action for some seconds and has a button, such
// as Undo. The messages make room for it, so that it covers nothing that can be pressed.
import { t } from './lang.js'

const time = 10_000 // ms
const bar = document.getElementById('undo')
const button = bar.querySelector('button')
let timer, act, after

// notify shows a notice. Its button calls does; if the notice disappears without a click, it calls
// then.
export function notify(text, { label = t('Undo'), does, then } = {}) {
  dismiss()
  bar.querySelector('span').textContent = text
  button.textContent = label
  button.hidden = !does
  act = does
  after = then
  bar.hidden = false
  timer = setTimeout(dismiss, time)
}

// withdraw dismisses the notice if its button calls does.
export function withdraw(does) {
  if (does && does === act) dismiss()
}

export function dismiss() {
  if (bar.hidden) return
  const then = after
  hide()
  then?.()
}

function hide() {
  clearTimeout(timer)
  bar.hidden = true
  after = null
}

bar.querySelector('[data-close-undo]').addEventListener('click', dismiss)
button.addEventListener('click', () => {
  hide()
  act()
})
