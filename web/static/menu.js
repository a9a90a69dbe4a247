// Menus below the button that opens them; on a phone they are at the bottom of the screen.
const phone = matchMedia('(max-width: 760px)')
const gap = 8 // px to the edges of the window

// place positions an open popover below a button, or above it if the space below is too small. It aligns
// their left edges, or their right edges if side is 'right' or if the space requires it.
export function place(menu, button, side = 'left') {
  if (phone.matches) {
    menu.removeAttribute('style')
    return
  }
  menu.style.left = menu.style.top = '0' // measured at the origin, where the window does not limit its width
  const at = button.getBoundingClientRect(), size = menu.getBoundingClientRect()
  const left = side === 'right' || at.left + size.width + gap > innerWidth ? at.right - size.width : at.left
  const top = at.bottom + 4 + size.height > innerHeight ? at.top - size.height - 4 : at.bottom + 4
  menu.style.left = `${Math.max(gap, Math.min(left, innerWidth - size.width - gap))}px`
  menu.style.top = `${Math.max(gap, top)}px`
}

// hang positions a popover whenever one of its buttons opens it, and calls opened(button). It returns what opens it at
// another button.
export function hang(menu, opened = () => {}) {
  let opener = null
  document.addEventListener('click', e => { opener = e.target.closest?.(`[popovertarget="${menu.id}"]`) ?? opener }, { capture: true })
  menu.addEventListener('beforetoggle', e => {
    if (e.newState === 'open') opened(opener)
  })
  menu.addEventListener('toggle', e => { // it has no size before
    if (e.newState === 'closed') return
    place(menu, opener)
    ;(menu.querySelector('[data-first]') ?? [...menu.querySelectorAll('.item:not(:disabled)')].find(item => item.checkVisibility()))?.focus()
  })
  return button => {
    opener = button
    menu.showPopover()
  }
}
