package browser

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/store"
)

// drag moves the pressed mouse from one element to another, in steps, and releases it there.
func (b *browser) drag(from, to string) {
	b.t.Helper()
	type point struct{ X, Y float64 }
	middle := func(selector string) (p point) {
		b.until(fmt.Sprintf("document.querySelector(%q)", selector))
		r := b.value(fmt.Sprintf("(r => (r.x + r.width / 2) + ' ' + (r.y + r.height / 2))(document.querySelector(%q).getBoundingClientRect())", selector))
		if _, err := fmt.Sscan(r, &p.X, &p.Y); err != nil {
			b.t.Fatal(err)
		}
		return p
	}
	send := func(kind input.DispatchMouseEventType, p point) {
		command(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: p.X, Y: p.Y, Button: "left", Buttons: 1, ClickCount: 1})
	}
	at := middle(from)
	send("mousePressed", at)
	send("mouseMoved", point{at.X + 12, at.Y + 6})
	b.until("document.querySelector('[data-dragged]')") // what can take the chat is there
	end := middle(to)
	send("mouseMoved", point{end.X, end.Y - 1})
	send("mouseMoved", end)
	b.until("document.querySelector('[data-over]')")
	b.shot("drag")
	send("mouseReleased", end)
	b.until("!document.querySelector('[data-dragged]')")
}

func TestChatsMoveIntoFolders(t *testing.T) {
	t.Parallel()
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	add := func(title, folder string) string {
		t.Helper()
		id, err := handlerstest.ImportList(chats, store.Metadata{Title: title, Placement: store.Placement{Folder: folder}}, []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "About it."}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	add("In it", "Build log")
	add("In another", "Holidays")
	loose := add("Loose", "")
	b := openBrowser(t, server)
	b.open("/")
	run := steps(t, b)
	folderOf := func() string {
		t.Helper()
		c, err := chats.Chat(t.Context(), access.Local, loose)
		if err != nil {
			t.Fatal(err)
		}
		conversation, _, err := chats.Tree(t.Context(), access.Local, c.ID())
		if err != nil {
			t.Fatal(err)
		}
		return conversation.Folder
	}
	row := `[data-conv="` + loose + `"]`
	in := func(folder string) {
		t.Helper()
		b.until(fmt.Sprintf("document.querySelector('%s')?.dataset.folder === %q", row, folder))
		if got := folderOf(); got != folder {
			t.Errorf("the chat is in the folder %q, want %q", got, folder)
		}
	}
	run("by dragging a chat on the name of a folder, which can be undone", func(t *testing.T) {
		b.drag(row+" a", `h2[data-folder="Build log"]`)
		in("Build log")
		b.click("#undo button")
		in("")
	})
	run("by dragging it on a chat in a folder, and out of the folder", func(t *testing.T) {
		b.drag(row+" a", `[data-conv][data-folder="Holidays"]`)
		in("Holidays")
		b.drag(row+" a", ".rail-drop")
		in("")
	})
	run("by the menu, which lists the folders", func(t *testing.T) {
		b.script(`document.querySelector('` + row + ` [data-row-menu]').click()`)
		b.click(".tofolder summary")
		b.until("document.activeElement.dataset.to === 'Build log'")
		if got := b.value("[...document.querySelectorAll('.folders .item')].map(i => i.innerText).join()"); got != "Build log,Holidays" {
			t.Errorf("the menu lists %q", got)
		}
		b.shot("folders-menu")
		b.script("document.activeElement.click()")
		in("Build log")
		b.script(`document.querySelector('` + row + ` [data-row-menu]').click()`)
		b.click(".tofolder summary")
		b.click(`.folders .item[data-to=""]`)
		in("")
	})
	b.clean()
}

func TestOneMessageIsDeleted(t *testing.T) {
	t.Parallel()
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	message := func(id, parent int64, role store.Role, text string) store.Message {
		return store.Message{ID: id, Parent: parent, Role: role, State: store.Done, Text: text}
	}
	id, err := handlerstest.ImportList(chats, store.Metadata{Title: "Moss"}, []store.Message{
		message(1, 0, store.RoleUser, "What is moss?"), message(2, 1, store.RoleAssistant, "A plant."), message(3, 1, store.RoleAssistant, "A small plant without roots, that grows in shade."),
		message(4, 3, store.RoleUser, "And lichen?"), message(5, 4, store.RoleAssistant, "A fungus with algae:\n\n```text\n"+strings.Repeat("a very long line of code ", 20)+"\n```"), message(6, 5, store.RoleUser, "Thanks."),
	}, 6)
	if err != nil {
		t.Fatal(err)
	}
	b := openBrowser(t, server)
	b.open("/c/" + id)
	run := steps(t, b)
	texts := func(want string) {
		t.Helper()
		b.until(fmt.Sprintf("[...document.querySelectorAll('.turn')].map(t => t.querySelector('.prose').innerText.trim().split(/[.:?]/)[0]).join() === %q", want))
	}
	ask := func(turn int, says string) {
		t.Helper()
		b.script(fmt.Sprintf("(t => { t.focus(); t.querySelector('[data-receipt]').click() })(document.querySelectorAll('.turn')[%d])", turn))
		b.script("document.querySelector('#answer-menu:popover-open [data-delete]')?.click()")
		b.until("document.querySelector('#delete-menu:popover-open')")
		if got := b.text("#delete-menu [data-what]"); got != says {
			t.Errorf("it says %q, want %q", got, says)
		}
	}
	run("long lines of code wrap by a toggle that the browser keeps", func(t *testing.T) {
		wide := "(p => p.scrollWidth > p.clientWidth)(document.querySelector('.code pre'))"
		b.until("!" + wide)
		b.click("[data-wrap]")
		b.until(wide + " && document.querySelector('[data-wrap]').ariaPressed === 'false'")
		b.shot("code-scrolls")
		b.open("/c/" + id)
		b.until(wide)
		b.click("[data-wrap]")
		b.until("!" + wide)
	})
	run("a message that is kept stays", func(t *testing.T) {
		for _, size := range []int64{390, 820, 1440} {
			b.size(size, 844, size < 500)
			b.frames()
			ask(3, "Deletes this message. What follows stays.")
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				b.shot(fmt.Sprintf("delete-%d-%s", size, scheme))
			}
		}
		if os.Getenv("M40_LLM_AXE") != "" {
			b.look(axe(t), "the question whether a message is deleted")
		}
		b.click("#delete-menu [data-keep]")
		texts("What is moss,A small plant without roots, that grows in shade,And lichen,A fungus with algae,Thanks")
	})
	run("an answer goes alone", func(t *testing.T) {
		ask(3, "Deletes this message. What follows stays.")
		b.click("#delete-menu [data-delete-now]")
		b.click("[data-close-undo]")
		texts("What is moss,A small plant without roots, that grows in shade,And lichen,Thanks")
	})
	run("a version goes with what follows it", func(t *testing.T) {
		ask(1, "Deletes this version, and 2 messages after it. The other version is shown then.")
		b.click("#delete-menu [data-delete-now]")
		b.click("[data-close-undo]")
		texts("What is moss,A plant")
	})
	run("the first message goes, and its answer is the first then", func(t *testing.T) {
		ask(0, "Deletes this message. What follows stays.")
		b.click("#delete-menu [data-delete-now]")
		b.click("[data-close-undo]")
		texts("A plant")
	})
	run("a message comes back by Undo", func(t *testing.T) {
		ask(0, "Deletes this message.")
		b.click("#delete-menu [data-delete-now]")
		b.until("!document.querySelector('.turn').checkVisibility() && document.activeElement.id === 'message'")
		if got := b.text("#undo span"); got != "Deleted the message" {
			t.Errorf("the notice says %q", got)
		}
		b.click("#undo button")
		b.until("document.querySelector('.turn').checkVisibility() && document.querySelector('#undo').hidden")
	})
	run("the only message stays, and it says what to do", func(t *testing.T) {
		ask(0, "Deletes this message.")
		b.click("#delete-menu [data-delete-now]")
		b.click("[data-close-undo]")
		b.until("document.querySelector('#senderror').checkVisibility() && document.querySelector('#senderror').innerText.includes('delete the conversation')")
		texts("A plant")
	})
	b.clean()
}

