package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/web/lang"
	"m40-llm/web/states"
)

func TestThePageSpeaksTheLanguageOfTheBrowser(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{})
	page := func(path string, headers ...string) string {
		t.Helper()
		got := handlerstest.Call(t, s, http.MethodGet, path, "", append([]string{"Accept", handlerstest.BrowserAccept}, headers...)...)
		if got.Status != http.StatusOK {
			t.Fatalf("%s: status %d", path, got.Status)
		}
		return got.Body
	}
	says := func(body, language string) {
		t.Helper()
		if want := `<html lang="` + language + `">`; !strings.Contains(body, want) {
			t.Errorf("the page lacks %q: %.60s", want, body)
		}
		if has := strings.Contains(body, "/de.js"); has != (language == "de") {
			t.Errorf("the page in %s has the German texts of scripts: %v", language, has)
		}
	}
	const german = "de-DE, de;q=0.9, en;q=0.8"
	says(page("/"), "en")
	says(page("/", "Accept-Language", german), "de")

	choose := func(language string) string {
		t.Helper()
		got := handlerstest.Submit(t, s, "/settings/language", url.Values{"language": {language}})
		if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/settings" {
			t.Fatalf("choosing %q: status %d, to %q", language, got.Status, got.Header.Get("Location"))
		}
		set, err := http.ParseSetCookie(got.Header.Get("Set-Cookie"))
		if err != nil {
			t.Fatal(err)
		}
		if gone := set.MaxAge < 0; gone != (language == "") {
			t.Errorf("choosing %q sets the age %d", language, set.MaxAge)
		}
		return set.Name + "=" + set.Value
	}
	cookie := choose("en")
	says(page("/", "Accept-Language", german, "Cookie", cookie), "en")
	cookie = choose("de")
	body := page("/settings", "Cookie", cookie)
	says(body, "de")
	if !regexp.MustCompile(`value="de" aria-pressed="true"[^>]*>Deutsch<`).MatchString(body) {
		t.Error("Settings does not show the choice")
	}
	choose("")
	says(page("/", "Cookie", strings.Replace(cookie, "=de", "=xx", 1)), "en")

	script := regexp.MustCompile(`/static/[0-9a-f]+/de\.js`).FindString(body)
	if got := handlerstest.Call(t, s, http.MethodGet, script, ""); got.Status != http.StatusOK || !strings.Contains(got.Body, `"Copied":"Kopiert"`) || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/javascript") {
		t.Errorf("%s: status %d, %s: %.80s", script, got.Status, got.Header.Get("Content-Type"), got.Body)
	}
}

func TestErrorsOfProgramsAreEnglishInEveryLanguage(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{})
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", "{}"}, {"/v1/responses", "{}"}, {"/v1/messages", "{}"}, {"/api/chat", "[]"}, {"/completion", "{}"}, {"/v1/none", "{}"},
		{"/v1/chat/completions", `{"messages": [{"role": "nobody", "content": "x"}]}`}, {"/api/generate", `{"model": 3}`},
	} {
		english := handlerstest.Call(t, s, http.MethodPost, c.path, c.body, "Accept-Language", "en")
		german := handlerstest.Call(t, s, http.MethodPost, c.path, c.body, "Accept-Language", "de")
		if english.Status < http.StatusBadRequest || english.Status != german.Status || english.Body != german.Body {
			t.Errorf("%s: in German %d, %s, in English %d, %s", c.path, german.Status, german.Body, english.Status, english.Body)
		}
	}
}

func TestErrorsOnPagesAreInTheirLanguageWithTheirValues(t *testing.T) {
	s, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	for _, c := range []struct{ name, method, path, body, accept, english, german string }{
		{"a page", http.MethodGet, "/c/none/export.md", "", handlerstest.BrowserAccept, "It was deleted, or it was a temporary chat", "Er wurde gelöscht, oder es war ein temporärer Chat"},
		{"an address that leads nowhere", http.MethodGet, "/help/nowhere", "", handlerstest.BrowserAccept, "There is no document", "gibt es nicht; unter /help stehen alle."},
		{"a form", http.MethodPost, "/presets", "name=" + strings.Repeat("x", 200), handlerstest.BrowserAccept, "The name has 200 characters, and at most", "Der Name hat 200 Zeichen, gespeichert werden höchstens"},
		{"what a script asks for", http.MethodPost, "/presets", `{"name": ""}`, "application/json", `"message":"the preset has no name"`, `"message":"Das Preset hat keinen Namen."`},
	} {
		for language, want := range map[string]string{"en": c.english, "de": c.german} {
			content := "application/x-www-form-urlencoded"
			if c.accept == "application/json" {
				content = c.accept
			}
			got := handlerstest.Call(t, s, c.method, c.path, c.body, "Accept", c.accept, "Accept-Language", language, "Content-Type", content, "Sec-Fetch-Site", "same-origin")
			if got.Status < http.StatusBadRequest || !strings.Contains(html.UnescapeString(got.Body), want) {
				t.Errorf("%s in %s: status %d, want %q: %.2000s", c.name, language, got.Status, want, got.Body)
			}
		}
	}
}

func TestAGermanPageIsMounted(t *testing.T) {
	s := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(c *handlers.Config) { c.BasePath = "/llm" })
	got := handlerstest.Call(t, s, http.MethodGet, "/llm/", "", "Accept-Language", "de")
	if !strings.Contains(got.Body, `<html data-base="/llm" lang="de">`) || !strings.Contains(got.Body, `src="/llm/static/`) {
		t.Errorf("the page begins with %.200s", got.Body)
	}
}

// Texts that are data of the states, such as those that package view makes, are left out: those are checked on real pages.
func TestGermanPagesHaveNoEnglishTexts(t *testing.T) {
	file, err := os.ReadFile("../web/lang/de.json")
	if err != nil {
		t.Fatal(err)
	}
	var german map[string]string
	if err := json.Unmarshal(file, &german); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../web/states/rendered.go")
	if err != nil {
		t.Fatal(err)
	}
	data := string(source)
	check := func(name, page string, real bool) {
		root, err := html.Parse(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		english := func(text string) {
			text = strings.TrimSpace(text)
			if translated, ok := german[text]; ok && translated != text && (real || !strings.Contains(data, strconv.Quote(text))) {
				t.Errorf("%s says %q", name, text)
			}
		}
		for n := range root.Descendants() {
			switch n.Type {
			case html.TextNode:
				if n.Parent.Data != "code" && n.Parent.Data != "kbd" {
					english(n.Data)
				}
			case html.ElementNode:
				for _, a := range n.Attr {
					if slices.Contains([]string{"title", "aria-label", "placeholder", "alt", "data-wait", "data-off"}, a.Key) {
						english(a.Val)
					}
				}
			}
		}
	}
	ctx := lang.With(t.Context(), lang.German)
	for _, s := range states.All() {
		if s.Script {
			continue
		}
		var page strings.Builder
		if err := s.Component.Render(ctx, &page); err != nil {
			t.Fatal(err)
		}
		check(s.Name, page.String(), false)
	}
	server := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t))
	for _, path := range []string{"/", "/models", "/presets", "/settings", "/activity", "/blind"} {
		got := handlerstest.Call(t, server.Server, http.MethodGet, path, "", "Accept", handlerstest.BrowserAccept, "Accept-Language", "de")
		if got.Status != http.StatusOK {
			t.Fatalf("%s: status %d", path, got.Status)
		}
		check(path, got.Body, true)
	}
}
