// The entry point of the playground page. Page owns the parts of the page: it shows the frames of the server in them,
// and gives each what it needs of the others.
import { route } from './base.js'
import { Chat, showError } from './chat.js'
import { Composer } from './composer.js'
import { ConnectionBar } from './connection.js'
import { advice } from './context.js'
import { settleDeletion } from './delete.js'
import { Dock } from './dock.js'
import { Drawers } from './drawers.js'
import { showEngine } from './engine.js'
import { InView } from './inview.js'
import { Judge } from './judge.js'
import { Keys } from './keys.js'
import { Kind } from './kind.js'
import { KVCache } from './kvcache.js'
import { t } from './lang.js'
import { Lessons } from './lessons.js'
import { Panel } from './panel.js'
import { Picker } from './picker.js'
import { Rail } from './rail.js'
import { Scroll } from './scroll.js'
import { openShare } from './share.js'
import { Link } from './socket.js'
import { Soon } from './soon.js'
import { Speeds } from './speeds.js'
import { SystemPrompt } from './system.js'
import './toggle.js'
import { Tokens } from './tokens.js'
import { Turns } from './turns.js'
import { Variables } from './variables.js'
import { Writers } from './writers.js'

const $ = q => document.querySelector(q)
const $$ = q => document.querySelectorAll(q)

// streamed are the events that change nothing but their answer, and what Page.drawn shows.
const streamed = new Set(['text', 'block', 'progress'])
const pace = 100 // ms between two drawings while an answer is written or the user scrolls

class Page {
  constructor() {
    this.engine = { context: 0 }
    this.unsent = false // the error shown is about the connection
    this.fail = this.fail.bind(this)
    // A task of its own keeps short the one in which the page is laid out.
    this.drawn = new Soon(() => {
      this.inView.show()
      this.composer.showContext()
    })
    this.speeds = new Speeds()
    this.chat = new Chat(() => route(`/c/${this.link.chat}`))
    this.kind = this.makeKind()
    this.system = new SystemPrompt({
      hides: () => this.chat.empty || this.kind.raw || this.chat.more,
      model: () => this.link.chat ? '' : this.picker.name,
      changed: () => {
        this.panel.changed(true)
        this.composer.recount()
      },
    })
    this.panel = this.makePanel()
    this.params = this.panel.params
    this.kvCache = new KVCache(this.fail)
    this.bar = new ConnectionBar(() => this.link.now())
    this.link = new Link(document.body.dataset.chat, {
      before: settleDeletion,
      frame: f => this.frame(f),
      back: again => this.back(again),
      trying() {},
      lost: (seconds, code) => this.lost(seconds, code),
      refused: error => this.refused(error),
    }, Number(document.body.dataset.at))
    this.rail = new Rail({
      current: () => this.link.chat,
      gone: () => {
        $('#senderror').hidden = true
        this.leave()
      },
      failed: error => {
        this.drawers.open('')
        this.fail(error)
      },
    })
    this.picker = new Picker({
      chat: () => this.link.chat,
      changed: () => {
        this.composer.recount()
        this.refresh()
      },
      shown: () => this.showModel(),
      failed: this.fail,
    })
    this.writers = new Writers({ chat: () => this.link.chat, typing: () => this.link.command('typing').catch(() => {}), failed: this.fail })
    this.tokens = this.makeTokens()
    this.judge = new Judge({
      chat: () => this.link.chat,
      shown: () => [...new Set([...this.tokens.views.keys(), this.scroll.inView()])].filter(a => a && !a.running && !a.info.edited && a.info.tokens),
      view: answer => this.tokens.views.get(answer),
    })
    this.dock = new Dock(this.params, { open: on => this.drawers.open(on ? 'dock' : '') })
    this.drawers = new Drawers({ dock: () => this.dock.show(), docks: () => this.tokens.views.size > 0 })
    this.scroll = new Scroll(this.chat, {
      command: (type, fields) => this.link.command(type, fields),
      reopen: at => this.link.reopen(at),
      scrolled: () => this.drawn.within(pace),
      loaded: () => this.refresh(),
      failed: this.fail,
    })
    this.inView = new InView(this.params, {
      answer: () => this.scroll.inView(),
      address: id => route(`/c/${this.link.chat}/tokens/${id}`),
      look: () => this.judge.look(),
    })
    this.variables = new Variables()
    this.composer = new Composer(this)
    this.turns = new Turns(this)
    this.lessons = new Lessons(this)
    this.keys = new Keys(this)
    this.buttons()
    this.begin()
  }