func TestColumnsFold(t *testing.T) {
	t.Parallel()
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	b := openBrowser(t, server)
	b.open("/")
	shown := func(rail, insp bool) {
		t.Helper()
		b.until(fmt.Sprintf("document.querySelector('#rail').checkVisibility() === %v && document.querySelector('#inspector').checkVisibility() === %v", rail, insp))
	}
	b.size(1440, 900, false)
	b.shot("fold-none")
	b.click("[data-fold=rail]")
	shown(false, true)
	b.click("[data-fold=insp]")
	shown(false, false)
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.shot("fold-both-" + scheme)
	}
	if wide := b.value("String(document.querySelector('.main').clientWidth === innerWidth)"); wide != "true" {
		t.Error("the chat does not take the room of folded columns")
	}
	b.open("/")
	shown(false, false)
	b.key("/") // unfolds the list to search it
	shown(true, false)
	b.press("Escape", 27)
	b.key("p")
	shown(true, true)
	b.press("Escape", 27)
	b.click("[data-fold=insp]")
	shown(true, false)
	b.shot("fold-insp")
	b.size(900, 900, false)
	shown(false, false)
	b.click("[data-fold=insp]")
	shown(false, true)
	b.shot("fold-900")
	b.clean()
}

func TestASearchMarksWhatItFound(t *testing.T) {
	t.Parallel()
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	for title, text := range map[string]string{"A story about a Fox": "Once upon a time.", "Names for a boat": strings.Repeat("Many words come before. ", 20) + "The red fox, or the\n\nfoxglove."} {
		if _, err := handlerstest.ImportList(chats, store.Metadata{Title: title}, []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: text}}, 1); err != nil {
			t.Fatal(err)
		}
	}
	b := openBrowser(t, server)
	b.open("/?q=fox")
	if got, want := b.value("[...document.querySelectorAll('.rail-list mark')].map(m => m.textContent).join()"), "Fox,fox,foxglove"; got != want {
		t.Errorf("it marks %q, want %q", got, want)
	}
	if got, want := b.text(".conv .hit"), "… before. The red fox, or the foxglove."; got != want {
		t.Errorf("the passage is %q, want %q", got, want)
	}
	b.shot("search-marks")
	b.clean()
}
