// The keys of the page: single keys, Escape, and what Enter does in the message.
import { composing, enterSends, explain, setEnterSends } from './enter.js'
import { recall, remember } from './storage.js'
import { copyAt } from './turns.js'

const $ = q => document.querySelector(q)

export class Keys {
  constructor(page) {
    this.page = page
    this.single = $('[data-single-keys]')
    this.single.checked = recall('m40.keys') !== 'off'
    this.single.addEventListener('change', () => remember('m40.keys', this.single.checked ? 'on' : 'off'))
    const { field, enterSends: enter } = page.composer, hint = $('[data-hint]')
    enter.checked = enterSends()
    explain(field, hint, enter.checked)
    enter.addEventListener('change', () => {
      setEnterSends(enter.checked)
      explain(field, hint, enter.checked)
    })
    this.actions = this.table()
    addEventListener('keydown', e => this.pressed(e))
  }

  // turn is the one to which keys apply: the focused one, else the last.
  get turn() { return this.page.chat.at(document.activeElement) ?? this.page.chat.end }

  table() {
    const { turns, tokens, drawers, panel } = this.page
    return {
      '/': () => {
        drawers.open('rail')
        $('#search').focus()
        $('#search').select()
      },
      '?': () => $('#help').showModal(),
      n: () => $('a[data-new]').click(),
      p: () => {
        drawers.open('sheet')
        panel.presets.open()
      },
      b: () => turns.openTree(),
      j: () => this.step(1),
      k: () => this.step(-1),
      r: () => this.turn && (this.turn.info ? turns.again(this.turn) : turns.answerTo(this.turn)),
      e: () => turns.edit(this.turn),
      f: () => turns.fork(this.turn),
      g: () => this.turn && turns.openSheet(this.turn),
      t: () => this.turn?.el.querySelector('[data-tokens]:not([hidden]):enabled') && tokens.reach(this.turn),
      '[': () => turns.showVersion(this.turn, -1),
      ']': () => turns.showVersion(this.turn, 1),
      c: () => {
        const { turn } = this
        if (turn?.text || turn?.reasoning) copyAt(turn.el.querySelector('[data-copy]'), turn.said ?? turn.text, turn.el.querySelector('.prose'))
      },
    }
  }

  step(by) {
    const { chat } = this.page, turns = [...chat.turns.values()], at = turns.indexOf(chat.at(document.activeElement))
    const next = at < 0 ? turns.at(by < 0 ? -1 : 0) : turns[at + by]
    next?.el.focus({ preventScroll: true })
    next?.el.scrollIntoView({ block: 'nearest' })
  }

  pressed(e) {
    if (composing(e)) return // the key is the input method's
    if (e.key === 'Escape' && !document.querySelector('dialog[open], :popover-open')) {
      this.escape(e)
      return
    }
    if (e.key === 'k' && (e.ctrlKey || e.metaKey) && !e.shiftKey && !e.altKey && !document.querySelector('dialog[open]')) {
      e.preventDefault()
      this.actions['/']()
      return
    }
    const typing = e.target.closest?.('input:not([type=range]):not([type=checkbox]), textarea, dialog, [popover]')
    if (typing || e.ctrlKey || e.metaKey || e.altKey || !this.single.checked) return
    const act = this.actions[e.key]
    if (!act) return
    e.preventDefault()
    act()
  }

  // escape ends one thing, the innermost.
  escape(e) {
    const { rail, drawers, composer: { field }, system, turns } = this.page
    if (rail.el.contains(document.activeElement) && rail.endSearch()) {
      e.preventDefault()
      return
    }
    if (drawers.shown) drawers.close()
    else if (document.activeElement === $('#search')) field.focus()
    else if (system.close()) return
    else if (turns.canStop) turns.stop()
    else if (document.activeElement === field && field.value === '') {
      field.blur() // then single keys work
      this.step(-1)
    }
  }
}
