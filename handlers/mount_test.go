package handlers_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
)

// rooted finds addresses in HTML that begin at the root of a site.
var rooted = regexp.MustCompile(`(?:href|action|formaction|src|data-follow|data-write)="(/[^"]*)"|url=(/[^"]*)"`)

func TestTheProgramWorksUnderAPathOfAReverseProxy(t *testing.T) {
	server := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t), func(c *handlers.Config) { c.BasePath = "/llm" }).Server
	get := func(path string, header ...string) handlerstest.Response {
		return handlerstest.Call(t, server, http.MethodGet, path, "", append([]string{"Accept", handlerstest.BrowserAccept}, header...)...)
	}
	sent := handlerstest.Submit(t, server, "/llm/", url.Values{"text": {`one <a href="/evil">`}, "system": {""}, "once": {"a"}})
	chat, _, _ := strings.Cut(strings.TrimPrefix(sent.Header.Get("Location"), "/llm/c/"), "?")
	if sent.Status != http.StatusSeeOther || chat == "" || strings.Contains(chat, "/") {
		t.Fatalf("a message is answered by %d to %q", sent.Status, sent.Header.Get("Location"))
	}
	seen := map[string]bool{}
	queue := []string{"/llm/", "/llm/c/" + chat, "/llm", "/llm/models?show=guide", "/llm/models/template?name=guide", "/llm/presets", "/llm/activity", "/llm/blind", "/llm/c/" + chat + "/share", "/llm/c/" + chat + "/sheet"}
	for len(queue) > 0 && len(seen) < 150 {
		path, _, _ := strings.Cut(queue[0], "#")
		queue = queue[1:]
		if seen[path] || strings.Contains(path, "follow=1") || path == "/llm/c/" || strings.Contains(path, "/c//") || path == "/llm/people" {
			continue
		}
		seen[path] = true
		got := get(path)
		if got.Status != http.StatusOK && got.Status != http.StatusSeeOther && !strings.Contains(path, "show=") {
			t.Errorf("%s: %d", path, got.Status)
		}
		if !strings.HasPrefix(got.Header.Get("Content-Type"), "text/html") {
			continue
		}
		if !strings.Contains(got.Body, `data-base="/llm"`) && got.Status == http.StatusOK && strings.Contains(got.Body, "<html") {
			t.Errorf("%s does not tell scripts where the program is", path)
		}
		for _, found := range rooted.FindAllStringSubmatch(got.Body, -1) {
			address := strings.ReplaceAll(found[1]+found[2], "&amp;", "&")
			if address != "/llm" && !strings.HasPrefix(address, "/llm/") {
				t.Errorf("%s leads to %s", path, address)
			} else if strings.Contains(found[0], "href") || strings.Contains(found[0], "src") {
				queue = append(queue, address)
			}
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d pages were found", len(seen))
	}
	if body := get("/llm/c/" + chat).Body; !strings.Contains(body, "href=&#34;/evil&#34;") {
		t.Error("the text of a message was changed")
	}
	for _, path := range []string{"/v1/models", "/llm/v1/models", "/llm/health"} {
		if got := get(path); got.Status != http.StatusOK || strings.Contains(got.Body, "/llm") {
			t.Errorf("%s: %d, %s", path, got.Status, got.Body)
		}
	}
	for _, path := range []string{"/llmx", "/llm/llm/models", "/other"} {
		if got := get(path); got.Status != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, got.Status)
		}
	}
}

func TestThePathOfAProxyIsBelievedOfTrustedProxiesAlone(t *testing.T) {
	for _, c := range []struct{ trusted, sent, base string }{
		{"127.0.0.0/8", "/llm", "/llm"},
		{"127.0.0.0/8", "/llm/", "/llm"},
		{"127.0.0.0/8", `/"><script>`, ""},
		{"127.0.0.0/8", "//evil.example", ""},
		{"10.0.0.0/8", "/llm", ""},
	} {
		server := handlerstest.Server(t, &handlerstest.FakeEngine{}, func(cfg *handlers.Config) {
			cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(c.trusted)}
			handlerstest.Lock(t, cfg, "open sesame")
		})
		got := handlerstest.Call(t, server, http.MethodGet, "/models", "", "Accept", handlerstest.BrowserAccept, "X-Forwarded-Prefix", c.sent)
		if to := got.Header.Get("Location"); to != c.base+"/login" {
			t.Errorf("%+v: leads to %q", c, to)
		}
		page := handlerstest.Call(t, server, http.MethodGet, "/login", "", "Accept", handlerstest.BrowserAccept, "X-Forwarded-Prefix", c.sent).Body
		if !strings.Contains(page, fmt.Sprintf("action=%q", c.base+"/login")) || strings.Contains(page, "<script>") || strings.Contains(page, "evil") {
			t.Errorf("%+v: the page says %s", c, page)
		}
		login := handlerstest.Call(t, server, http.MethodPost, "/login", "key=open+sesame", "Content-Type", "application/x-www-form-urlencoded", "Origin", server.URL, "X-Forwarded-Prefix", c.sent)
		if cookie := login.Header.Get("Set-Cookie"); login.Status != http.StatusSeeOther || !strings.Contains(cookie, "; Path="+c.base) || c.base == "" && !strings.Contains(cookie, "; Path=/;") {
			t.Errorf("%+v: logged in with %d and the cookie %q", c, login.Status, cookie)
		}
	}
}
