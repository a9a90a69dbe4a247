// The page of settings. The choices of this page are kept in the browser.
import { copy } from './copy.js'
import { enterSends } from './enter.js'
import { recall, remember } from './storage.js'

// applied are the choices that this page shows at once.
const applied = { 'm40.theme': 'theme', 'm40.text': 'text' }

for (const group of document.querySelectorAll('[data-keeps]')) {
  const key = group.dataset.keeps, buttons = [...group.querySelectorAll('button')]
  const show = value => { for (const button of buttons) button.setAttribute('aria-pressed', button.value === value) }
  show(key === 'm40.enter' ? enterSends() ? 'sends' : 'line' : recall(key) ?? '')
  group.addEventListener('click', e => {
    const button = e.target.closest('button')
    if (!button) return
    remember(key, button.value) // an empty one is the default
    show(button.value)
    const name = applied[key], { dataset } = document.documentElement
    if (name && button.value) dataset[name] = button.value
    else if (name) delete dataset[name]
  })
}

const singleKeys = document.querySelector('[data-single-keys]')
singleKeys.checked = recall('m40.keys') !== 'off'
singleKeys.addEventListener('change', () => remember('m40.keys', singleKeys.checked ? 'on' : 'off'))

document.addEventListener('click', async e => {
  const button = e.target.closest('[data-copy-field], [data-copy-example]')
  if (!button) return
  const shown = button.parentElement.querySelector('input, pre'), text = button.textContent
  button.textContent = await copy(shown.value ?? shown.textContent, shown)
  setTimeout(() => { button.textContent = text }, 2000)
})
