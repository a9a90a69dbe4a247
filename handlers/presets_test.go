package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/page"
	"m40-llm/handlers/setting"
)

func TestPresets_ByScripts(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	got := handlerstest.PostScripted(t, server, "/presets", `{"name":"Wild","system":"Be wild.","settings":{"temperature":1.5,"stop":["\n"]}}`)
	var made page.Preset
	if err := json.Unmarshal([]byte(got.Body), &made); err != nil || got.Status != http.StatusCreated {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	if made.Name != "Wild" || made.Settings.Temperature != 1.5 || made.Settings.TopK != setting.Default().TopK || made.Settings.Seed != -1 {
		t.Errorf("made %+v", made)
	}
	if got := handlerstest.PostScripted(t, server, "/presets/"+made.ID, `{"settings":{"temperature":2}}`); got.Status != http.StatusOK || strings.Contains(got.Body, "Be wild") {
		t.Errorf("saved: %d, %s", got.Status, got.Body)
	}
	if got := handlerstest.PostScripted(t, server, "/presets/"+made.ID+"/rename", `{"name":"Wilder"}`); got.Status != http.StatusNoContent {
		t.Errorf("renamed: %d, %s", got.Status, got.Body)
	}
	for _, c := range []struct {
		name, path, body, code, field string
		status                        int
	}{
		{"a name in use", "/presets", `{"name":"wilder"}`, "name_taken", "name", 409},
		{"a built-in one's name", "/presets", `{"name":"balanced"}`, "name_taken", "name", 409},
		{"no name", "/presets", `{}`, "invalid_request", "name", 400},
		{"a field that there is not", "/presets", `{"name":"x","colour":"red"}`, "invalid_request", "", 400},
		{"a setting that there is not", "/presets", `{"name":"x","settings":{"magic":1}}`, "invalid_request", "settings", 400},
		{"a value out of range", "/presets", `{"name":"x","settings":{"top_p":2}}`, "invalid_request", "settings.top_p", 400},
		{"a value of another kind", "/presets", `{"name":"x","settings":{"top_p":"much"}}`, "invalid_request", "settings.top_p", 400},
		{"a seed", "/presets", `{"name":"x","settings":{"seed":7}}`, "invalid_request", "settings.seed", 400},
		{"one that is not there", "/presets/99", `{}`, "preset_not_found", "", 404},
		{"a built-in one", "/presets/greedy", `{}`, "preset_builtin", "", 409},
		{"the deletion of a built-in one", "/presets/greedy/delete", `{}`, "preset_builtin", "", 409},
		{"a restoration of nothing", "/presets/99/restore", `{}`, "preset_not_found", "", 404},
	} {
		got := handlerstest.PostScripted(t, server, c.path, c.body)
		if e := parseError(t, got); got.Status != c.status || e.Code != c.code || c.field != "" && (e.Param == nil || *e.Param != c.field) {
			t.Errorf("%s: got %d: %s", c.name, got.Status, got.Body)
		}
	}
	if got := handlerstest.PostScripted(t, server, "/presets/"+made.ID+"/delete", `{}`); got.Status != http.StatusNoContent {
		t.Errorf("deleted: %d, %s", got.Status, got.Body)
	}
	if got := handlerstest.PostScripted(t, server, "/presets/"+made.ID+"/restore", `{}`); got.Status != http.StatusNoContent {
		t.Errorf("restored: %d, %s", got.Status, got.Body)
	}
	list := handlerstest.PresetsOf(t, server)
	if last := list[len(list)-1]; last.Name != "Wilder" || last.ID != made.ID || last.Settings.Temperature != 2 {
		t.Errorf("the last preset is %+v", last)
	}
}

func TestPresets_OnlyThePageChangesThem(t *testing.T) {
	open, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	for name, header := range map[string][]string{
		"another site":             {"Origin", "https://evil.example"},
		"a request without origin": {"Content-Type", "application/json"},
		"a form of another origin": {"Origin", "null"},
	} {
		if got := handlerstest.Post(t, open, "/presets", `{"name":"x"}`, header...); got.Status != http.StatusForbidden {
			t.Errorf("%s: got %d: %s", name, got.Status, got.Body)
		}
	}
	locked := handlerstest.Server(t, handlerstest.NewScript(), func(c *handlers.Config) { handlerstest.Lock(t, c, "open sesame") })
	for _, path := range []string{"/presets", "/presets/export.json"} {
		if got := handlerstest.Call(t, locked, http.MethodGet, path, ""); got.Status == http.StatusOK {
			t.Errorf("%s is open to everybody: %s", path, got.Body)
		}
	}
	if got := handlerstest.PostScripted(t, locked, "/presets", `{"name":"x"}`); got.Status != http.StatusUnauthorized {
		t.Errorf("without the key: %d: %s", got.Status, got.Body)
	}
}

func TestPresets_WithoutScripts(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	show := func(query string) string {
		return handlerstest.Call(t, server, http.MethodGet, "/presets"+query, "").Body
	}
	got := handlerstest.PostForm(t, server, "/presets", "from=precise")
	if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/presets?id=1" {
		t.Fatalf("copied: %d, %q, %s", got.Status, got.Header.Get("Location"), got.Body)
	}
	if got := handlerstest.PostForm(t, server, "/presets/1/rename", "name=%3Cb%3EMine"); got.Status != http.StatusSeeOther {
		t.Fatalf("renamed: %d, %s", got.Status, got.Body)
	}
	page := show("?id=1&against=precise")
	for _, want := range []string{"&lt;b&gt;Mine", "The same as Precise", "Built in", `action="/presets/1/delete"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<b>Mine") || strings.Contains(page, "/presets/precise/delete") {
		t.Error("the page offers what cannot be, or runs a name")
	}
	got = handlerstest.PostForm(t, server, "/presets/1/delete", "")
	if got.Header.Get("Location") != "/presets?deleted=1" {
		t.Fatalf("deleted: %d, %q", got.Status, got.Header.Get("Location"))
	}
	if page := show("?deleted=1"); !strings.Contains(page, "Deleted “&lt;b&gt;Mine”") || !strings.Contains(page, `action="/presets/1/restore"`) {
		t.Error("the deletion cannot be undone on the page")
	}
	if got := handlerstest.PostForm(t, server, "/presets/1/restore", ""); got.Status != http.StatusSeeOther || !strings.Contains(show(""), "&lt;b&gt;Mine") {
		t.Errorf("restored: %d, %s", got.Status, got.Body)
	}
	if got := handlerstest.PostForm(t, server, "/presets/1/rename", "name=balanced"); got.Status != http.StatusConflict || !strings.Contains(got.Body, "There is a preset “balanced” already.") {
		t.Errorf("a name in use: %d, %s", got.Status, got.Body)
	}
}

func TestPresets_AreEditedInPlaceWithoutScripts(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	handlerstest.PostForm(t, server, "/presets", "from=precise")
	got := handlerstest.PostForm(t, server, "/presets/1", url.Values{
		"name": {"Exact"}, "temperature": {"0,25"}, "mirostat": {"2"}, "stop": {"\\nYou:\r\n\r\na\\\\b\r\n"}, "samplers": {"Top-k, min_p, Temperature"},
		"token_biases": {`{"id":7,"text":" fox","model":"guide","bias":-1000}`}, "thinking": {"off"}, "output_format": {"grammar"}, "output_grammar": {"root ::= a\r\na ::= \"b\"\r\n"}, "system": {"Be exact.\r\nBe short."}, "against": {"greedy"}, "all": {"1"},
	}.Encode())
	if got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/presets?id=1&against=greedy&all=1" {
		t.Fatalf("saved: %d, %q, %s", got.Status, got.Header.Get("Location"), got.Body)
	}
	list := handlerstest.PresetsOf(t, server)
	is := list[len(list)-1]
	if is.Name != "Exact" || is.System != "Be exact.\nBe short." || is.Settings.Temperature != 0.25 || is.Settings.Mirostat != 2 || is.Settings.TopK != 20 || is.Settings.Thinking != "off" {
		t.Errorf("stored is %+v", is)
	}
	if got, want := is.Settings.OutputFormat, (setting.OutputFormat{Type: setting.OutputGrammar, Grammar: "root ::= a\na ::= \"b\""}); got != want {
		t.Errorf("stored is the output format %+v, want %+v", got, want)
	}
	if s := is.Settings; !slices.Equal(s.TokenBiases, []setting.TokenBias{{ID: 7, Text: " fox", Model: "guide", Bias: -1000}}) {
		t.Errorf("stored are the biases %+v", s.TokenBiases)
	}
	if s := is.Settings; !slices.Equal(s.Stop, []string{"\nYou:", `a\b`}) || !slices.Equal(s.Samplers, []string{"top_k", "min_p", "temperature"}) {
		t.Errorf("stored is %q, %q", s.Stop, s.Samplers)
	}
	page := handlerstest.Call(t, server, http.MethodGet, "/presets?id=1&all=1", "").Body
	for _, want := range []string{`name="temperature" inputmode="decimal" value="0.25"`, ">\\nYou:\na\\\\b</textarea>", `value="Top-k, Min-p, Temperature"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for name, c := range map[string]struct{ field, value, problem string }{
		"a word for a number":    {"top_k", "many", "is not a whole number"},
		"a fraction":             {"top_k", "1.5", "is not a whole number"},
		"not a number":           {"top_p", "NaN", "is not a number"},
		"out of range":           {"top_p", "7", "0 to 1"},
		"an unknown stage":       {"samplers", "magic", "magic"},
		"no tokens":              {"max_tokens", "0", "at least 1 token"},
		"a name in use":          {"name", "greedy", "There is a preset “greedy” already."},
		"no name":                {"name", " ", "no name"},
		"a bias that is no JSON": {"token_biases", "fox", "Each line must be a JSON object"},
		"an unknown format":      {"output_format", "xml", "must be json, json_schema or grammar"},
		"a format without more":  {"output_format", "json_schema", "a grammar needs the type grammar"},
		"an unknown thought":     {"thinking", "<b>", "Thinking is"},
		"a text that is a mile":  {"stop", strings.Repeat("x", 300), "300 bytes"},
	} {
		got := handlerstest.PostForm(t, server, "/presets/1", url.Values{"temperature": {"1.5"}, c.field: {c.value}}.Encode())
		if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, c.problem) || !strings.Contains(got.Body, `id="e-`+c.field+`"`) || !strings.Contains(got.Body, `value="1.5"`) {
			t.Errorf("%s: got %d without %q or what was typed", name, got.Status, c.problem)
		}
	}
	if after := handlerstest.PresetsOf(t, server); after[len(after)-1].Settings.Temperature != 0.25 || after[len(after)-1].Name != "Exact" {
		t.Errorf("what was refused was half stored: %+v", after[len(after)-1])
	}
	if got := handlerstest.PostForm(t, server, "/presets/greedy", "temperature=1"); got.Status != http.StatusConflict {
		t.Errorf("a built-in one: got %d", got.Status)
	}
}

