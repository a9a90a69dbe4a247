package handlers

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

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// submitted sends a form as a browser does.
func submitted(t testing.TB, server *httptest.Server, path string, fields url.Values) response {
	t.Helper()
	return post(t, server, path, fields.Encode(), "Origin", server.URL, "Content-Type", "application/x-www-form-urlencoded")
}

// chatOf is the chat that a form has led to.
func chatOf(t testing.TB, r response) string {
	t.Helper()
	chat, _, found := strings.Cut(strings.TrimPrefix(r.header.Get("Location"), "/c/"), "?follow=1#end")
	if r.status != http.StatusSeeOther || !found {
		t.Fatalf("got %d to %q: %.300s", r.status, r.header.Get("Location"), r.body)
	}
	return chat
}

// growing reads a page while it is written.
type growing struct {
	t    testing.TB
	body *bufio.Reader
	text strings.Builder
}

func followed(t testing.TB, server *httptest.Server, chat string) *growing {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
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
	engine := newScript()
	server, _ := serveStored(t, engine)
	chat := chatOf(t, submitted(t, server, "/", url.Values{"text": {"one\r\ntwo"}, "system": {"Be brief."}, "once": {"a"}}))
	answer := engine.next(t)
	if m := answer.request.Messages; len(m) != 2 || m[0].Content != "Be brief." || m[1].Content != "one\ntwo" {
		t.Errorf("the engine was asked with %+v", m)
	}
	page := followed(t, server, chat)
	page.until("one\ntwo")
	answer.write("x <script>pwned=1</script> **a")
	page.until(`<div class="prose plain passing" dir="auto">x &lt;script&gt;pwned=1&lt;/script&gt; **a`)
	late := followed(t, server, chat)
	late.until("&lt;/script&gt; **a")
	answer.write("**\n\n", "last")
	for _, p := range []*growing{page, late} {
		p.until(`</div><div class="prose" dir="auto"><p>x &lt;script&gt;pwned=1&lt;/script&gt; <strong>a</strong></p>`)
		p.until("last")
	}
	answer.finish()
	for _, p := range []*growing{page, late} {
		p.until("<p>last</p>")
		p.until("</html>")
		if strings.Contains(p.text.String(), "<script>pwned") {
			t.Error("what the model wrote has become an element")
		}
	}
	done := call(t, server, http.MethodGet, "/c/"+chat+"?follow=1", "")
	if !strings.Contains(done.body, "<strong>a</strong>") || !strings.HasSuffix(strings.TrimSpace(done.body), "</html>") {
		t.Error("the page of an answer that has ended is not whole")
	}

	chatOf(t, submitted(t, server, "/c/"+chat, url.Values{"text": {"three"}, "system": {""}, "once": {"b"}}))
	if m := engine.next(t).request.Messages; len(m) != 3 || m[0].Role != "user" || m[2].Content != "three" {
		t.Errorf("the second question was asked with %+v", m)
	}
	page = followed(t, server, chat)
	page.until("three")
	if got := submitted(t, server, "/c/"+chat+"/stop", nil); got.status != http.StatusSeeOther || got.header.Get("Location") != "/c/"+chat+"#end" {
		t.Errorf("stop got %d: %s", got.status, got.body)
	}
	page.until("stopped by you")
	if got := submitted(t, server, "/c/"+chat+"/stop", nil); got.status != http.StatusSeeOther {
		t.Errorf("a late stop got %d: %s", got.status, got.body)
	}
}

func TestAThoughtWithoutAnEndIsFoldedWhenTheAnswerEnds(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	chat := chatOf(t, submitted(t, server, "/", url.Values{"text": {"Why?"}}))
	answer := engine.next(t)
	page := followed(t, server, chat)
	answer.think("Let me see.\n\nHm")
	page.until("Hm")
	answer.finish()
	page.until("</html>")
	_, last, _ := strings.Cut(page.text.String(), "Hm</div>")
	if want := `<div class="prose" dir="auto"><details class="thought"><summary>Thinking, 4 words</summary>`; !strings.HasPrefix(last, want) {
		t.Errorf("what the model thought ends as %.200q", last)
	}
}

func TestAFormThatIsSentTwiceAsksOnce(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	led := make([]string, 4)
	var all sync.WaitGroup
	for i := range led {
		all.Go(func() {
			led[i] = submitted(t, server, "/", url.Values{"text": {"Hello"}, "once": {"same"}}).header.Get("Location")
		})
	}
	all.Wait()
	for _, address := range led {
		if address != led[0] || address == "" {
			t.Errorf("the same form has led to %q", led)
		}
	}
	engine.next(t).finish()
	if other := submitted(t, server, "/", url.Values{"text": {"Hello"}, "once": {"other"}}); other.header.Get("Location") == led[0] {
		t.Error("another form has led to the same chat")
	}
	if n := len(engine.answers); n > 1 {
		t.Errorf("%d questions too many were asked", n-1)
	}
	// A form that failed may be sent again.
	for range 2 {
		if got := submitted(t, server, "/", url.Values{"text": {" "}, "once": {"empty"}}); got.status != http.StatusBadRequest {
			t.Errorf("an empty form got %d", got.status)
		}
	}
	chatOf(t, submitted(t, server, "/", url.Values{"text": {"Now."}, "once": {"empty"}}))
}

