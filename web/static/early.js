// Runs before the first paint: what cannot wait for the page's modules.
{
  // The page does not flash in another theme than the stored one.
  try {
    const kept = localStorage.getItem('m40.theme')
    if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept
    const size = localStorage.getItem('m40.text')
    if (size) document.documentElement.dataset.text = size
    for (const name of ['rail', 'insp', 'code']) {
      const value = localStorage.getItem(`m40.${name}`)
      if (value) document.documentElement.dataset[name] = value
    }
  } catch { /* storage is off: the system's preference applies */ }

  // A form without an address is for the page's modules. Sent before they have run, which is before DOMContentLoaded, it
  // would load the page anew and lose what was typed: it is sent again then.
  let ready = false, sent
  document.addEventListener('submit', e => {
    if (ready || e.defaultPrevented || e.target.hasAttribute('action')) return
    e.preventDefault()
    sent ??= e
  })
  document.addEventListener('DOMContentLoaded', () => {
    ready = true
    sent?.target.requestSubmit(sent.submitter)
  })
}
