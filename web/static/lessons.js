// The lessons of an empty page: prompts, each with what opens when the answer is there: the tokens, a slider, or the
// contact sheet.
const $$ = q => document.querySelectorAll(q)

export class Lessons {
  constructor(page) {
    this.page = page
    this.opens = '' // tokens, or the key of a setting
    for (const card of $$('[data-lesson]')) card.addEventListener('click', () => this.begin(card.dataset.lesson, card.dataset.prompt))
  }

  async begin(opens, prompt) {
    const { composer } = this.page
    if (opens === 'sheet') {
      composer.sendForSheet(prompt)
      return
    }
    this.opens = opens
    if (!await composer.send(prompt)) this.opens = ''
  }

  // answered shows the tokens of the answer to a lesson, and the slider that it is about if there is one.
  async answered(answer) {
    const { opens, page: { tokens, scroll, drawers, dock } } = this
    this.opens = ''
    if (!opens || answer.info.state !== 'done') return
    scroll.stay()
    answer.el.scrollIntoView({ block: 'start' }) // before the tokens, which open at one in sight
    await tokens.toggle(answer)
    if (!tokens.shows(answer)) return
    if (opens === 'tokens') return
    tokens.close(false) // the candidates would cover the words
    if (drawers.phone.matches) {
      dock.show(opens)
      return
    }
    drawers.open('sheet')
    document.querySelector(`[data-param="${opens}"] input[type=range]`).focus()
  }
}
