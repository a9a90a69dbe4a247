// What kind of chat this is. Temporary chats are not stored. Raw chats are sent to the model without a chat template.
import { t } from './lang.js'

const $ = q => document.querySelector(q)

export class Kind {
  // on: {isNew(), continues(): whether the model has no chat template, raw(): the chat became raw or a chat again,
  // chosen(): the user has chosen one of the two, focus()}
  constructor(on) {
    this.on = on
    this.temporary = document.body.dataset.chatTemporary === 'true'
    this.raw = false // also applies to the new chat of an empty page
    this.decided = false // the user decided whether the new chat is raw
    $('[data-temporary]').addEventListener('click', () => {
      this.setTemporary(!this.temporary)
      on.focus()
    })
    $('[data-raw]').addEventListener('click', () => {
      this.decided = true
      this.setRaw(!this.raw)
      on.chosen()
      on.focus()
    })
  }

  // show sets the kind of a chat that was opened.
  show({ temporary, raw }) {
    this.setTemporary(Boolean(temporary))
    this.setRaw(Boolean(raw))
  }

  // renew sets the kind of a new chat.
  renew(temporary) {
    this.decided = false
    this.show({ temporary })
  }

  setTemporary(on) {
    this.temporary = on
    $('[data-temporary]').setAttribute('aria-pressed', on)
    for (const el of document.querySelectorAll('[data-kept]')) el.textContent = on ? t('This chat will not be stored.') : el.dataset.kept ?? ''
  }

  setRaw(on) {
    this.raw = on
    $('[data-raw]').setAttribute('aria-pressed', on)
    this.on.raw()
  }

  // offer makes a new chat raw where its model has no chat template, until the user decides otherwise. It reports whether
  // it has changed the chat.
  offer() {
    if (!this.on.isNew() || this.decided || this.raw === this.on.continues()) return false
    this.setRaw(!this.raw)
    return true
  }

  // refresh shows what the page offers for the chat. empty: it is new.
  refresh(empty) {
    $('[data-temporary]').hidden = $('[data-raw]').hidden = !empty
    $('[data-fleeting]').hidden = empty || !this.temporary
    $('[data-raw-chip]').hidden = empty || !this.raw
    $('[data-system]').hidden = this.raw
  }
}
