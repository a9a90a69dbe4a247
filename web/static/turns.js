// What the user does with the messages of the chat: answering again, continuing, editing, forking, other versions.
import { route } from './base.js'
import { raised } from './chat.js'
import { copy } from './copy.js'
import { deleteMenu, deleteSoon, settleDeletion } from './delete.js'
import { edit } from './edit.js'
import { sends } from './enter.js'
import { t } from './lang.js'
import { nameOf } from './pictures.js'
import { isFirst } from './press.js'
import { answerMenu } from './receipt.js'
import { reply } from './reply.js'
import { openShare } from './share.js'

const $ = q => document.querySelector(q)

// copyAt copies a text, and says at a button that it did.
export const copyAt = async (button, text, shown) => reply(button, await copy(text, shown))

export class Turns {
  constructor(page) {
    this.page = page
    this.turning = null // the version that was requested and has not arrived
    this.continues = false // continue the answer once its edited text is saved
    this.forking = false
    addEventListener('pagehide', () => { this.forking = false }) // the page may come back as it was
    const { el } = page.chat
    el.addEventListener('click', e => this.clicked(e.target.closest('button')))
    el.addEventListener('submit', e => {
      if (!e.target.matches('.giving')) return
      e.preventDefault()
      this.giveResult(e.target)
    })
    el.addEventListener('keydown', e => {
      if (sends(e, false) && e.target.matches('.giving textarea')) e.target.form.requestSubmit()
    })
    $('[data-stop]').addEventListener('click', e => { if (isFirst(e)) this.stop() })
    $('[data-stop-thinking]').addEventListener('click', e => { if (isFirst(e)) this.stopThinking() })
    $('[data-tree]').addEventListener('click', () => this.openTree())
    this.menus()
  }

  menus() {
    const { chat, link, panel, composer, fail } = this.page, at = el => chat.at(el)
    const askToDelete = deleteMenu({
      at,
      after(turn) {
        const turns = [...chat.turns.keys()]
        return turns.length - 1 - turns.indexOf(turn.id)
      },
      remove: turn => {
        this.page.scroll.stay()
        settleDeletion()
        const id = link.chat, turns = [...chat.turns.values()]
        const gone = turn.versions.count === 1 ? [turn] : turns.slice(turns.indexOf(turn))
        deleteSoon(gone, () => link.command('delete', { message: turn.id }).catch(error => {
          if (link.chat !== id) return // the command was sent before the chat was left
          for (const { el } of gone) el.hidden = false
          fail(error)
        }), composer)
      },
    })
    answerMenu({
      at,
      chat: () => link.chat,
      busy: () => Boolean(chat.running) || chat.replay?.state === 'running',
      last: answer => answer === chat.end && !chat.cut,
      past: answer => this.ask('continue', { answer: answer.id, past_end: true }),
      use: answer => panel.use(answer.info.settings),
      edit: turn => this.edit(turn),
      fork: turn => this.fork(turn),
      remove: askToDelete,
      tree: () => this.openTree(),
      sheet: turn => this.openSheet(turn),
      blind: turn => this.openBlind(turn),
      share: answer => openShare(link.chat, answer.id),
      replay: answer => link.command('replay', { answer: answer.id }).catch(fail),
      failed: fail,
    })
  }

  clicked(button) {
    const { chat, tokens, judge, panel, picker, system } = this.page, turn = chat.at(button)
    if (!turn) return
    const actions = {
      '[data-again]': () => this.again(turn),
      '[data-answer-this]': () => this.answerTo(turn),
      '[data-sheet]': () => this.openSheet(turn),
      '[data-continue]': () => this.continue(turn.id),
      '[data-rewind]': () => this.rewind(turn),
      '[data-tokens]': () => tokens.toggle(turn),
      '[data-show-gone]': () => this.showGone(turn),
      '[data-continue-at]': () => tokens.fork({}, tokens.views.get(turn), judge.first(turn)),
      '[data-undo-moves]': () => panel.back(),
      '[data-copy]': () => copyAt(button, turn.said ?? turn.text, turn.el.querySelector('.prose')),
      '[data-copy-code]': () => {
        const code = button.closest('.code').querySelector('code')
        copyAt(button, code.textContent, code)
      },
      '[data-edit]': () => this.edit(turn),
      '[data-choose-model]': () => picker.open(button),
      '[data-edit-system]': () => system.edit(),
      '[data-edit-question]': () => this.edit(chat.questions.at(-1)),
      '[data-fork]': () => this.fork(turn),
      '[data-version]': () => this.showVersion(turn, Number(button.dataset.version)),
      '[data-stop-replay]': () => this.stop(),
      '[data-close-replay]': () => { button.closest('.replay').hidden = true },
    }
    const name = Object.keys(actions).find(name => button.matches(name))
    if (name) actions[name]()
  }

  // ask sends a command that starts an answer.
  ask(type, fields) {
    const { chat, link, scroll, fail } = this.page
    if (chat.running) return
    const settings = this.page.usable()
    if (settings) link.command(type, { ...fields, settings }).then(() => scroll.toEnd(), fail)
  }

  async again(answer) {
    if (this.page.chat.running || !await this.page.composer.fill()) return
    this.ask('regenerate', { answer: answer?.id ?? 0, system: this.page.system.text })
  }

  continue(id) { this.ask('continue', { answer: id }) }

