// Variables: {{name}} in a message or a system prompt stands for a text that the page asks for before it sends. \{{name}} is
// {{name}} itself. The values come in literally: what looks like a variable in one of them is text.
import { enterSends, sends } from './enter.js'
import { copyOf } from './html.js'
import { recall, remember } from './storage.js'

const pattern = /(\\?)\{\{[ \t]*([\p{L}_][\p{L}\p{N}_ -]{0,39}?)[ \t]*\}\}/gu
const storage = 'm40.variables'
const mostChats = 40 // whose values this browser keeps
const longest = 2000 // characters of a value that it keeps

// namesIn returns the names of the variables of a text, each once.
export const namesIn = text => [...new Set([...text.matchAll(pattern)].filter(([, escape]) => !escape).map(([, , name]) => name))]

// fill returns a text with the values of its variables, a Map, in their places.
export const fill = (text, values) => text.replace(pattern, (whole, escape, name) => escape ? whole.slice(1) : values.get(name) ?? whole)

// kept returns what this browser keeps of each chat, the newest last: [id, {values, system}].
function kept() {
  try {
    const list = JSON.parse(recall(storage))
    return Array.isArray(list) ? list.filter(Array.isArray) : []
  } catch {
    return []
  }
}

export class Variables {
  constructor() {
    this.dialog = document.getElementById('variables')
    this.rows = this.dialog.querySelector('[data-values]')
    this.dialog.querySelector('form').addEventListener('submit', e => {
      e.preventDefault()
      this.dialog.close('filled')
    })
    this.dialog.querySelector('[data-literal]').addEventListener('click', () => this.dialog.close('literal'))
    this.rows.addEventListener('keydown', e => {
      if (!sends(e, enterSends())) return
      e.preventDefault()
      this.dialog.querySelector('form').requestSubmit()
    })
  }

  // filled resolves to {message, system, sent} with values in place of variables, or to null if the user does not want to
  // send. sent(chat) remembers the values for the chat, once it has the message.
  async filled(chat, message, system) {
    const known = kept().find(([id]) => id === chat)?.[1] ?? {}
    const isLiteral = system === this.literal || system === known.system // it was filled before, or is to be sent as it is
    const names = [...new Set([...namesIn(message), ...isLiteral ? [] : namesIn(system)])]
    const values = new Map(Object.entries(known.values ?? {}))
    if (names.length) {
      const how = await this.ask(names, values)
      if (how === 'literal') {
        this.literal = system
        return { message, system, sent() {} }
      }
      if (how !== 'filled') return null
      for (const field of this.rows.querySelectorAll('textarea')) values.set(field.name, field.value)
    }
    const out = { message: fill(message, values), system: isLiteral ? system : fill(system, values) }
    if (out.system !== system) this.literal = out.system
    const sent = id => {
      if (names.length || out.system !== system) this.keep(id, values, namesIn(out.system).length ? out.system : undefined)
    }
    return { ...out, sent }
  }

  // ask shows the form, and resolves to filled, literal, or '' if it was cancelled.
  ask(names, values) {
    this.rows.replaceChildren(...names.map(name => {
      const row = copyOf('t-variable'), field = row.querySelector('textarea')
      row.querySelector('span').textContent = name
      field.name = name
      field.value = values.get(name) ?? ''
      return row
    }))
    this.dialog.returnValue = ''
    this.dialog.showModal()
    const first = this.rows.querySelector('textarea')
    first.focus()
    first.select()
    return new Promise(resolve => this.dialog.addEventListener('close', () => resolve(this.dialog.returnValue), { once: true }))
  }

  keep(id, values, system) {
    const short = Object.fromEntries([...values].filter(([, value]) => value.length <= longest))
    remember(storage, JSON.stringify([...kept().filter(([other]) => other !== id), [id, { values: short, system }]].slice(-mostChats)))
  }
}
