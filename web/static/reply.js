// Shows a short confirmation at a button, such as Copied.
const time = 1500 // ms
const region = document.getElementById('spoken')
const timers = new WeakMap()

export function reply(button, text) {
  clearTimeout(timers.get(button))
  button.setAttribute('data-said', text)
  region.textContent = text
  timers.set(button, setTimeout(() => button.removeAttribute('data-said'), time))
}
