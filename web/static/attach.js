// Text files attached to a message. They become part of its text, each in a fence behind its name; the
// messages of the chat show such parts folded.
import { bytes } from './format.js'
import { copyOf } from './html.js'

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
    const field = $('#files'), form = $('#composer')
    $('[data-attach]').addEventListener('click', () => field.click())
    field.addEventListener('change', async () => {
      await this.add(field.files)
      field.value = '' // the same file can be chosen again
    })
    const holds = e => e.dataTransfer?.types.includes('Files')
    const over = on => form.toggleAttribute('data-drop', on)
    form.addEventListener('dragover', e => {
      if (!holds(e)) return
      e.preventDefault()
      over(true)
    })
    form.addEventListener('dragleave', e => { if (!form.contains(e.relatedTarget)) over(false) })
    // A file that is dropped beside the form would be opened in place of the page.
    document.addEventListener('dragover', e => {
      if (holds(e)) e.preventDefault()
    })
    document.addEventListener('drop', e => {
      if (!holds(e)) return
      e.preventDefault()
      over(false)
      if (!document.querySelector('dialog[open]')) this.add(e.dataTransfer.files)
    })
    $('#attached').addEventListener('click', e => {
      const button = e.target.closest('button')
      if (!button) return
      this.files.splice([...$('#attached').children].indexOf(button.closest('li')), 1)
      this.draw()
      $('#message').focus()
    })
  }

  async add(list) {
    if (this.refused) $('#senderror').hidden = true
    this.refused = false
    for (const file of list) {
      const reason = await this.refuse(file)
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
      return error instanceof TypeError ? 'is not a text file in UTF-8: the model reads text and code only.' : 'cannot be read. Choose it again.'
    }
  }

  draw() {
    const list = $('#attached')
    list.hidden = this.files.length === 0
    list.replaceChildren(...this.files.map(({ name, size }) => {
      const li = copyOf('t-attached')
      li.querySelector('[data-name]').textContent = name
      li.querySelector('[data-size]').textContent = bytes(size)
      li.querySelector('button').setAttribute('aria-label', `Remove ${name}`)
      return li
    }))
    this.on.changed()
  }

  // with returns the text of a message with the files.
  with(text) { return [text, ...this.files.map(written)].filter(s => s.trim()).join('\n\n') }

  // take removes the files, and returns what puts them back.
  take() {
    const { files } = this
    this.files = []
    this.draw()
    return () => {
      this.files = [...files, ...this.files]
      this.draw()
    }
  }
}
