package handlers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"m40-llm/handlers/live"
)

// form posts the fields of a page's own form.
func form(t testing.TB, server *httptest.Server, path, body string) response {
	t.Helper()
	return post(t, server, path, body, "Origin", server.URL, "Content-Type", "application/x-www-form-urlencoded", "Accept", browserAccept)
}

// scripted posts JSON as the page's scripts do.
func scripted(t testing.TB, server *httptest.Server, path, body string) response {
	t.Helper()
	return post(t, server, path, body, "Origin", server.URL, "Content-Type", "application/json", "Accept", "application/json")
}

func presetsOf(t testing.TB, server *httptest.Server) (list []wirePreset) {
	t.Helper()
	got := call(t, server, http.MethodGet, "/presets", "", "Accept", "application/json")
	var body struct{ Presets []wirePreset }
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		t.Fatalf("%v: %s", err, got.body)
	}
	return body.Presets
}

func TestPresets_ByScripts(t *testing.T) {
	server, _ := serveStored(t, newScript())
	got := scripted(t, server, "/presets", `{"name":"Wild","system":"Be wild.","settings":{"temperature":1.5,"stop":["\n"]}}`)
	var made wirePreset
	if err := json.Unmarshal([]byte(got.body), &made); err != nil || got.status != http.StatusCreated {
		t.Fatalf("got %d: %s", got.status, got.body)
	}
	if made.Name != "Wild" || made.Settings.Temperature != 1.5 || made.Settings.TopK != live.DefaultSettings().TopK || made.Settings.Seed != -1 {
		t.Errorf("made %+v", made)
	}
	if got := scripted(t, server, "/presets/"+made.ID, `{"settings":{"temperature":2}}`); got.status != http.StatusOK || strings.Contains(got.body, "Be wild") {
		t.Errorf("saved: %d, %s", got.status, got.body)
	}
	if got := scripted(t, server, "/presets/"+made.ID+"/rename", `{"name":"Wilder"}`); got.status != http.StatusNoContent {
		t.Errorf("renamed: %d, %s", got.status, got.body)
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
		got := scripted(t, server, c.path, c.body)
		if e := parseError(t, got); got.status != c.status || e.Code != c.code || c.field != "" && (e.Param == nil || *e.Param != c.field) {
			t.Errorf("%s: got %d: %s", c.name, got.status, got.body)
		}
	}
	if got := scripted(t, server, "/presets/"+made.ID+"/delete", `{}`); got.status != http.StatusNoContent {
		t.Errorf("deleted: %d, %s", got.status, got.body)
	}
	if got := scripted(t, server, "/presets/"+made.ID+"/restore", `{}`); got.status != http.StatusNoContent {
		t.Errorf("restored: %d, %s", got.status, got.body)
	}
	list := presetsOf(t, server)
	if last := list[len(list)-1]; last.Name != "Wilder" || last.ID != made.ID || last.Settings.Temperature != 2 {
		t.Errorf("the last preset is %+v", last)
	}
}

func TestPresets_OnlyThePageChangesThem(t *testing.T) {
	open, _ := serveStored(t, newScript())
	for name, header := range map[string][]string{
		"another site":             {"Origin", "https://evil.example"},
		"a request without origin": {"Content-Type", "application/json"},
		"a form of another origin": {"Origin", "null"},
	} {
		if got := post(t, open, "/presets", `{"name":"x"}`, header...); got.status != http.StatusForbidden {
			t.Errorf("%s: got %d: %s", name, got.status, got.body)
		}
	}
	locked := server(t, newScript(), func(c *Config) { c.APIKey = "open sesame" })
	for _, path := range []string{"/presets", "/presets/export.json"} {
		if got := call(t, locked, http.MethodGet, path, ""); got.status == http.StatusOK {
			t.Errorf("%s is open to everybody: %s", path, got.body)
		}
	}
	if got := scripted(t, locked, "/presets", `{"name":"x"}`); got.status != http.StatusUnauthorized {
		t.Errorf("without the key: %d: %s", got.status, got.body)
	}
}

