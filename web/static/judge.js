// What moved settings would have made of answers that are there: a line takes the place of the figures under an answer, and
// the tokens that would be impossible are struck out where tokens are shown.
import { route } from './base.js'
import { count } from './format.js'
import { t, tn } from './lang.js'
import { request } from './request.js'

export class Judge {
  // on: {chat(), shown(): answers to judge, view(answer): its tokens or undefined}
  constructor(on) {
    this.on = on
    this.settings = null // null: no setting was moved since the last answer was asked for
    this.verdicts = new WeakMap() // by answer: {settings, verdict, asking}
  }

  // moved judges the answers that are shown by other settings.
  moved(settings) {
    this.settings = settings
    this.look()
  }

  // end takes the verdicts back.
  end() {
    if (!this.settings) return
    this.settings = null
    for (const answer of this.judged ?? []) this.show(answer)
    this.judged = null
  }

  // look judges the answers that are shown by now.
  look() {
    if (!this.settings) return
    for (const answer of this.on.shown()) {
      this.judged = (this.judged ?? new Set()).add(answer)
      this.judge(answer)
    }
  }

  // judge asks for the verdict on an answer, once for each settings. While one question is under way, only the last of those
  // after it is asked.
  async judge(answer) {
    const known = this.verdicts.get(answer) ?? {}
    this.verdicts.set(answer, known)
    if (known.asking) return
    known.asking = true
    while (this.settings && known.settings !== this.settings) {
      known.settings = this.settings
      known.verdict = await request(route(`/c/${this.on.chat()}/tokens/${answer.id}/judge`), this.settings, e => { known.failure = e.message }) ?? { unknown: known.failure }
    }
    known.asking = false
    this.show(answer)
  }

  // first is the first token of an answer that would be impossible, from 0; -1: none.
  first(answer) { return this.of(answer)?.after?.indexOf(0) ?? -1 }

  of(answer) { return this.settings ? this.verdicts.get(answer)?.verdict : undefined }

  // show shows what is known about an answer.
  show(answer) {
    const verdict = this.of(answer), view = this.on.view(answer), line = answer.el.querySelector('.judged')
    view?.judged(verdict)
    const put = (name, text) => { line.querySelector(`[${name}]`).textContent = text }
    const gone = verdict?.after?.filter(p => p === 0).length ?? 0
    const text = gone ? t('would be impossible.') : verdict?.unknown ?? (view ? possible(verdict) : '')
    line.hidden = !text
    answer.el.classList.toggle('is-judged', Boolean(text))
    if (!text) return
    put('data-gone', gone ? tn(verdict.after.length, '%s of %s token', '%s of %s tokens', count(gone), count(verdict.after.length)) : '')
    put('data-verdict', text)
    line.classList.toggle('calm', !gone && !verdict.unknown)
    line.querySelector('[data-show-gone]').hidden = !gone || Boolean(view)
    const on = line.querySelector('[data-continue-at]')
    on.hidden = !gone || !view
    on.textContent = t('Continue from %s', count(this.first(answer) + 1))
    on.title = t('Continue the answer from token %s', count(this.first(answer) + 1))
  }
}

// possible says what of an answer would change although each of its tokens could still be drawn; '' if nothing would.
function possible(verdict) {
  if (!verdict || verdict.diverges < 0 && verdict.after.every((p, i) => p === verdict.before[i])) return ''
  return verdict.diverges < 0 ? t('Each of these tokens would still be possible.') : t('Each token would still be possible. With this seed, another one would come at token %s.', count(verdict.diverges + 1))
}
