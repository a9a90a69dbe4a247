// Package help turns the documents of the project into pages of the program.
package help

import (
	"bytes"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	gmhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Index is the name of the page that lists the others.
const Index = ""

// contents is the document that Index shows.
const contents = "README"

// Page is a document as HTML. It is trusted: the text is the project's own, and raw HTML in it is kept.
type Page struct {
	Name     string // in its address; Index for the table of contents
	Title    string // the first heading, which HTML does not contain
	HTML     string
	Headings []Heading // of the second level
}

// Heading is a part of a page.
type Heading struct{ ID, Text string }

// Pages returns the documents *.md in files, by name, with links between them below address, such as /help. Links to what
// is no document are left as their text.
func Pages(files fs.FS, address string) (map[string]*Page, error) {
	paths, err := fs.Glob(files, "*.md")
	if err != nil {
		return nil, err
	}
	pages := map[string]*Page{}
	for _, path := range paths {
		source, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, err
		}
		page, err := render(source, links{address: address, documents: paths})
		if err != nil {
			return nil, fmt.Errorf("document %s: %w", path, err)
		}
		if page.Name = strings.TrimSuffix(path, ".md"); page.Name == contents {
			page.Name = Index
		}
		pages[page.Name] = page
	}
	return pages, nil
}

// picture is a line of a document that has nothing but pictures.
var picture = regexp.MustCompile(`(?m)^ *(!\[.*\]\(.*\)|<picture>.*</picture>)$`)

func render(source []byte, l links) (*Page, error) {
	source = picture.ReplaceAll(source, nil)
	md := goldmark.New(
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough),
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(l, 0))),
		goldmark.WithRendererOptions(gmhtml.WithUnsafe(), renderer.WithNodeRenderers(util.Prioritized(&wideTables{}, 0))),
	)
	root := md.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(&headingIDs{}))))
	page := &Page{}
	for node := root.FirstChild(); node != nil; {
		next := node.NextSibling()
		if h, ok := node.(*ast.Heading); ok {
			switch id, _ := h.AttributeString("id"); {
			case h.Level == 1 && page.Title == "":
				page.Title = plainText(h, source)
				root.RemoveChild(root, h)
			case h.Level == 2:
				page.Headings = append(page.Headings, Heading{string(id.([]byte)), plainText(h, source)})
			}
		}
		node = next
	}
	if page.Title == "" {
		return nil, fmt.Errorf("it has no heading of the first level")
	}
	var out bytes.Buffer
	err := md.Renderer().Render(&out, source, root)
	page.HTML = strings.ReplaceAll(out.String(), "<pre>", "<pre tabindex=\"0\">") // scrolls, so the keyboard must get there
	return page, err
}

// plainText returns the text below a node.
func plainText(node ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			out.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// links rewrites the links of a document.
type links struct {
	address   string   // of the page Index
	documents []string // their file names
}

func (l links) Transform(document *ast.Document, _ text.Reader, _ parser.Context) {
	var found []*ast.Link
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := n.(*ast.Link); ok && entering {
			found = append(found, link)
		}
		return ast.WalkContinue, nil
	})
	for _, link := range found {
		to, ok := l.rewrite(string(link.Destination))
		if ok {
			link.Destination = []byte(to)
			continue
		}
		for parent := link.Parent(); link.FirstChild() != nil; {
			parent.InsertBefore(parent, link, link.FirstChild())
		}
		link.Parent().RemoveChild(link.Parent(), link)
	}
}

// rewrite returns where a link leads in the program, and whether it leads anywhere there.
func (l links) rewrite(to string) (string, bool) {
	file, fragment, _ := strings.Cut(to, "#")
	switch {
	case file == "", strings.Contains(file, "://"):
		return to, true
	case file == "../README.md", file == contents+".md":
		return l.address, true
	case !slices.Contains(l.documents, file):
		return "", false
	}
	to = l.address + "/" + strings.TrimSuffix(file, ".md")
	if fragment != "" {
		to += "#" + fragment
	}
	return to, true
}

// headingIDs makes the ids that GitHub gives to headings, which the documents' links name.
type headingIDs struct{ taken []string }

func (h *headingIDs) Generate(value []byte, _ ast.NodeKind) []byte {
	base := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, string(bytes.TrimSpace(value)))
	id := base
	for n := 1; slices.Contains(h.taken, id); n++ {
		id = base + "-" + strconv.Itoa(n)
	}
	h.taken = append(h.taken, id)
	return []byte(id)
}

func (h *headingIDs) Put(value []byte) { h.taken = append(h.taken, string(value)) }

// wideTables puts each table of a document into a box that scrolls, and can be scrolled by keyboard.
type wideTables struct{ count int }

func (t *wideTables) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(extast.KindTable, func(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			t.count++
			_, _ = fmt.Fprintf(w, "<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"Table %d\"><table>\n", t.count)
		} else {
			_, _ = w.WriteString("</table></div>\n")
		}
		return ast.WalkContinue, nil
	})
}
