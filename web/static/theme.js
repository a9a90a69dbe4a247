// Runs before the first paint, so that a remembered theme does not flash.
(() => {
  try {
    const kept = localStorage.getItem('m40.theme')
    if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept
  } catch { /* storage is off: the system's wish stands */ }
})()
