// The form of a JSON schema: a row for each field, with those of an object below it.
import { copyOf } from './html.js'
import { t } from './lang.js'
import { example, maxDepth, newField, parse, read, sample, textOf, Unshown, write, wrong } from './schema.js'

export { sample, textOf }

export class SchemaForm {
  // on: {wrote(text), failed(text)}
  constructor(el, on) {
    Object.assign(this, { el, on, text: null, rows: new Map() })
  }

  // show shows the schema of a text, and returns {example, error, unshown}: an answer as text, what is wrong, and what the form
  // cannot show.
  show(text) {
    try {
      if (text !== this.text) {
        this.root = read(parse(text))
        this.text = text
        this.draw()
      }
    } catch (error) {
      this.text = null
      return error instanceof Unshown ? { unshown: error.message } : { error: error.message }
    }
    return { example: textOf(example(this.root)) }
  }

  draw() {
    this.rows.clear()
    this.wrongField = undefined
    if (this.root.type === 'object') {
      this.el.replaceChildren(this.list(this.root, 0))
      return
    }
    const whole = copyOf('t-items')
    whole.querySelector('p').textContent = t('The answer is:')
    whole.querySelector('ul').append(this.row(this.root, null, 0))
    this.el.replaceChildren(whole)
  }

  // list returns the rows of the fields of an object.
  list(object, depth) {
    const list = copyOf('t-fields'), add = list.querySelector('[data-add-field]')
    list.querySelector('ul').append(...object.fields.map(f => this.row(f, object, depth)))
    add.addEventListener('click', () => {
      const field = newField()
      object.fields.push(field)
      this.draw()
      this.rows.get(field).querySelector('[data-name]').focus()
    })
    return list
  }

  // row returns the row of a field of object, or of what a list has: object is null then.
  row(field, object, depth) {
    const row = copyOf('t-field'), find = name => row.querySelector(name)
    this.rows.set(field, row)
    const name = find('[data-name]'), type = find('select'), required = find('[data-required]'), description = find('[data-description]'), values = find('[data-values]')
    name.value = field.name
    type.value = field.type
    required.checked = field.required
    description.value = field.description
    values.value = field.values.join(', ')
    values.hidden = field.type !== 'enum'
    name.hidden = find('[data-remove]').hidden = required.parentElement.hidden = !object
    for (const option of type.options) option.disabled = depth >= maxDepth && ['list', 'object'].includes(option.value)
    this.name(field)
    name.addEventListener('input', () => {
      field.name = name.value.trim()
      this.name(field)
      this.write()
    })
    description.addEventListener('input', () => {
      field.description = description.value.trim()
      this.write()
    })
    values.addEventListener('input', () => {
      field.values = values.value.split(',').map(v => v.trim()).filter(Boolean)
      this.write()
    })
    required.addEventListener('change', () => {
      field.required = required.checked
      this.write()
    })
    type.addEventListener('change', () => {
      field.type = type.value
      if (field.type === 'list') field.item ??= newField()
      this.draw()
      this.rows.get(field).querySelector('select').focus()
      this.write()
    })
    find('[data-remove]').addEventListener('click', () => {
      object.fields.splice(object.fields.indexOf(field), 1)
      this.draw()
      this.el.querySelector('[data-add-field]').focus()
      this.write()
    })
    if (field.type === 'object') row.append(this.list(field, depth + 1))
    if (field.type === 'list') {
      const of = copyOf('t-items')
      of.querySelector('ul').append(this.row(field.item, null, depth + 1))
      row.append(of)
    }
    return row
  }

  // name gives the controls of a row names for those who do not see where they are.
  name(field) {
    const row = this.rows.get(field), name = field.name || t('this field')
    for (const [control, label] of [['[data-name]', t('Name of the field')], ['select', t('Type of %s', name)], ['[data-description]', t('Description of %s', name)], ['[data-values]', t('Values of %s, with commas between them', name)], ['[data-remove]', t('Remove %s', name)]]) row.querySelector(control).setAttribute('aria-label', label)
  }

  // write writes the schema, unless a field is wrong.
  write() {
    if (!this.check()) return
    this.text = textOf(write(this.root))
    this.on.wrote(this.text)
  }

  check() {
    const found = wrong(this.root), row = found && this.rows.get(found.field)
    for (const el of this.el.querySelectorAll('[aria-invalid]')) el.removeAttribute('aria-invalid')
    this.wrongField = row?.querySelector(found.field.name ? '[data-values]:not([hidden]), [data-name]' : '[data-name]:not([hidden]), [data-values]')
    this.wrongField?.setAttribute('aria-invalid', 'true')
    this.on.failed(found?.text ?? '')
    return !found
  }
}