func TestAFormAsksTheModelThatWasChosen(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	for _, got := range []response{
		call(t, server, http.MethodGet, "/?model=other%22", ""),
		submitted(t, server, "/", url.Values{"text": {" "}, "model": {"other\""}}), // comes back
	} {
		if want := `<input type="hidden" name="model" value="other&#34;">`; !strings.Contains(got.body, want) {
			t.Errorf("the page (%d) is without %s", got.status, want)
		}
	}
	chatOf(t, submitted(t, server, "/", url.Values{"text": {"Hello"}, "model": {"other"}}))
	if got := engine.next(t).request.Model; got != "other" {
		t.Errorf("the answer was asked of %q", got)
	}
	if got := submitted(t, server, "/", url.Values{"text": {"Hello"}, "once": {strings.Repeat("x", 65)}}); got.status != http.StatusBadRequest {
		t.Errorf("a form with an endless name got %d", got.status)
	}
}

func TestAFormThatCannotBeSentComesBackWithItsText(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	chat := chatOf(t, submitted(t, server, "/", url.Values{"text": {"one"}}))
	engine.next(t)
	got := submitted(t, server, "/c/"+chat, url.Values{"text": {"two <b>"}, "system": {"be \"brief\""}})
	if got.status != http.StatusConflict {
		t.Errorf("got %d", got.status)
	}
	for _, want := range []string{">two &lt;b&gt;</textarea>", ">be &#34;brief&#34;</textarea>", "Not while an answer is being written"} {
		if !strings.Contains(got.body, want) {
			t.Errorf("the page is without %q", want)
		}
	}
	if got := submitted(t, server, "/c/nowhere", url.Values{"text": {"two"}}); got.status != http.StatusNotFound || !strings.Contains(got.body, ">two</textarea>") {
		t.Errorf("a chat that is gone: got %d", got.status)
	}
	for _, path := range []string{"/", "/c/" + chat, "/c/" + chat + "/stop"} {
		if got := post(t, server, path, "text=x", "Origin", "http://evil.example", "Content-Type", "application/x-www-form-urlencoded"); got.status != http.StatusForbidden {
			t.Errorf("%s from another site: got %d", path, got.status)
		}
	}
}

func TestAPlainChatWithoutScriptsInABrowser(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	b := openBrowser(t, server)
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.do(chromedp.Navigate(b.origin+"/"), chromedp.WaitVisible("#message"))
	b.shot("noscript-first")
	b.fill("#message", "Tell me about rain.")
	// The click leads to a page that goes on loading, which is not waited for.
	b.script(`document.querySelector('[data-send]').click()`)
	answer := engine.next(t)
	answer.write("Rain is **water**.\n\n", "It falls")
	b.until("[...document.querySelectorAll('.answer .prose')].filter(p => p.checkVisibility()).map(p => p.innerText).join('|') === 'Rain is water.|It falls'")
	b.shot("noscript-growing")
	b.script(`document.querySelector('.answer form button').click()`)
	b.until("document.querySelector('.answer .foot')?.innerText.includes('stopped by you')")
	b.until("document.querySelector('#message').value === ''")
	b.shot("noscript-stopped")
	b.size(390, 844, true)
	b.shot("noscript-phone")
	b.clean()
}

// A form with files is sent in parts.
func TestFilesAreAttachedWithoutScripts(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	send := func(text string, files ...string) response {
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
		return post(t, server, "/", body.String(), "Origin", server.URL, "Content-Type", form.FormDataContentType())
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
		chatOf(t, send(c.text, c.files...))
		a := engine.next(t)
		if got := a.request.Messages[0].Content; got != c.want {
			t.Errorf("%s: the model reads %q, want %q", name, got, c.want)
		}
		a.finish()
	}
	for _, c := range []struct{ name, content, why string }{
		{"photo.png", "\x89PNG\x00", "photo.png is not a text file in UTF-8"},
		{"log.txt", strings.Repeat("a", 160<<10+1), "files have more than"},
	} {
		if got := send("Keep this.", c.name, c.content); got.status != http.StatusBadRequest || !strings.Contains(got.body, c.why) || !strings.Contains(got.body, "Keep this.") {
			t.Errorf("%s: status %d, without %q or the text", c.name, got.status, c.why)
		}
	}
}
