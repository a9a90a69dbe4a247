// The entry point of the playground page: sends commands for what the user does, and shows the
// events of the server.
import { route } from './base.js'
import { Attachments } from './attach.js'
import { Chat, raised, showError } from './chat.js'
import { Counter, advice, meter } from './context.js'
import { copy } from './copy.js'
import { draftOf, keepDraft } from './drafts.js'
import { edit } from './edit.js'
import { composing, enterSends, explain, sends, setEnterSends } from './enter.js'
import { count, plural } from './format.js'
import { showEngine } from './engine.js'
import { keyboard, shared, showKeyboard } from './keyboard.js'
import { KVCache } from './kvcache.js'
import { mark } from './find.js'
import { Panel, recalled } from './panel.js'
import { Picker } from './picker.js'
import { isFirst } from './press.js'
import { Rail } from './rail.js'
import { answerMenu } from './receipt.js'
import { reply } from './reply.js'
import { request } from './request.js'
import { openShare } from './share.js'
import { Link } from './socket.js'
import { recall, remember } from './storage.js'
import './toggle.js'
import { Tokens, visible } from './tokens.js'
import { typed } from './typing.js'

const $ = q => document.querySelector(q)
const $$ = q => document.querySelectorAll(q)

const chat = new Chat(() => route(`/c/${link.chat}`))
const message = $('#message')
const system = $('#system')
const systemButton = $('[data-system]')
const scroller = $('#scroll')
let engine = { context: 0 }
let offline = false
let shown = new Map() // texts of the answers, by id, when the connection was lost
let compared = null // result of Chat.lacks after reconnecting
let unsent = false // the error shown is about the connection
let temporary = document.body.dataset.chatTemporary === 'true'
let decided = false // the user decided whether the new chat is raw
let raw = false // this chat uses no chat template; also applies to the new chat of an empty page
let turning = null // the version that was requested and has not arrived
let systemTimer = 0 // delays counting the tokens of the system prompt
let inspected = null // {candidates, name} of the selected token
let writeOn = false // continue the answer once its edited text is saved
let lesson = '' // what opens when the answer of a lesson is there: tokens, or the key of a setting

const panel = new Panel({
  system: () => system.value,
  setSystem,
  address: preset => presetsAddress(preset),
  keep: fields => link.chat ? link.command('panel', fields) : null,
  moved: settings => tokens.judge(settings),
  unpinned: showInView, // without a pinned seed, the panel shows that of the answer in view
  failed: fail,
})
const params = panel.params
const kvCache = new KVCache(fail)

// ---- the connection ----

const link = new Link(document.body.dataset.chat, {
  frame(f) {
    const apply = {
      engine: () => {
        const other = f.engine.id !== engine.id || f.engine.context !== engine.context
        if (engine.id && f.engine.id !== engine.id) panel.presets.load() // the first one is the model's own
        engine = f.engine
        Object.assign(advice, { first: engine.too_long_first, later: engine.too_long })
        showEngine(engine)
        picker.setEngine(engine)
        offerThinking()
        if (other) recount()
      },
      models: () => picker.news(f.models),
      snapshot: () => {
        fetching = false
        chat.show(f.chat)
        compared = chat.lacks(shown)
        setTemporary(Boolean(f.chat.temporary))
        setRaw(Boolean(f.chat.raw))
        picker.choose(f.chat.model)
        panel.show(f.chat)
        measured(chat.answers)
      },
      resumed: () => {
        compared = { missing: 0 } // the server sends all missed events
        chat.running?.lose(false)
        panel.flush()
        fetching = false // the response may have been lost with the connection
        fetchNear()
      },
      events: () => {
        f.events.forEach(e => { chat.apply(e); noticeEvent(e) })
        if (following) chat.trim()
      },
      older: () => loaded(() => chat.prepend(f)),
      newer: () => loaded(() => chat.extend(f)),
      chats: () => rail.changed(),
      keyboard: () => showKeyboard(f.keyboard),
      space: () => {
        $('[data-space] span').textContent = f.space ?? ''
        $('[data-space]').hidden = !f.space || $('[data-space]').dataset.closed === f.space
      },
    }[f.type]
    apply?.()
    if (f.type === 'events' && f.events.every(e => streamed.has(e.type))) drawSoon(pace)
    else refresh()
    if (f.type === 'snapshot' && !seek()) toEnd()
  },
  back(again) {
    const bar = $('#connbar')
    if (!offline) {
      bar.hidden = true
      return
    }
    offline = false
    $('[data-stop]').disabled = false
    if (unsent) $('#senderror').hidden = true
    rail.changed() // changes made while disconnected were not reported
    if (!again) {
      bar.hidden = true
      return
    }
    $('[data-connbar]').textContent = `Back.${lossSentence()}`
    $('[data-reconnect]').hidden = true
    if (compared?.missing) return // show the loss until the user sends something
    bar.classList.replace('warn', 'ok')
    setTimeout(() => { if (!offline) bar.hidden = true }, 2000)
  },
  trying() {},
  lost(seconds, code) {
    if (!offline) {
      shown = chat.texts
      compared = null
      chat.running?.lose(true)
      $('[data-stop]').disabled = true
    }
    // The server may have sent its status again before it closed the new connection.
    showEngine({ ...engine, state: 'lost', state_text: 'not connected', rate: '', queue: 'not known', summary: [engine.name, 'not connected'].filter(Boolean).join(' · ') })
    offline = true
    const stopping = code === 1012 // the close code of a server that is stopping
    const loggedOut = code === 401
    const bar = $('#connbar')
    bar.classList.replace('ok', 'warn')
    const what = stopping ? 'The server is stopping. What was written is kept. '
      : chat.running ? 'Connection lost. The server goes on writing the answer, if it still runs. ' : 'Connection lost. '
    $('[data-connbar]').textContent = loggedOut ? 'This device was logged out.' : `${what}Trying again in ${seconds} s.`
    $('[data-reconnect]').textContent = loggedOut ? 'Log in' : 'Try now'
    $('[data-reconnect]').hidden = false
    bar.hidden = false
  },
  refused(error) {
    fail({ ...error, message: `${error.message} This is a new chat.` })
    $('#connbar').hidden = true
    leave(temporary) // else what is typed would be stored
  },
}, Number(document.body.dataset.at))

