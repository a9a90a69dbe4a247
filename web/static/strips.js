// The strips of the sliders: the candidates of the token in view on each slider's own axis, those that
// the slider's value keeps and those that it cuts.
import { decode, run, spread } from './candidates.js'
import { count } from './format.js'
import { t, tn } from './lang.js'

const ns = 'http://www.w3.org/2000/svg'
const width = 1000, height = 15 // of the drawing; the strip stretches it
const waiting = t('Bars appear with the first answer')
const rarest = 1e-4 // the probability whose bar has no height

const wholePercent = x => `${Math.floor(100 * x + 1e-9)} %`

// Strip draws on the slider of one setting.
export class Strip {
  constructor(param) {
    this.param = param
    const svg = document.createElementNS(ns, 'svg')
    svg.setAttribute('class', 'bars')
    svg.setAttribute('height', height)
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`)
    svg.setAttribute('preserveAspectRatio', 'none')
    this.gone = svg.appendChild(document.createElementNS(ns, 'path'))
    this.kept = svg.appendChild(document.createElementNS(ns, 'path'))
    this.gone.setAttribute('class', 'gone')
    this.kept.setAttribute('class', 'kept')
    param.el.querySelector('.strip svg').prepend(svg)
    this.about = param.range.getAttribute('aria-description')
    param.range.addEventListener('keydown', e => this.pressed(e))
  }

  // pressed moves the slider with Alt and an arrow to the next value that keeps another number.
  pressed(e) {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[e.key]
    if (!way || !e.altKey) return
    e.preventDefault() // Alt and an arrow leave the page
    if (this.step) this.param.set(this.edge(this.step, way))
  }

  // show draws what the sampler gets and leaves; without a step it clears the strip.
  show(step) {
    const { param } = this
    this.step = step
    let kept = '', gone = ''
    if (step && !param.replaced) {
      const whole = step.after === step.before, first = whole ? 0 : step.after?.first ?? 0
      const last = first + (step.after?.count ?? 0)
      for (const [i, bar] of this.bars(step.before).entries()) {
        if (i >= first && i < last) kept += bar
        else gone += bar
      }
    }
    this.kept.setAttribute('d', kept)
    this.gone.setAttribute('d', gone)
    this.say(step)
  }

  bars(pool) {
    const at = v => width * (v <= 0 && this.param.log ? 0 : this.param.share(v))
    return spread(this.param.key, pool).map(({ from, to, share }) => {
      const h = height * Math.max(0.04, 1 - Math.log(Math.max(share, rarest)) / Math.log(rarest))
      const x = at(from), w = Math.max(from === to ? 6 : 1, at(to) - x - 2)
      return `M${x.toFixed(1)} ${height}v${(-h).toFixed(1)}h${w.toFixed(1)}V${height}z`
    })
  }

  // say notes what is kept. A setting that is off has its word for that.
  say(step) {
    const { param } = this
    const cut = step?.after && !param.replaced && !param.unlimited(param.value)
    param.range.setAttribute('aria-description', this.about)
    param.keep.title = ''
    if (!cut) {
      param.note()
      return
    }
    if (step.idle) {
      param.note(t('no effect'))
      param.keep.title = step.idle
      param.range.setAttribute('aria-description', `${this.about}. ${param.keep.title}`)
      return
    }
    const { before, after } = step
    const share = wholePercent(before.share(after)), n = count(after.count)
    param.note(t('keeps %s (%s)', n, share))
    param.keep.title = t('Keeps %s of %s candidates, which have %s of the probability', n, count(before.count), share)
    param.range.setAttribute('aria-description', `${this.about}. ${param.keep.title}`)
  }

  // edge returns the nearest value above (way 1) or below (way -1) the present one at which a bar begins or ends.
  edge(step, way) {
    const values = spread(this.param.key, step.before).flatMap(({ from, to }) => this.param.key === 'top_k' ? [from + 0.5] : [from, to])
    const steps = 10 ** this.param.digits, next = v => way > 0 ? Math.ceil(v * steps - 1e-9) / steps : Math.floor(v * steps + 1e-9) / steps
    const beyond = values.map(next).filter(v => way * (v - this.param.value) > 1e-9 && v >= this.param.lo && v <= this.param.hi)
    return beyond.length ? (way > 0 ? Math.min(...beyond) : Math.max(...beyond)) : this.param.value
  }
}

// Curve draws the number of likely choices over the temperature.
export class Curve extends Strip {
  constructor(param) {
    super(param)
    this.kept.setAttribute('class', 'area')
  }

  pressed() {}

  show(step) {
    const { param } = this
    let path = ''
    if (step && !param.replaced) {
      const points = Array.from({ length: 41 }, (_, i) => step.before.choices(param.lo + (param.hi - param.lo) * i / 40))
      const most = Math.max(2, ...points)
      path = `M0 ${height}${points.map((n, i) => `L${width * i / 40} ${(height - (height - 1) * (n - 1) / (most - 1)).toFixed(1)}`).join('')}V${height}z`
    }
    this.kept.setAttribute('d', path)
    param.keep.title = ''
    if (!step || param.unlimited(param.value)) {
      param.note()
      return
    }
    const n = step.before.choices(param.value)
    const rounded = Math.max(1, Math.round(n))
    param.note(tn(rounded, '≈ %s choice', '≈ %s choices', rounded))
    param.keep.title = t('The number of equally likely candidates with the same entropy')
  }
}

export class Strips {
  constructor(params) {
    this.params = params
    this.strips = ['top_k', 'top_p', 'min_p', 'typical_p'].map(key => new Strip(params.byKey[key]))
    this.strips.push(new Curve(params.byKey.temperature))
    this.caption = document.querySelector('[data-strips]')
    this.shown = null
  }

  // show shows the candidates of a token with a name; null: there are none to show.
  show(candidates = null, name = t('the last token')) {
    if (candidates === this.shown) return
    this.shown = candidates
    this.caption.textContent = candidates ? t('Bars: %s', name) : waiting
    this.pool = candidates && decode(candidates)
    this.draw()
  }

  draw() {
    const order = this.params.byKey.samplers
    const steps = this.pool ? run(this.pool, this.params.values(), order.on) : {}
    for (const strip of this.strips) strip.show(steps[strip.param.key])
  }
}
