package handlers_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
)

func TestThePageOfSettings(t *testing.T) {
	server := handlerstest.ServeModels(t, t.TempDir(), handlerstest.NewModelRegistry(t), func(c *handlers.Config) { c.Alone, c.Version = true, "7.8.9" })
	page := func() string {
		return handlerstest.Call(t, server.Server, http.MethodGet, "/settings", "", "Accept", handlerstest.BrowserAccept).Body
	}
	set := func(days, megabytes string) handlerstest.Response {
		return handlerstest.Submit(t, server.Server, "/settings/limits", url.Values{"days": {days}, "megabytes": {megabytes}})
	}
	for _, want := range []string{server.URL + "/v1", "Only this machine reaches the server", "m40-llm 7.8.9", `name="days" type="number"`, "need no key", "base_url=&#34;" + server.URL} {
		if got := page(); !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if got := page(); !strings.Contains(got, `No <a href="/models">model</a> is downloaded; `) {
		t.Error("the page does not say that no model is downloaded")
	}
	server.Put(t, "one.gguf", handlerstest.RemoteModel)
	if got := page(); !strings.Contains(got, `<a href="/models">Models</a> take `) || !strings.Contains(got, ` in 1 file; `) {
		t.Error("the page does not say what one model takes")
	}
	if got := set("12", "34"); got.Status != http.StatusSeeOther || !strings.Contains(page(), `value="12"`) || !strings.Contains(page(), `value="34"`) {
		t.Errorf("limits were set: %d", got.Status)
	}
	for _, c := range []struct{ days, megabytes, says string }{{"x", "1", "whole number"}, {"0", "1", "days"}, {"1", "-1", "megabytes"}, {"", "", "whole number"}} {
		got := set(c.days, c.megabytes)
		if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, c.says) || !strings.Contains(got.Body, "<h1>Settings</h1>") {
			t.Errorf("%+v: %d, want the page with 400 and %q", c, got.Status, c.says)
		}
	}
	if !strings.Contains(page(), `value="12"`) {
		t.Error("limits that were refused are set")
	}
}
