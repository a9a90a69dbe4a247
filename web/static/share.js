// The dialog for creating and ending links to a chat. It shows the content of the page /c/ID/share,
// which works without scripts.
import { route } from './base.js'
import { copy } from './copy.js'
import { fragment, replaceChanged } from './html.js'
import { released } from './press.js'
import { reply } from './reply.js'
import { request } from './request.js'

const dialog = document.getElementById('share')
const updateInterval = 3000 // ms between updates of the number of readers
let address = '', timer = 0

// openShare opens the dialog. first, if given, is preselected as the first message of a new link.
export async function openShare(chat, first = '') {
  address = route(`/c/${chat}/share`)
  dialog.querySelector('.body').replaceChildren()
  dialog.showModal()
  const of = address
  show(of, await request(`${of}?part=1&first=${first}`, null, refused))
  clearInterval(timer)
  timer = setInterval(updateReaders, updateInterval)
}

// show shows the content of the page at an address, unless the dialog is of another chat by now.
function show(of, html) {
  if (html === null || of !== address) return
  dialog.querySelector('.body').replaceChildren(fragment(html))
  const link = dialog.querySelector('[data-copy-link]')
  if (link) link.focus()
}

function refused({ title, message }) {
  const box = document.createElement('p')
  box.className = 'note warn'
  box.setAttribute('role', 'alert')
  box.textContent = `${title}. ${message}`
  dialog.querySelector('.body').prepend(box)
}

// updateReaders updates the numbers of readers, and who writes or asks to.
async function updateReaders() {
  if (!dialog.open) return clearInterval(timer)
  const of = address, html = await request(`${of}?part=1`, null, () => {})
  await released()
  if (html === null || of !== address) return
  const now = [...fragment(html).querySelectorAll('.sharelink')], shown = [...dialog.querySelectorAll('.sharelink')]
  if (now.length !== shown.length) return
  shown.forEach((el, i) => {
    for (const q of ['[data-readers]', '.dot', '[data-writers]']) replaceChanged(el.querySelector(q), now[i].querySelector(q))
  })
}

dialog?.addEventListener('submit', async e => {
  if (e.target.method === 'dialog') return
  e.preventDefault()
  const form = e.target, of = address, { pathname } = new URL(form.action)
  if (form.ariaBusy === 'true') return
  form.ariaBusy = 'true'
  show(of, await request(`${pathname}?part=1`, new URLSearchParams(new FormData(form)), refused))
  form.ariaBusy = 'false'
})

document.addEventListener('click', async e => {
  const button = e.target.closest('[data-copy-link]')
  if (!button) return
  const field = button.parentElement.querySelector('input')
  reply(button, await copy(field.value, field))
})