  makeKind() {
    return new Kind({
      isNew: () => !this.link.chat,
      continues: () => this.picker.continues,
      raw: () => {
        this.params.byKey.output_format.raw(this.kind.raw)
        this.offerThinking()
        this.composer.showSight()
      },
      chosen: () => {
        if (this.kind.raw) this.system.open(false)
        this.composer.recount()
        this.refresh()
      },
      focus: () => this.composer.focus(),
    })
  }

  makePanel() {
    return new Panel({
      system: () => this.system.text,
      setSystem: text => this.system.set(text),
      address: preset => this.presetsAddress(preset),
      keep: fields => this.link.chat ? this.link.command('panel', fields) : null,
      moved: settings => {
        this.judge.moved({ ...settings, output_format: {} }) // it is about the samplers
        if (this.tokens.views.size) this.tokens.hints?.did('judge')
        this.dock.name()
        this.tokens.biased()
      },
      unpinned: () => this.inView.show(), // without a pinned seed, the panel shows that of the answer in view
      failed: this.fail,
    })
  }

  makeTokens() {
    return new Tokens({
      chat: () => this.link.chat,
      inspect: (candidates, name) => {
        if (name) this.scroll.stay()
        this.inView.inspect(candidates, name)
      },
      fork: (answer, at, next) => {
        if (this.chat.running) return
        const settings = this.usable()
        if (settings) this.link.command('rewind', { answer: answer.id, keep: at, ...next, settings }).then(() => this.scroll.toEnd(), error => this.unforked(error))
        else this.unforked()
      },
      opened: answer => {
        this.judge.look()
        this.judge.show(answer)
      },
      closed: answer => this.judge.show(answer),
      biases: () => this.params.byKey.token_biases,
      bans: text => this.params.byKey.banned_strings.value.includes(text),
      ban: text => {
        const list = this.params.byKey.banned_strings, { value } = list
        list.set(value.includes(text) ? value.filter(t => t !== text) : [...value, text])
      },
      failed: this.fail,
    })
  }

  unforked(error) {
    this.tokens.forked = null
    this.tokens.draw()
    if (error) this.fail(error)
  }

  buttons() {
    for (const button of $$('[data-close-note]')) button.addEventListener('click', () => {
      const note = button.closest('.note')
      note.dataset.closed = note.querySelector('span').textContent // it comes back when it says something else
      note.hidden = true
      this.composer.focus()
    })
    document.addEventListener('click', e => {
      const a = e.target.closest('a[href$="/share"]')
      if (!a || e.ctrlKey || e.metaKey || e.shiftKey) return
      e.preventDefault()
      openShare(new URL(a.href).pathname.split('/').at(-2))
    })
    for (const button of $$('[data-help]')) button.addEventListener('click', () => $('#help').showModal())
    for (const button of $$('[data-close]')) button.addEventListener('click', () => button.closest('dialog').close())
  }

  begin() {
    const preset = $('#composer [name=preset]')?.value
    if (preset) { // chosen on the presets page
      this.panel.presets.use(preset)
      history.replaceState(null, '', this.picker.name ? route(`/?${new URLSearchParams({ model: this.picker.name })}`) : route('/'))
    }
    this.composer.restore()
    this.composer.recount()
    this.refresh()
    if (!this.drawers.phone.matches && !this.scroll.sought) this.composer.focus()
  }

  // ---- the connection ----

