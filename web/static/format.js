// Formats numbers, durations and sizes for display.
export const count = n => Math.round(n).toLocaleString('en')

// plural is a number of things: "1 token", "2 tokens".
export const plural = (n, what) => `${count(n)} ${what}${n === 1 ? '' : 's'}`

export const rate = v => v.toFixed(v >= 99.95 ? 0 : 1)

export function duration(ms) {
  if (ms < 10) return `${(ms / 1000).toFixed(3)} s`
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)} s`
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`
  const min = Math.round(ms / 60_000)
  return min < 60 ? `${min} min` : `${Math.floor(min / 60)} h ${min % 60} min`
}

export function ordinal(n) {
  const ends = { one: 'st', two: 'nd', few: 'rd', other: 'th' }
  return `${count(n)}${ends[rules.select(n)]}`
}

const rules = new Intl.PluralRules('en', { type: 'ordinal' })

// roughly formats an estimated duration.
export function roughly(ms) {
  if (ms < 950) return `${Math.max(0.1, ms / 1000).toFixed(1)} s`
  if (ms < 90_000) return `${Math.round(ms / 1000)} s`
  return duration(ms)
}

export function bytes(n) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let i = 0
  for (; n >= 999.5 && i < units.length - 1; i++) n /= 1000
  return `${n.toFixed(i === 0 || n >= 99.95 ? 0 : 1)} ${units[i]}`
}

export const clock = ms => new Date(ms).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })

export const percent = share => `${Math.min(100, Math.max(0, 100 * share)).toFixed(2)}%`

// visible returns the text of a token with its white space made visible.
export const visible = text => text.replace(/ /g, '␣').replace(/\n/g, '↵').replace(/\t/g, '⇥').replace(/\r/g, '␍') || '∅'
