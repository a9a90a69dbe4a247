// Files attached to a message. Text files, and the text of documents, become part of its text, each in a fence after its
// name; the messages of the chat show such parts folded. Pictures are sent alongside the text.
import { route } from './base.js'
import { bytes, count } from './format.js'
import { copyOf } from './html.js'
import { t, tn } from './lang.js'
import { Draft } from './pictures.js'
import { request } from './request.js'

const most = 160 << 10 // bytes of all files: a command to the server holds 256 KiB, in which some characters take two
const maxDocument = 32 << 20 // bytes of a PDF or DOCX file
const $ = q => document.querySelector(q)

// written returns a file as part of a message, in a fence that the file does not contain.
function written({ name, text, plain }) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(run => run[0].length))
  const fence = '`'.repeat(longest + 1)
  const language = plain ? '' : /\.([A-Za-z0-9+#]{1,12})$/.exec(name)?.[1] ?? ''
  return `File ${name}:\n${fence}${language}\n${text.replace(/\n?$/, '\n')}${fence}`
}

const pasted = 4000 // characters; a longer paste becomes a file

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

const nameOf = file => file.name.replace(/[\r\n]/g, ' ').slice(0, 200)

const facts = file => file.busy ? t('being read') : [file.pages && tn(file.pages, '%s page', '%s pages', count(file.pages)), bytes(file.size)].filter(Boolean).join(' · ')

// isDocument reports whether a file begins as PDF, DOCX and older Office files do.
async function isDocument(file) {
  const beginning = new TextDecoder('latin1').decode(await file.slice(0, 1024).arrayBuffer())
  return /^(PK\x03\x04|\xd0\xcf\x11\xe0)/.test(beginning) || beginning.includes('%PDF-')
}

// Attachments are the files of the draft. on: {changed(), failed(error), pastes(), type(text)}; pastes returns whether a
// long paste becomes a file, type puts a text into the message.
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
      if (e.target === $('#message')) this.pasteText(e)
      if (!files.length || types.includes('text/plain')) return // programs give text as a picture, too
      if (e.target.closest('dialog, input, textarea:not(#message)')) return
      e.preventDefault()
      this.add(files)
    })
    $('#attached').addEventListener('click', e => {
      const button = e.target.closest('button'), file = this.files.find(f => f.shown === button?.closest('li'))
      if (!file) return
      if (button.matches('[data-open]')) this.open(file)
      else this.remove(file)
    })
    const dialog = $('#file')
    dialog.querySelector('[data-drop-file]').addEventListener('click', () => {
      dialog.close()
      this.remove(this.opened)
    })
    dialog.querySelector('[data-inline]').addEventListener('click', () => {
      dialog.close()
      this.remove(this.opened)
      on.type(this.opened.text)
    })
  }

  remove(file) {
    this.files = this.files.filter(f => f !== file)
    this.draw()
    $('#message').focus()
  }

  // open shows the text of a file.
  open(file) {
    const dialog = $('#file')
    this.opened = file
    dialog.querySelector('h2').textContent = file.name
    dialog.querySelector('[data-about]').textContent = t('%s. This text is what the model gets.', facts(file))
    dialog.querySelector('pre').textContent = file.text
    dialog.showModal()
  }

  // pasteText makes a file of a long text that is pasted into the message.
  pasteText(e) {
    const text = e.clipboardData.getData('text/plain').replace(/\r\n?/g, '\n')
    if (text.length <= pasted || !this.on.pastes()) return
    const size = new Blob([text]).size
    if (this.used + size > most) return // as text it is counted, and what is too long is said
    e.preventDefault()
    this.forgive()
    let name = t('Pasted text')
    for (let n = 2; this.files.some(f => f.name === name); n++) name = t('Pasted text %s', n)
    this.files.push({ name, size, text, plain: true })
    this.draw()
  }

  get used() { return this.files.reduce((sum, f) => sum + f.size, 0) }

  // forgive hides the error about the file before.
  forgive() {
    if (this.refused) $('#senderror').hidden = true
    this.refused = false
  }

  async add(list) {
    this.forgive()
    for (const file of list) {
      const reason = this.pictures.takes(file) ? this.pictures.add(file) : await this.refuse(file)
      if (reason) {
        this.refused = true
        this.on.failed({ title: t('The file was not attached'), message: `${file.name} ${reason}` })
        break
      }
    }
    this.draw()
  }

  // refuse adds a file, or returns why it cannot.
  async refuse(file) {
    if (await isDocument(file).catch(() => false)) return this.read(file)
    if (this.used + file.size > most) return t('has %s: all files of a message can have %s. Attach the part that matters.', bytes(file.size), bytes(most))
    try {
      const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer())
      if (/[\0-\x08\x0e-\x1a\x1c-\x1f]/.test(text)) throw new TypeError('control characters')
      this.files.push({ name: nameOf(file), size: file.size, text: text.replace(/\r\n?/g, '\n') })
    } catch (error) {
      return error instanceof TypeError ? t('is neither a picture, a PDF or DOCX file, nor text in UTF-8. Pictures are PNG, JPEG, WebP, GIF or BMP.') : t('cannot be read. Choose it again.')
    }
  }

  // read has the server make a text of a document and adds that. What it refuses is said when it is known.
  async read(file) {
    if (file.size > maxDocument) return t('has %s: a document can have %s. Attach the part that matters.', bytes(file.size), bytes(maxDocument))
    const entry = { name: nameOf(file), size: 0, text: '', plain: true, busy: true }
    this.files.push(entry)
    const refused = message => {
      this.files = this.files.filter(f => f !== entry)
      this.refused = true
      this.on.failed({ title: t('%s was not attached', entry.name), message })
      this.draw()
    }
    entry.ready = request(route('/documents'), file, error => refused(error.message)).then(known => {
      if (!known || !this.files.includes(entry)) return
      const size = new Blob([known.text]).size
      if (this.used + size > most) {
        refused(t('%s has %s of text: all files of a message can have %s. Attach the part that matters.', entry.name, bytes(size), bytes(most)))
        return
      }
      Object.assign(entry, { size, text: known.text, pages: known.pages, busy: false })
      this.draw()
    })
  }

  get busy() { return this.pictures.busy || this.files.some(f => f.busy) }

  // ready resolves when all files are uploaded and read, or refused.
  async ready() { await Promise.all([this.pictures.ready(), ...this.files.map(f => f.ready)]) }

  get length() { return this.files.length + this.pictures.list.length }

  draw() {
    this.list()
    this.on.changed()
  }

  // counted shows how many tokens the pictures have, and would have in another detail: result is that of /count for the draft. While
  // there is none, details stay as they were.
  counted(result) {
    if (result && String(this.details) !== JSON.stringify(result.details)) {
      this.details = JSON.stringify(result.details)
      this.pictures.counted(result.details)
      this.pictures.showDetail()
    }
    if (String(this.tokens) === String(result?.pictures)) return
    this.tokens = result?.pictures
    this.list()
  }

  list() {
    const list = $('#attached')
    list.hidden = this.empty
    this.pictures.showDetail()
    list.replaceChildren(...this.pictures.items(this.tokens), ...this.files.map(file => {
      const li = file.shown = copyOf('t-attached')
      li.querySelector('[data-name]').textContent = file.name
      li.querySelector('[data-size]').textContent = facts(file)
      li.querySelector('[data-open]').disabled = Boolean(file.busy)
      if (file.busy) li.setAttribute('aria-busy', 'true')
      li.querySelector('[data-remove]').setAttribute('aria-label', t('Remove %s', file.name))
      return li
    }))
  }

  get empty() { return this.length === 0 }

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
