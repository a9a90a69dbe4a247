// Files attached to a message. Text files become part of its text, each in a fence behind its name; the
// messages of the chat show such parts folded. Pictures are sent beside the text.
import { bytes } from './format.js'
import { copyOf } from './html.js'
import { Draft } from './pictures.js'

const most = 160 << 10 // bytes of all files: a command to the server holds 256 KiB, in which some characters take two
const $ = q => document.querySelector(q)

// written returns a file as part of a message, in a fence that the file does not contain.
function written({ name, text }) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(run => run[0].length))
  const fence = '`'.repeat(longest + 1)
  const language = /\.([A-Za-z0-9+#]{1,12})$/.exec(name)?.[1] ?? ''
  return `File ${name}:\n${fence}${language}\n${text.replace(/\n?$/, '\n')}${fence}`
}

const part = /^File ([^\n]{1,200}):\n(`{3,})[^`\n]*\n([\s\S]*?)^\2$/gm

// show writes the text of a message into an element, with its files folded.
export function show(el, text) {
  let from = 0
  el.replaceChildren()
  for (const { 0: all, 1: name, 3: content, index } of text.matchAll(part)) {
    el.append(text.slice(from, index).replace(from ? /^\n+|\n+$/g : /\n+$/, from ? '' : '\n'))
    const file = copyOf('t-file')
    file.querySelector('[data-name]').textContent = name
    file.querySelector('[data-size]').textContent = bytes(new Blob([content]).size)
    file.querySelector('pre').textContent = content
    file.querySelector('pre').setAttribute('aria-label', name)
    el.append(file)
    from = index + all.length
  }
  el.append(from ? text.slice(from).replace(/^\n+/, '') : text)
}

// Attachments are the files of the draft. on: {changed(), failed(error)}
export class Attachments {
  constructor(on) {
    this.on = on
    this.files = []
    this.pictures = new Draft({
      changed: () => this.draw(),
      moved: () => this.list(),
      failed: error => {
        this.refused = true
        on.failed(error)
      },
    })
    const form = $('#composer')
    for (const [button, field] of [['[data-attach]', $('#files')], ['[data-camera]', $('#camera')]]) {
      $(button).addEventListener('click', () => field.click())
      field.addEventListener('change', async () => {
        await this.add([...field.files])
        field.value = '' // the same file can be chosen again
      })
    }
    // Files can be dropped anywhere on the page; the form shows where they go.
    const holds = e => e.dataTransfer?.types.includes('Files')
    const over = on => form.toggleAttribute('data-drop', on)
    document.addEventListener('dragover', e => {
      if (!holds(e)) return
      e.preventDefault()
      over(!document.querySelector('dialog[open]'))
    })
    document.addEventListener('dragleave', e => { if (!e.relatedTarget) over(false) })
    document.addEventListener('drop', e => {
      if (!holds(e)) return
      e.preventDefault()
      over(false)
      if (!document.querySelector('dialog[open]')) this.add(e.dataTransfer.files)
    })
    document.addEventListener('paste', e => {
      const { files, types } = e.clipboardData
      if (!files.length || types.includes('text/plain')) return // programs give text as a picture, too
      if (e.target.closest('dialog, input, textarea:not(#message)')) return
      e.preventDefault()
      this.add(files)
    })
    $('#attached').addEventListener('click', e => {
      const at = this.files.findIndex(f => f.shown === e.target.closest('button')?.closest('li'))
      if (at < 0) return
      this.files.splice(at, 1)
      this.draw()
      $('#message').focus()
    })
  }

  async add(list) {
    if (this.refused) $('#senderror').hidden = true
    this.refused = false
    for (const file of list) {
      const reason = this.pictures.takes(file) ? this.pictures.add(file) : await this.refuse(file)
      if (reason) {
        this.refused = true
        this.on.failed({ title: 'The file was not attached', message: `${file.name} ${reason}` })
        break
      }
    }
    this.draw()
  }

  // refuse adds a file, or returns why it cannot.
  async refuse(file) {
    const used = this.files.reduce((sum, f) => sum + f.size, 0)
    if (used + file.size > most) return `has ${bytes(file.size)}: all files of a message can have ${bytes(most)}. Attach the part that matters.`
    try {
      const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer())
      if (/[\0-\x08\x0e-\x1a\x1c-\x1f]/.test(text)) throw new TypeError('control characters')
      this.files.push({ name: file.name.replace(/[\r\n]/g, ' ').slice(0, 200), size: file.size, text: text.replace(/\r\n?/g, '\n') })
    } catch (error) {
      return error instanceof TypeError ? 'is neither a picture nor a text file in UTF-8. Pictures are PNG, JPEG, WebP, GIF or BMP.' : 'cannot be read. Choose it again.'
    }
  }

  draw() {
    this.list()
    this.on.changed()
  }

  // counted shows how many tokens the pictures have.
  counted(tokens) {
    if (String(this.tokens) === String(tokens)) return
    this.tokens = tokens
    this.list()
  }

  list() {
    const list = $('#attached')
    list.hidden = this.empty
    list.replaceChildren(...this.pictures.items(this.tokens), ...this.files.map(file => {
      const li = file.shown = copyOf('t-attached')
      li.querySelector('[data-name]').textContent = file.name
      li.querySelector('[data-size]').textContent = bytes(file.size)
      li.querySelector('button').setAttribute('aria-label', `Remove ${file.name}`)
      return li
    }))
  }

  get empty() { return this.files.length + this.pictures.list.length === 0 }

  // with returns the text of a message with the files.
  with(text) { return [text, ...this.files.map(written)].filter(s => s.trim()).join('\n\n') }

  // take removes the files, and returns what puts them back.
  take() {
    const { files } = this, put = this.pictures.take()
    this.files = []
    this.tokens = undefined
    this.draw()
    return () => {
      this.files = [...files, ...this.files]
      put()
      this.draw()
    }
  }
}
