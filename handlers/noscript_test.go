package handlers_test

import (
	"bufio"
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"m40-llm/handlers/handlerstest"
)

// growing reads a page while it is written.
type growing struct {
	t    testing.TB
	body *bufio.Reader
	text strings.Builder
}

func followed(t testing.TB, server *httptest.Server, chat string) *growing {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), handlerstest.Hang)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/c/"+chat+"?follow=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return &growing{t: t, body: bufio.NewReader(response.Body)}
}

// until reads on until the page has this text.
func (g *growing) until(want string) {
	g.t.Helper()
	for !strings.Contains(g.text.String(), want) {
		b, err := g.body.ReadByte()
		if err != nil {
			g.t.Fatalf("the page ended without %q: …%s", want, g.text.String()[max(0, g.text.Len()-800):])
		}
		g.text.WriteByte(b)
	}
}

func TestAFormAsksAndThePageGrowsWithTheAnswer(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	chat := handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/", url.Values{"text": {"one\r\ntwo"}, "system": {"Be brief."}, "once": {"a"}}))
	answer := engine.Next(t)
	if m := answer.Request.Messages; len(m) != 2 || m[0].Content != "Be brief." || m[1].Content != "one\ntwo" {
		t.Errorf("the engine was asked with %+v", m)
	}
	page := followed(t, server, chat)
	page.until("one\ntwo")
	answer.Write("x <script>pwned=1</script> **a")
	page.until(`<div class="prose plain passing" dir="auto">x &lt;script&gt;pwned=1&lt;/script&gt; **a`)
	late := followed(t, server, chat)
	late.until("&lt;/script&gt; **a")
	answer.Write("**\n\n", "last")
	for _, p := range []*growing{page, late} {
		p.until(`</div><div class="prose" dir="auto"><p>x &lt;script&gt;pwned=1&lt;/script&gt; <strong>a</strong></p>`)
		p.until("last")
	}
	answer.Finish()
	for _, p := range []*growing{page, late} {
		p.until("<p>last</p>")
		p.until("</html>")
		if strings.Contains(p.text.String(), "<script>pwned") {
			t.Error("what the model wrote has become an element")
		}
	}
	done := handlerstest.Call(t, server, http.MethodGet, "/c/"+chat+"?follow=1", "")
	if !strings.Contains(done.Body, "<strong>a</strong>") || !strings.HasSuffix(strings.TrimSpace(done.Body), "</html>") {
		t.Error("the page of an answer that has ended is not whole")
	}

	handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/c/"+chat, url.Values{"text": {"three"}, "system": {""}, "once": {"b"}}))
	if m := engine.Next(t).Request.Messages; len(m) != 3 || m[0].Role != "user" || m[2].Content != "three" {
		t.Errorf("the second question was asked with %+v", m)
	}
	page = followed(t, server, chat)
	page.until("three")
	if got := handlerstest.Submit(t, server, "/c/"+chat+"/stop", nil); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/c/"+chat+"#end" {
		t.Errorf("stop got %d: %s", got.Status, got.Body)
	}
	page.until("stopped by you")
	if got := handlerstest.Submit(t, server, "/c/"+chat+"/stop", nil); got.Status != http.StatusSeeOther {
		t.Errorf("a late stop got %d: %s", got.Status, got.Body)
	}
}

func TestAThoughtWithoutAnEndIsFoldedWhenTheAnswerEnds(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	chat := handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/", url.Values{"text": {"Why?"}}))
	answer := engine.Next(t)
	page := followed(t, server, chat)
	answer.Think("Let me see.\n\nHm")
	page.until("Hm")
	answer.Finish()
	page.until("</html>")
	_, last, _ := strings.Cut(page.text.String(), "Hm</div>")
	if want := `<div class="prose" dir="auto"><details class="thought"><summary>Thinking, 4 words</summary>`; !strings.HasPrefix(last, want) {
		t.Errorf("what the model thought ends as %.200q", last)
	}
}

func TestAFormThatIsSentTwiceAsksOnce(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	led := make([]string, 4)
	var all sync.WaitGroup
	for i := range led {
		all.Go(func() {
			led[i] = handlerstest.Submit(t, server, "/", url.Values{"text": {"Hello"}, "once": {"same"}}).Header.Get("Location")
		})
	}
	all.Wait()
	for _, address := range led {
		if address != led[0] || address == "" {
			t.Errorf("the same form has led to %q", led)
		}
	}
	engine.Next(t).Finish()
	if other := handlerstest.Submit(t, server, "/", url.Values{"text": {"Hello"}, "once": {"other"}}); other.Header.Get("Location") == led[0] {
		t.Error("another form has led to the same chat")
	}
	if n := len(engine.Answers); n > 1 {
		t.Errorf("%d questions too many were asked", n-1)
	}
	// A form that failed may be sent again.
	for range 2 {
		if got := handlerstest.Submit(t, server, "/", url.Values{"text": {" "}, "once": {"empty"}}); got.Status != http.StatusBadRequest {
			t.Errorf("an empty form got %d", got.Status)
		}
	}
	handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/", url.Values{"text": {"Now."}, "once": {"empty"}}))
}

