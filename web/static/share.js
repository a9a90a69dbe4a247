// The dialog in which links to a chat are made and ended. Its content is that of the page
// /c/ID/share, which does the same without scripts.
import { fragment } from './html.js'
import { reply } from './reply.js'
import { request } from './request.js'

const dialog = document.getElementById('share')
const often = 3000 // ms between two looks at who reads
let address = '', timer = 0

// openShare shows the links to a chat. A new link begins with message first, if one is given.
export async function openShare(chat, first = '') {
  address = `/c/${chat}/share`
  dialog.querySelector('.body').replaceChildren()
  dialog.showModal()
  await show(await request(`${address}?part=1&first=${first}`, null, refused))
  clearInterval(timer)
  timer = setInterval(look, often)
}

function show(html) {
  if (html === null) return
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

// look brings up to date how many read.
async function look() {
  if (!dialog.open) return clearInterval(timer)
  const html = await request(`${address}?part=1`, null, () => {})
  if (html === null) return
  const now = [...fragment(html).querySelectorAll('.sharelink')], shown = [...dialog.querySelectorAll('.sharelink')]
  if (now.length !== shown.length) return
  shown.forEach((el, i) => {
    for (const q of ['[data-readers]', '.dot']) {
      const is = now[i].querySelector(q), was = el.querySelector(q)
      if (was.outerHTML !== is.outerHTML) was.replaceWith(is)
    }
  })
}

dialog?.addEventListener('submit', async e => {
  if (e.target.method === 'dialog') return
  e.preventDefault()
  const { pathname } = new URL(e.target.action)
  show(await request(`${pathname}?part=1`, new URLSearchParams(new FormData(e.target)), refused))
})

document.addEventListener('click', async e => {
  const button = e.target.closest('[data-copy-link]')
  if (!button) return
  const field = button.parentElement.querySelector('input')
  // Where the page is plain http of another machine, browsers keep the clipboard to themselves.
  const said = await navigator.clipboard?.writeText(field.value).then(() => 'Copied', () => '')
  if (!said) field.select()
  reply(button, said || 'Selected: press Ctrl C')
})
