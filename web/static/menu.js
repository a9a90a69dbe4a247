// Menus that hang under the button that opens them; on a phone they come from below.
const phone = matchMedia('(max-width: 760px)')
const gap = 8 // px to the edges of the window

// place puts an open popover under a button, or over it where there is more room. Their
// left sides are in line, or with side 'right', or for want of room, their right ones.
export function place(menu, button, side = 'left') {
  if (phone.matches) {
    menu.removeAttribute('style')
    return
  }
  menu.style.left = menu.style.top = '0' // it has its own width only where it is placed
  const at = button.getBoundingClientRect(), size = menu.getBoundingClientRect()
  const left = side === 'right' || at.left + size.width + gap > innerWidth ? at.right - size.width : at.left
  const top = at.bottom + 4 + size.height > innerHeight ? at.top - size.height - 4 : at.bottom + 4
  menu.style.left = `${Math.max(gap, Math.min(left, innerWidth - size.width - gap))}px`
  menu.style.top = `${Math.max(gap, top)}px`
}

// hang places a popover when one of its buttons opens it. opened is told the button.
export function hang(menu, opened = () => {}) {
  let opener = null
  document.addEventListener('click', e => { opener = e.target.closest?.(`[popovertarget="${menu.id}"]`) ?? opener }, { capture: true })
  menu.addEventListener('beforetoggle', e => {
    if (e.newState === 'open') opened(opener)
  })
  menu.addEventListener('toggle', e => { // only now it has a size
    if (e.newState === 'closed') return
    place(menu, opener)
    ;[...menu.querySelectorAll('.item:not(:disabled)')].find(item => item.checkVisibility())?.focus()
  })
}
