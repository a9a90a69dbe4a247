package handlers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/page"
	"m40-llm/handlers/stream"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// begin starts a chat whose first question is answered.
func begin(t testing.TB, server *httptest.Server, engine *handlerstest.Script, text, answer string) *handlerstest.SocketClient {
	t.Helper()
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": text})
	a := engine.Next(t)
	a.Write(answer)
	a.Finish()
	c.Until("the end", c.Ended)
	return c
}

// railOf returns the list of chats as the page gets it.
func railOf(t testing.TB, server *httptest.Server, query string) string {
	t.Helper()
	got := handlerstest.Call(t, server, http.MethodGet, "/rail?"+query, "")
	if got.Status != http.StatusOK {
		t.Fatalf("GET /rail?%s: %d, %s", query, got.Status, got.Body)
	}
	return got.Body
}

func TestRail_ShowsWhatWasDoneWithTheChats(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	first := begin(t, server, engine, "about foxes", "They are red.")
	begin(t, server, engine, "about hens", "They are brown.")
	script := []string{"Origin", server.URL, "Accept", "application/json", "Content-Type", "application/x-www-form-urlencoded"}
	form := []string{"Origin", server.URL, "Content-Type", "application/x-www-form-urlencoded"}
	post := func(action string, fields url.Values, header []string) handlerstest.Response {
		return handlerstest.Post(t, server, "/c/"+first.Chat+"/"+action, fields.Encode(), header...)
	}
	// has says whether the first chat is in a list, and by what name.
	has := func(query, name string) bool {
		list := railOf(t, server, query)
		return strings.Contains(list, "/c/"+first.Chat) && strings.Contains(list, name)
	}
	if !has("", "about foxes") || !strings.Contains(railOf(t, server, ""), "about hens") {
		t.Fatalf("the list is %s", railOf(t, server, ""))
	}
	if list := railOf(t, server, "q=red"); !strings.Contains(list, first.Chat) || strings.Contains(list, "about hens") {
		t.Errorf("the search for a word of an answer found %s", list)
	}
	for _, step := range []struct {
		name, action string
		fields       url.Values
		header       []string
		status       int
		location     string
		holds        func() bool
	}{
		{"a script renames", "rename", url.Values{"title": {"<b>Foxes</b>"}}, script, 204, "", func() bool { return has("", "&lt;b&gt;Foxes&lt;/b&gt;") }},
		{"an empty title is refused", "rename", url.Values{"title": {" "}}, script, 400, "", func() bool { return has("", "Foxes") }},
		{"a form pins and leads back", "pin", url.Values{"value": {"true"}}, form, 303, "/c/" + first.Chat, func() bool { return has("", "Pinned") }},
		{"a script unpins", "pin", url.Values{"value": {"false"}}, script, 204, "", func() bool { return !has("", "Pinned") }},
		{"a value that is none is refused", "pin", url.Values{"value": {"perhaps"}}, script, 400, "", func() bool { return !has("", "Pinned") }},
		{"a script archives", "archive", nil, script, 204, "", func() bool { return !has("", "Foxes") && has("archived=1", "Foxes") }},
		{"a script takes it out of the archive", "archive", url.Values{"value": {"false"}}, script, 204, "", func() bool { return has("", "Foxes") && !has("archived=1", "Foxes") }},
		{"a form moves into a folder and leads back", "move", url.Values{"folder": {" Wild  animals "}}, form, 303, "/c/" + first.Chat, func() bool {
			return has("folder=Wild+animals", "Foxes") && has("", "Wild animals") && !strings.Contains(railOf(t, server, "folder=Wild+animals"), "about hens")
		}},
		{"a folder's name can be too long", "move", url.Values{"folder": {strings.Repeat("x", 61)}}, script, 400, "", func() bool { return has("folder=Wild+animals", "Foxes") }},
		{"the last chat of a folder takes it away", "move", url.Values{"folder": {""}}, script, 204, "", func() bool { return has("", "Foxes") && !has("", "Wild animals") }},
		{"another site cannot move", "move", url.Values{"folder": {"x"}}, []string{"Origin", "http://evil.example"}, 403, "", func() bool { return !has("folder=x", "Foxes") }},
		{"a form deletes and leads to a new chat", "delete", nil, form, 303, "/", func() bool { return !has("", "Foxes") && !has("q=red", "Foxes") }},
		{"what is deleted cannot be renamed", "rename", url.Values{"title": {"x"}}, script, 404, "", func() bool { return !has("", first.Chat) }},
		{"a script restores", "restore", nil, script, 204, "", func() bool { return has("", "Foxes") && has("q=red", "Foxes") }},
		{"another site cannot delete", "delete", nil, []string{"Origin", "http://evil.example"}, 403, "", func() bool { return has("", "Foxes") }},
		{"a form without an origin cannot delete", "delete", nil, nil, 403, "", func() bool { return has("", "Foxes") }},
	} {
		t.Run(step.name, func(t *testing.T) {
			got := post(step.action, step.fields, step.header)
			if got.Status != step.status || got.Header.Get("Location") != step.location {
				t.Errorf("got %d to %q: %s", got.Status, got.Header.Get("Location"), got.Body)
			}
			if asked := strings.Contains(strings.Join(step.header, " "), "application/json"); asked && step.status >= 400 && parseError(t, got).Message == "" {
				t.Errorf("the script was told %s", got.Body)
			}
			if !step.holds() {
				t.Errorf("now the list is %s", railOf(t, server, ""))
			}
		})
	}
	t.Run("a JSON object will do for a form", func(t *testing.T) {
		got := handlerstest.Call(t, server, http.MethodPost, "/c/"+first.Chat+"/rename", `{"title":"From JSON"}`, "Origin", server.URL, "Content-Type", "application/json", "Accept", "application/json")
		if got.Status != http.StatusNoContent || !has("", "From JSON") {
			t.Errorf("got %d: %s", got.Status, got.Body)
		}
	})
}

