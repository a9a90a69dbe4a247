// The speeds that this browser has measured of each model, in tokens per second.
import { recallObject, remember } from './storage.js'

const kinds = { writing: ['m40.speeds', a => a.speed], reading: ['m40.readings', a => a.reading] }

export class Speeds {
  constructor() {
    for (const [kind, [key]] of Object.entries(kinds)) this[kind] = recallObject(key)
  }

  // measure stores the speeds of answers, of which the newest is the last.
  measure(answers) {
    for (const [kind, [key, speedOf]] of Object.entries(kinds)) {
      const known = JSON.stringify(this[kind])
      for (const a of answers) if (speedOf(a) && !a.running && a.info.model) this[kind][a.info.model] = Math.round(10 * speedOf(a)) / 10
      const now = JSON.stringify(this[kind])
      if (now !== known) remember(key, now)
    }
  }
}
