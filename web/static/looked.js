// Where an answer looked: what each part of a picture counts for one of its tokens.
import { route } from './base.js'
import { bytes, count, inQueue, percent, roughly, visible } from './format.js'
import { copyOf } from './html.js'
import { t, tn } from './lang.js'
import { request, start } from './request.js'
import { inPercent } from './tokens.js'

// noticed is the least difference of a token's log probability that is worth a word, in nats: a tenth of its probability.
const noticed = 0.1

const chance = logProb => `${inPercent(Math.exp(logProb))} %`

// isAbout reports whether there are pictures before an answer.
export const isAbout = answer => [...document.querySelectorAll('#thread .pics')].some(p => p.compareDocumentPosition(answer.el) & Node.DOCUMENT_POSITION_FOLLOWING)

export class Looked {
  // on: {address(view, at), shown()}. address is where the pictures before a token are.
  constructor(on) {
    this.on = on
    this.picture = -1 // its number; -1: the last one
    this.division = 0
    this.el = copyOf('t-looked')
    this.parts = this.find('.parts')
    this.parts.addEventListener('keydown', e => this.pressed(e))
    this.parts.addEventListener('focusin', e => this.select([...this.parts.children].indexOf(e.target)))
    this.parts.addEventListener('pointerover', e => this.read([...this.parts.children].indexOf(e.target)))
    this.parts.addEventListener('pointerleave', () => this.read(this.selected))
    this.find('[data-score]').addEventListener('click', () => this.score(0))
    this.find('[data-cancel]').addEventListener('click', () => {
      this.cancel()
      this.show(this.view, this.at, false)
    })
  }

  find(q) { return this.el.querySelector(q) }

  get sighted() { return this.sight.pictures[this.picture] }

  // address is where the pictures before the token are.
  get address() { return this.on.address(this.view, this.at) }

  // show shows the pictures for a token. What is being scored goes on, as it is for all tokens of the answer. measure says whether
  // one part is scored if it is not known how long that takes.
  async show(view, at, measure = true) {
    if (this.view !== view) this.cancel()
    Object.assign(this, { view, at })
    this.explain('')
    const sight = await request(this.address, null, e => this.fits(view, at) && this.explain(e.message))
    if (!sight || !this.fits(view, at)) return
    this.sight = sight
    if (this.picture < 0 || this.picture >= sight.pictures.length) this.picture = sight.pictures.length - 1
    this.division = Math.min(this.division, this.sighted.divisions.length - 1)
    this.choices()
    if (!this.asked) await this.open(measure)
  }

  fits(view, at) { return this.view === view && this.at === at }

  // explain says why nothing can be shown; empty: it can.
  explain(reason) {
    this.find('[data-problem]').textContent = reason
    this.find('[data-problem]').hidden = !reason
    for (const el of this.el.querySelectorAll('.seen, .reads')) el.hidden = Boolean(reason)
  }

  // choices shows which picture it is, how it is divided, and what else there is to choose.
  choices() {
    const { pictures } = this.sight, { divisions } = this.sighted
    this.choose('[data-pictures]', pictures.map((_, i) => t('%s of %s', i + 1, pictures.length)), this.picture, at => { [this.picture, this.division] = [at, 0] })
    this.choose('[data-divisions]', divisions.map(d => `${d.x.length} × ${d.y.length}`), this.division, at => { this.division = at })
  }

  // choose lists choices, of which one is chosen. A button that is clicked stays in its place: where it is decides what the click closes.
  choose(group, names, chosen, change) {
    const list = this.find(group)
    list.hidden = names.length < 2
    while (list.children.length > names.length) list.lastChild.remove()
    for (const [at, name] of names.entries()) {
      const button = list.children[at] ?? list.appendChild(document.createElement('button'))
      button.type = 'button'
      button.className = 'btn small'
      button.textContent = name
      button.setAttribute('aria-pressed', at === chosen)
      button.onclick = () => {
        this.cancel()
        change(at)
        this.choices()
        this.open()
      }
    }
  }

  // open shows what is known of the picture, or what it costs to know it.
  async open(measure = true) {
    const { view, at, sighted: p } = this
    const d = p.divisions[this.division], img = this.find('img')
    img.src = route(`/c/${view.owner.on.chat()}/pictures/${p.hash}`)
    img.width = p.width
    img.height = p.height
    this.find('.seen').style.setProperty('--ratio', p.width / p.height)
    if (d.prompts > 0) {
      this.blank(d)
      if (measure && !d.seconds && this.sight.loaded) await this.score(1)
      else this.offer()
      return
    }
    const looked = await request(`${this.address}?picture=${this.picture}&division=${this.division}`, null, e => this.explain(e.message))
    if (looked && this.fits(view, at)) this.draw(looked)
  }

  // offer says what the parts cost, and waits to be told.
  offer() {
    const d = this.sighted.divisions[this.division]
    if (!d.prompts) return
    const prompts = tn(d.prompts, '%s prompt', '%s prompts', count(d.prompts)), parts = d.x.length * d.y.length
    const time = d.seconds ? t('about %s', roughly(1000 * d.seconds)) : this.sight.loaded ? t('how long that takes is not known yet') : t('the model is loaded before')
    this.find('[data-price]').textContent = t('The model reads the picture once more without each of %s parts, and the answer is scored behind it: %s; %s.', count(parts), prompts, time)
    this.find('[data-score]').textContent = this.sight.loaded ? t('Score %s', prompts) : t('Load the model and score %s', prompts)
    this.find('.price').hidden = false
  }

