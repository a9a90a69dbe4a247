// Enhances the presets page: compares as soon as another preset is selected, and warns before
// unsaved input is lost.
import { t } from './lang.js'
import './toggle.js'

const against = document.getElementById('against')
against.addEventListener('change', () => against.form.requestSubmit())

const form = document.querySelector('[data-edit]')
if (form) {
  const save = form.querySelector('[data-save]'), state = form.querySelector('[data-state]')
  const fields = () => new URLSearchParams(new FormData(form)).toString()
  const refused = Boolean(form.querySelector('.errbox')) // the form has input that the server did not store
  const stored = fields()
  const changed = () => refused || fields() !== stored
  let leaving = false
  const show = () => {
    save.disabled = !changed()
    state.textContent = changed() ? t('Not saved yet') : ''
  }
  form.addEventListener('input', show)
  form.addEventListener('submit', () => { leaving = true })
  addEventListener('beforeunload', e => { if (changed() && !leaving) e.preventDefault() })
  addEventListener('pageshow', () => {
    leaving = false
    show()
  })
}
