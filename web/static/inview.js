// The seed and the candidates that the panel shows: those of the answer in view, or of a selected token.
import { tokenCount, visible } from './format.js'
import { t } from './lang.js'
import { request } from './request.js'

export class InView {
  // on: {answer(): the one in view or undefined, address(id): of the tokens of an answer, look(): judges what is in view}
  constructor(params, on) {
    this.params = params
    this.on = on
    this.inspected = null // {candidates, name} of the selected token
  }

  // inspect shows the candidates of one token; without them those of the answer in view again.
  inspect(candidates, name) {
    this.inspected = candidates && { candidates, name }
    this.show()
  }

  // show shows the seed of the answer in view, and the candidates of its least certain token; while it is written, those
  // of its last one.
  show() {
    const seen = this.on.answer(), { info } = seen ?? {}
    if (seen) this.params.view(info.settings.seed)
    if (seen && !seen.running && info.tokens && info.unsure === undefined) this.fetchUnsure(seen)
    this.on.look()
    if (!this.inspected && info?.asked) return // the bars stay until the answer's own come
    const { candidates, name } = this.inspected ?? info?.unsure ?? { candidates: info?.candidates }
    this.params.strips.show(candidates, name)
  }

  // fetchUnsure gets the candidates of the least certain token of an answer, if the server has stored them.
  async fetchUnsure({ id, info }) {
    info.unsure = null
    info.asked = true
    const least = await request(`${this.on.address(id)}/unsure`, null, () => {})
    info.asked = false
    if (least?.candidates) info.unsure = { candidates: least.candidates, name: t('%s, least certain of %s', visible(least.text), tokenCount(least.total)) }
    this.show()
  }
}
