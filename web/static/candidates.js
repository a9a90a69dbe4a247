// The candidates of one token, and what the samplers remove of them. The arithmetic is that of the
// engine's sampler chain, whose order and definitions are in package sample; numbers are 64-bit floats
// here too.
import { t } from './lang.js'

// Pool is the candidates that a sampler gets: the likeliest of them, with the sum over all.
export class Pool {
  // logits: of the known candidates, likeliest first; count and mass: of all, the mass at temperature 1/inverse
  // first: the number of candidates above them that a sampler has removed
  constructor(logits, count, mass, inverse = 1, first = 0) {
    Object.assign(this, { logits, count, inverse, first })
    this.weights = Float64Array.from(logits, x => Math.exp((x - this.top) * inverse))
    this.mass = mass ?? this.weights.reduce((sum, w) => sum + w, 0)
  }

  // top is the logit whose weight is 1. Sums over candidates that the page does not have refer to 0.
  get top() { return this.complete ? this.logits[0] : 0 }

  // complete reports whether all candidates are known.
  get complete() { return this.logits.length === this.count }

  // keep returns the candidates from to to; null if these are not all known.
  keep(from, to) {
    if (to - from === this.count) return this
    return to > this.logits.length ? null : new Pool(this.logits.subarray(from, to), to - from, undefined, this.inverse, from)
  }

  // share returns the probability of the candidates that a sampler has left.
  share(after) {
    return after === this ? 1 : this.weights.subarray(after.first, after.first + after.count).reduce((sum, w) => sum + w, 0) / this.mass
  }

  // before returns the number of leading candidates for which inside is true; null if they are not all known.
  before(inside) {
    const n = this.weights.findIndex((w, i) => !inside(w, i))
    return n >= 0 ? n : this.complete ? this.count : null
  }

  // choices is the number of equally likely candidates that would have the entropy of these at a
  // temperature; of the known ones.
  choices(temperature = 1 / this.inverse) {
    let mass = 0, dot = 0
    for (const x of this.logits) {
      const e = (x - this.logits[0]) / Math.max(temperature, 1e-6), w = Math.exp(e)
      mass += w
      if (w) dot += w * e
    }
    return Math.exp(Math.log(mass) - dot / mass)
  }
}

// decode returns the pool of the server's candidates.
export function decode({ logits, count, mass }) {
  const bytes = Uint8Array.from(atob(logits), c => c.charCodeAt(0)), view = new DataView(bytes.buffer)
  const known = Float64Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true))
  return new Pool(known, count, known.length === count ? undefined : mass)
}

// cuts has the samplers that remove candidates. Each returns those that it leaves, or null if the page
// does not have enough of them.
const cuts = {
  top_k: (p, s) => s.top_k > 0 ? p.keep(0, Math.min(s.top_k, p.count)) : p,
  top_p: (p, s) => s.top_p < 1 ? atLeast(p, s, massBefore(p, s.top_p)) : p,
  min_p: (p, s) => s.min_p > 0 ? atLeast(p, s, p.before(w => w >= s.min_p * p.weights[0])) : p,
  typical_p: (p, s) => s.typical_p < 1 ? typical(p, s) : p,
  top_n_sigma: (p, s) => s.top_n_sigma > 0 ? sigma(p, s) : p,
}

function atLeast(p, s, n) { return n === null ? null : p.keep(0, Math.min(p.count, Math.max(1, n, s.min_keep))) }

// massBefore returns the number of candidates that reach a share of the mass.
function massBefore(p, share) {
  let sum = 0
  const n = p.before(w => {
    const inside = sum < share * p.mass
    sum += w
    return inside
  })
  return n === 0 ? 1 : n
}

// surprises returns the distance of each candidate's surprise from the entropy, in canonical order.
function surprises(p) {
  const exponents = p.logits.map(x => (x - p.top) * p.inverse)
  const entropy = -exponents.reduce((dot, e, i) => dot + (p.weights[i] ? p.weights[i] * e : 0), 0) / p.mass
  return exponents.map(e => -e - entropy)
}

function typical(p, s) {
  if (!p.complete) return null
  const excess = surprises(p)
  let from = excess.findIndex(x => x >= 0)
  if (from < 0) from = p.count
  let to = from
  for (let sum = 0; (sum <= s.typical_p * p.mass || to - from < s.min_keep) && to - from < p.count;) {
    if (from > 0 && (to === p.count || -excess[from - 1] <= excess[to])) sum += p.weights[--from]
    else sum += p.weights[to++]
  }
  return p.keep(from, to)
}

function sigma(p, s) {
  if (!p.complete) return null
  const mean = p.logits.reduce((sum, x) => sum + x, 0) / p.count
  const deviation = Math.sqrt(p.logits.reduce((sum, x) => sum + (x - mean) ** 2, 0) / p.count)
  return p.keep(0, Math.max(1, p.before((_, i) => p.logits[i] >= p.logits[0] - s.top_n_sigma * deviation)))
}

// heated returns the pool at another temperature; null if the sum over all candidates is not known then.
const heated = (p, t) => t === 1 ? p : p.complete ? new Pool(p.logits, p.count, undefined, 1 / Math.max(t, 1e-300)) : null

// run returns what each sampler gets and leaves, by name: {before, after, idle}. idle says why one that is on
// does nothing: the likeliest token is taken anyway, or Mirostat cuts instead. after is null where the page
// does not know, and the samplers after that one are left out. XTC is left out too: it removes
// candidates by chance, after the strips' last sampler unless the order was changed.
export function run(pool, settings, order) {
  const steps = {}
  const greedy = settings.temperature === 0 && settings.dynatemp_range === 0 && order.includes('temperature')
  const idle = greedy ? t('Has no effect at temperature 0') : settings.mirostat ? t('Has no effect with Mirostat') : ''
  for (const name of order) {
    let after = pool
    if (name in cuts) after = idle ? pool : cuts[name](pool, settings)
    else if (name === 'temperature' && !greedy && settings.dynatemp_range === 0) after = heated(pool, settings.temperature)
    else if (name === 'penalties' || name === 'dry') continue // the server's candidates are those after them
    steps[name] = { before: pool, after, idle: name in cuts ? idle : '' }
    if (!after) break
    pool = after
  }
  return steps
}

// spread returns for each known candidate where it is on the axis of a sampler's slider, as [begin, end]
// in values of the setting, and its probability.
export function spread(name, p) {
  const bars = []
  if (name === 'typical_p') {
    if (!p.complete) return bars
    const excess = surprises(p)
    let sum = 0
    for (const i of [...excess.keys()].sort((a, b) => Math.abs(excess[a]) - Math.abs(excess[b]) || a - b)) {
      bars[i] = { from: sum / p.mass, to: (sum += p.weights[i]) / p.mass, share: p.weights[i] / p.mass }
    }
    return bars
  }
  let sum = 0
  for (const [i, w] of p.weights.entries()) {
    const bar = { share: w / p.mass }
    if (name === 'top_p') [bar.from, bar.to] = [sum / p.mass, (sum + w) / p.mass]
    else if (name === 'top_k') [bar.from, bar.to] = [i + 0.5, i + 1.5]
    else bar.from = bar.to = w / p.weights[0]
    sum += w
    bars.push(bar)
  }
  return bars
}
