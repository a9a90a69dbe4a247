// The line at the foot of the page that says for a while what was done, with a button
// that does something about it. It has a row of its own, so that it covers nothing.
const time = 10_000 // ms
const bar = document.getElementById('undo')
const button = bar.querySelector('button')
let timer, act, after

// notify shows a line. act is what its button does; then is called when the line has gone
// and the button was not pressed.
export function notify(text, { label = 'Undo', does, then } = {}) {
  dismiss()
  bar.querySelector('span').textContent = text
  button.textContent = label
  button.hidden = !does
  act = does
  after = then
  bar.hidden = false
  timer = setTimeout(dismiss, time)
}

// withdraw takes the line away if does is what its button does.
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

button.addEventListener('click', () => {
  hide()
  act()
})