  frame(f) {
    const { chat, scroll } = this
    const apply = {
      engine: () => this.setEngine(f.engine),
      models: () => this.picker.news(f.models),
      snapshot: () => this.open(f.chat),
      resumed: () => {
        this.bar.compared = { missing: 0 } // the server sends all missed events
        chat.running?.lose(false)
        this.panel.flush()
        scroll.fetching = false // the response may have been lost with the connection
        scroll.fetchNear()
      },
      events: () => {
        for (const e of f.events) {
          chat.apply(e)
          this.happened(e)
        }
        if (scroll.following) chat.trim()
      },
      older: () => scroll.load(() => chat.prepend(f)),
      newer: () => scroll.load(() => chat.extend(f)),
      chats: () => this.rail.changed(),
      keyboard: () => this.writers.show(f.keyboard),
      left: () => {
        $('[data-left]').textContent = f.left ?? ''
        $('[data-left]').parentElement.hidden = !f.left
      },
      space: () => {
        const note = $('[data-space]')
        note.querySelector('span').textContent = f.space ?? ''
        note.hidden = !f.space || note.dataset.closed === f.space
      },
    }[f.type]
    apply?.()
    if (f.type === 'events') $('[data-stop-thinking]').hidden = !chat.running?.thinks
    if (f.type === 'events' && f.events.every(e => streamed.has(e.type))) this.drawn.within(pace)
    else this.refresh()
    if (f.type === 'snapshot' && !scroll.seek()) scroll.toEnd()
  }

  setEngine(engine) {
    const before = this.engine
    if (before.id && engine.id !== before.id) this.panel.presets.load() // the first one is the model's own
    this.engine = engine
    Object.assign(advice, { first: engine.too_long_first, later: engine.too_long })
    showEngine(engine)
    this.picker.setEngine(engine)
    this.offerThinking()
    if (engine.id !== before.id || engine.context !== before.context) this.composer.recount()
  }

  // open shows a snapshot of the chat.
  open(snapshot) {
    const { chat } = this
    this.scroll.fetching = false
    chat.show(snapshot)
    this.bar.compared = chat.lacks(this.bar.texts)
    this.kind.show(snapshot)
    this.picker.choose(snapshot.model)
    this.judge.end()
    this.panel.show(snapshot)
    this.speeds.measure(chat.answers)
  }

  back(again) {
    if (this.bar.offline) {
      $('[data-stop]').disabled = false
      if (this.unsent) $('#senderror').hidden = true
      this.rail.changed() // changes made while disconnected were not reported
    }
    this.bar.back(again)
  }

  lost(seconds, code) {
    const { engine, chat, bar } = this, first = !bar.offline
    bar.lost(seconds, code, chat)
    if (first) {
      chat.running?.lose(true)
      $('[data-stop]').disabled = true
    }
    // The server may have sent its status again before it closed the new connection.
    showEngine({ ...engine, state: 'lost', state_text: t('not connected'), rate: '', queue: t('not known'), summary: [engine.name, t('not connected')].filter(Boolean).join(' · ') })
  }

  refused(error) {
    this.fail({ ...error, message: t('%s This is a new chat.', error.message) })
    this.bar.hide()
    this.leave(this.kind.temporary) // else what is typed would be stored
  }

  // leave closes the chat and shows a new, empty one, which is temporary or not.
  leave(temporary = false) {
    settleDeletion()
    this.panel.flush()
    this.link.leave()
    this.panel.fresh()
    history.replaceState(null, '', route('/'))
    this.chat.clear()
    this.writers.show()
    this.kind.renew(temporary)
    this.picker.choose(this.picker.preferred)
    this.rail.mark({ pinned: false, archived: false, folder: '' })
    this.rail.load()
    this.refresh()
    this.scroll.el.scrollTop = 0
  }

  // ---- effects of events ----