func TestFolders_AreRenamedWithTheirChats(t *testing.T) {
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	for title, folder := range map[string]string{"Foxes": "Wild & free", "Hens": "Farm"} {
		c := begin(t, server, engine, title, "Hm.")
		if err := chats.List.Move(context.Background(), access.Local, c.Chat, folder); err != nil {
			t.Fatal(err)
		}
	}
	script := []string{"Origin", server.URL, "Accept", "application/json", "Content-Type", "application/x-www-form-urlencoded"}
	form := []string{"Origin", server.URL, "Content-Type", "application/x-www-form-urlencoded"}
	for _, step := range []struct {
		name       string
		folder, to string
		header     []string
		status     int
		location   string
		says, is   string
	}{
		{"a script renames", "Wild & free", "<b>Wild</b>", script, 204, "", "", "<b>Wild</b>"},
		{"a form renames and leads to the folder", "<b>Wild</b>", "  Wild\tanimals ", form, 303, "/?folder=Wild+animals", "", "Wild animals"},
		{"two folders do not become one", "Wild animals", "Farm", script, 409, "", "there is a folder “Farm” already", "Wild animals"},
		{"an empty name is refused", "Wild animals", " \n", script, 400, "", "the folder's name is empty", "Wild animals"},
		{"a name can be too long", "Wild animals", strings.Repeat("ü", 61), script, 400, "", "61 characters, and at most 60", "Wild animals"},
		{"a folder that is gone says so", "Wild & free", "x", script, 404, "", "no such folder any more", "Wild animals"},
		{"it must be said which folder", "", "x", script, 400, "", "name of the folder is missing", "Wild animals"},
		{"another site cannot rename", "Wild animals", "x", []string{"Origin", "http://evil.example"}, 403, "", "", "Wild animals"},
	} {
		t.Run(step.name, func(t *testing.T) {
			got := handlerstest.Post(t, server, "/folders/rename", url.Values{"folder": {step.folder}, "name": {step.to}}.Encode(), step.header...)
			if got.Status != step.status || got.Header.Get("Location") != step.location || !strings.Contains(got.Body, step.says) {
				t.Errorf("got %d to %q: %s", got.Status, got.Header.Get("Location"), got.Body)
			}
			list := railOf(t, server, url.Values{"folder": {step.is}}.Encode())
			if !strings.Contains(list, "Foxes") || strings.Contains(list, "Hens") || !strings.Contains(list, `value="`+html.EscapeString(step.is)+`"`) {
				t.Errorf("now the list of %q is %s", step.is, list)
			}
		})
	}
}

