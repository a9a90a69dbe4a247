// The button for the light and dark themes. early.js applies the stored theme before the first paint.
for (const button of document.querySelectorAll('[data-theme-toggle]')) button.addEventListener('click', () => {
  const root = document.documentElement
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
  root.dataset.theme = dark ? 'light' : 'dark'
  try { localStorage.setItem('m40.theme', root.dataset.theme) } catch { /* storage is off */ }
})