// lossSentence returns a sentence about the text that was shown before the connection was lost
// and that the server did not save; '' if the comparison was not possible.
function lossSentence() {
  if (!compared) return ''
  const { missing, of } = compared
  if (missing === 0) return ' Nothing is missing.'
  const why = of.info.state === 'interrupted' ? ': the server was killed' : ''
  return missing === 1 ? ` 1 character that was shown was not saved${why}.` : ` ${count(missing)} characters that were shown were not saved${why}.`
}

// leave closes the chat and shows a new, empty one, which is temporary or not.
function leave(asTemporary = false) {
  panel.flush()
  link.leave()
  panel.fresh()
  history.replaceState(null, '', route('/'))
  chat.clear()
  showKeyboard()
  setTemporary(asTemporary)
  decided = false
  setRaw(false)
  picker.choose(picker.preferred)
  rail.mark({ pinned: false, archived: false, folder: '' })
  rail.load()
  refresh()
  scroller.scrollTop = 0
}

const rail = new Rail({
  current: () => link.chat,
  gone() {
    $('#senderror').hidden = true
    leave()
  },
  failed(error) {
    drawer('')
    fail(error)
  },
})

const picker = new Picker({ chat: () => link.chat, changed() { recount(); refresh() }, shown() { panel.params.lack(picker.lacks); offerThinking(); offerRaw(); showSight() }, failed: fail })

keyboard({ chat: () => link.chat, failed: fail })
const tokens = new Tokens({
  chat: () => link.chat,
  inspect(candidates, name) {
    inspected = candidates && { candidates, name }
    if (name) following = false
    showInView()
  },
  fork(answer, at, next) {
    if (chat.running) return
    const settings = usable()
    if (settings) link.command('rewind', { answer: answer.id, keep: at, ...next, settings }).then(toEnd, fail)
  },
  failed: fail,
})

$('[data-reconnect]').addEventListener('click', () => link.code === 401 ? location.assign(route('/login')) : link.now())

// ---- effects of events ----

function noticeEvent(e) {
  const answer = e.type === 'message' && e.message.answer
  if (answer?.edited && writeOn) {
    writeOn = false
    goOn(e.message.id)
  }
  if (e.type === 'end' || e.type === 'branch' || e.type === 'model') recount()
  if (e.type === 'branch' && turning) turned()
  if (e.type === 'model') picker.choose(e.text)
  if (e.type === 'panel') panel.follow(e)
  if (e.type === 'end' && chat.turns.has(e.id)) {
    measured([chat.turns.get(e.id)])
    if (lesson) opened(chat.turns.get(e.id))
  }
}

// speeds are the measured speeds of each model in this browser, in tokens per second.
const speeds = recalled('m40.speeds')
const readings = recalled('m40.readings') // the same of reading prompts

// measured stores the speeds of answers. The newest answer must be last.
function measured(answers) {
  for (const [name, of, speed] of [['m40.speeds', speeds, a => a.speed], ['m40.readings', readings, a => a.reading]]) {
    const known = JSON.stringify(of)
    for (const a of answers) if (speed(a) && !a.running && a.info.model) of[a.info.model] = Math.round(10 * speed(a)) / 10
    if (JSON.stringify(of) !== known) remember(name, JSON.stringify(of))
  }
}