func TestAFormAsksTheModelThatWasChosen(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	for _, got := range []handlerstest.Response{
		handlerstest.Call(t, server, http.MethodGet, "/?model=other%22", ""),
		handlerstest.Submit(t, server, "/", url.Values{"text": {" "}, "model": {"other\""}}), // comes back
	} {
		if want := `<input type="hidden" name="model" value="other&#34;">`; !strings.Contains(got.Body, want) {
			t.Errorf("the page (%d) is without %s", got.Status, want)
		}
	}
	handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/", url.Values{"text": {"Hello"}, "model": {"other"}}))
	if got := engine.Next(t).Request.Model; got != "other" {
		t.Errorf("the answer was asked of %q", got)
	}
	if got := handlerstest.Submit(t, server, "/", url.Values{"text": {"Hello"}, "once": {strings.Repeat("x", 65)}}); got.Status != http.StatusBadRequest {
		t.Errorf("a form with an endless name got %d", got.Status)
	}
}

func TestAFormThatCannotBeSentComesBackWithItsText(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	chat := handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/", url.Values{"text": {"one"}}))
	engine.Next(t)
	got := handlerstest.Submit(t, server, "/c/"+chat, url.Values{"text": {"two <b>"}, "system": {"be \"brief\""}})
	if got.Status != http.StatusConflict {
		t.Errorf("got %d", got.Status)
	}
	for _, want := range []string{">two &lt;b&gt;</textarea>", ">be &#34;brief&#34;</textarea>", "Not while an answer is being written"} {
		if !strings.Contains(got.Body, want) {
			t.Errorf("the page is without %q", want)
		}
	}
	if got := handlerstest.Submit(t, server, "/c/nowhere", url.Values{"text": {"two"}}); got.Status != http.StatusNotFound || !strings.Contains(got.Body, ">two</textarea>") {
		t.Errorf("a chat that is gone: got %d", got.Status)
	}
	for _, path := range []string{"/", "/c/" + chat, "/c/" + chat + "/stop"} {
		if got := handlerstest.Post(t, server, path, "text=x", "Origin", "http://evil.example", "Content-Type", "application/x-www-form-urlencoded"); got.Status != http.StatusForbidden {
			t.Errorf("%s from another site: got %d", path, got.Status)
		}
	}
}

// A form with files is sent in parts.
func TestFilesAreAttachedWithoutScripts(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	send := func(text string, files ...string) handlerstest.Response {
		t.Helper()
		var body strings.Builder
		form := multipart.NewWriter(&body)
		if err := form.WriteField("text", text); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(files); i += 2 {
			part, err := form.CreateFormFile("files", files[i])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(part, files[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		form.Close()
		return handlerstest.Post(t, server, "/", body.String(), "Origin", server.URL, "Content-Type", form.FormDataContentType())
	}
	for name, c := range map[string]struct {
		text  string
		files []string
		want  string
	}{
		"none chosen":  {"Hi", []string{"", ""}, "Hi"},
		"two files":    {"Hi", []string{"a.go", "x := 1\r\n", "notes", "one ``` two"}, "Hi\n\nFile a.go:\n```go\nx := 1\n```\n\nFile notes:\n````\none ``` two\n````"},
		"a file alone": {"", []string{"../b.txt", "b"}, "File b.txt:\n```txt\nb\n```"},
	} {
		handlerstest.ChatOf(t, send(c.text, c.files...))
		a := engine.Next(t)
		if got := a.Request.Messages[0].Content; got != c.want {
			t.Errorf("%s: the model reads %q, want %q", name, got, c.want)
		}
		a.Finish()
	}
	for _, c := range []struct{ name, content, why string }{
		{"photo.png", "\x89PNG\x00", "photo.png is not a text file in UTF-8"},
		{"log.txt", strings.Repeat("a", 160<<10+1), "files have more than"},
	} {
		if got := send("Keep this.", c.name, c.content); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, c.why) || !strings.Contains(got.Body, "Keep this.") {
			t.Errorf("%s: status %d, without %q or the text", c.name, got.Status, c.why)
		}
	}
}