  happened(e) {
    const { chat } = this
    if (e.type === 'message' && e.message.answer?.edited) this.turns.edited(e.message.id)
    if (e.type === 'end' || e.type === 'branch' || e.type === 'model') this.composer.recount()
    if (e.type === 'branch') this.turns.branched()
    if (e.type === 'model') this.picker.choose(e.text)
    if (e.type === 'panel') this.panel.follow(e)
    const ended = e.type === 'end' && chat.turns.get(e.id)
    if (!ended) return
    this.speeds.measure([ended])
    if (this.tokens.forked) this.tokens.written(ended)
    this.lessons.answered(ended)
  }

  refresh() {
    const { chat, link, kind } = this, { running } = chat
    this.tokens.replaced()
    const empty = chat.empty && !link.chat
    $('#empty').hidden = !empty
    chat.el.hidden = empty
    chat.el.toggleAttribute('data-running', Boolean(running))
    $('#older').hidden = !chat.more
    this.system.showLine()
    this.showOrigin()
    if (empty) $('#tobottom').hidden = true
    $('[data-stop]').hidden = !running
    $('[data-stop-thinking]').hidden = !running?.thinks
    $('[data-send]').hidden = $('[data-ask-sheet]').hidden = Boolean(running)
    for (const el of $$('[data-chat-menu], [data-rename-title], [data-share]')) el.hidden = !link.chat || kind.temporary
    $('[data-tree]').hidden = !link.chat
    $('[data-share]').href = route(`/c/${link.chat}/share`)
    kind.refresh(empty)
    this.kvCache.show(empty || kind.temporary ? '' : link.chat, `${this.engine.saves} ${this.engine.id} ${this.picker.name}`)
    for (const a of $$(`a[href^="${route('/presets')}"]:not([download])`)) a.href = this.presetsAddress()
    this.params.speed(this.speeds.writing[this.picker.name || this.engine.id] ?? 0)
    if (this.engine.name) this.composer.field.placeholder = kind.raw ? t('Text that the model goes on from') : t('Ask %s something', this.picker.who)
    if (!chat.empty || empty) this.showTitle(chat.title || t('New chat'))
    this.drawn.within()
  }

  showTitle(title) {
    for (const el of $$('[data-title]')) if (el.textContent !== title) el.textContent = el.title = title
    document.title = `${title} · m40-llm`
  }

  // showOrigin shows from which chat this one was forked.
  showOrigin() {
    const { origin, more } = this.chat, line = $('#origin'), a = line.querySelector('a')
    line.hidden = !origin || more
    if (!origin) return
    a.href = route(`/c/${origin.id}`)
    a.textContent = a.title = origin.title
  }

  // showModel shows what depends on the selected model.
  showModel() {
    this.params.lack(this.picker.lacks)
    this.params.byKey.token_biases.writes(this.picker.name || this.engine.id)
    this.offerThinking()
    if (this.kind.offer()) {
      if (this.kind.raw) this.system.open(false)
      this.refresh()
    }
    this.composer.showSight()
  }

  // A raw chat has no chat template, so the user cannot control thinking.
  offerThinking() { this.params.thinking(this.kind.raw ? [] : this.picker.thinking.split(' ').filter(Boolean)) }

  // presetsAddress returns the address of the presets page, with a link back to this chat.
  presetsAddress(preset) {
    const { chat } = this.link, query = new URLSearchParams({ ...preset && { id: preset }, ...chat && { chat } })
    return query.size ? route(`/presets?${query}`) : route('/presets')
  }

  // ---- commands ----

  fail(error) {
    const field = error.param && this.params.refuse(error.param, error.message)
    if (field) {
      this.drawers.open('sheet')
      field.focus()
      return
    }
    showError($('#senderror'), error)
    $('#senderror').hidden = false
    this.unsent = this.bar.offline
  }

  // usable returns the settings of an answer that begins now. If one is invalid, it focuses the field and returns null.
  usable() {
    const { params, panel } = this, wrong = params.firstInvalid()
    if (wrong) {
      this.drawers.open('sheet')
      wrong.focus()
      return null
    }
    $('#senderror').hidden = true
    this.bar.settle()
    panel.flush()
    panel.remember()
    panel.settle()
    this.judge.end()
    return params.values()
  }
}

new Page()
