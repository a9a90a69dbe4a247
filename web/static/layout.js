// Choices about the layout that this browser keeps: which columns are folded, and whether code wraps. early.js applies them
// before the first paint.
import { remember } from './storage.js'

const root = document.documentElement

// set keeps a choice; an empty value is the default.
function set(name, value) {
  if (value) root.dataset[name] = value
  else delete root.dataset[name]
  remember(`m40.${name}`, value)
}

const folds = document.querySelectorAll('[data-fold]')
function drawFolds() {
  for (const button of folds) button.setAttribute('aria-expanded', root.dataset[button.dataset.fold] !== 'folded')
}
for (const button of folds) button.addEventListener('click', () => {
  const { fold } = button.dataset
  set(fold, root.dataset[fold] === 'folded' ? '' : 'folded')
  drawFolds()
})
drawFolds()

// unfold shows a column.
export function unfold(name) {
  if (root.dataset[name] !== 'folded') return
  set(name, '')
  drawFolds()
}

document.addEventListener('click', e => {
  if (!e.target.closest('[data-wrap]')) return
  set('code', root.dataset.code === 'scroll' ? '' : 'scroll')
  for (const button of document.querySelectorAll('[data-wrap]')) button.setAttribute('aria-pressed', root.dataset.code !== 'scroll')
})
