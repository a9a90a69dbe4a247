// The page of blind comparisons: requests two answers, shows them while they are written, and sends the
// vote. handlers/page/blind.go describes the stream.
import { route } from './base.js'
import { cellStream, hideProblem, showProblem } from './cells.js'
import { fragment } from './html.js'
import { t } from './lang.js'
import { isFirst } from './press.js'
import { request } from './request.js'
import './toggle.js'

const $ = q => document.querySelector(q)
const form = $('#blind'), sides = [...document.querySelectorAll('.pair .cell')], votes = [...document.querySelectorAll('[data-vote]')]
const field = name => form.elements[name]

const next = $('[data-next]')

let source, texts = ['', '']

form.addEventListener('submit', async e => {
  e.preventDefault()
  if (form.ariaBusy === 'true') return
  hideProblem()
  form.ariaBusy = 'true'
  const side = name => ({ preset: field(name).value, model: field(`${name}-model`)?.value ?? '' })
  const of = field('chat') ? { chat: field('chat').value, question: Number(field('question').value) } : { text: field('text').value }
  const wanted = { ...of, max_tokens: Number(field('max_tokens').value) || 0, first: side('first'), second: side('second') }
  if (await request(route('/blind'), wanted, showProblem)) follow()
  form.ariaBusy = 'false'
})

$('[data-stop-all]').addEventListener('click', e => { if (isFirst(e)) request(route('/blind/stop'), {}, showProblem) })

// writing shows the buttons for answers that are being written, or for those that have ended.
function writing(on) {
  const submit = form.querySelector('[type=submit]'), stop = $('[data-stop-all]')
  const focused = on ? document.activeElement === submit : document.activeElement === stop
  submit.hidden = on
  stop.hidden = !on
  if (focused) (on ? stop : votes[0]).focus()
}

const again = t('Load the page again to see the count.')

// name shows what wrote the answers, and the vote.
function name({ a, b, vote, chat }) {
  for (const [i, label] of [a, b].entries()) {
    const keep = sides[i].querySelector('[data-keep]')
    sides[i].querySelector('[data-name]').textContent = label || t('hidden until you vote')
    keep.hidden = !vote || !chat
    keep.classList.toggle('primary', vote === 'ab'[i])
  }
  for (const button of votes) {
    button.disabled = Boolean(vote)
    button.setAttribute('aria-pressed', button.dataset.vote === vote)
  }
  next.hidden = !vote || Boolean(field('chat'))
  $('[data-voted]').textContent = vote ? `${t('A is %s, B is %s.', a, b)} ${again}` : ''
}

// An answer that is kept is the chat's.
for (const [i, side] of sides.entries()) {
  side.querySelector('[data-keep]').addEventListener('click', async e => {
    if (!isFirst(e)) return
    const kept = await request(route('/blind/keep'), { side: 'ab'[i] }, showProblem)
    if (kept) location.assign(route(`/c/${kept.chat}?at=${kept.message}#m-${kept.message}`))
  })
}

// apart offers no preset to compare with itself: with one model the two are different ones.
function apart() {
  const same = (field('first-model')?.value ?? '') === (field('second-model')?.value ?? '')
  const second = field('second')
  for (const option of second.options) option.disabled = same && option.value === field('first').value
  if (second.selectedOptions[0]?.disabled) second.value = [...second.options].find(option => !option.disabled)?.value ?? ''
}
form.addEventListener('change', apart)
apart()

// The next question is for the same two.
next.addEventListener('click', () => {
  $('#pair').hidden = $('.vote').hidden = true
  name({})
  for (const button of votes) button.disabled = true // there is nothing to vote on yet: keys press them, too
  field('text').value = ''
  field('text').focus()
})

async function vote(side) {
  hideProblem()
  const names = await request(route('/blind/vote'), { vote: side }, showProblem)
  if (!names) return
  name(names)
  ;(document.querySelector('.pair [data-keep].primary:not([hidden])') ?? next).focus()
  refresh()
}
for (const button of votes) button.addEventListener('click', () => vote(button.dataset.vote))

// refresh replaces the leaderboard by the one that counts the vote.
async function refresh() {
  const page = await request(route('/blind'), null, () => {})
  const board = page && fragment(page).querySelector('.board')
  if (!board) return
  $('.board').replaceWith(board)
  $('[data-voted]').textContent = $('[data-voted]').textContent.replace(` ${again}`, '')
}

addEventListener('keydown', e => {
  const button = votes[Number(e.key) - 1]
  if (!button || button.disabled || e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input, textarea, select')) return
  button.click()
})

const takes = {
  cells: list => {
    for (const c of list) {
      const side = sides[c.index], note = side.querySelector('[data-note]')
      texts[c.index] += c.text ?? ''
      side.querySelector('[data-text]').textContent = texts[c.index]
      side.querySelector('.caret').hidden = c.state !== 'writing'
      side.setAttribute('aria-busy', c.state === 'waiting' || c.state === 'writing')
      note.textContent = c.note ?? ''
      note.hidden = !c.note
    }
  },
  over: names => {
    source.close()
    name(names)
    writing(false)
  },
}

// follow shows the two answers that the server has.
function follow() {
  source?.close()
  $('#pair').hidden = $('.vote').hidden = false
  name({})
  for (const button of votes) button.disabled = true
  writing(true)
  source = cellStream(route('/blind/events'), takes, {
    opened() { texts = ['', ''] }, // the stream begins with all text
    ended() { writing(false) },
    gone: t('The server does not have these answers any more.'),
  })
}

if ('shown' in document.body.dataset) follow()