func TestRail_LeadsToOlderChats(t *testing.T) {
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	const more = 7
	for i := range page.RailRows + more {
		question := []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "word"}}
		id, err := handlerstest.ImportList(chats, store.Metadata{Title: fmt.Sprintf("chat-%03d", i)}, question, 1)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := chats.List.Pin(context.Background(), access.Local, id, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	titles := regexp.MustCompile(`chat-[0-9]{3}<`)
	older := regexp.MustCompile(`href="/\?([^"]*after=[^"]*)"`)
	for query, rows := range map[string]int{"": page.RailRows, "q=word": page.RailRows / 2} {
		seen, pages := map[string]bool{}, 0
		for next := query; pages == 0 || next != ""; pages++ {
			list := railOf(t, server, next)
			found := titles.FindAllString(list, -1)
			for _, title := range found {
				if seen[title] {
					t.Errorf("%q: %s is on two pages", query, title)
				}
				seen[title] = true
			}
			next = ""
			if link := older.FindStringSubmatch(list); link != nil {
				next = html.UnescapeString(link[1])
				if len(found) != rows {
					t.Errorf("%q: a page has %d chats, want %d", query, len(found), rows)
				}
			}
		}
		if len(seen) != page.RailRows+more {
			t.Errorf("%q: %d pages have %d chats, want %d", query, pages, len(seen), page.RailRows+more)
		}
	}
	for _, after := range []string{"x", "0", "-1", "p", "1p", "99999999999999999999"} {
		if got := handlerstest.Call(t, server, http.MethodGet, "/rail?after="+after, "", "Accept", "application/json"); got.Status != http.StatusBadRequest {
			t.Errorf("after=%s: got %d", after, got.Status)
		}
	}
}

func TestSocket_EveryPageHearsThatTheChatsHaveChanged(t *testing.T) {
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	other := handlerstest.DialSocket(t, server)
	other.Do("ping", nil)
	hears := func(what string) {
		t.Helper()
		for {
			f, err := other.Read()
			if err != nil {
				t.Fatalf("waiting for %s: %v", what, err)
			}
			if f.Type == "chats" {
				return
			}
		}
	}
	c := begin(t, server, engine, "one", "two")
	hears("the new chat")
	if err := chats.Rename(context.Background(), access.Local, c.Chat, "another"); err != nil {
		t.Fatal(err)
	}
	hears("the new title")
	c.Until("the title", func() bool { return c.Title == "another" })
}