function refresh() {
  const running = chat.running
  tokens.replaced()
  const empty = chat.empty && !link.chat
  $('#empty').hidden = !empty
  chat.el.hidden = empty
  chat.el.toggleAttribute('data-running', Boolean(running))
  $('#older').hidden = !chat.more
  showSystemLine()
  showOrigin()
  if (empty) $('#tobottom').hidden = true
  $('[data-stop]').hidden = !running
  $('[data-send]').hidden = $('[data-ask-sheet]').hidden = Boolean(running)
  for (const el of $$('[data-chat-menu], [data-rename-title], [data-share]')) el.hidden = !link.chat || temporary
  $('[data-tree]').hidden = !link.chat
  $('[data-share]').href = route(`/c/${link.chat}/share`)
  $('[data-temporary]').hidden = !empty
  $('[data-fleeting]').hidden = empty || !temporary
  $('[data-raw]').hidden = !empty
  $('[data-raw-chip]').hidden = empty || !raw
  systemButton.hidden = raw
  kvCache.show(empty || temporary ? '' : link.chat, `${engine.saves} ${engine.id} ${picker.name}`)
  for (const a of $$(`a[href^="${route('/presets')}"]:not([download])`)) a.href = presetsAddress()
  params.speed(speeds[picker.name || engine.id] ?? 0)
  if (engine.name) message.placeholder = raw ? 'Text that the model goes on from' : `Ask ${picker.who} something`
  if (!chat.empty || empty) {
    const title = chat.title || 'New chat'
    for (const el of $$('[data-title]')) if (el.textContent !== title) el.textContent = el.title = title
    document.title = `${title} · m40-llm`
  }
  drawSoon()
}

// presetsAddress returns the address of the presets page, with a link back to this chat.
function presetsAddress(preset) {
  const query = new URLSearchParams({ ...preset && { id: preset }, ...link.chat && { chat: link.chat } })
  return query.size ? route(`/presets?${query}`) : route('/presets')
}

// streamed are the events that change nothing but their answer, and what drawSoon shows.
const streamed = new Set(['text', 'block', 'progress'])
const pace = 100 // ms between two drawings while an answer is written or the user scrolls

let drawTimer = 0, drawAt = Infinity
// drawSoon shows what depends on the layout within so many milliseconds, once for all that came before it.
// A task of its own keeps short the one in which the page is laid out.
function drawSoon(ms = 0) {
  const at = performance.now() + ms
  if (at >= drawAt) return
  clearTimeout(drawTimer)
  drawAt = at
  drawTimer = setTimeout(() => {
    drawAt = Infinity
    showInView()
    showContext()
  }, ms)
}

// showInView shows the seed of the last answer in the viewport, and the candidates of its least certain token; while it
// is written, those of its last one.
function showInView() {
  const { top, bottom } = scroller.getBoundingClientRect()
  const seeded = chat.answers.filter(a => !a.info.edited).reverse()
  const inView = seeded.find(a => {
    const r = a.el.getBoundingClientRect()
    return r.top < bottom && r.bottom > top
  }) ?? seeded[0]
  if (inView) params.view(inView.info.settings.seed)
  if (inView && !inView.running && inView.info.tokens && inView.info.unsure === undefined) fetchUnsure(inView)
  if (!inspected && inView?.info.asked) return // the bars stay until the answer's own come
  const { candidates, name } = inspected ?? inView?.info.unsure ?? { candidates: inView?.info.candidates }
  params.strips.show(candidates, name)
}

// fetchUnsure gets the candidates of the least certain token of an answer, if the server has stored them.
async function fetchUnsure({ id, info }) {
  info.unsure = null
  info.asked = true
  const least = await request(route(`/c/${link.chat}/tokens/${id}/unsure`), null, () => {})
  info.asked = false
  if (least?.candidates) info.unsure = { candidates: least.candidates, name: `${visible(least.text)}, least certain of ${plural(least.total, 'token')}` }
  showInView()
}

// setTemporary sets whether this chat is temporary. Temporary chats are not stored.
function setTemporary(on) {
  temporary = on
  $('[data-temporary]').setAttribute('aria-pressed', on)
  for (const el of $$('[data-kept]')) el.textContent = on ? 'This chat will not be stored.' : el.dataset.kept ?? ''
}
$('[data-temporary]').addEventListener('click', () => {
  setTemporary(!temporary)
  message.focus()
})

// setRaw sets whether this chat is raw. Raw chats are sent to the model without a chat template.
function setRaw(on) {
  raw = on
  $('[data-raw]').setAttribute('aria-pressed', on)
  offerThinking()
  showSight()
}
// offerRaw makes a new chat raw where its model has no chat template, until the user decides otherwise.
function offerRaw() {
  if (link.chat || decided || raw === picker.continues) return
  setRaw(!raw)
  if (raw) showSystem(false)
  refresh()
}
$('[data-raw]').addEventListener('click', () => {
  decided = true
  setRaw(!raw)
  if (raw) showSystem(false)
  recount()
  refresh()
  message.focus()
})

// ---- context usage ----

