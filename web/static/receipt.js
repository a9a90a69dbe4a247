// The menu of a message. That of an answer shows its request as a program, and replays it to compare the tokens.
import { route } from './base.js'
import { copied, copy } from './copy.js'
import { count, percent } from './format.js'
import { t } from './lang.js'
import { hang } from './menu.js'
import { reply } from './reply.js'
import { request } from './request.js'
import { escaped } from './textlist.js'

const $ = q => document.querySelector(q)
const names = { curl: 'curl', python: 'Python', javascript: 'JavaScript' }

// answerMenu handles the menu of answers. on: {at(el), chat(), busy(), last(answer), past(answer), use(answer), edit(answer), fork(answer), remove(button), tree(), share(answer), sheet(answer), blind(answer), replay(answer), failed(error)}
export function answerMenu(on) {
  const menu = $('#answer-menu')
  let answer, opener
  hang(menu, button => {
    opener = button
    answer = on.at(button)
    for (const item of menu.querySelectorAll('[data-replay], [data-edit], [data-delete]')) item.disabled = on.busy()
    for (const name of ['[data-edit]', '[data-fork]']) menu.querySelector(name).hidden = answer.el.querySelector(`.acts ${name}`).checkVisibility() // the row has room for it
    const past = menu.querySelector('[data-past-end]')
    past.hidden = !answer.pastEnd || on.busy() || !on.last(answer)
    past.title = answer.pastEnd ?? ''
    menu.classList.toggle('asked', !answer.info)
    menu.classList.toggle('mine', Boolean(answer.info?.edited))
  })
  menu.addEventListener('click', e => {
    const item = e.target.closest('.item')
    if (!item) return
    menu.hidePopover()
    opener.focus()
    if (item.matches('[data-edit]')) on.edit(answer)
    else if (item.matches('[data-sheet]')) on.sheet(answer)
    else if (item.matches('[data-blind]')) on.blind(answer)
    else if (item.matches('[data-fork]')) on.fork(answer)
    else if (item.matches('[data-delete]')) on.remove(opener)
    else if (item.matches('[data-branches]')) on.tree()
    else if (item.matches('[data-share-from]')) on.share(answer)
    else if (item.matches('[data-past-end]')) on.past(answer)
    else if (item.matches('[data-replay]')) on.replay(answer)
    else if (item.matches('[data-use]')) on.use(answer)
    else copyCode(item.dataset.code)
  })

  async function copyCode(language) {
    const code = await request(route(`/c/${on.chat()}/code/${answer.id}?as=${language}`), null, on.failed)
    if (code === null) return
    if (await copy(code) === copied) {
      reply(opener, t('Copied as %s', names[language]))
      return
    }
    $('#code h2 span').textContent = names[language]
    $('#code code').textContent = code
    $('#code').showModal()
    getSelection().selectAllChildren($('#code code'))
  }
}

const token = text => `“${escaped(text)}”`

// where returns a text about the first token that differs.
function where({ equal, was, is }) {
  const n = count(equal + 1)
  if (!was) return t('The answer ended after token %s, and goes on with %s now.', count(equal), token(is))
  if (!is) return t('Token %s was %s, and the answer ends before it now.', n, token(was))
  return t('Token %s was %s and is %s now.', n, token(was), token(is))
}

// showReplay shows the progress or the result of a replay.
export function showReplay(box, r) {
  const same = t('%s of %s tokens', count(r.equal), count(r.total))
  const [cls, state, text] = {
    running: ['accent', t('replaying'), same],
    equal: ['ok', t('equal'), same],
    differs: ['warn', t('differs'), t('equal: %s', same)],
    stopped: ['', t('stopped'), t('equal so far: %s', same)],
    failed: ['err', t('failed'), r.error ? `${r.error.title}. ${r.error.message}` : ''],
  }[r.state]
  const chip = box.querySelector('.chip')
  chip.className = `chip ${cls}`
  chip.textContent = state
  box.querySelector('[data-replay-text]').textContent = text
  box.querySelector('[data-stop-replay]').hidden = r.state !== 'running'
  box.querySelector('[data-close-replay]').hidden = r.state === 'running'
  const bar = box.querySelector('.bar')
  bar.toggleAttribute('hidden', r.state !== 'running')
  bar.querySelector('.fg').setAttribute('width', percent(r.equal / r.total))
  const place = box.querySelector('[data-replay-where]'), changes = box.querySelector('dl')
  place.hidden = r.state !== 'differs'
  place.textContent = place.hidden ? '' : `${where(r)} ${r.changes ? t('What has changed since:') : t('Nothing else in the receipt has changed.')}`
  changes.hidden = !r.changes
  changes.replaceChildren(...(r.changes ?? []).flatMap(c => {
    const what = document.createElement('dt'), how = document.createElement('dd')
    what.textContent = c.what
    how.textContent = `${c.was} → ${c.is}`
    return [what, how]
  }))
  box.hidden = false
  if (r.state !== 'running') $('#spoken').textContent = t('Replay %s. %s. %s', state, text, place.textContent)
}