func TestSocket_Branches(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	c := begin(t, server, engine, "one", "first")
	question, answer := c.Branch[0], c.Branch[1]
	// texts are those of the branch that the page shows.
	texts := func(c *handlerstest.SocketClient) string {
		var list []string
		for _, id := range c.Branch {
			list = append(list, c.Messages[id])
			if a := c.Answers[id]; a != nil {
				list[len(list)-1] = a.Text
			}
		}
		return strings.Join(list, "|")
	}
	shows := func(want string) {
		t.Helper()
		c.Until(want, func() bool { return texts(c) == want && (c.Last() == nil || !c.Last().State.Running()) })
		fresh := handlerstest.DialSocket(t, server)
		fresh.Do("open", map[string]any{"chat": c.Chat})
		fresh.Until("the snapshot", func() bool { return fresh.Chat != "" })
		if got := texts(fresh); got != want {
			t.Fatalf("a new page shows %q, this one %q", got, want)
		}
	}
	reply := func(text string) {
		t.Helper()
		a := engine.Next(t)
		a.Write(text)
		a.Finish()
	}
	shows("one|first")
	c.Do("regenerate", map[string]any{"answer": answer})
	reply("second")
	shows("one|second")
	c.Do("send", map[string]any{"text": "two"})
	reply("third")
	shows("one|second|two|third")
	c.Do("regenerate", map[string]any{"answer": c.Branch[1]})
	reply("fourth")
	shows("one|fourth")
	c.Do("select", map[string]any{"message": c.Branch[1], "version": 2})
	shows("one|second|two|third")
	c.Do("edit", map[string]any{"message": question, "text": "uno"})
	reply("primero")
	shows("uno|primero")
	if v := c.Versions[c.Branch[0]]; v != (stream.Versions{Index: 2, Count: 2}) {
		t.Errorf("the edited question is version %+v", v)
	}
	c.Do("rewrite", map[string]any{"answer": c.Branch[1], "text": "segundo, "})
	shows("uno|segundo, ")
	if end := c.Last().End; !end.Edited || end.Tokens != 0 {
		t.Errorf("the rewritten answer is %+v", end)
	}
	c.Do("continue", map[string]any{"answer": c.Branch[1]})
	a := engine.Next(t)
	if !a.Request.Continue {
		t.Error("the engine was not asked to continue")
	}
	a.Write("tercero")
	a.Finish()
	shows("uno|segundo, tercero")

	f := c.Reply(c.Send("fork", map[string]any{"message": c.Branch[1]}))
	var id string
	if err := json.Unmarshal(f.Chat, &id); err != nil || id == "" || id == c.Chat {
		t.Fatalf("the fork is %s, %v", f.Chat, err)
	}
	fork := handlerstest.DialSocket(t, server)
	fork.Do("open", map[string]any{"chat": id})
	fork.Until("the fork", func() bool { return fork.Chat == id })
	if got := texts(fork); got != "uno|segundo, tercero" {
		t.Errorf("the fork shows %q", got)
	}
	for name, command := range map[string]map[string]any{
		"select":     {"message": 999},
		"edit":       {"message": c.Branch[1], "text": "an answer"},
		"rewrite":    {"answer": c.Branch[0], "text": "a question"},
		"continue":   {"answer": c.Branch[0]},
		"regenerate": {"answer": c.Branch[0]},
		"fork":       {"message": 999},
		"older":      {"before": 999},
	} {
		if f := c.Reply(c.Send(name, command)); f.Error == nil || f.Error.Code != fault.CodeInvalid {
			t.Errorf("%s of the wrong message got %+v", name, f)
		}
	}
}

func TestSocket_OlderMessagesComeWhenAskedFor(t *testing.T) {
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	var list []store.Message
	for i := range int64(230) {
		role := store.RoleUser
		if i%2 == 1 {
			role = store.RoleAssistant
		}
		list = append(list, store.Message{ID: i + 1, Parent: i, Role: role, State: store.Done, Text: fmt.Sprint("message ", i+1)})
	}
	id, err := handlerstest.ImportList(chats, store.Metadata{Title: "long"}, list, 230)
	if err != nil {
		t.Fatal(err)
	}
	c := handlerstest.DialSocket(t, server)
	c.Do("open", map[string]any{"chat": id})
	c.Until("the chat", func() bool { return c.Chat != "" })
	first, more := c.Branch[0], true
	var sizes []int
	for more {
		c.Do("older", map[string]any{"before": first})
		f, err := c.Read()
		if err != nil || f.Type != "older" || f.Before != first {
			t.Fatalf("got %+v, %v", f, err)
		}
		if last := f.Messages[len(f.Messages)-1]; last.ID >= first {
			t.Fatalf("before message %d came %d", first, last.ID)
		}
		first, more, sizes = f.Messages[0].ID, f.More, append(sizes, len(f.Messages))
	}
	if len(c.Branch) != 100 || fmt.Sprint(sizes) != "[100 30]" {
		t.Errorf("%d messages, then %v", len(c.Branch), sizes)
	}
}

func TestSocket_ATemporaryChatIsNotListed(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "nobody must know", "temporary": true})
	a := engine.Next(t)
	a.Finish()
	c.Until("the end", c.Ended)
	if list := railOf(t, server, ""); strings.Contains(list, c.Chat) || strings.Contains(list, "nobody") {
		t.Errorf("the list is %s", list)
	}
	back := handlerstest.DialSocket(t, server)
	back.Do("open", map[string]any{"chat": c.Chat})
	back.Until("the chat", func() bool { return back.Chat == c.Chat })
}

