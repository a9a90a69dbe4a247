package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	docLink    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	docHeading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	docAnchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	docFence   = regexp.MustCompile("(?ms)^```.*?^```")
	notAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// docPages returns the README and the pages of docs, by path, without the text between fences.
func docPages(t *testing.T) map[string]string {
	paths, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, path := range append(paths, "README.md", "infer/guide/README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[path] = docFence.ReplaceAllString(string(text), "")
	}
	return pages
}

// anchors returns the fragments that links to a page can have: those of its headings and its anchors.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range docHeading.FindAllStringSubmatch(page, -1) {
		found[strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	for _, m := range docAnchor.FindAllStringSubmatch(page, -1) {
		found[m[1]] = true
	}
	return found
}

func TestDocs_EachLinkLeadsToAFileAndAHeading(t *testing.T) {
	pages := docPages(t)
	for path, page := range pages {
		for _, m := range docLink.FindAllStringSubmatch(page, -1) {
			if strings.Contains(m[1], ":") { // another server, or an address in an example
				continue
			}
			file, fragment, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			} else if fragment != "" && !anchors(pages[target])[fragment] {
				t.Errorf("%s links to %s, but %s has no such heading or anchor", path, m[1], target)
			}
		}
	}
}

func TestDocs_EachPageCanBeReachedFromTheREADME(t *testing.T) {
	pages := docPages(t)
	reached, queue := map[string]bool{"README.md": true}, []string{"README.md"}
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		for _, m := range docLink.FindAllStringSubmatch(pages[path], -1) {
			file, _, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(path), file)
			if _, is := pages[target]; is && !reached[target] {
				reached[target], queue = true, append(queue, target)
			}
		}
	}
	for path := range pages {
		if !reached[path] {
			t.Errorf("%s cannot be reached from README.md", path)
		}
	}
}

func TestDocs_TheREADMEIsShort(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > 200 || len(text) > 10_000 {
		t.Errorf("README.md has %d lines and %d bytes, want at most 200 and 10,000: details belong in docs", lines, len(text))
	}
}
