// The entropy minimap next to the scroll bar: where in the answers whose tokens are shown the model was unsure.
const svg = name => document.createElementNS('http://www.w3.org/2000/svg', name)

// unsure is the entropy in bits from which on a line has a bar; bounds are those of the colours.
export const unsure = 0.9
const bounds = [0.9, 1.6, 2.4, 3.2]

export class Minimap {
  // views returns the views that are shown; pick(view, at) selects a token.
  constructor(scroller, views, pick) {
    Object.assign(this, { scroller, views, pick, lines: [] })
    this.el = svg('svg')
    this.el.classList.add('minimap')
    this.el.setAttribute('aria-hidden', 'true') // the key u does the same
    this.el.addEventListener('click', e => this.jump(e))
    const sizes = new ResizeObserver(() => this.soon())
    sizes.observe(scroller)
    sizes.observe(scroller.firstElementChild)
    this.sizes = sizes
  }

  // soon draws once before the next frame, however often it is called.
  soon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null
      this.draw()
    })
  }

  draw() {
    const views = this.views()
    if (!views.length) {
      this.el.remove()
      return
    }
    const { scroller } = this, box = scroller.getBoundingClientRect()
    this.lines = views.flatMap(view => this.linesOf(view, box.top - scroller.scrollTop))
    const bar = line => {
      const el = svg('rect')
      el.classList.add(`e${1 + bounds.filter(b => line.entropy >= b).length}`)
      el.setAttribute('y', `${(100 * line.y / scroller.scrollHeight).toFixed(3)}%`)
      el.setAttribute('width', `${Math.round(100 * Math.min(1, line.entropy / 4))}%`)
      el.setAttribute('height', 3)
      return el
    }
    this.el.replaceChildren(...this.lines.map(bar))
    if (!this.el.isConnected) scroller.after(this.el)
    this.el.style.setProperty('top', `${scroller.offsetTop}px`)
    this.el.style.setProperty('height', `${scroller.clientHeight}px`)
    this.el.style.setProperty('right', `${Math.max(0, (scroller.offsetWidth - scroller.clientWidth) / 2)}px`)
  }

  // linesOf returns for each line of a view with an unsure token the one with the highest entropy.
  linesOf(view, origin) {
    const lines = new Map()
    for (const [at, { known, entropy }] of view.tokens.entries()) {
      if (!known || entropy < unsure) continue
      const y = Math.round(view.spans[at].getClientRects()[0]?.top - origin)
      if (y >= 0 && !(lines.get(y)?.entropy >= entropy)) lines.set(y, { y, entropy, view, at })
    }
    return [...lines.values()]
  }

  // jump selects the token of the bar that is nearest to a click.
  jump(e) {
    const box = this.el.getBoundingClientRect(), y = (e.clientY - box.top) / box.height * this.scroller.scrollHeight
    const near = this.lines.toSorted((a, b) => Math.abs(a.y - y) - Math.abs(b.y - y))[0]
    if (near) this.pick(near.view, near.at)
  }
}
