// The timeline of an answer: waiting, loading and reading the prompt, then its tokens per second.
import { bytes, count, duration, figure, percent, rate } from './format.js'
import { t } from './lang.js'

const height = 28 // px

// timeline draws the timeline of an answer into an svg, and returns it in words; '' if it is not known.
export function timeline(svg, { timings: t, pace }) {
  const bars = pace?.tokens ?? []
  svg.toggleAttribute('hidden', bars.length < 2)
  if (bars.length < 2) return ''
  const phases = [['q', t.queue_ms], ['ld', t.load_ms], ['pf', t.prefill_ms || Math.max(0, t.first_ms - t.queue_ms - t.load_ms)]]
  const total = phases.reduce((sum, [, ms]) => sum + ms, bars.length * pace.every_ms)
  const most = Math.max(...bars), rects = []
  let x = 0
  const add = (cls, ms, share) => {
    rects.push(rect(cls, x / total, ms / total, share))
    x += ms
  }
  for (const [cls, ms] of phases) if (ms) add(cls, ms, 0.25)
  for (const n of bars) add('dc', pace.every_ms, n / most)
  svg.replaceChildren(...rects)
  return words(bars, pace.every_ms)
}

// reads says how fast decode read the memory, and what part of its bandwidth that is; '' if it is not known.
export function reads({ reads: r }) {
  if (!r?.us || !r.bandwidth) return ''
  const speed = 1e6 * r.bytes / r.us
  return t('%s/s read, %s % of its bandwidth', bytes(speed), Math.round(100 * speed / r.bandwidth))
}

// lookup says how many tokens were drafted, by what, how many of them were drawn, and what that gained; '' if none were drafted.
export function lookup({ lookup: l }) {
  if (!l?.drafted) return ''
  const gain = l.gain ? `, ${t('%s times as fast', figure(l.gain.toFixed(2)))}` : ''
  return t('%s of %s tokens drafted by %s accepted, %s %', count(l.accepted), count(l.drafted), l.by || t('lookup'), Math.round(100 * l.accepted / l.drafted)) + gain
}

function rect(cls, x, width, share) {
  const el = document.createElementNS('http://www.w3.org/2000/svg', 'rect')
  const attributes = { class: cls, x: percent(x), width: percent(width), y: height * (1 - share), height: height * share }
  for (const [name, value] of Object.entries(attributes)) el.setAttribute(name, value)
  return el
}

// words says how fast the slowest and the fastest interval was, and how long the pauses were. The last
// interval is not whole.
function words(bars, every) {
  const whole = bars.slice(0, -1), written = whole.filter(Boolean).map(n => 1000 * n / every)
  const paused = every * (whole.length - written.length)
  const low = Math.min(...written), high = Math.max(...written)
  const speeds = low === high ? `${rate(low)} tok/s` : t('%s to %s tok/s', rate(low), rate(high))
  const steps = t('%s in steps of %s', speeds, duration(every))
  return paused ? `${steps}, ${t('%s of %s without a token', count(whole.length - written.length), count(whole.length))}` : steps
}
