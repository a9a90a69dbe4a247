// Scoring: one pass of the model over the prompt of an answer, or of two models over prompt and answer.
import { route } from './base.js'
import { bytes, count, figure, inQueue, percent } from './format.js'
import { copyOf } from './html.js'
import { t } from './lang.js'
import { start } from './request.js'
import { List } from './tokens.js'

// Prompt is the prompt before an answer whose tokens are shown.
class Prompt extends List {
  constructor(view, tokens) {
    const list = document.createElement('div')
    list.className = 'prose toks prompt'
    list.setAttribute('role', 'group')
    list.setAttribute('aria-label', t('Tokens of the prompt; arrow keys move'))
    super(view.owner, view.answer, tokens, list)
    this.el = view.el
  }

  get at() { return route(`/c/${this.owner.on.chat()}/score/${this.answer.id}`) }

  place(at, total) { return total ? t('prompt token %s of %s', count(at + 1), count(total)) : t('prompt token %s', count(at + 1)) }
}

// passOf describes a line of progress: [what, how far, share].
function passOf({ queued, loading, prefill }, against) {
  if (queued) return [t('Waiting'), inQueue(queued), 0]
  if (loading) return [loading.in_place_of ? t('Loading %s in place of %s: both do not fit into memory', loading.model, loading.in_place_of) : t('Loading %s', loading.model), loading.total ? t('%s of %s', bytes(loading.done), bytes(loading.total)) : '', loading.total ? loading.done / loading.total : 0]
  const { done, total } = prefill
  const who = prefill.against ? t('Scoring with the other model') : against ? t('Scoring with the model of the answer') : t('Scoring the prompt')
  return [who, t('%s of %s tokens', count(done), count(total)), total ? done / total : 0]
}

// Scoring is the controls of one answer, and what was scored.
export class Scoring {
  constructor(view) {
    this.view = view
    this.el = copyOf('t-score')
    this.form = this.find('form')
    this.find('[data-cancel]').addEventListener('click', () => this.cancel())
    this.find('[data-worst]').addEventListener('click', () => this.jump())
    this.form.addEventListener('submit', e => {
      e.preventDefault()
      const [against, device] = this.find('select').value.split('\t')
      this.other = this.find('select').selectedOptions[0].label
      this.ask({ against, device })
    })
    view.list.before(this.el)
  }

  find(q) { return this.el.querySelector(q) }

  // offer lists the models that the answer can be compared with, or hides the list.
  offer() {
    this.form.hidden = !this.form.hidden
    if (this.form.hidden) return
    const options = [...document.querySelectorAll('#model-menu form button')].map(b => new Option(b.value, `${b.value}\t`))
    if (document.querySelector('[data-engine="hardware"]')?.textContent !== 'CPU') options.push(new Option(t('The same model, on the CPU'), '\tcpu'))
    this.find('select').replaceChildren(...options)
    const other = options.find(o => o.value !== `${this.view.answer.info.model}\t`)
    if (other) other.selected = true
    this.find('select').focus()
  }

  // ask scores, and shows how far that is.
  async ask(other) {
    this.cancel()
    const asked = this.asked = new AbortController()
    const { view } = this
    this.progress([t('Scoring'), '', 0])
    let said = null
    await start(route(`/c/${view.owner.on.chat()}/score/${view.answer.id}`), { against: '', device: '', ...other }, asked.signal, line => {
      if (line.scored || line.error) said = line
      else if (this.asked === asked) this.progress(passOf(line, other.against || other.device))
    }, error => { said = { error } })
    if (this.asked !== asked) return
    this.asked = null
    this.progress(null)
    if (said?.scored) this.show(said.scored)
    else view.say(said?.error?.message ?? t('The connection ended before the scores came.'), true)
  }

  cancel() {
    this.asked?.abort()
    this.asked = null
    this.progress(null)
  }

  // progress shows what a pass does; null: there is none.
  progress(pass) {
    this.find('.passing').hidden = !pass
    this.find('form button').disabled = Boolean(pass)
    if (!pass) return
    const [what, amount, share] = pass
    this.find('[data-pass]').textContent = what
    this.find('[data-pass-amount]').textContent = amount
    this.find('.bar .fg').setAttribute('width', percent(share))
    this.find('.bar').setAttribute('aria-valuenow', Math.round(100 * share))
  }

  // show shows the prompt, and what two models differ in.
  show({ prompt, tokens, kl }) {
    const { view } = this
    view.say('')
    if (view.owner.view === this.prompt) view.owner.close(false)
    this.prompt?.list.remove()
    this.prompt = new Prompt(view, tokens.slice(0, prompt))
    this.el.append(this.prompt.list)
    if (kl) this.compare(tokens, prompt, kl)
    view.owner.colour(kl ? 'kl' : view.owner.by)
  }

  compare(tokens, prompt, kl) {
    const { view } = this
    for (const [i, token] of view.tokens.entries()) token.compared = tokens[prompt + i]?.compared
    this.compared = true
    this.worst = kl.worst < prompt ? [this.prompt, kl.worst] : [view, kl.worst - prompt]
    const most = tokens[kl.worst].compared.kl
    this.find('[data-kl]').textContent = t('Divergence of “%s” from %s (Kullback–Leibler, full vocabulary): mean %s nats over %s tokens, worst %s', this.other, view.answer.info.name || view.answer.info.model, figure(kl.mean.toPrecision(3)), count(tokens.length - 1), figure(most.toPrecision(3)))
    this.find('[data-worst]').textContent = t('Show the worst, %s', this.worst[0].place(this.worst[1]))
    this.find('.klsum').hidden = false
    this.form.hidden = true
  }

  // jump selects the token at which the models differ most.
  jump() { this.view.owner.pick(...this.worst) }
}
