// The page of a contact sheet: requests it, and shows its answers while they are written.
// handlers/page/sheet.go describes the stream.
import { route } from './base.js'
import { cellStream, hideProblem, showProblem } from './cells.js'
import { count, percent } from './format.js'
import { copyOf, fragment } from './html.js'
import { t, tn } from './lang.js'
import { isFirst } from './press.js'
import { request } from './request.js'
import './toggle.js'

const $ = q => document.querySelector(q)
const $$ = q => document.querySelectorAll(q)
const { chat, question } = document.body.dataset
const address = route(`/c/${chat}/sheet`)
const form = $('#axes'), table = $('#sheet'), columns = $('.columns')
const field = name => form.elements[name]

let source, texts = [], cells = [], width = 0

// ---- the form ----

const words = text => text.split(/[\s;]+/).filter(Boolean)

// offer shows the field for the values of an axis, with values that suit its setting.
function offer(axis, filled) {
  const values = field(`${axis}-values`), setting = field(axis).selectedOptions[0]
  values.hidden = !setting.value
  if (!filled) values.value = setting.dataset.values ?? ''
}

function size() {
  const n = axis => field(axis).value ? words(field(`${axis}-values`).value).length : 1
  const answers = n('across') * n('down') * words(field('seeds').value).length
  $('[data-count]').textContent = answers ? tn(answers, '%s answer', '%s answers', count(answers)) : ''
}

for (const axis of ['across', 'down']) {
  offer(axis)
  field(axis).addEventListener('change', () => { offer(axis); size() })
}
form.addEventListener('input', size)
size()

// fields are those that an error can be about, by the name that the server has for it.
const fields = { seeds: 'seeds', max_tokens: 'max_tokens', across: 'across-values', down: 'down-values' }

function failed(error) {
  showProblem(error)
  field(fields[error.param])?.setAttribute('aria-invalid', 'true')
}

function clearProblem() {
  hideProblem()
  for (const el of form.elements) el.removeAttribute('aria-invalid')
}

form.addEventListener('submit', async e => {
  e.preventDefault()
  if (form.ariaBusy === 'true') return
  clearProblem()
  form.ariaBusy = 'true'
  const axis = name => ({ key: field(name).value, values: field(name).value ? field(`${name}-values`).value : '' })
  const wanted = { question: Number(question), max_tokens: Number(field('max_tokens').value) || 0, across: axis('across'), down: axis('down'), seeds: field('seeds').value }
  if (await request(address, wanted, failed)) follow()
  form.ariaBusy = 'false'
})

$('[data-stop-all]').addEventListener('click', e => { if (isFirst(e)) request(`${address}/stop`, {}, failed) })

// ---- the table ----

// named returns the text of a heading, such as "temperature 0.2".
const named = ({ values }) => values.map(v => `${v.name} ${v.text}`).join(', ')

function heading(scope, { values }, bare) {
  const th = document.createElement('th')
  th.scope = scope
  for (const v of values) {
    const line = document.createElement('span'), name = document.createElement('span'), value = document.createElement('span')
    name.className = 'dim'
    name.textContent = v.name
    value.className = 'mono'
    value.textContent = v.text
    line.append(...bare ? [value] : [name, ' ', value])
    if (v.panel) {
      const note = document.createElement('span')
      note.className = 'dim'
      note.textContent = ` ${t('as in the panel')}`
      line.append(note)
    }
    th.append(line)
  }
  return th
}

// build makes an empty table.
function build(sheet) {
  width = sheet.columns.length
  texts = []
  cells = []
  const bare = sheet.columns.every(c => c.values.length === 1)
  const corner = document.createElement('td')
  corner.className = 'dim'
  corner.textContent = bare ? sheet.columns[0].values[0]?.name ?? '' : ''
  table.tHead.rows[0].replaceChildren(corner, ...sheet.columns.map(c => heading('col', c, bare)))
  table.tBodies[0].replaceChildren(...sheet.rows.map(row => {
    const tr = document.createElement('tr')
    tr.append(heading('row', row))
    for (const column of sheet.columns) {
      const td = copyOf('t-cell'), article = td.querySelector('article'), place = [column, row].map(named).filter(Boolean).join(', ')
      article.setAttribute('aria-label', place)
      td.querySelector('.place').textContent = named(row) || place // the column is chosen above
      cells.push(td)
      texts.push('')
      tr.append(td)
    }
    return tr
  }))
  cells[0].querySelector('article').tabIndex = 0
  table.style.minWidth = `${100 + 200 * width}px`
  columns.replaceChildren(...width > 1 ? sheet.columns.map((column, i) => {
    const button = document.createElement('button')
    button.type = 'button'
    button.className = 'mono'
    button.textContent = bare ? column.values[0].text : named(column)
    button.setAttribute('aria-label', named(column))
    button.addEventListener('click', () => show(i))
    return button
  }) : [])
  columns.hidden = width < 2
  show(0)
  table.hidden = $('.sheetkey').hidden = false
  $('.kept-note').hidden = true
}

// show makes one column visible where there is no room for more.
function show(column) {
  cells.forEach((td, i) => td.classList.toggle('aside', i % width !== column))
  ;[...columns.children].forEach((button, i) => button.setAttribute('aria-pressed', i === column))
}

const warns = new Set(['length', 'context', 'repetition'])

// chipOf returns the class and the text of the chip of an answer; no text: it has none.
function chipOf(c) {
  if (c.state === 'waiting') return ['', t('waiting')]
  if (c.state === 'writing') return ['accent', t('writing')]
  if (c.ending && c.ending.kind !== 'finished') return [c.ending.kind === 'failed' ? 'err' : warns.has(c.ending.kind) ? 'warn' : '', c.ending.code ? `${c.ending.text} ${c.ending.code}` : c.ending.text]
  if (c.index === 0) return ['', t('reference')]
  return ['', c.equal ? t('same as the first') : '']
}

