// Formats numbers, durations and sizes for display.
import { t, tn } from './lang.js'

const language = globalThis.document?.documentElement.lang || 'en'

export const number = n => n.toLocaleString(language)

export const count = n => number(Math.round(n))

// figure returns a number in JavaScript's notation with the decimal separator of the page's language.
export const figure = text => language === 'de' ? `${text}`.replace('.', ',') : `${text}`

export const tokenCount = n => tn(n, '%s token', '%s tokens', count(n))

export const messageCount = n => tn(n, '%s message', '%s messages', count(n))

export const rate = v => figure(v.toFixed(v >= 99.95 ? 0 : 1))

export function duration(ms) {
  if (ms < 10) return `${figure((ms / 1000).toFixed(3))} s`
  if (ms < 10_000) return `${figure((ms / 1000).toFixed(2))} s`
  if (ms < 60_000) return `${figure((ms / 1000).toFixed(1))} s`
  const min = Math.round(ms / 60_000)
  return min < 60 ? `${min} min` : `${Math.floor(min / 60)} h ${min % 60} min`
}

export function ordinal(n) {
  switch (rules.select(n)) {
    case 'one': return t('%sst', count(n))
    case 'two': return t('%snd', count(n))
    case 'few': return t('%srd', count(n))
  }
  return t('%sth', count(n))
}

// inQueue says at which position of the queue something is, and for how long.
export function inQueue({ position, wait_s: wait }) {
  return wait ? t('%s in the queue, about %s', ordinal(position), roughly(1000 * wait)) : t('%s in the queue', ordinal(position))
}

const rules = new Intl.PluralRules('en', { type: 'ordinal' })

// roughly formats an estimated duration.
export function roughly(ms) {
  if (ms < 950) return `${figure(Math.max(0.1, ms / 1000).toFixed(1))} s`
  if (ms < 90_000) return `${Math.round(ms / 1000)} s`
  return duration(ms)
}

export function bytes(n) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let i = 0
  for (; n >= 999.5 && i < units.length - 1; i++) n /= 1000
  return `${figure(n.toFixed(i === 0 || n >= 99.95 ? 0 : 1))} ${units[i]}`
}

export const clock = ms => new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })

export const percent = share => `${Math.min(100, Math.max(0, 100 * share)).toFixed(2)}%`

// visible returns the text of a token with its white space made visible.
export const visible = text => text.replace(/ /g, '␣').replace(/\n/g, '↵').replace(/\t/g, '⇥').replace(/\r/g, '␍') || '∅'
