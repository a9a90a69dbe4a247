package help

import (
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"m40-llm/docs"
)

var (
	hrefs = regexp.MustCompile(`href="([^"]*)"`)
	ids   = regexp.MustCompile(` id="([^"]*)"`)
)

func TestPages_EachLinkLeadsToAPageAndAPlaceInIt(t *testing.T) {
	pages, err := Pages(docs.Files, "/help")
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]bool{"/help": true}
	for name, p := range pages {
		address := strings.TrimSuffix("/help/"+name, "/")
		places[address] = true
		for _, m := range ids.FindAllStringSubmatch(p.HTML, -1) {
			places[address+"#"+m[1]] = true
		}
		for _, h := range p.Headings {
			if !places[address+"#"+h.ID] {
				t.Errorf("%s: the part %q has no place in the page", address, h.Text)
			}
		}
	}
	for name, p := range pages {
		address := strings.TrimSuffix("/help/"+name, "/")
		if p.Title == "" || strings.Contains(p.HTML, "<img") || strings.Contains(p.HTML, "<h1") {
			t.Errorf("%s: title %q; its HTML must have no picture, which the program does not have, and no second title", address, p.Title)
		}
		for _, m := range hrefs.FindAllStringSubmatch(p.HTML, -1) {
			to := m[1]
			if strings.HasPrefix(to, "#") {
				to = address + to
			}
			if !strings.HasPrefix(to, "https://") && !places[to] {
				t.Errorf("%s links to %s, which is not there", address, m[1])
			}
		}
		if name != Index && !strings.Contains(pages[Index].HTML, `href="`+address+`"`) {
			t.Errorf("%s is not in the table of contents", address)
		}
	}
}

func TestPages_ADocumentAsHTML(t *testing.T) {
	for _, test := range []struct{ name, source, want string }{
		{"a link to another document, to a part of it", "[x](other.md#some-part)", `<p><a href="/h/other#some-part">x</a></p>`},
		{"a link to the project's first page", "[x](../README.md)", `<p><a href="/h">x</a></p>`},
		{"a link to a file that is no document", "see [the *file*](../deploy/x.yaml), please", `<p>see the <em>file</em>, please</p>`},
		{"a link to another server", "[x](https://example.org/a#b)", `<p><a href="https://example.org/a#b">x</a></p>`},
		{"a line of pictures", "a\n\n![b](c.png)\n\n<picture><img src=\"d\"></picture> <picture></picture>\n\ne", "<p>a</p>\n<p>e</p>"},
		{"headings of one name", "## A `b` (c)\n\n## A `b` (c)", "<h2 id=\"a-b-c\">A <code>b</code> (c)</h2>\n<h2 id=\"a-b-c-1\">A <code>b</code> (c)</h2>"},
		{"an anchor of the project's own", `<a id="p"></a>x`, `<p><a id="p"></a>x</p>`},
	} {
		t.Run(test.name, func(t *testing.T) {
			pages, err := Pages(fstest.MapFS{
				"page.md":  {Data: []byte("# Title\n\n" + test.source)},
				"other.md": {Data: []byte("# Other")},
			}, "/h")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(pages["page"].HTML); got != test.want || pages["page"].Title != "Title" {
				t.Errorf("%s, title %q\nwant %s, title \"Title\"", got, pages["page"].Title, test.want)
			}
		})
	}
}

func TestPages_ADocumentWithoutATitleIsRefused(t *testing.T) {
	_, err := Pages(fstest.MapFS{"page.md": {Data: []byte("text")}}, "/h")
	if err == nil || !strings.Contains(err.Error(), "page.md") {
		t.Errorf("error %v, want one that names page.md", err)
	}
}