func TestExport_ComesBackAsItWas(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	c := begin(t, server, engine, "one", "first")
	c.Do("regenerate", nil)
	a := engine.Next(t)
	a.Write("*second*")
	a.Finish()
	c.Until("the second answer", func() bool { return c.Ended() && c.Last().Text == "*second*" })

	exported := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/export.json", "")
	if exported.Status != http.StatusOK || !strings.Contains(exported.Header.Get("Content-Disposition"), `attachment; filename=one.json`) {
		t.Fatalf("got %d, %q", exported.Status, exported.Header.Get("Content-Disposition"))
	}
	if md := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/export.md", ""); md.Body != "# one\n\n## You\n\none\n\n## guide\n\n*second*\n" {
		t.Errorf("as Markdown it is %q", md.Body)
	}
	var form bytes.Buffer
	fields := multipart.NewWriter(&form)
	part, err := fields.CreateFormFile("file", "one.json")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(part, exported.Body)
	_ = fields.Close()
	script := handlerstest.Post(t, server, "/import", exported.Body, "Origin", server.URL, "Accept", "application/json")
	if script.Status != http.StatusCreated || !strings.Contains(script.Body, `"title":"one"`) || !strings.Contains(script.Body, `"messages":3`) {
		t.Errorf("a script is told %d: %s", script.Status, script.Body)
	}
	for name, request := range map[string]struct{ body, kind string }{
		"as the body":      {exported.Body, "application/json"},
		"as a form's file": {form.String(), fields.FormDataContentType()},
	} {
		got := handlerstest.Post(t, server, "/import", request.body, "Origin", server.URL, "Content-Type", request.kind)
		address := got.Header.Get("Location")
		if got.Status != http.StatusSeeOther || address == "/c/"+c.Chat {
			t.Fatalf("%s: got %d to %q: %s", name, got.Status, address, got.Body)
		}
		again := handlerstest.Call(t, server, http.MethodGet, address+"/export.json", "")
		if got, want := withoutIDs(t, again.Body), withoutIDs(t, exported.Body); got != want {
			t.Errorf("%s it came back as\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestExport_AsMarkdownATitleIsText(t *testing.T) {
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	question := []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "word"}}
	for title, want := range map[string]string{
		"plain, 3.2-1b":            "# plain, 3.2-1b\n",
		"*a* [b](c) `d` <e> \\ # ": "# \\*a\\* \\[b\\](c) \\`d\\` \\<e\\> \\\\ \\#\n",
		"one\n# two\n- three":      "# one \\# two - three\n",
	} {
		id, err := handlerstest.ImportList(chats, store.Metadata{Title: title}, question, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := handlerstest.Call(t, server, http.MethodGet, "/c/"+id+"/export.md", ""); !strings.HasPrefix(got.Body, want) {
			t.Errorf("%q begins as %.40q, want %q", title, got.Body, want)
		}
	}
}

// withoutIDs names the messages of an exported chat by their place.
func withoutIDs(t *testing.T, data string) string {
	t.Helper()
	var chat page.ExportedChat
	if err := json.Unmarshal([]byte(data), &chat); err != nil {
		t.Fatal(err)
	}
	place := map[int64]int64{}
	for i := range chat.Messages {
		m := &chat.Messages[i]
		place[m.ID] = int64(i + 1)
		m.ID, m.Parent = place[m.ID], place[m.Parent]
	}
	chat.Leaf = place[chat.Leaf]
	return indent(chat)
}

func TestImport_RefusesWhatIsNoChat(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	message := func(fields string) string {
		return `{"format":"` + page.ExportFormat + `","title":"x","messages":[` + fields + `]}`
	}
	for name, c := range map[string]struct{ body, field string }{
		"nothing":                    {"", "file"},
		"Markdown":                   {"# A chat\n\n## You\n", "file"},
		"a picture":                  {"\x89PNG\r\n\x1a\n", "file"},
		"broken JSON":                {`{"format":`, ""},
		"a list":                     {`[{"title":"x","mapping":{}}]`, "file"},
		"JSON of another program":    {`{"title":"x"}`, "format"},
		"another format":             {`{"format":"x"}`, "format"},
		"deep nesting":               {strings.Repeat(`{"a":`, 100), ""},
		"a title that is too long":   {`{"format":"` + page.ExportFormat + `","title":"` + strings.Repeat("x", 201) + `","messages":[{"id":1,"role":"user","state":"done","text":"x"}]}`, "title"},
		"white space without end":    {`{"format":` + strings.Repeat(" ", 16<<20) + `"x"}`, "file"},
		"no messages":                {message(""), "messages"},
		"an unknown role":            {message(`{"id":1,"role":"king","state":"done","text":"x"}`), "messages[0].role"},
		"an unknown state":           {message(`{"id":1,"role":"user","state":"asleep","text":"x"}`), "messages[0].state"},
		"a message without an id":    {message(`{"role":"user","state":"done","text":"x"}`), "messages[0].id"},
		"a parent that is not there": {message(`{"id":2,"parent":1,"role":"user","state":"done","text":"x"}`), "messages"},
		"an id that comes twice":     {message(`{"id":1,"role":"user","state":"done","text":"x"},{"id":1,"role":"user","state":"done","text":"x"}`), "messages"},
		"a question with figures":    {message(`{"id":1,"role":"user","state":"done","text":"x","answer":{}}`), "messages[0].answer"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			got := handlerstest.Post(t, server, "/import", c.body, "Origin", server.URL, "Accept", "application/json")
			e := parseError(t, got)
			if got.Status != http.StatusBadRequest || c.field != "" && (e.Param == nil || *e.Param != c.field) {
				t.Errorf("got %d: %s", got.Status, got.Body)
			}
		})
	}
	if list := railOf(t, server, ""); strings.Contains(list, "/c/") {
		t.Errorf("what was refused is listed: %s", list)
	}
}