func TestPresets_AreUsedInTheChatThatThePageWasOpenedFrom(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	handlerstest.PostScripted(t, server, "/presets", `{"name":"Poet","system":"Rhyme.","settings":{"temperature":1.4}}`)
	chat := handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/", url.Values{"text": {"Hello"}}))
	engine.Next(t).Finish()
	page := handlerstest.Call(t, server, http.MethodGet, "/presets?id=1&chat="+chat, "").Body
	for _, want := range []string{"Use in this chat", "This chat is “Hello”.", `name="chat" value="` + chat + `"`, `href="/c/` + chat + `"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if got := handlerstest.PostForm(t, server, "/presets/1/use", "chat="+chat); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "/c/"+chat {
		t.Fatalf("used: %d, %q", got.Status, got.Header.Get("Location"))
	}
	c := handlerstest.DialSocket(t, server)
	if p := handlerstest.PanelOf(t, c, chat); p.Settings.Temperature != 1.4 || p.System != "Rhyme." || p.Preset != "1" || p.Settings.Seed != -1 {
		t.Errorf("the panel of the chat is %+v, %q, %q", p.Settings, p.System, p.Preset)
	}
	c.Do("panel", map[string]any{"settings": map[string]any{"seed": 7}, "system": "My own.", "preset": "1"})
	handlerstest.PostForm(t, server, "/presets/precise/use", "chat="+chat)
	if p := handlerstest.PanelOf(t, c, chat); p.Settings.Temperature != 0.3 || p.System != "My own." || p.Settings.Seed != 7 {
		t.Errorf("after another preset the panel of the chat is %+v, %q", p.Settings, p.System)
	}

	// In a new chat, without scripts.
	got := handlerstest.PostForm(t, server, "/presets/1/use", "")
	if got.Header.Get("Location") != "/?preset=1" {
		t.Fatalf("used in a new chat: %d, %q", got.Status, got.Header.Get("Location"))
	}
	if page := handlerstest.Call(t, server, http.MethodGet, "/?preset=1", "").Body; !strings.Contains(page, `<input type="hidden" name="preset" value="1">`) {
		t.Error("the form of the new chat does not name the preset")
	}
	handlerstest.ChatOf(t, handlerstest.Submit(t, server, "/", url.Values{"text": {"Hello"}, "preset": {"1"}}))
	if r := engine.Next(t).Request; r.Params.Temperature != 1.4 || r.Messages[0].Content != "Rhyme." {
		t.Errorf("the engine was asked with %+v", r)
	}
	for path, want := range map[string]int{"/presets/99/use": 404, "/presets?id=99": 404} {
		if strings.Contains(path, "use") {
			if got := handlerstest.PostForm(t, server, path, "chat="+chat); got.Status != want {
				t.Errorf("%s: got %d", path, got.Status)
			}
		} else if got := handlerstest.Call(t, server, http.MethodGet, path, ""); got.Status != want {
			t.Errorf("%s: got %d", path, got.Status)
		}
	}
}

func TestPresets_AnExportComesBack(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	handlerstest.PostScripted(t, server, "/presets", `{"name":"Wild","system":"</script>\n\"","settings":{"temperature":1.5,"stop":["\n","\\"],"repeat_last_n":-1}}`)
	all := handlerstest.Call(t, server, http.MethodGet, "/presets/export.json", "")
	one := handlerstest.Call(t, server, http.MethodGet, "/presets/export.json?id=greedy", "")
	if got := one.Header.Get("Content-Disposition"); got != "attachment; filename=Greedy.json" {
		t.Errorf("the file is called %q", got)
	}
	for _, file := range []string{all.Body, one.Body} {
		if got := handlerstest.PostScripted(t, server, "/presets/import", file); got.Status != http.StatusCreated {
			t.Errorf("imported: %d, %s", got.Status, got.Body)
		}
	}
	byName := map[string]page.Preset{}
	for _, p := range handlerstest.PresetsOf(t, server) {
		byName[p.Name] = p
	}
	for was, is := range map[string]string{"Wild": "Wild (2)", "Greedy": "Greedy (2)"} {
		a, b := byName[was], byName[is]
		if a.System != b.System || indent(a.Settings) != indent(b.Settings) || b.ID == "" {
			t.Errorf("%+v came back as %+v", a, b)
		}
	}
}

func TestPresets_ImportRefusesWhatIsNone(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	file := func(presets string) string { return `{"format":"` + page.PresetFormat + `","presets":` + presets + `}` }
	for name, c := range map[string]struct{ body, field string }{
		"no JSON":                             {"hello", "file"},
		"an array":                            {"[]", "file"},
		"two files in one":                    {file(`[{"name":"x"}]`) + file(`[{"name":"y"}]`), ""},
		"another format":                      {`{"format":"x","presets":[]}`, "format"},
		"no presets":                          {file(`[]`), "presets"},
		"presets that are none":               {file(`[7]`), "presets[0]"},
		"a preset without a name":             {file(`[{"name":"x"},{"settings":{}}]`), "presets[1].name"},
		"a name that is a number":             {file(`[{"name":7}]`), "presets[0].name"},
		"an unknown field":                    {file(`[{"name":"x","run":"rm"}]`), ""},
		"an unknown setting":                  {file(`[{"name":"x","settings":{"run":"rm"}}]`), "presets[0].settings"},
		"a value out of range":                {file(`[{"name":"x","settings":{"min_p":-1}}]`), "presets[0].settings.min_p"},
		"a number that is too large":          {file(`[{"name":"x","settings":{"temperature":1e999}}]`), "presets[0].settings.temperature"},
		"a list of stop strings that is none": {file(`[{"name":"x","settings":{"stop":"x"}}]`), "presets[0].settings.stop"},
		"a seed":                              {file(`[{"name":"x","settings":{"seed":1}}]`), "presets[0].settings.seed"},
		"JSON without an end":                 {`{"format":"` + page.PresetFormat + `","presets":[{"name":"x"`, "file"},
		"nesting without end":                 {file(strings.Repeat("[", 100000)), ""},
		"a name without end":                  {file(`[{"name":"` + strings.Repeat("x", 2000) + `"}]`), "presets[0].name"},
		"a null in a list":                    {file(`[null]`), "presets[0].name"},
		"presets by the bunch":                {file("[" + strings.TrimSuffix(strings.Repeat(`{"name":"x"},`, 600), ",") + "]"), "presets"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			got := handlerstest.PostScripted(t, server, "/presets/import", c.body)
			if e := parseError(t, got); got.Status != http.StatusBadRequest || c.field != "" && (e.Param == nil || *e.Param != c.field) {
				t.Errorf("got %d: %s", got.Status, got.Body)
			}
		})
	}
	for _, p := range handlerstest.PresetsOf(t, server) {
		if !p.Builtin {
			t.Errorf("what was refused is there: %+v", p)
		}
	}
}

func TestPresets_WhatIsLeftToTheModelAndTheProgramIsNotCalledNone(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.NewScript())
	page := handlerstest.Call(t, server, http.MethodGet, "/presets?id=balanced&all=1", "").Body
	for label, want := range map[string]string{"Order": "default", "Thinking": "as the model does"} {
		_, row, found := strings.Cut(page, ">"+label+"<")
		row, _, _ = strings.Cut(row, "</tr>")
		if !found || strings.Contains(row, "none") || !strings.Contains(row, want) {
			t.Errorf("the row of %s is %q, want %q in it", label, row, want)
		}
	}
}
