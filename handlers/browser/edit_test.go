package browser

import (
	"fmt"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/store"
)

func TestEditingAQuestionShowsWhatIsEdited(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	var list []store.Message
	for i := range 3 {
		id := int64(2 * i)
		list = append(list,
			store.Message{ID: id + 1, Parent: id, Role: store.RoleUser, State: store.Done, Text: fmt.Sprintf("question %d\n%s", i+1, strings.Repeat("and more of it\n", 4))},
			store.Message{ID: id + 2, Parent: id + 1, Role: store.RoleAssistant, State: store.Done, Text: strings.Repeat("A line of an answer.\n\n", 40), Answer: &store.Answer{}})
	}
	id, err := handlerstest.ImportList(chats, store.Metadata{Title: "Long"}, list, 6)
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, server)
	for _, width := range []int64{390, 820, 1440} {
		b.size(width, 800, width < 1000)
		b.open("/c/" + id)
		b.until("document.querySelectorAll('.turn').length === 6 && " + idle)
		for n, turn := range map[int]string{3: "5", 1: "1"} {
			b.script("document.querySelector('#tobottom').click()") // the page follows new text
			b.frames()
			b.script(fmt.Sprintf("document.querySelectorAll('.turn')[%s - 1].querySelector('[data-edit]').click()", turn))
			b.until("document.querySelector('.turn.editing textarea')")
			b.frames()
			got := b.value(`(area => { const r = area.getBoundingClientRect(), s = document.querySelector('#scroll').getBoundingClientRect(); return [area === document.activeElement, r.top >= s.top - 1 && r.bottom <= s.bottom + 1, area.scrollHeight <= area.clientHeight + 2, getComputedStyle(area.closest('.turn')).boxShadow !== 'none', area.value.split('\n')[0]].join() })(document.querySelector('.turn.editing textarea'))`)
			if want := fmt.Sprintf("true,true,true,true,question %d", n); got != want {
				t.Errorf("at %d px, question %d: focused, in view, whole, marked, text: %s, want %s", width, n, got, want)
			}
			b.shot(fmt.Sprintf("editing-%d-%d", n, width))
			b.script("document.querySelector('.turn.editing [data-cancel]').click()")
			b.until("!document.querySelector('.editing')")
		}
	}
	b.clean()
}