func TestACopyOfAChatHasAllItsBranches(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	c := begin(t, server, engine, "one", "first")
	c.Do("regenerate", nil)
	a := engine.Next(t)
	a.Write("second")
	a.Finish()
	c.Until("the second answer", func() bool { return c.Ended() && c.Last().Text == "second" })
	copyOf := func(chat string) (string, handlerstest.Response) {
		got := handlerstest.PostScripted(t, server, "/c/"+chat+"/copy", "")
		var made struct{ Chat string }
		_ = json.Unmarshal([]byte(got.Body), &made)
		return made.Chat, got
	}
	export := func(chat string) (title, rest string) {
		var v map[string]any
		mustDecode(t, handlerstest.Call(t, server, http.MethodGet, "/c/"+chat+"/export.json", ""), &v)
		title, _ = v["title"].(string)
		for _, own := range []string{"title", "exported", "created", "origin", "id"} {
			delete(v, own)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		numbers := map[string]int{} // the messages of a copy have other ids
		return title, regexp.MustCompile(`"(id|leaf|parent)":(\d+)`).ReplaceAllStringFunc(string(text), func(field string) string {
			name, id, _ := strings.Cut(field, ":")
			if numbers[id] == 0 {
				numbers[id] = len(numbers) + 1
			}
			return name + ":" + strconv.Itoa(numbers[id])
		})
	}
	_, want := export(c.Chat)
	for _, title := range []string{"one (copy)", "one (copy 2)", "one (copy 3)"} {
		id, got := copyOf(c.Chat)
		if got.Status != http.StatusOK || id == "" || id == c.Chat {
			t.Fatalf("the copy is %q: %d, %s", id, got.Status, got.Body)
		}
		if is, text := export(id); is != title || text != want {
			t.Errorf("the copy is called %q and has\n%s\nwant %q with\n%s", is, text, title, want)
		}
		c.Chat = id // the next is a copy of the copy
	}
	if got := handlerstest.Submit(t, server, "/c/"+c.Chat+"/copy", url.Values{}); got.Status != http.StatusSeeOther || !strings.HasPrefix(got.Header.Get("Location"), "/c/") {
		t.Errorf("without scripts: %d to %q", got.Status, got.Header.Get("Location"))
	}
	if _, got := copyOf("0000000000000000"); got.Status != http.StatusNotFound {
		t.Errorf("a chat that there is not: %d", got.Status)
	}
}
