package browser

import (
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/store"
)

func TestTimesOfPagesAreInTheZoneOfTheReader(t *testing.T) {
	t.Parallel()
	known := handlerstest.PeopleOf(t, handlerstest.OpenStore(t), "")
	s := handlerstest.Server(t, handlerstest.NewScript(), func(c *handlers.Config) { c.Asks, c.People = gate.AsksOthers, known })
	if _, err := known.CreateKey(t.Context(), access.Local, store.OwnerID, "editor"); err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, s)
	run := steps(t, b)
	command(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Pacific/Kiritimati"})
	run("the account page has them", func(t *testing.T) {
		b.do(chromedp.Navigate(s.URL + "/people/" + store.OwnerID))
		b.until("document.readyState === 'complete' && document.querySelector('time[data-time]')")
		if got := b.value("[...document.querySelectorAll('time[data-time]')].filter(el => el.textContent.slice(-5) !== new Date(el.dateTime).toTimeString().slice(0, 5)).map(el => el.outerHTML).join()"); got != "" {
			t.Errorf("these are in another zone: %s", got)
		}
		b.shot("account-times")
	})
	run("the list of chats has their days", func(t *testing.T) {
		b.script(`import(document.querySelector('script[src$="/html.js"]').src.replace('html.js', 'times.js')).then(({ localise }) => {
			const now = new Date(), hour = 3600000, midnight = +new Date(now.getFullYear(), now.getMonth(), now.getDate())
			const day = (name, ...at) => {
				const ul = document.createElement('ul'), h2 = document.createElement('h2')
				ul.dataset.day = h2.textContent = name
				for (const t of at) {
					const li = ul.appendChild(document.createElement('li')), time = li.appendChild(document.createElement('time'))
					time.className = 'when'
					time.dateTime = new Date(t).toISOString()
				}
				return [h2, ul]
			}
			const shown = (...groups) => {
				const holder = document.createElement('div')
				holder.append(...groups.flat(), 'Older chats')
				localise(holder)
				return [...holder.childNodes].map(el => el.localName === 'ul' ? el.childElementCount : el.textContent).join(' ')
			}
			const today = midnight + 60000, yesterday = midnight - 60000, week = midnight - 5 * 24 * hour, older = midnight - 20 * 24 * hour
			window.days = [
				shown(day('Today', today, yesterday), day('Older', week, older)),
				shown(day('Yesterday', today), day('Last week', week, older)),
				shown(day('Today', today), day('Yesterday', yesterday)),
			].join('; ')
		})`)
		b.until("window.days")
		if got, want := b.value("window.days"), "Today 1 Yesterday 1 Last week 1 Older 1 Older chats; Today 1 Last week 1 Older 1 Older chats; Today 1 Yesterday 1 Older chats"; got != want {
			t.Errorf("the lists are %s, want %s", got, want)
		}
	})
	b.clean()
}