const counter = new Counter(refresh)
const nothing = { text: '', pictures: [] }
// recount requests the size of the next prompt, if it can be counted.
const recount = () => counter.soon({ chat: link.chat, ...picker.counts ? draft() : nothing, system: system.value, raw, model: link.chat ? '' : picker.name })
// tooLong reports whether the draft was counted and does not fit.
const tooLong = () => counter.of(draft())?.over
const attachments = new Attachments({
  changed() {
    recount()
    showSight()
  },
  failed: fail,
})
// draft returns the text of the message with its files, and the hashes of its pictures.
const draft = () => ({ text: attachments.with(message.value), pictures: attachments.pictures.hashes })
const isEmpty = ({ text, pictures }) => !text.trim() && !pictures.length

// showSight says before pictures are sent that the model cannot see them, and which one can.
function showSight() {
  const line = $('#sight'), { seer } = picker
  line.hidden = !attachments.pictures.list.length || picker.sees && !raw
  if (line.hidden) return
  line.querySelector('span').textContent = raw ? 'A raw chat has no place for pictures.'
    : `${picker.who} cannot see pictures.${seer ? '' : ' No model here can: one that does has a companion file (mmproj) beside it.'}`
  const button = line.querySelector('button')
  button.hidden = raw || !seer
  button.textContent = `Use ${seer}`
  button.dataset.model = seer ?? ''
}
$('#sight button').addEventListener('click', e => picker.chosen(e.target.dataset.model))

function showContext() {
  const last = chat.answers.findLast(a => a.info.prompt_tokens > 0)
  meter({
    context: picker.elsewhere ? picker.context : engine.context || last?.info.context || 0,
    prompt: last?.info.prompt_tokens ?? 0,
    answer: last?.info.tokens ?? 0,
    draft: isEmpty(draft()) ? null : counter.last,
    over: tooLong(),
    first: chat.empty,
    reading: readings[picker.name || engine.id] ?? 0,
  })
  attachments.counted(counter.of(draft())?.pictures)
  $('[data-send]').disabled = $('[data-ask-sheet]').disabled = Boolean(tooLong())
}

// ---- scrolling: follows new text unless the user has scrolled up ----

let following = true
function toEnd() {
  if (chat.cut) {
    link.reopen()
    return
  }
  following = true
  if ($('#empty').hidden) scroller.scrollTop = scroller.scrollHeight
  reached = scroller.scrollTop
}
let width = 0, height = 0, reached = 0
// resized reports whether the size of the column has changed since the last call. A scroll event
// is then not caused by the user.
function resized() {
  const is = width !== scroller.clientWidth || height !== scroller.clientHeight
  width = scroller.clientWidth
  height = scroller.clientHeight
  return is
}
scroller.addEventListener('scroll', () => {
  if (resized()) {
    if (following) toEnd()
    return
  }
  // New text also moves the end away, so only scrolling up ends following.
  following = !chat.cut && (scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 48 || (following && scroller.scrollTop >= reached))
  reached = scroller.scrollTop
  $('#tobottom').hidden = (following && !chat.cut) || chat.empty
  fetchNear()
  drawSoon(pace)
}, { passive: true })
$('#tobottom').addEventListener('click', toEnd)
const sizes = new ResizeObserver(() => { if (following) toEnd() })
sizes.observe(scroller)
sizes.observe(chat.el)

// Older and newer messages are loaded when the user scrolls near the first or the last loaded one.
const near = 400 // px
let fetching = false
function fetchMore(type, from) {
  if (fetching || !from) return
  fetching = true
  link.command(type, from).catch(() => { fetching = false })
}
const older = () => fetchMore('older', chat.more && chat.first && { before: chat.first.id })
function fetchNear() {
  const top = scroller.getBoundingClientRect().top
  if (!following && $('#older').getBoundingClientRect().bottom > top - near) older()
  if (chat.cut && $('#end').getBoundingClientRect().top < top + scroller.clientHeight + near) fetchMore('newer', { after: chat.end.id })
}

// loaded calls put to insert messages, and keeps the visible text at its position.
function loaded(put) {
  fetching = false
  const top = scroller.getBoundingClientRect().top
  const read = [...chat.turns.values()].find(turn => turn.el.getBoundingClientRect().bottom > top)?.el
  const stood = read?.getBoundingClientRect().top
  put()
  refresh()
  if (read?.isConnected) scroller.scrollTop += read.getBoundingClientRect().top - stood
  reached = scroller.scrollTop
  fetchNear()
}
const ends = new IntersectionObserver(fetchNear, { root: scroller, rootMargin: `${near}px 0px` })
for (const end of ['#older', '#end']) ends.observe($(end))
$('#older').addEventListener('click', older)

// ---- the message in the address, for example of a search result ----

let sought = Number(document.body.dataset.at)
let asked = false // the branch of the message was requested