func TestPresets_WithoutScripts(t *testing.T) {
	server, _ := serveStored(t, newScript())
	show := func(query string) string { return call(t, server, http.MethodGet, "/presets"+query, "").body }
	got := form(t, server, "/presets", "from=precise")
	if got.status != http.StatusSeeOther || got.header.Get("Location") != "/presets#p-1" {
		t.Fatalf("copied: %d, %q, %s", got.status, got.header.Get("Location"), got.body)
	}
	if got := form(t, server, "/presets/1/rename", "name=%3Cb%3EMine"); got.status != http.StatusSeeOther {
		t.Fatalf("renamed: %d, %s", got.status, got.body)
	}
	page := show("?against=precise")
	for _, want := range []string{"&lt;b&gt;Mine", "the same as Precise", "built in", `action="/presets/1/delete"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<b>Mine") || strings.Contains(page, "/presets/precise/delete") {
		t.Error("the page offers what cannot be, or runs a name")
	}
	got = form(t, server, "/presets/1/delete", "")
	if got.header.Get("Location") != "/presets?deleted=1" {
		t.Fatalf("deleted: %d, %q", got.status, got.header.Get("Location"))
	}
	if page := show("?deleted=1"); !strings.Contains(page, "Deleted “&lt;b&gt;Mine”") || !strings.Contains(page, `action="/presets/1/restore"`) {
		t.Error("the deletion cannot be undone on the page")
	}
	if got := form(t, server, "/presets/1/restore", ""); got.status != http.StatusSeeOther || !strings.Contains(show(""), "&lt;b&gt;Mine") {
		t.Errorf("restored: %d, %s", got.status, got.body)
	}
	if got := form(t, server, "/presets/1/rename", "name=balanced"); got.status != http.StatusConflict || !strings.Contains(got.body, "There is a preset “balanced” already.") {
		t.Errorf("a name in use: %d, %s", got.status, got.body)
	}
}

func TestPresets_AnExportComesBack(t *testing.T) {
	server, _ := serveStored(t, newScript())
	scripted(t, server, "/presets", `{"name":"Wild","system":"</script>\n\"","settings":{"temperature":1.5,"stop":["\n","\\"],"repeat_last_n":-1}}`)
	all := call(t, server, http.MethodGet, "/presets/export.json", "")
	one := call(t, server, http.MethodGet, "/presets/export.json?id=greedy", "")
	if got := one.header.Get("Content-Disposition"); got != "attachment; filename=Greedy.json" {
		t.Errorf("the file is called %q", got)
	}
	for _, file := range []string{all.body, one.body} {
		if got := scripted(t, server, "/presets/import", file); got.status != http.StatusCreated {
			t.Errorf("imported: %d, %s", got.status, got.body)
		}
	}
	byName := map[string]wirePreset{}
	for _, p := range presetsOf(t, server) {
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
	server, _ := serveStored(t, newScript())
	file := func(presets string) string { return `{"format":"` + presetFormat + `","presets":` + presets + `}` }
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
		"JSON without an end":                 {`{"format":"` + presetFormat + `","presets":[{"name":"x"`, "file"},
		"nesting without end":                 {file(strings.Repeat("[", 100000)), ""},
		"a name without end":                  {file(`[{"name":"` + strings.Repeat("x", 2000) + `"}]`), "presets[0].name"},
		"a null in a list":                    {file(`[null]`), "presets[0].name"},
		"presets by the bunch":                {file("[" + strings.TrimSuffix(strings.Repeat(`{"name":"x"},`, 600), ",") + "]"), "presets"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			got := scripted(t, server, "/presets/import", c.body)
			if e := parseError(t, got); got.status != http.StatusBadRequest || c.field != "" && (e.Param == nil || *e.Param != c.field) {
				t.Errorf("got %d: %s", got.status, got.body)
			}
		})
	}
	for _, p := range presetsOf(t, server) {
		if !p.Builtin {
			t.Errorf("what was refused is there: %+v", p)
		}
	}
}

func FuzzReadPresets(f *testing.F) {
	f.Add([]byte(`{"format":"` + presetFormat + `","presets":[{"name":"x","system":"y","settings":{"top_k":1,"stop":["a"]}}]}`))
	f.Add([]byte(`{"presets":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := readPresets(data)
		if err != nil && list != nil {
			t.Errorf("both presets and an error: %v", err)
		}
		for _, p := range list {
			if p.Settings.Seed != -1 {
				t.Errorf("a preset has the seed %d", p.Settings.Seed)
			}
		}
	})
}
