// The branches of a chat: all messages with their versions, to show one or to delete it.
import { route } from './base.js'
import { count, figure, messageCount, tokenCount } from './format.js'
import { copyOf } from './html.js'
import { t, tn } from './lang.js'
import { isFirst } from './press.js'
import { request } from './request.js'

export class Tree {
  // on: {chat, command(type, fields), failed(error)}
  constructor(on) {
    this.on = on
    this.el = copyOf('t-tree')
    this.list = this.el.querySelector('ul')
    this.el.querySelector('[data-close-tree]').addEventListener('click', () => this.el.close())
    this.el.addEventListener('close', () => this.el.remove())
    this.list.addEventListener('click', e => this.clicked(e))
    this.list.addEventListener('keydown', e => this.pressed(e))
    document.body.append(this.el)
    this.load().then(shown => {
      if (!shown) return
      this.el.showModal()
      this.focus(this.nodes.findLast(n => n.shown))
    })
  }

  // load gets the messages and lists them. It reports whether it did.
  async load() {
    const tree = await request(route(`/c/${this.on.chat}/tree`), null, error => {
      this.el.remove()
      this.on.failed(error)
    })
    if (!tree) return false
    this.nodes = tree.nodes
    const by = new Map(tree.nodes.map(n => [n.id, n]))
    for (const n of tree.nodes) {
      const above = by.get(n.parent)
      n.children = []
      above?.children.push(n)
      Object.assign(n, { sum: (above?.sum ?? 0) + (n.logprob ?? 0), of: (above?.of ?? 0) + (n.tokens ?? 0), scored: (above?.scored ?? 0) + (n.scored ?? 0) })
    }
    for (const n of tree.nodes.toReversed()) n.size = n.children.reduce((sum, child) => sum + child.size, 1)
    this.list.replaceChildren()
    this.branch(this.list, tree.nodes.filter(n => !n.parent))
    const ends = tree.nodes.filter(n => !n.children.length).length
    this.el.querySelector('[data-about]').textContent = `${[messageCount(tree.nodes.length), tn(ends, '%s branch', '%s branches', count(ends)), tree.more && t('and more that are not listed')].filter(Boolean).join(', ')}. ${t('“log p” is the logarithm of the probability that the model gave all answers up to there.')}`
    return true
  }

  // branch lists versions, each with what follows it: in a list of its own only where there are several.
  branch(list, versions) {
    for (const first of versions) {
      let into = list
      if (versions.length > 1) {
        const item = document.createElement('li'), inner = document.createElement('ul')
        item.append(inner)
        list.append(item)
        into = inner
      }
      let n = first
      for (;; [n] = n.children) {
        into.append(this.item(n))
        if (n.children.length !== 1) break
      }
      this.branch(into, n.children)
    }
  }

  item(n) {
    const el = copyOf('t-node'), show = el.querySelector('[data-node]'), [who, text, facts] = show.children
    el.dataset.id = n.id
    who.textContent = n.role === 'user' ? t('You') : t('Model')
    text.textContent = n.text || t('(empty)')
    if (n.role !== 'user') facts.textContent = [n.tokens && tokenCount(n.tokens), this.logProb(n)].filter(Boolean).join(' · ')
    if (n.shown) show.setAttribute('aria-current', 'true')
    const prune = el.querySelector('[data-prune]')
    prune.hidden = !n.parent && this.nodes.filter(m => !m.parent).length === 1
    prune.setAttribute('aria-label', t('Delete %s from here', messageCount(n.size)))
    return el
  }

  // logProb describes the cumulative log probability of a node.
  logProb({ sum, of, scored }) {
    if (!scored) return ''
    return `log p ${scored < of ? '≤ ' : ''}${figure(sum.toFixed(1)).replace('-', '−')}`
  }

  // focus moves the focus to a message.
  focus(n) { this.list.querySelector(`[data-id="${n?.id}"] [data-node]`)?.focus() }

  nodeOf(el) { return this.nodes.find(n => n.id === Number(el.closest('[data-id]')?.dataset.id)) }

  clicked(e) {
    const button = e.target.closest('button')
    if (!button) return
    const n = this.nodeOf(button)
    if (!button.matches('[data-prune]')) this.show(n)
    else if (isFirst(e)) this.prune(n, button)
  }

  async show(n) {
    try {
      await this.on.command('select', { message: n.id, version: 0 })
      this.el.close()
    } catch (error) { this.refused(error) }
  }

  // prune deletes a message and what follows it, when it is asked a second time.
  async prune(n, button) {
    if (!button.classList.contains('danger')) {
      for (const armed of this.list.querySelectorAll('.danger')) this.arm(armed, '')
      this.arm(button, t('Delete %s', messageCount(n.size)))
      return
    }
    try {
      await this.on.command('prune', { message: n.id })
    } catch (error) {
      this.refused(error)
      return
    }
    const near = this.nodes.find(m => m.parent === n.parent && m.id !== n.id) ?? this.nodes.find(m => m.id === n.parent)
    if (await this.load()) this.focus(near)
  }

  arm(button, text) {
    button.classList.toggle('danger', text !== '')
    button.querySelector('span').textContent = text
  }

  refused(error) {
    this.el.close()
    this.on.failed(error)
  }

  pressed(e) {
    const list = [...this.list.querySelectorAll('[data-node]')], at = list.indexOf(e.target)
    if (at < 0 || e.ctrlKey || e.altKey || e.metaKey) return
    const n = this.nodeOf(e.target), versions = this.nodes.filter(m => m.parent === n.parent)
    const to = {
      ArrowDown: () => list[at + 1]?.focus(),
      ArrowUp: () => list[at - 1]?.focus(),
      ArrowLeft: () => this.focus(this.nodes.find(m => m.id === n.parent)),
      ArrowRight: () => this.focus(n.children[0]),
      '[': () => this.focus(versions[versions.indexOf(n) - 1]),
      ']': () => this.focus(versions[versions.indexOf(n) + 1]),
      Home: () => list[0].focus(),
      End: () => list.at(-1).focus(),
      Delete: () => { if (!e.repeat) e.target.parentElement.querySelector('[data-prune]:not([hidden])')?.click() },
    }[e.key]
    if (!to) return
    e.preventDefault()
    to()
  }
}