// seek scrolls to the message and highlights the words of the search. It reports whether the
// message is on the page or being loaded.
function seek() {
  if (!sought) return false
  const turn = chat.turns.get(sought)
  if (!turn && !asked) {
    asked = true
    link.command('select', { message: sought, version: 0 }).then(() => link.reopen(sought), error => {
      sought = 0
      fail(error)
      toEnd()
    })
    return true
  }
  sought = 0
  if (!turn) return false
  following = false
  const [first] = mark(turn.el.querySelector('.prose'), new URLSearchParams(location.search).get('q') ?? '')
  turn.el.focus({ preventScroll: true })
  turn.el.scrollIntoView()
  if (first && first.getBoundingClientRect().bottom > scroller.getBoundingClientRect().bottom) first.scrollIntoView({ block: 'center' })
  reached = scroller.scrollTop
  fetchNear()
  return true
}

// ---- commands ----

// A raw chat has no chat template, so the user cannot control thinking.
function offerThinking() { params.thinking(raw ? [] : picker.thinking.split(' ').filter(Boolean)) }

function fail(error) {
  const field = error.param && params.refuse(error.param, error.message)
  if (field) {
    openSheet(true)
    field.focus()
    return
  }
  showError($('#senderror'), error)
  $('#senderror').hidden = false
  unsent = offline
}

// usable returns the settings. If one is invalid, it focuses the field and returns nothing.
function usable() {
  const wrong = params.firstInvalid()
  if (wrong) {
    openSheet(true)
    wrong.focus()
    return null
  }
  $('#senderror').hidden = true
  if (!offline) $('#connbar').hidden = true
  panel.flush()
  panel.remember()
  return params.values()
}

let uploading = false // a message is sent as soon as its pictures are uploaded

// send sends a message. unanswered: no answer begins. It resolves to the chat if the message was sent.
// repeated: the server had lost its pictures, and has got them anew.
async function send(typedText, unanswered = false, repeated = false) {
  if (uploading) return
  if (attachments.pictures.busy) {
    uploading = true
    const { length } = attachments.pictures.list
    await attachments.pictures.ready()
    uploading = false
    if (attachments.pictures.list.length < length) return // one was refused, which the page says
  }
  const text = attachments.with(typedText), pictures = attachments.pictures.hashes
  if (isEmpty({ text, pictures })) {
    message.focus()
    return
  }
  if (chat.running || (tooLong() && typedText === message.value)) return
  const settings = usable()
  if (!settings) return
  const before = message.value, from = link.chat, attach = attachments.take()
  if (before === typedText) {
    message.value = '' // the stored draft stays until the server has the message
    recount()
  }
  typed(null)
  if (!matchMedia('(pointer: coarse)').matches) message.focus() // on touch devices the keyboard would cover the answer
  try {
    const fields = { text, system: system.value, settings, ...pictures.length && { pictures }, ...unanswered && { unanswered } }
    const ack = await link.command('send', link.chat ? fields : { ...fields, preset: panel.presets.id, temporary, raw, model: picker.name })
    if (ack.chat !== from) keepDraft(from, '')
    keepDraft(ack.chat, temporary ? '' : message.value) // what was typed meanwhile
    if (location.pathname !== route(`/c/${ack.chat}`)) history.replaceState(null, '', route(`/c/${ack.chat}`))
    toEnd()
    return ack.chat
  } catch (error) {
    if (before === typedText && link.chat === from) setDraft([before, message.value].filter(Boolean).join('\n\n'))
    if (link.chat === from) attach()
    if (error.code !== 'picture_gone' || repeated || link.chat !== from) {
      fail(error)
      return
    }
    await attachments.pictures.again() // the server was started since
    return send(before === typedText ? message.value : typedText, unanswered, true)
  }
}

// openContactSheet opens the page of the contact sheet of a question, or of that of an answer; without
// a turn, of the last question. more is added to the address.
function openContactSheet(turn, id = link.chat, more = '') {
  panel.flush()
  location.assign(route(`/c/${id}/sheet?question=${turn ? turn.info ? turn.parent : turn.id : 'last'}${more}`))
}

// learn sends the prompt of a lesson. When the answer is there, opened shows the view that the lesson is about.
async function learn(opens, prompt) {
  if (opens === 'sheet') {
    const id = await send(prompt, true)
    if (id) openContactSheet(null, id, '&start')
  } else {
    lesson = opens
    if (!await send(prompt)) lesson = ''
  }
}

// opened shows the tokens of the answer to a lesson, and the slider that it is about if there is one.
async function opened(answer) {
  const opens = lesson
  lesson = ''
  if (answer.info.state !== 'done') return
  await tokens.toggle(answer)
  if (!tokens.shows(answer)) return
  following = false
  answer.el.scrollIntoView({ block: 'start' })
  if (opens === 'tokens') return
  if (phone.matches) drawer('sheet')
  $(`[data-param="${opens}"] input[type=range]`).focus()
}

// sendForSheet sends the message without an answer, and opens its contact sheet.
async function sendForSheet() {
  const id = await send(message.value, true)
  if (id) openContactSheet(null, id)
}
$('[data-ask-sheet]').addEventListener('click', sendForSheet)