  // score scores the parts, or at most so many of them.
  async score(most) {
    this.cancel()
    const asked = this.asked = new AbortController()
    this.find('.price').hidden = true
    this.progress({ parts: { done: 0, total: 0 } }, most)
    let said = null
    await start(this.address, { picture: this.picture, division: this.division, parts: most }, asked.signal, line => {
      if (line.looked || line.error) said = line
      else if (this.asked === asked) this.progress(line, most)
    }, error => { said = { error } })
    if (this.asked !== asked) return
    this.asked = null
    this.progress(null)
    if (said?.error || !said) this.explain(said?.error?.message ?? t('The connection ended before all parts were scored.'))
    else if (this.el.isConnected) await this.show(this.view, this.at)
  }

  cancel() {
    this.asked?.abort()
    this.asked = null
    this.progress(null)
  }

  // progress shows how far the parts are; null: none are scored.
  progress(line, most) {
    this.find('.passing').hidden = !line
    if (!line) return
    const { queued, loading, parts } = line
    let what = most ? t('Measuring how long one part takes') : t('Scoring the answer without each part'), amount = '', share = 0
    if (queued) amount = inQueue({ position: queued.position })
    else if (loading) [what, amount, share] = [t('Loading %s', loading.model), loading.total ? t('%s of %s', bytes(loading.done), bytes(loading.total)) : '', loading.total ? loading.done / loading.total : 0]
    else if (!most && parts.total) {
      amount = t('%s of %s parts', count(parts.done), count(parts.total)) + (parts.left_s ? `, ${t('about %s left', roughly(1000 * parts.left_s))}` : '')
      share = parts.done / parts.total
    }
    this.find('[data-pass]').textContent = what
    this.find('[data-pass-amount]').textContent = amount
    this.find('.bar .fg').setAttribute('width', percent(share))
    this.find('.bar').setAttribute('aria-valuenow', Math.round(100 * share))
  }

  // grid lays out the parts.
  grid(x, y) {
    const widths = edges => edges.map((edge, i) => `${edge - (edges[i - 1] ?? 0)}fr`).join(' ')
    this.parts.style.setProperty('grid-template-columns', widths(x))
    this.parts.style.setProperty('grid-template-rows', widths(y))
    this.columns = x.length
    this.rows = y.length
  }

  // blank shows the picture with the bounds of its parts.
  blank(d) {
    this.grid(d.x, d.y)
    this.looked = null
    this.selected = -1
    this.parts.replaceChildren(...Array.from({ length: d.x.length * d.y.length }, () => document.createElement('span')))
    this.el.classList.remove('known')
    this.find('[data-result]').textContent = this.find('[data-part]').textContent = ''
    this.on.shown()
  }

  // draw shows what each part counts for the token.
  draw(looked) {
    this.find('.price').hidden = true
    this.grid(looked.x, looked.y)
    this.looked = looked
    const counts = this.counts = looked.without.map(w => looked.whole - w)
    const most = Math.max(noticed, ...counts.map(Math.abs))
    this.parts.replaceChildren(...counts.map((c, i) => {
      const el = document.createElement('span')
      el.setAttribute('role', 'button')
      el.setAttribute('aria-label', this.said(i))
      el.tabIndex = -1
      el.className = c < 0 ? 'against' : 'for'
      el.style.setProperty('--share', percent(0.72 * Math.abs(c) / most))
      return el
    }))
    this.el.classList.add('known')
    const top = counts.reduce((a, c, i) => c > counts[a] ? i : a, 0), name = visible(this.view.tokens[this.at].text)
    this.find('[data-result]').textContent = Math.max(...counts.map(Math.abs)) < noticed
      ? t('“%s” has %s. No part counts for it: without any of them it is about as likely.', name, chance(looked.whole))
      : counts[top] < noticed ? t('“%s” has %s. No part makes it likelier.', name, chance(looked.whole))
        : t('“%s” has %s, and without the part that counts most %s.', name, chance(looked.whole), chance(looked.without[top]))
    this.selected = -1
    this.select(top)
    this.on.shown()
  }

  // said describes a part.
  said(i) {
    const { whole, without } = this.looked
    return t('Row %s, column %s: %s without this part, %s with it', Math.floor(i / this.columns) + 1, i % this.columns + 1, chance(without[i]), chance(whole))
  }

  read(i) { if (this.looked && i >= 0) this.find('[data-part]').textContent = this.said(i) }

  // select marks a part as the one that is described.
  select(i) {
    const list = this.parts.children
    if (!this.looked || i < 0 || i >= list.length) return
    for (const el of list) {
      el.tabIndex = -1
      el.removeAttribute('aria-pressed')
    }
    list[i].tabIndex = 0
    list[i].setAttribute('aria-pressed', 'true')
    this.selected = i
    this.read(i)
  }

  pressed(e) {
    const at = this.selected, column = at % this.columns
    const to = { ArrowLeft: column > 0 ? at - 1 : -1, ArrowRight: column < this.columns - 1 ? at + 1 : -1, ArrowUp: at - this.columns, ArrowDown: at + this.columns, Home: 0, End: this.columns * this.rows - 1 }[e.key]
    if (to === undefined || e.ctrlKey || e.altKey || e.metaKey) return
    e.preventDefault()
    e.stopPropagation()
    this.parts.children[to]?.focus()
  }
}
