// The message that the user writes, with its files: counting it, sending it, and the context that it takes.
import { route } from './base.js'
import { Attachments } from './attach.js'
import { Counter, meter } from './context.js'
import { draftOf, keepDraft } from './drafts.js'
import { sends } from './enter.js'
import { t } from './lang.js'

const $ = q => document.querySelector(q)
const nothing = { text: '', pictures: [] }
const isEmpty = ({ text, pictures }) => !text.trim() && !pictures.length

export class Composer {
  constructor(page) {
    this.page = page
    this.field = $('#message')
    this.enterSends = $('[data-enter-sends]')
    this.uploading = false // a message is sent as soon as its pictures are uploaded
    this.counter = new Counter(() => page.refresh())
    this.attachments = new Attachments({
      changed: () => {
        this.recount()
        this.showSight()
      },
      failed: error => page.fail(error),
      pastes: () => !page.kind.raw,
      type: text => {
        this.field.setRangeText(text, this.field.selectionStart, this.field.selectionEnd, 'end')
        this.focus()
        this.set(this.field.value)
      },
    })
    $('#composer').addEventListener('submit', e => {
      e.preventDefault()
      this.send(this.field.value)
    })
    this.field.addEventListener('keydown', e => {
      if (!sends(e, this.enterSends.checked)) return
      e.preventDefault()
      this.send(this.field.value)
    })
    this.field.addEventListener('input', () => this.typed())
    $('#sight button').addEventListener('click', e => page.picker.chosen(e.target.dataset.model))
    $('[data-ask-sheet]').addEventListener('click', () => this.sendForSheet())
  }

  focus(options) { this.field.focus(options) }

  // restore shows what was written for this chat and not sent.
  restore() {
    const { page } = this
    if (!page.kind.temporary) this.field.value = draftOf(page.link.chat) || this.field.value
  }

  // draft returns the text of the message with its files, and the names of its pictures.
  get draft() { return { text: this.attachments.with(this.field.value), pictures: this.attachments.pictures.names } }

  // isTooLong reports whether the draft was counted and does not fit.
  get isTooLong() { return this.counter.of(this.draft)?.over }

  typed() {
    const { kind, link, writers } = this.page
    if (!kind.temporary) keepDraft(link.chat, this.field.value)
    if (this.field.value) writers.typed()
    this.recount()
  }

  set(text) {
    const { kind, link } = this.page
    this.field.value = text
    this.recount()
    if (!kind.temporary || !text) keepDraft(link.chat, text)
  }

  // recount requests the size of the next prompt, if it can be counted.
  recount() {
    const { link, picker, system, kind } = this.page
    this.counter.soon({ chat: link.chat, ...picker.counts ? this.draft : nothing, system: system.text, raw: kind.raw, model: link.chat ? '' : picker.name })
  }

  // showSight says before pictures are sent that the model cannot see them, and which one can.
  showSight() {
    const { picker, kind } = this.page, line = $('#sight'), { seer } = picker
    line.hidden = !this.attachments.pictures.list.length || picker.sees && !kind.raw
    if (line.hidden) return
    line.querySelector('span').textContent = kind.raw ? t('A raw chat has no place for pictures.')
      : seer ? t('%s cannot see pictures.', picker.who) : t('%s cannot see pictures. No model here can: one that does has a companion file (mmproj) beside it.', picker.who)
    const button = line.querySelector('button')
    button.hidden = kind.raw || !seer
    button.textContent = t('Use %s', seer)
    button.dataset.model = seer ?? ''
  }

  // showContext shows how much of the context the chat takes with the draft.
  showContext() {
    const { chat, picker, engine, speeds } = this.page, { draft } = this
    const last = chat.answers.findLast(a => a.info.prompt_tokens > 0)
    meter({
      context: picker.elsewhere ? picker.context : engine.context || last?.info.context || 0,
      prompt: last?.info.prompt_tokens ?? 0,
      answer: last?.info.tokens ?? 0,
      draft: isEmpty(draft) ? null : this.counter.last,
      over: this.isTooLong,
      first: chat.empty,
      reading: speeds.reading[picker.name || engine.id] ?? 0,
    })
    this.attachments.counted(this.counter.of(draft))
    $('[data-send]').disabled = $('[data-ask-sheet]').disabled = Boolean(this.isTooLong)
  }

  // send sends a message. unanswered: no answer begins. It resolves to the chat if the message was sent.
  // repeated: the server had lost its pictures, and has got them anew.
  async send(written, unanswered = false, repeated = false) {
    const { page, attachments, field } = this, { chat, link, kind } = page
    if (this.uploading) return
    if (attachments.busy) {
      this.uploading = true
      const { length } = attachments
      await attachments.ready()
      this.uploading = false
      if (attachments.length < length) return // one was refused, which the page says
    }
    const pictures = attachments.pictures.names
    if (isEmpty({ text: attachments.with(written), pictures })) {
      this.focus()
      return
    }
    if (chat.running || (this.isTooLong && written === field.value)) return
    const filled = await this.fill(written, repeated)
    const settings = filled && page.usable()
    if (!settings) return
    const text = attachments.with(filled.message)
    const before = field.value, from = link.chat, attach = attachments.take()
    if (before === written) {
      field.value = '' // the stored draft stays until the server has the message
      this.recount()
    }
    page.writers.sent()
    if (!matchMedia('(pointer: coarse)').matches) this.focus() // on touch devices the keyboard would cover the answer
    try {
      const fields = { text, system: page.system.text, settings, ...pictures.length && { pictures }, ...unanswered && { unanswered } }
      const ack = await link.command('send', link.chat ? fields : { ...fields, preset: page.panel.presets.id, temporary: kind.temporary, raw: kind.raw, model: page.picker.name })
      if (!from && !kind.temporary) filled.sent(ack.chat)
      if (ack.chat !== from) keepDraft(from, '')
      keepDraft(ack.chat, kind.temporary ? '' : field.value) // what was typed meanwhile
      if (location.pathname !== route(`/c/${ack.chat}`)) history.replaceState(null, '', route(`/c/${ack.chat}`))
      page.scroll.toEnd()
      return ack.chat
    } catch (error) {
      if (before === written && link.chat === from) this.set([before, field.value].filter(Boolean).join('\n\n'))
      if (link.chat === from) attach()
      if (error.code !== 'picture_gone' || repeated || link.chat !== from) {
        page.fail(error)
        return
      }
      await attachments.pictures.again() // the server was started since
      return this.send(before === written ? field.value : written, unanswered, true)
    }
  }

  // fill asks for the variables of a message and of the system prompt, which shows their values then; null: the user does not
  // want to send. A message that is sent once more has the same ones. A raw chat has none.
  async fill(message = '', repeated = false) {
    const { link, system, kind, variables } = this.page
    if (kind.raw) return { message, sent() {} }
    if (!repeated) this.filled = await variables.filled(link.chat, message, system.text)
    if (!this.filled) return null
    if (this.filled.system !== system.text) system.set(this.filled.system)
    if (link.chat && !kind.temporary) this.filled.sent(link.chat)
    return this.filled
  }

  // sendForSheet sends a message without an answer, and begins its contact sheet.
  async sendForSheet(text = this.field.value) {
    const id = await this.send(text, true)
    if (id) this.page.turns.openSheet(null, id, '&start')
  }
}