// ask sends a command that starts an answer.
function ask(type, fields) {
  if (chat.running) return
  const settings = usable()
  if (settings) link.command(type, { ...fields, settings }).then(toEnd, fail)
}

const again = answer => ask('regenerate', { answer: answer?.id ?? 0, system: system.value })

// answerTo requests another answer to a question, or to the last question if that has none yet.
function answerTo(turn) {
  const turns = [...chat.turns.values()], next = turns[turns.indexOf(turn) + 1]
  if (next?.info) again(next)
  else if (!next && !chat.cut) again(null)
}
const goOn = id => ask('continue', { answer: id })

// rewind takes back the tokens of an answer that repeat those before them, and continues with a higher DRY.
function rewind({ id, info }) {
  const settings = usable()
  if (!settings) return
  settings.dry_multiplier = raised(info.settings.dry_multiplier)
  link.command('rewind', { answer: id, keep: info.tokens - info.repeated, settings }).then(toEnd, fail)
}

function stop() {
  const running = chat.running
  if (chat.replay?.state === 'running') {
    link.command('stop', { answer: chat.replay.answer }).catch(fail)
    return
  }
  if (running) link.command('stop', { answer: running.id }).catch(error => { if (chat.running === running) fail(error) })
}

// turnVersion shows an earlier or later version of a message and keeps the scroll position.
function turnVersion(turn, by) {
  const version = turn?.versions.index + by
  if (chat.running || !(version >= 1 && version <= turn.versions.count)) return
  following = false
  turning = { by, top: turn.el.getBoundingClientRect().top, place: [...chat.turns.keys()].indexOf(turn.id) }
  link.command('select', { message: turn.id, version }).catch(fail)
}

function turned() {
  const { by, top, place } = turning, turn = [...chat.turns.values()][place]
  turning = null
  if (!turn) return
  scroller.scrollTop += turn.el.getBoundingClientRect().top - top
  const arrow = turn.el.querySelector(`[data-version="${by}"]`)
  ;(arrow.disabled ? turn.el : arrow).focus({ preventScroll: true })
}

// editTurn opens the editor of a message. text and reasoning are edits that could not be saved, if any.
async function editTurn(turn, text, reasoning) {
  turn &&= chat.turns.get(turn.id) ?? turn
  if (!turn || chat.running && text === undefined) return
  following = false // the editor changes the height of the chat, which must not move away what is edited
  const again = choice => error => {
    writeOn = false
    if (error) fail(error)
    editTurn(turn, choice.text, choice.reasoning)
  }
  if (!turn.info) {
    const choice = await edit(turn, { label: turn.el.matches('.result') ? 'The result' : 'Your message', note: 'What was written before stays as another version.', submit: 'Send', text })
    const settings = choice && usable()
    if (settings) link.command('edit', { message: turn.id, text: choice.text, system: system.value, settings, ...turn.pictures.length && { pictures: turn.pictures.map(p => p.hash) } }).then(toEnd, again(choice))
    else if (choice) again(choice)()
    return
  }
  const choice = await edit(turn, { label: 'The answer', note: 'What the model wrote stays as another version.', submit: 'Save and continue', alternative: 'Save', text, reasoning })
  if (!choice) return
  writeOn = choice.go
  link.command('rewrite', { answer: turn.id, text: choice.text, reasoning: choice.reasoning }).catch(again(choice))
}

let forking = false
function fork(turn) {
  if (!turn || forking) return
  forking = true
  link.command('fork', { message: turn.id }).then(ack => location.assign(route(`/c/${ack.chat}`)), error => {
    forking = false
    fail(error)
  })
}
addEventListener('pagehide', () => { forking = false }) // the page may come back as it was

const entering = $('[data-enter-sends]')
$('#composer').addEventListener('submit', e => {
  e.preventDefault()
  send(message.value)
})
message.addEventListener('keydown', e => {
  if (sends(e, entering.checked)) {
    e.preventDefault()
    send(message.value)
  }
})
message.addEventListener('input', () => {
  if (!temporary) keepDraft(link.chat, message.value)
  if (shared() && message.value) typed(() => link.command('typing').catch(() => {}))
  recount()
})
function setDraft(text) {
  message.value = text
  recount()
  if (!temporary || !text) keepDraft(link.chat, text)
}
$('[data-stop]').addEventListener('click', e => { if (isFirst(e)) stop() })
for (const button of $$('[data-close-note]')) button.addEventListener('click', () => {
  const note = button.closest('.note')
  note.dataset.closed = note.querySelector('span').textContent // it comes back when it says something else
  note.hidden = true
  message.focus()
})
for (const card of $$('[data-lesson]')) card.addEventListener('click', () => learn(card.dataset.lesson, card.dataset.prompt))

const copyAt = async (button, text, shown) => reply(button, await copy(text, shown))

