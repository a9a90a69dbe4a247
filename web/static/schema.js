// JSON schemas as lists of fields, which a form can edit, and examples of what they describe. A field is
// {name, type, required, description, rest}, and with the type
//   enum    values  strings, of which it is one
//   list    item    a field without a name: what the list has
//   object  fields, closed  its fields, and whether it has no others
// rest are annotations that the form does not show and that stay.
import { t } from './lang.js'

export const types = ['string', 'number', 'integer', 'boolean', 'enum', 'list', 'object']
export const maxDepth = 5 // objects and lists in each other that the form shows

const annotations = ['$schema', '$id', '$comment', 'title', 'default', 'examples', 'deprecated']
const isObject = value => value !== null && typeof value === 'object' && !Array.isArray(value)

export const newField = (name = '', type = 'string') => ({ name, type, required: true, description: '', values: [], item: null, fields: [], closed: true, rest: {} })

// Unshown is the error of a schema that is valid and has something that the form does not show.
export class Unshown extends Error {}

const token = /\s*(?:([{}[\],:])|("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*")|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)/y

// fault returns where a text that is not JSON goes wrong, and what should be there. Browsers do not say it in one way.
function fault(text) {
  let at = 0
  const next = () => {
    token.lastIndex = at
    const found = token.exec(text)
    return found && { end: token.lastIndex, sign: found[1], isText: Boolean(found[2]) }
  }
  const take = (fits, wanted) => {
    const found = next()
    if (!found || !fits(found)) {
      at += /^\s*/.exec(text.slice(at))[0].length
      throw wanted
    }
    at = found.end
    return found
  }
  const sign = (signs, wanted) => take(found => found.sign && signs.includes(found.sign), wanted).sign
  const value = () => {
    const first = take(found => !found.sign || '{['.includes(found.sign), t('a value'))
    const close = { '{': '}', '[': ']' }[first.sign]
    if (!close) return
    if (next()?.sign === close) {
      at = next().end
      return
    }
    do {
      if (close === '}') {
        take(found => found.isText, t('a name in double quotes'))
        sign(':', t('a colon'))
      }
      value()
    } while (sign(`,${close}`, t('a comma or %s', close)) === ',')
  }
  try {
    value()
    return { at, wanted: t('nothing more') }
  } catch (wanted) {
    return { at, wanted }
  }
}

// parse returns the value of a schema's text. The error of a text that is not JSON names the line and the column.
export function parse(text) {
  try {
    return JSON.parse(text)
  } catch {
    const { at, wanted } = fault(text), before = text.slice(0, at).split('\n')
    throw new Error(t('Line %s, column %s: there should be %s here', before.length, before.at(-1).length + 1, wanted))
  }
}

// read returns the field of a schema: that of the whole answer, which has no name. It throws Unshown.
export function read(schema, path = '#', depth = 0) {
  const cannot = what => { throw new Unshown(t('%s at %s', what, path)) }
  if (!isObject(schema)) cannot(JSON.stringify(schema))
  if (depth > maxDepth) cannot(t('more than %s levels', maxDepth))
  const { type, description = '', enum: values, properties, required, additionalProperties: more, items, ...others } = schema
  const field = newField()
  for (const [key, value] of Object.entries(others)) {
    if (!annotations.includes(key)) cannot(key)
    field.rest[key] = value
  }
  if (typeof description !== 'string') cannot('description')
  field.description = description
  const own = { object: { properties, required, additionalProperties: more }, array: { items } }
  for (const [of, keys] of Object.entries(own)) {
    const misplaced = Object.entries(keys).find(([, value]) => value !== undefined)
    if (of !== type && misplaced) cannot(misplaced[0])
  }
  if (values !== undefined) {
    if (type !== undefined && type !== 'string' || !Array.isArray(values) || !values.length || !values.every(v => typeof v === 'string' && v.trim() === v && v !== '' && !v.includes(','))) cannot('enum')
    return { ...field, type: 'enum', values }
  }
  if (type === 'array') {
    if (items === undefined) cannot(t('an array without items'))
    return { ...field, type: 'list', item: read(items, `${path}/items`, depth + 1) }
  }
  if (type === 'object') {
    if (more !== undefined && typeof more !== 'boolean') cannot('additionalProperties')
    const names = required ?? []
    if (!isObject(properties ?? {}) || !Array.isArray(names) || names.some(n => typeof n !== 'string' || !Object.hasOwn(properties ?? {}, n))) cannot('required')
    const fields = Object.entries(properties ?? {}).map(([name, value]) => ({ ...read(value, `${path}/properties/${name}`, depth + 1), name, required: names.includes(name) }))
    return { ...field, type: 'object', fields, closed: more === false }
  }
  if (!types.includes(type)) cannot(type === undefined ? t('no type') : t('the type %s', JSON.stringify(type)))
  return { ...field, type }
}

// write returns the schema of a field.
export function write({ type, description, values, item, fields, closed, rest }) {
  const about = { ...rest, ...description && { description } }
  if (type === 'enum') return { ...about, type: 'string', enum: values }
  if (type === 'list') return { ...about, type: 'array', items: write(item) }
  if (type !== 'object') return { ...about, type }
  const required = fields.filter(f => f.required).map(f => f.name)
  return {
    ...about, type: 'object',
    properties: Object.fromEntries(fields.map(f => [f.name, write(f)])),
    ...required.length && { required },
    ...closed && { additionalProperties: false },
  }
}

// wrong returns what is wrong with a field and where, as {field, text}; null if nothing is.
export function wrong(field) {
  if (field.type === 'enum' && !field.values.length) return { field, text: t('%s needs at least one value', field.name || t('The list')) }
  if (field.type === 'enum' && new Set(field.values).size < field.values.length) return { field, text: t('%s has a value twice', field.name || t('The list')) }
  if (field.type === 'list') return wrong(field.item)
  if (field.type !== 'object') return null
  for (const [i, f] of field.fields.entries()) {
    if (!f.name) return { field: f, text: field.name ? t('Field %s of %s needs a name', i + 1, field.name) : t('Field %s needs a name', i + 1) }
    if (field.fields.findIndex(other => other.name === f.name) < i) return { field: f, text: field.name ? t('There are two fields called %s in %s', f.name, field.name) : t('There are two fields called %s', f.name) }
    const found = wrong(f)
    if (found) return found
  }
  return null
}

// example returns a value that is valid by the schema of a field.
export function example({ type, values, item, fields }) {
  switch (type) {
    case 'string': return '…'
    case 'number': return 1.5
    case 'integer': return 1
    case 'boolean': return true
    case 'enum': return values[0]
    case 'list': return [example(item)]
  }
  return Object.fromEntries(fields.map(f => [f.name, example(f)]))
}

// sample is a schema to begin with.
export const sample = {
  type: 'object',
  properties: {
    title: { type: 'string' },
    mood: { type: 'string', enum: ['good', 'bad', 'mixed'] },
    points: { type: 'array', items: { type: 'string' } },
  },
  required: ['title', 'mood', 'points'],
  additionalProperties: false,
}

export const textOf = schema => JSON.stringify(schema, null, 2)
