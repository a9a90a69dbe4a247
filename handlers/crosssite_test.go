package handlers_test

import (
	"bytes"
	"database/sql"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/store"
)

// commits counts the transactions that others have committed to a database.
type commits struct{ conn *sql.Conn }

func countCommits(t *testing.T, path string) commits {
	t.Helper()
	pool, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return commits{conn}
}

// version is another one after every commit.
func (c commits) version(t *testing.T) (version int64) {
	t.Helper()
	if err := c.conn.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&version); err != nil {
		t.Fatal(err)
	}
	return version
}

// formBodies returns a form in each type of content that a page can send to another site without
// asking it first, in JSON and without a type.
func formBodies(t *testing.T, form, json string) map[string]string {
	t.Helper()
	values, err := url.ParseQuery(form)
	if err != nil {
		t.Fatal(err)
	}
	var parts bytes.Buffer
	w := multipart.NewWriter(&parts)
	for name := range values {
		if err := w.WriteField(name, values.Get(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"application/x-www-form-urlencoded": form,
		w.FormDataContentType():             parts.String(),
		"text/plain":                        json,
		"application/json":                  json,
		"":                                  json,
	}
}

// What the pages of other sites can have a browser on the server's own machine send, where no login is
// asked for, and one that is logged in.
func TestCrossSite_NoPageOfAnotherSiteChangesAnything(t *testing.T) {
	h := newHouse(t)
	counted := countCommits(t, h.path)
	link, secret := h.writer(t, access.Local, "Walter")
	answers := func() int {
		list, err := h.running.List(t.Context(), access.Local)
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Answers)
	}
	asked, running := 0, answers()
	send := func(method, path, kind, body string, header ...string) int {
		t.Helper()
		r, err := http.NewRequest(method, h.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if kind != "" {
			r.Header.Set("Content-Type", kind)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := h.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		asked++
		return response.StatusCode
	}
	foreign := [][]string{
		{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"},
		{"Origin", "http://evil.example"}, // a browser without Sec-Fetch-Site
		{"Sec-Fetch-Site", "cross-site"},
		{"Origin", "null", "Sec-Fetch-Site", "cross-site"}, // a frame in a sandbox
		{"Origin", "null"},
		{"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"}, // another program on this machine
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", h.URL, "Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, // a form of another site
	}
	owner := h.askers[2].header
	browsers := map[string][]string{"on this machine": nil, "that is logged in": {"Via", "1.1 elsewhere", owner[len(owner)-2], owner[len(owner)-1]}, "that has the keyboard": {"Cookie", "m40_writer=" + secret}}
	before := counted.version(t)
	routes := h.Config.Handler.(*echo.Echo).Routes()
	mutating := 0
	for _, route := range routes {
		name := route.Method + " " + route.Path
		if route.Method == http.MethodGet || route.Method == http.MethodHead {
			continue
		}
		mutating++
		object := h.objects[rules[name]][store.OwnerID]
		if rules[name] == managed {
			object = h.askers[4].person
		}
		path := strings.NewReplacer(":id", object, ":answer", object, ":token", link.Token, ":index", "0").Replace(route.Path)
		json := `{"messages":[{"role":"user","content":"hi"}],"prompt":"hi","content":"hi","type":"send","text":"hi","do":"send"}`
		for kind, body := range formBodies(t, fields[name], json) {
			for browser, cookie := range browsers {
				for _, header := range foreign {
					if status := send(route.Method, path, kind, body, slices.Concat(header, cookie)...); status != http.StatusForbidden {
						t.Errorf("%s as %q with %q of a browser %s is answered with %d", name, kind, header, browser, status)
					}
				}
			}
		}
	}
	for _, route := range routes { // a link on another site leads to them
		if route.Method != http.MethodGet || route.Path == "/ws" || strings.HasSuffix(route.Path, "/events") {
			continue
		}
		object := h.objects[rules["GET "+route.Path]][store.OwnerID]
		path := strings.NewReplacer(":id", object, ":answer", "1", ":token", link.Token, ":index", "0", "*", "x").Replace(route.Path)
		send(http.MethodGet, path+"?text=hi&name=x&id=1&do=send", "", "", foreign[len(foreign)-1]...)
	}
	if after := counted.version(t); after != before || answers() != running {
		t.Errorf("pages of other sites changed something: %d commits, and %d answers, were %d", after-before, answers(), running)
	}
	t.Logf("%d mutating routes, %d requests", mutating, asked)
	page := []string{"Origin", h.URL, "Sec-Fetch-Site", "same-origin"}
	chat := "/c/" + h.objects[ofChat][store.OwnerID]
	if status := send("POST", chat+"/rename", "application/x-www-form-urlencoded", "title=another", page...); status >= 400 || counted.version(t) == before {
		t.Errorf("the server's own page is answered with %d, or the test counts no commits", status)
	}
}