chat.el.addEventListener('click', e => {
  const button = e.target.closest('button'), turn = chat.at(button)
  if (!turn) return
  if (button.matches('[data-again]')) again(turn)
  else if (button.matches('[data-answer-this]')) answerTo(turn)
  else if (button.matches('[data-sheet]')) openContactSheet(turn)
  else if (button.matches('[data-continue]')) goOn(turn.id)
  else if (button.matches('[data-rewind]')) rewind(turn)
  else if (button.matches('[data-tokens]')) tokens.toggle(turn)
  else if (button.matches('[data-copy]')) copyAt(button, turn.said ?? turn.text, turn.el.querySelector('.prose'))
  else if (button.matches('[data-copy-code]')) {
    const code = button.closest('.code').querySelector('code')
    copyAt(button, code.textContent, code)
  }
  else if (button.matches('[data-edit]')) editTurn(turn)
  else if (button.matches('[data-choose-model]')) picker.open(button)
  else if (button.matches('[data-edit-question]')) editTurn(chat.questions.at(-1))
  else if (button.matches('[data-fork]')) fork(turn)
  else if (button.matches('[data-version]')) turnVersion(turn, Number(button.dataset.version))
  else if (button.matches('[data-stop-replay]')) stop()
  else if (button.matches('[data-close-replay]')) button.closest('.replay').hidden = true
})

// give sends the result of a call that a person has typed.
function give(form) {
  ask('result', { answer: chat.at(form).id, text: form.elements.result.value, system: system.value })
}
chat.el.addEventListener('submit', e => {
  if (!e.target.matches('.giving')) return
  e.preventDefault()
  give(e.target)
})
chat.el.addEventListener('keydown', e => {
  if (sends(e, false) && e.target.matches('.giving textarea')) e.target.form.requestSubmit()
})

answerMenu({
  at: el => chat.at(el),
  chat: () => link.chat,
  busy: () => Boolean(chat.running) || chat.replay?.state === 'running',
  last: answer => answer === chat.end && !chat.cut,
  past: answer => ask('continue', { answer: answer.id, past_end: true }),
  use: answer => panel.use(answer.info.settings),
  edit: editTurn,
  fork,
  tree: openTree,
  sheet: openContactSheet,
  share: answer => openShare(link.chat, answer.id),
  replay: answer => link.command('replay', { answer: answer.id }).catch(fail),
  failed: fail,
})

document.addEventListener('click', e => {
  const a = e.target.closest('a[href$="/share"]')
  if (!a || e.ctrlKey || e.metaKey || e.shiftKey) return
  e.preventDefault()
  openShare(new URL(a.href).pathname.split('/').at(-2))
})

// ---- system prompt ----

function showSystem(open) {
  $('#sysbox').hidden = !open
  systemButton.setAttribute('aria-expanded', open)
}
function setSystem(text) {
  system.value = text ?? ''
  const line = $('[data-system-line]')
  line.textContent = $('[data-system-text]').textContent = system.value
  line.title = system.value.slice(0, 500)
  systemButton.setAttribute('aria-pressed', system.value.trim() !== '')
  clearTimeout(systemTimer)
  systemTimer = setTimeout(countSystem, 200)
  showSystemLine()
}

// showOrigin shows from which chat this one was forked.
function showOrigin() {
  const line = $('#origin'), link = line.querySelector('a')
  line.hidden = !chat.origin || chat.more
  if (!chat.origin) return
  link.href = route(`/c/${chat.origin.id}`)
  link.textContent = link.title = chat.origin.title
}

// showSystemLine shows the line with the system prompt above the first message.
function showSystemLine() { $('#sysline').hidden = chat.empty || raw || chat.more || !system.value.trim() }

// countSystem shows the number of tokens in the system prompt, if the server can count them.
async function countSystem() {
  const text = system.value
  const counted = text.trim() && await request(route('/tokenize'), { content: text, model: link.chat ? '' : picker.name, parse_special: false }, () => {})
  if (text !== system.value) return
  const n = counted ? counted.tokens.length : 0
  $('[data-system-count]').textContent = n ? count(n) : ''
  $('[data-system-tokens]').textContent = n ? plural(n, 'token') : ''
}
systemButton.addEventListener('click', () => {
  showSystem($('#sysbox').hidden)
  if (!$('#sysbox').hidden) system.focus()
})
system.addEventListener('input', () => {
  setSystem(system.value)
  panel.changed(true)
  recount()
})

// ---- dialogs, sheet ----

async function openTree() {
  if (!link.chat) return
  const { Tree } = await import('./tree.js')
  new Tree({ chat: link.chat, command: (type, fields) => link.command(type, fields), failed: fail })
}
$('[data-tree]').addEventListener('click', openTree)

const help = $('#help')
for (const button of $$('[data-help]')) button.addEventListener('click', () => help.showModal())
for (const button of $$('[data-close]')) button.addEventListener('click', () => button.closest('dialog').close())
const phone = matchMedia('(max-width: 760px)')
const narrow = matchMedia('(max-width: 1120px)')
const sheetButton = $('[data-sheet-open]')
const railButton = $('[data-rail-open]')

