// The stored KV cache of the chat: warm if the next answer need not read the chat again.
import { route } from './base.js'
import { bytes, count } from './format.js'
import { t } from './lang.js'
import { request } from './request.js'

const box = document.querySelector('#kvcache')
const part = name => box.querySelector(`[data-${name}]`)
const form = box.querySelector('form')

export class KVCache {
  // failed is called with the error of a change that the server refused.
  constructor(failed) {
    this.failed = failed
    this.chat = ''
    this.state = ''
    part('remove').addEventListener('click', async () => this.put(await request(route(`/c/${this.chat}/cache/remove`), {}, failed)))
    form.addEventListener('submit', async e => {
      e.preventDefault()
      if (await request(route('/caches'), { megabytes: form.megabytes.valueAsNumber || 0 }, failed)) this.load()
    })
  }

  // show shows the cache of a chat, empty: none. state is a text that changes when the cache may have.
  show(chat, state) {
    if (chat === this.chat && state === this.state) return
    Object.assign(this, { chat, state })
    this.load()
  }

  async load() {
    const chat = this.chat
    const state = chat && await request(route(`/c/${chat}/cache`), null, () => {})
    if (chat === this.chat) this.put(state)
  }

  put(state) {
    box.hidden = !state?.stored
    if (box.hidden) return
    const warm = state.tokens > 0
    const about = warm
      ? t('The next answer need not read the first %s tokens of this chat again: their keys and values are stored on disk.', count(state.tokens))
      : state.megabytes > 0
        ? t('The next answer reads the whole chat again, unless the engine still has it in memory. Its keys and values are stored on disk afterwards.')
        : t('The next answer may have to read the whole chat again: this server does not store keys and values.')
    part('warm').textContent = warm ? t('warm') : t('cold')
    part('warm').classList.toggle('ok', warm)
    part('warm').title = part('about').textContent = about
    part('size').textContent = state.bytes > 0 ? bytes(state.bytes) : ''
    part('total').textContent = bytes(state.total)
    part('remove').hidden = state.bytes === 0
    form.hidden = !state.may
    if (document.activeElement !== form.megabytes) form.megabytes.value = state.megabytes
  }
}
