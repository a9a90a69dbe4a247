// Shows the status of the engine.
const all = q => document.querySelectorAll(q)

export function showEngine(e) {
  for (const el of all('[data-engine]')) {
    const text = String(e[el.dataset.engine] ?? '')
    if (el.textContent !== text) el.textContent = text
  }
  for (const el of all('[data-engine-dot]')) el.dataset.engineDot = e.state
  for (const el of all('[data-engine-chip]')) el.dataset.engineChip = e.state
  for (const el of all('[data-loading]')) el.toggleAttribute('hidden', e.state !== 'loading') // SVG elements do not have the property hidden
  for (const el of all('[data-loading-share]')) el.setAttribute('width', `${e.loading ?? 0}%`)
  for (const el of all('[data-loading] [role=progressbar]')) el.setAttribute('aria-valuenow', Math.round(e.loading))
  for (const el of all('[data-failed]')) el.hidden = e.state !== 'failed'
  for (const el of all('[data-device-notice]')) el.hidden = !e.device_notice
  for (const el of all('[data-trouble]')) el.hidden = !e.trouble || el.dataset.closed === e.trouble
  for (const el of all('[data-recurrent]')) el.hidden = !e.recurrent_state
  for (const el of all('[data-packing]')) el.hidden = !e.packing
  for (const el of all('[data-decode]')) el.hidden = !e.decode
  for (const el of all('[data-ahead]')) el.hidden = !e.ahead
  for (const el of all('[data-demo]')) el.hidden = !e.demo
  for (const el of all('[data-rate]')) { // the last speed stays visible, in grey
    el.toggleAttribute('data-idle', !e.rate)
    if (e.rate) el.firstChild.textContent = e.rate
  }
}