// drawer opens the rail or the settings as an overlay; '' closes both.
function drawer(which) {
  const panel = { rail: narrow.matches && $('#rail'), sheet: phone.matches && $('#inspector') }[which]
  if (panel) document.body.dataset.open = which
  else delete document.body.dataset.open
  $('#scrim').hidden = !panel
  sheetButton.setAttribute('aria-expanded', Boolean(panel) && which === 'sheet')
  railButton.setAttribute('aria-expanded', Boolean(panel) && which === 'rail')
  for (const el of [$('.top'), $('.main'), $('#inspector')]) el.inert = Boolean(panel) && el !== panel
  if (panel) panel.focus()
}
const openSheet = open => drawer(open ? 'sheet' : '')
function closeDrawer() {
  const button = document.body.dataset.open === 'rail' ? railButton : sheetButton
  drawer('')
  button.focus()
}
sheetButton.addEventListener('click', () => drawer('sheet'))
railButton.addEventListener('click', () => drawer('rail'))
$('[data-sheet-close]').addEventListener('click', closeDrawer)
$('[data-rail-close]').addEventListener('click', closeDrawer)
$('#scrim').addEventListener('click', closeDrawer)
for (const width of [phone, narrow]) width.addEventListener('change', () => drawer(''))

// ---- keyboard ----

entering.checked = enterSends()
explain(message, $('[data-hint]'), entering.checked)
entering.addEventListener('change', () => {
  setEnterSends(entering.checked)
  explain(message, $('[data-hint]'), entering.checked)
})
const singleKeys = $('[data-single-keys]')
singleKeys.checked = recall('m40.keys') !== 'off'
singleKeys.addEventListener('change', () => remember('m40.keys', singleKeys.checked ? 'on' : 'off'))

// here returns the turn to which keys apply: the focused one, else the last.
const here = () => chat.at(document.activeElement) ?? chat.end
const button = (turn, name) => turn?.el.querySelector(name)

function step(by) {
  const turns = [...chat.turns.values()]
  const at = turns.indexOf(chat.at(document.activeElement))
  const next = at < 0 ? turns.at(by < 0 ? -1 : 0) : turns[at + by]
  next?.el.focus({ preventScroll: true })
  next?.el.scrollIntoView({ block: 'nearest' })
}

const keys = {
  '/': () => {
    drawer('rail')
    $('#search').focus()
    $('#search').select()
  },
  '?': () => help.showModal(),
  n: () => $('a[data-new]').click(),
  p: () => {
    if (phone.matches) drawer('sheet')
    panel.presets.open()
  },
  b: openTree,
  j: () => step(1),
  k: () => step(-1),
  r: () => here() && (here().info ? again(here()) : answerTo(here())),
  e: () => editTurn(here()),
  f: () => fork(here()),
  g: () => here() && openContactSheet(here()),
  t: () => button(here(), '[data-tokens]:not([hidden]):enabled') && tokens.reach(here()),
  '[': () => turnVersion(here(), -1),
  ']': () => turnVersion(here(), 1),
  c: () => {
    const turn = here()
    if (turn?.text || turn?.reasoning) copyAt(button(turn, '[data-copy]'), turn.said ?? turn.text, turn.el.querySelector('.prose'))
  },
}
addEventListener('keydown', e => {
  if (composing(e)) return // the key is the input method's
  if (e.key === 'Escape' && !document.querySelector('dialog[open], :popover-open')) {
    if (rail.el.contains(document.activeElement) && rail.endSearch()) {
      e.preventDefault()
      return
    }
    if (document.body.dataset.open) closeDrawer()
    else if (document.activeElement === $('#search')) message.focus()
    else if (!$('#sysbox').hidden && document.activeElement === system) {
      showSystem(false)
      systemButton.focus()
    } else if (chat.running || chat.replay?.state === 'running') stop()
    else if (document.activeElement === message && message.value === '') {
      message.blur() // then single keys work
      step(-1)
    }
    return
  }
  if (e.key === 'k' && (e.ctrlKey || e.metaKey) && !e.shiftKey && !e.altKey && !document.querySelector('dialog[open]')) {
    e.preventDefault()
    keys['/']()
    return
  }
  const typing = e.target.closest?.('input:not([type=range]):not([type=checkbox]), textarea, dialog, [popover]')
  if (typing || e.ctrlKey || e.metaKey || e.altKey || !singleKeys.checked) return
  const act = keys[e.key]
  if (act) {
    e.preventDefault()
    act()
  }
})

const preset = $('#composer [name=preset]')?.value
if (preset) { // chosen on the presets page
  panel.presets.use(preset)
  history.replaceState(null, '', picker.name ? route(`/?${new URLSearchParams({ model: picker.name })}`) : route('/'))
}
if (!temporary) message.value = draftOf(link.chat) || message.value
recount()
refresh()
if (!phone.matches && !sought) message.focus()
for (const el of $$('.skip[href="#inspector"]')) el.addEventListener('click', () => drawer('sheet'))