  // answerTo requests another answer to a question, or to the last question if that has none yet.
  answerTo(turn) {
    const { chat } = this.page, turns = [...chat.turns.values()], next = turns[turns.indexOf(turn) + 1]
    if (next?.info) this.again(next)
    else if (!next && !chat.cut) this.again(null)
  }

  // giveResult sends the result of a call that a person has typed.
  giveResult(form) {
    const { chat, system } = this.page
    this.ask('result', { answer: chat.at(form).id, text: form.elements.result.value, system: system.text })
  }

  // rewind takes back the tokens of an answer that repeat those before them, and continues with a higher DRY.
  rewind({ id, info }) {
    const { link, scroll, fail } = this.page, settings = this.page.usable()
    if (!settings) return
    settings.dry_multiplier = raised(info.settings.dry_multiplier)
    link.command('rewind', { answer: id, keep: info.tokens - info.repeated, settings }).then(() => scroll.toEnd(), fail)
  }

  get canStop() { return Boolean(this.page.chat.running) || this.page.chat.replay?.state === 'running' }

  stop() {
    const { chat, link, fail } = this.page, { running, replay } = chat
    if (replay?.state === 'running') {
      link.command('stop', { answer: replay.answer }).catch(fail)
      return
    }
    if (running) link.command('stop', { answer: running.id }).catch(error => { if (chat.running === running) fail(error) })
  }

  stopThinking() {
    const { chat: { running }, link, fail } = this.page
    if (running) link.command('stop', { answer: running.id, thinking: true }).catch(fail)
  }

  // showGone shows the tokens of an answer that would be impossible, struck out.
  async showGone(answer) {
    const { judge, scroll, tokens } = this.page, first = judge.first(answer)
    scroll.stay()
    await tokens.open(answer, -1)
    tokens.views.get(answer)?.spans[first].scrollIntoView({ block: 'nearest' })
  }

  // showVersion shows an earlier or later version of a message and keeps the scroll position.
  showVersion(turn, by) {
    const { chat, link, scroll, fail } = this.page, version = turn?.versions.index + by
    if (chat.running || !(version >= 1 && version <= turn.versions.count)) return
    scroll.stay()
    this.turning = { by, top: turn.el.getBoundingClientRect().top, place: [...chat.turns.keys()].indexOf(turn.id) }
    link.command('select', { message: turn.id, version }).catch(fail)
  }

  // branched is called when the chat shows another branch.
  branched() {
    if (!this.turning) return
    const { chat, scroll } = this.page, { by, top, place } = this.turning, turn = [...chat.turns.values()][place]
    this.turning = null
    if (!turn) return
    scroll.el.scrollTop += turn.el.getBoundingClientRect().top - top
    const arrow = turn.el.querySelector(`[data-version="${by}"]`)
    ;(arrow.disabled ? turn.el : arrow).focus({ preventScroll: true })
  }

  // edit opens the editor of a message. text and reasoning are edits that could not be saved, if any.
  async edit(turn, text, reasoning) {
    const { chat, link, scroll, system, fail } = this.page
    turn &&= chat.turns.get(turn.id) ?? turn
    if (!turn || chat.running && text === undefined) return
    scroll.stay() // the editor changes the height of the chat, which must not move away what is edited
    const again = choice => error => {
      this.continues = false
      if (error) fail(error)
      this.edit(turn, choice.text, choice.reasoning)
    }
    if (!turn.info) {
      const choice = await edit(turn, { label: turn.el.matches('.result') ? t('The result') : t('Your message'), note: t('What was written before stays as another version.'), submit: t('Send'), text })
      const settings = choice && await this.page.composer.fill() && this.page.usable()
      if (settings) link.command('edit', { message: turn.id, text: choice.text, system: system.text, settings, ...turn.pictures.length && { pictures: turn.pictures.map(nameOf) } }).then(() => scroll.toEnd(), again(choice))
      else if (choice) again(choice)()
      return
    }
    const choice = await edit(turn, { label: t('The answer'), note: t('What the model wrote stays as another version.'), submit: t('Save and continue'), alternative: t('Save'), text, reasoning })
    if (!choice) return
    this.continues = choice.go
    link.command('rewrite', { answer: turn.id, text: choice.text, reasoning: choice.reasoning }).catch(again(choice))
  }

  // edited is called with a message that holds an edited answer.
  edited(id) {
    if (!this.continues) return
    this.continues = false
    this.continue(id)
  }

  fork(turn) {
    const { link, fail } = this.page
    if (!turn || this.forking) return
    this.forking = true
    link.command('fork', { message: turn.id }).then(ack => location.assign(route(`/c/${ack.chat}`)), error => {
      this.forking = false
      fail(error)
    })
  }

  // openSheet opens the page of the contact sheet of a question, or of that of an answer; without
  // a turn, of the last question. more is added to the address.
  openSheet(turn, id = this.page.link.chat, more = '') {
    this.page.panel.flush()
    location.assign(route(`/c/${id}/sheet?question=${turn ? turn.info ? turn.parent : turn.id : 'last'}${more}`))
  }

  // openBlind opens the page of blind comparisons with a question, or with that of an answer.
  openBlind(turn) {
    this.page.panel.flush()
    location.assign(route(`/blind?chat=${this.page.link.chat}&question=${turn.info ? turn.parent : turn.id}`))
  }

  async openTree() {
    const { link, fail } = this.page
    if (!link.chat) return
    const { Tree } = await import('./tree.js')
    new Tree({ chat: link.chat, command: (type, fields) => link.command(type, fields), failed: fail })
  }
}
