package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/store"
)

// choose answers the page's next question for files.
func (b *browser) choose(files ...string) {
	b.t.Helper()
	command(b, page.SetInterceptFileChooserDialog, page.SetInterceptFileChooserDialogParams{Enabled: true})
	chooser := make(chan cdp.BackendNodeID, 1)
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	if err := chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*page.EventFileChooserOpened); ok {
			chooser <- e.BackendNodeID
		}
	}); err != nil {
		b.t.Fatal(err)
	}
	b.click("[data-import]")
	command(b, dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: files, BackendNodeID: <-chooser})
}

func TestAClickOnAChatIsNotLostWhenTheListChanges(t *testing.T) {
	t.Parallel()
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	add := func(title string) {
		t.Helper()
		question := []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "About it."}}
		if _, err := handlerstest.ImportList(chats, store.Metadata{Title: title}, question, 1); err != nil {
			t.Fatal(err)
		}
	}
	add("first")
	b := openBrowser(t, server)
	b.open("/")
	b.script(`addEventListener('click', e => { window.clicked = e.target.closest('[data-conv]')?.innerText.split('\n')[0]; e.preventDefault() }, { capture: true })`)
	release := b.hold("#rail-list [data-conv] a", 1)
	told := b.received("chats")
	add("second") // above the first
	b.until(fmt.Sprintf("underWay.received.chats > %d", told))
	b.settled()
	if n := b.value(`String(document.querySelectorAll('#rail-list [data-conv]').length)`); n != "1" {
		t.Errorf("the list has %s rows while one is pressed, want the 1 that it had", n)
	}
	release()
	b.until(`window.clicked === 'first'`)
	b.until(`document.querySelectorAll('#rail-list [data-conv]').length === 2`)
}

func TestFoldersAndImportsInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	folder := t.TempDir()
	for i := range 7 {
		question := []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "About it."}}
		id, err := handlerstest.ImportList(chats, store.Metadata{Title: fmt.Sprintf("Build log %d", i+1)}, question, 1)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if err := chats.List.Move(context.Background(), access.Local, id, "M40 build log"); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := openBrowser(t, server)
	run := steps(t, b)
	listed := func(want string) {
		t.Helper()
		b.until(fmt.Sprintf("document.querySelector('#rail-list .rail-list').innerText.includes(%q)", want))
	}
	unlisted := func(want string) {
		t.Helper()
		b.until(fmt.Sprintf("!document.querySelector('#rail-list .rail-list').innerText.includes(%q)", want))
	}
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}

	run("a folder shows its newest chats, and alone all of them", func(t *testing.T) {
		b.open("/")
		listed("1 more")
		unlisted("Build log 2")
		b.shot("rail-folders")
		b.click(".railmore")
		listed("Build log 2")
		unlisted("Build log 1")
		b.shot("rail-folder")
		b.click("#rail-list .rail-foot a[data-view]")
		listed("Build log 1")
	})

	run("a chat moves into a folder by naming it, and an empty folder is gone", func(t *testing.T) {
		b.script(`[...document.querySelectorAll('.conv-row')].find(r => r.innerText.includes('Build log 1')).querySelector('[data-row-menu]').click()`)
		b.until("document.querySelector('#chat-menu').matches(':popover-open')")
		b.click(".tofolder summary")
		b.until("document.querySelector('.tofolder form').checkVisibility()")
		b.shot("rail-move")
		if got := b.value("document.querySelector('#folders').options.length"); got != "1" {
			t.Errorf("%s folders are offered", got)
		}
		b.fill("#folder", "Stories for Mia")
		b.click(".tofolder form button")
		listed("Stories for Mia")
		b.until("!document.querySelector('#chat-menu').matches(':popover-open')")
		b.script(`[...document.querySelectorAll('.conv-row')].find(r => r.innerText.includes('Build log 1')).querySelector('[data-row-menu]').click()`)
		b.until("document.querySelector('#folder').value === 'Stories for Mia'")
		b.click(".tofolder summary")
		b.fill("#folder", "")
		b.click(".tofolder form button")
		unlisted("Stories for Mia")
		listed("Build log 1")
	})

	run("a folder is renamed in its place, in the list and alone", func(t *testing.T) {
		b.click("#rail-list h2[data-folder] [data-rename-folder]")
		b.until("document.activeElement === document.querySelector('h2.renaming .field')")
		b.fill("h2.renaming .field", "Nothing")
		b.press("Escape", 27)
		b.until("!document.querySelector('h2.renaming') && document.activeElement.matches('[data-rename-folder]')")
		b.script("window.before = document.querySelector('#rail-list'); document.querySelector('#search').dispatchEvent(new Event('input'))")
		b.until("document.querySelector('#rail-list') !== before")
		if b.value("document.activeElement.matches('[data-rename-folder]')") != "true" {
			t.Error("a list that is drawn anew takes the focus away from a folder")
		}
		b.click("#rail-list h2[data-folder] [data-rename-folder]")
		b.shot("rail-rename-folder")
		b.fill("h2.renaming .field", "M40  logbook")
		b.press("Enter", 13)
		b.until("document.querySelector('#rail-list h2').dataset.folder === 'M40 logbook'")
		unlisted("M40 build log")
		b.click("#rail-list h2[data-folder] a")
		listed("Build log 2")
		b.click("#rail-list h2[data-folder] [data-rename-folder]")
		b.fill("h2.renaming .field", "M40 diary")
		b.press("Enter", 13)
		b.until("document.querySelector('#rail-list').dataset.view === 'folder=M40+diary'")
		listed("Build log 2")
		b.click("#rail-list .rail-foot a[data-view]")
		listed("M40 diary")
	})

	run("an exported chat is imported, and the page says what it was", func(t *testing.T) {
		list, err := chats.List.Conversations(context.Background(), access.Local, store.Filter{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		exported := handlerstest.Call(t, server, "GET", "/c/"+list[0].ID+"/export.json", "")
		b.choose(file("chat.json", strings.Replace(exported.Body, list[0].Title, "From afar", 1)))
		b.until("document.querySelector('#undo').innerText.includes('Imported “From afar”, 1 message')")
		listed("From afar")
		b.shot("rail-imported")
		b.click("#undo button")
		b.until("document.querySelector('.chat-head h1')?.innerText === 'From afar'")
	})

	run("a file that is no chat is named, with what to do", func(t *testing.T) {
		b.choose(file("notes.md", "# Notes"))
		b.until("document.querySelector('#senderror').innerText.includes('notes.md: The file is not JSON: export a chat as JSON')")
		b.shot("rail-import-failed")
	})
	b.mu.Lock()
	for i, trouble := range b.troubles {
		if strings.Contains(trouble, "400 (Bad Request)") { // the browser logs what the page says in its own words
			b.troubles = append(b.troubles[:i], b.troubles[i+1:]...)
			break
		}
	}
	b.mu.Unlock()
	b.clean()

	run("without scripts a chat is moved and imported by forms", func(t *testing.T) {
		command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		b.do(chromedp.Reload(), chromedp.WaitReady("#thread .prose"))
		b.click(".chat-head [data-chat-menu]")
		b.do(chromedp.Click(".tofolder summary"), chromedp.WaitVisible("#folder"))
		b.fill("#folder", "Mail")
		b.click(".tofolder form button")
		b.until("document.querySelector('#rail-list').innerText.includes('Mail') && document.querySelector('.chat-head [data-chat-menu]').dataset.folder === 'Mail'")
		b.click("#rail-list h2[data-folder='Mail'] a")
		b.do(chromedp.Click(".folder-name summary"), chromedp.WaitVisible(".folder-name .field"))
		b.shot("rail-rename-folder-without-scripts")
		b.fill(".folder-name .field", "Post")
		b.click(".folder-name form button")
		b.until("document.querySelector('#rail-list h2').innerText.includes('Post') && document.querySelector('#rail-list').innerText.includes('From afar')")
		b.click(".import summary")
		b.do(chromedp.WaitVisible("#import-file"))
		b.shot("rail-import-without-scripts")
		b.do(chromedp.SetUploadFiles("#import-file", []string{filepath.Join(folder, "chat.json")}), chromedp.Click(".import form button"))
		b.until("document.querySelector('.chat-head h1')?.innerText === 'From afar' && document.querySelector('.chat-head [data-chat-menu]').dataset.folder === ''")
	})
}

func TestAnImportOfAnotherProgramSaysWhatItLeftOut(t *testing.T) {
	t.Parallel()
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	b := openBrowser(t, server)
	file := filepath.Join(t.TempDir(), "conversations.json")
	content := `[{"title":"Moss","current_node":"c","mapping":{"a":{"parent":null,"children":["b","c"],"message":{"author":{"role":"user"},"content":{"content_type":"text","parts":["What is moss?",{"picture":1}]}}},` +
		`"b":{"parent":"a","children":[],"message":{"author":{"role":"assistant"},"content":{"content_type":"text","parts":["A plant."]}}},` +
		`"c":{"parent":"a","children":[],"message":{"author":{"role":"assistant"},"content":{"content_type":"text","parts":["A *small* plant."]}}}}},{"title":"Empty","mapping":{}}]`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	b.open("/")
	b.choose(file)
	b.until("document.querySelector('#imported').open")
	if got, want := b.value("[...document.querySelectorAll('#imported li')].map(li => li.innerText).join('|')"), "The chat “Empty” was left out: it has no messages.|Pictures and other files: 1."; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	b.look(axe(t), "what an import left out")
	for _, size := range []int64{390, 820, 1440} {
		b.size(size, 844, size < 500)
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.shot(fmt.Sprintf("imported-%d-%s", size, scheme))
		}
	}
	b.click("#imported [data-close]")
	b.click("#undo button")
	b.until("document.querySelector('.answer .vers span')?.textContent === '2/2'")
	b.shot("imported-chat")
	if got := b.text(".answer"); strings.Contains(got, "edited by you") {
		t.Errorf("the answer is shown as %q", got)
	}
	b.clean()
}
