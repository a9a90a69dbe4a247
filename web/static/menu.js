// Menus that hang under the button that opens them; on a phone they come from below.
const phone = matchMedia('(max-width: 760px)')

// hang places a popover when one of its buttons opens it. opened is told the button.
export function hang(menu, opened = () => {}) {
  let opener = null
  document.addEventListener('click', e => { opener = e.target.closest?.(`[popovertarget="${menu.id}"]`) ?? opener }, { capture: true })
  menu.addEventListener('beforetoggle', e => {
    if (e.newState === 'open') opened(opener)
  })
  menu.addEventListener('toggle', e => { // only now it has a size
    if (e.newState === 'closed') return
    if (phone.matches) menu.removeAttribute('style')
    else {
      const at = opener.getBoundingClientRect(), size = menu.getBoundingClientRect()
      menu.style.left = `${at.left + size.width + 8 <= innerWidth ? at.left : Math.max(8, at.right - size.width)}px`
      menu.style.top = `${at.bottom + 4 + size.height > innerHeight ? Math.max(8, at.top - size.height - 4) : at.bottom + 4}px`
    }
    menu.querySelector('.item:not([hidden], :disabled)')?.focus()
  })
}
