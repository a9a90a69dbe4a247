// Runs before the first paint, so that the page does not flash in another theme than the stored one.
(() => {
  try {
    const kept = localStorage.getItem('m40.theme')
    if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept
  } catch { /* storage is off: the system's preference applies */ }
})()
