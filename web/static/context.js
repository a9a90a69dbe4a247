// The context meter: how much of the context the chat uses, and would use with the draft.
import { route } from './base.js'
import { count, percent, roughly, tokenCount } from './format.js'
import { t } from './lang.js'

// advice has the texts to show for a prompt that is too long: for the first prompt of a chat and
// for a later one. The server sends them, because they depend on the model.
export const advice = { first: '', later: '' }

const $ = q => document.querySelector(q)
const pause = 200 // ms between the last input and counting the draft

const keyOf = ({ text, pictures }) => [text, ...pictures].join('\0')

// Counter asks the server for the number of tokens of a prompt with the draft. A new request
// cancels the one before.
export class Counter {
  constructor(changed) {
    this.changed = changed
    this.last = null // {tokens, draft, pictures, context, advice, over, key}
  }

  soon(draft) {
    clearTimeout(this.timer)
    this.asked?.abort()
    this.asked = null
    if (draft.text.trim() === '' && !draft.pictures.length) {
      this.last = null
      this.changed()
      return
    }
    this.timer = setTimeout(() => this.ask(draft), pause)
  }

  async ask(draft) {
    const asked = this.asked = new AbortController()
    try {
      const response = await fetch(route('/count'), {
        method: 'POST',
        headers: { Accept: 'application/json', 'Content-Type': 'application/json' },
        body: JSON.stringify(draft),
        signal: asked.signal,
      })
      const n = response.ok ? await response.json() : null
      if (this.asked !== asked) return
      this.last = n && { ...n, key: keyOf(draft), over: n.context > 0 && n.tokens >= n.context }
      this.changed()
    } catch { /* cancelled, or the server cannot be reached, which the connection bar shows */ }
  }

  // of returns the last result if it is for exactly this text and these pictures, else null.
  of(draft) { return this.last?.key === keyOf(draft) ? this.last : null }
}

// overflow returns a text about how much too long a prompt is. A prompt that fills the context
// exactly is too long as well, because it leaves no space for an answer.
const overflow = (used, all) => used > all ? t('%s too many', count(used - all)) : t('no room for an answer')

// shortest is the shortest time before the first word that is worth saying, in ms.
const shortest = 500

// delay returns how much later the first word comes for a draft, at a speed in tokens per second.
function delay(tokens, speed) {
  const ms = speed ? 1000 * tokens / speed : 0
  return ms < shortest ? '' : `, ${t('adds about %s before the first word', roughly(ms))}`
}

// meter shows the usage of the context: by the last answer, or if there is a draft, by the next
// prompt. reading is the measured speed of reading prompts, in tokens per second; 0: not known.
export function meter({ context, prompt, answer, draft, over, first, reading }) {
  const all = draft?.context || context
  const before = draft ? draft.tokens - draft.draft : prompt
  const more = draft ? draft.draft : answer
  const used = before + more, share = all ? used / all : 0
  $('[data-context]').textContent = all ? t('%s of %s', count(used), count(all)) : '–'
  const bar = $('[data-context-bar]')
  bar.setAttribute('aria-label', !all ? t('Context: size not known yet') : draft ? t('Context: %s of %s tokens after this', count(used), count(all)) : t('Context: %s of %s tokens used', count(used), count(all)))
  bar.classList.toggle('near', share > 0.8 && share < 1)
  bar.classList.toggle('full', share >= 1)
  $('[data-context-prompt]').setAttribute('width', percent(all ? before / all : 0))
  $('[data-context-answer]').setAttribute('x', percent(all ? before / all : 0))
  $('[data-context-answer]').setAttribute('width', percent(all ? Math.min(more, all) / all : 0))
  $('[data-context-prompt-label]').textContent = draft ? t('history') : t('prompt')
  $('[data-context-answer-label]').textContent = draft ? t('draft') : t('last answer')
  $('[data-context-prompt-n]').textContent = count(before)
  $('[data-context-answer-n]').textContent = count(more)
  const left = over || share <= 0.8 ? '' : `. ${draft ? t('%s left for the answer', count(all - used)) : t('%s left for the next question and its answer', count(all - used))}`
  const cost = $('[data-cost]')
  cost.textContent = !all || !used ? '' : over
    ? `${t('%s of %s tokens', count(used), count(all))}: ${overflow(used, all)}. ${draft?.advice || (first ? advice.first : advice.later)}`
    : draft ? `${tokenCount(draft.draft)}, ${t('%s of %s after this', count(used), count(all))}${delay(draft.draft, reading)}${left}` : `${t('%s of %s tokens used', count(used), count(all))}${left}`
  cost.parentElement.classList.toggle('over', Boolean(over))
  cost.parentElement.classList.toggle('near', left !== '')
}