function apply(c) {
  const td = cells[c.index], part = name => td.querySelector(name)
  const text = texts[c.index] += c.text ?? '', same = c.same ?? 0
  const lead = text.length - text.trimStart().length // white space that the model begins with
  part('.same').textContent = text.slice(lead, same)
  part('.new').textContent = text.slice(Math.max(lead, same))
  const split = part('.split')
  split.toggleAttribute('hidden', !c.differs)
  split.querySelector('.mono').textContent = c.differs ? count(c.differs) : ''
  split.title = c.differs ? t('The first token that differs is number %s', count(c.differs)) : ''
  if (c.html) render(td, c.html)
  part('.caret').hidden = c.state !== 'writing'
  const [kind, label] = chipOf(c)
  part('[data-chip]').className = `chip ${kind}`
  part('[data-chip]').textContent = label
  part('[data-chip]').hidden = !label
  part('[data-note]').textContent = c.note ?? ''
  part('[data-note]').hidden = !c.note
  const running = c.state === 'waiting' || c.state === 'writing'
  part('article').setAttribute('aria-busy', running)
  handOver(part('[data-stop-cell]'), !running, part('[data-keep]'))
  part('[data-keep]').hidden = running || !text
  part('[data-tokens]').textContent = c.tokens ? t('%s tok', count(c.tokens)) : '–'
  part('[data-mean]').textContent = c.mean ? `${Math.round(100 * c.mean)} %` : ''
  part('.bar .fg').setAttribute('width', percent(c.mean ?? 0))
  part('.bar').setAttribute('aria-label', c.mean ? t('mean probability %s percent', Math.round(100 * c.mean)) : t('no tokens yet'))
  if (c.kept) kept(td, c.kept)
}

const partMark = '\uE000' // in the HTML of an answer where it parts from the first one
const shared = globalThis.Highlight ? new Highlight() : new Set() // what answers have in common with the first one
if (globalThis.Highlight) CSS.highlights.set('shared', shared)

// render shows an answer that has ended with its markup.
function render(td, html) {
  const prose = td.querySelector('.prose'), split = td.querySelector('p .split').cloneNode(true)
  prose.replaceChildren(fragment(html))
  const texts = document.createTreeWalker(prose, NodeFilter.SHOW_TEXT)
  while (texts.nextNode()) {
    const node = texts.currentNode, at = node.data.indexOf(partMark)
    if (at < 0) continue
    const rest = node.splitText(at)
    rest.deleteData(0, partMark.length)
    rest.before(split)
    const range = new Range()
    range.setStart(prose, 0)
    range.setEndBefore(split)
    shared.add(range)
    break
  }
  td.querySelector('p.txt').hidden = true
  prose.hidden = false
}

// handOver hides a button and gives its focus to another one.
function handOver(button, hide, next) {
  const focused = hide && document.activeElement === button
  if (focused) {
    next.hidden = false
    next.focus()
  }
  button.hidden = hide
}

function kept(td, message) {
  td.classList.add('kept')
  td.querySelector('[data-kept]').hidden = false
  td.querySelector('[data-keep]').setAttribute('aria-pressed', 'true')
  $('[data-kept-link]').href = route(`/c/${chat}?at=${message}#m${message}`)
  $('.kept-note').hidden = false
}

const indexOf = el => cells.indexOf(el.closest('.cell'))

table.addEventListener('click', async e => {
  const button = e.target.closest('button')
  if (!button) return
  clearProblem()
  const cell = indexOf(button)
  if (button.matches('[data-stop-cell]')) await request(`${address}/stop`, { cell }, failed)
  else {
    const done = await request(`${address}/keep`, { cell }, failed)
    if (done) kept(cells[cell], done.message)
  }
})

// Arrows walk from answer to answer.
table.addEventListener('keydown', e => {
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -width, ArrowDown: width }[e.key]
  if (!by || !e.target.closest('.cell')) return
  const from = indexOf(e.target), to = from + by
  if (!cells[to] || (Math.abs(by) === 1 && width > 1 && Math.floor(from / width) !== Math.floor(to / width))) return
  e.preventDefault()
  for (const td of cells) td.querySelector('article').tabIndex = -1
  const next = cells[to].querySelector('article')
  next.tabIndex = 0
  if (cells[to].classList.contains('aside')) show(to % width)
  next.focus()
})

// ---- the stream ----

const takes = {
  sheet: build,
  cells: list => list.forEach(apply),
  figures({ prompt, states }) {
    $('[data-prompt-cost]').textContent = prompt
    for (const el of $$('[data-states]')) el.textContent = states
  },
  over() {
    end()
    $('#spoken').textContent = t('All answers have ended: %s.', $('[data-states]').textContent)
  },
}

function end() {
  source?.close()
  handOver($('[data-stop-all]'), true, form.querySelector('[type=submit]'))
  form.querySelector('[type=submit]').hidden = false
}

// follow shows the sheet that the server has.
function follow() {
  source?.close()
  handOver(form.querySelector('[type=submit]'), true, $('[data-stop-all]'))
  $('[data-stop-all]').hidden = false
  source = cellStream(`${address}/events`, takes, { ended: end, gone: t('The server does not have this sheet any more. Answers that you kept are in the chat.') })
}

if ('shown' in document.body.dataset) follow()
else if (new URLSearchParams(location.search).has('start')) {
  history.replaceState(null, '', `${location.pathname}?question=${question}`) // loaded again, the page does not start again
  form.requestSubmit()
}
