// The inline editor of a message. Saving creates a new version and keeps the old one.
import { composing, sends } from './enter.js'
import { copyOf } from './html.js'
import { t } from './lang.js'

// edit opens an editor in place of a turn's text and resolves to {text, reasoning, go}, or to null
// if the user cancels. go is false if the user saves without requesting an answer. The arguments
// text and reasoning are edits that could not be saved, and replace the content of the turn.
export function edit(turn, { label, note, submit, alternative, text, reasoning }) {
  turn.el.querySelector('.editor')?.querySelector('textarea').focus()
  if (turn.el.querySelector('.editor')) return Promise.resolve(null)
  const form = copyOf('t-editor')
  const area = form.querySelector('textarea')
  const other = form.querySelector('[data-alternative]')
  area.value = text ?? turn.text
  const thought = area.cloneNode()
  thought.value = reasoning ?? turn.reasoning
  thought.setAttribute('aria-label', t('What the model thought before'))
  if (thought.value) area.before(thought)
  area.setAttribute('aria-label', label)
  form.querySelector('p').textContent = note
  form.querySelector('[type=submit]').textContent = submit
  other.textContent = alternative ?? ''
  other.hidden = !alternative
  turn.el.classList.add('editing')
  turn.el.querySelector('.prose').after(form)
  area.focus({ preventScroll: true })
  turn.el.scrollIntoView({ block: turn.el.offsetHeight < turn.el.closest('#scroll').clientHeight ? 'nearest' : 'start' })
  return new Promise(resolve => {
    const close = choice => {
      form.remove()
      turn.el.classList.remove('editing')
      if (!choice) turn.el.querySelector('[data-edit]')?.focus()
      resolve(choice)
    }
    const choose = go => {
      if ((thought.value + area.value).trim() === '' && !turn.pictures?.length) area.focus()
      else close({ text: area.value, reasoning: thought.value, go })
    }
    form.addEventListener('submit', e => {
      e.preventDefault()
      choose(true)
    })
    other.addEventListener('click', () => choose(false))
    form.querySelector('[data-cancel]').addEventListener('click', () => close(null))
    form.addEventListener('keydown', e => {
      if (composing(e)) return
      if (e.key === 'Escape') {
        e.stopPropagation()
        close(null)
      } else if (sends(e, false)) {
        e.preventDefault()
        choose(true)
      }
    })
  })
}
