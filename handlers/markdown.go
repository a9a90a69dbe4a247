package handlers

import (
	"bytes"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	gmhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"m40-llm/handlers/live"
)

// maxMarkdown bounds what is parsed at once: some inputs, such as "[a](" over and
// over, take time by the square of their length.
const maxMarkdown = 32 << 10

// markdown turns what a model wrote into HTML that is safe to insert. goldmark
// renders without raw HTML; the allow-list then has the last word, so that no
// rendering step comes after the check. There are no images: they would tell
// their server who reads. HTML in the source is shown as text, because models
// write about tags, and line breaks stay, because models write poems.
var markdown = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough,
			extension.NewLinkify(extension.WithLinkifyAllowedProtocols([]string{"http:", "https:"})),
		),
		goldmark.WithRendererOptions(gmhtml.WithHardWraps(), renderer.WithNodeRenderers(util.Prioritized(plainNodes{}, 0))),
	)
})

var allowed = sync.OnceValue(func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "em", "strong", "del", "blockquote",
		"ul", "ol", "li", "pre", "code", "table", "thead", "tbody", "tr", "th", "td")
	p.AllowAttrs("start").Matching(regexp.MustCompile(`^[0-9]{1,9}$`)).OnElements("ol")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).OnElements("th", "td")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^language-[A-Za-z0-9+#._-]{1,32}$`)).OnElements("code")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^ctl$`)).OnElements("span")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("mailto")
	for _, scheme := range []string{"http", "https"} {
		p.AllowURLSchemeWithCustomPolicy(scheme, func(u *url.URL) bool { return u.Host != "" })
	}
	p.AllowRelativeURLs(false)
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true) // adds noopener as well
	return p
})

// renderAnswer renders a whole answer, a long one block by block.
func renderAnswer(source string) string {
	if len(source) <= maxMarkdown {
		return renderMarkdown(source)
	}
	var out strings.Builder
	for _, block := range live.SplitBlocks(source) {
		out.WriteString(renderMarkdown(block))
	}
	return out.String()
}

// renderMarkdown renders a block, or a whole answer that is short. It never
// fails: what cannot be rendered is shown as it is.
func renderMarkdown(source string) string {
	var out bytes.Buffer
	if len(source) > maxMarkdown || markdown().Convert([]byte(source), &out) != nil {
		return "<pre><code>" + html.EscapeString(source) + "</code></pre>\n"
	}
	return string(allowed().SanitizeBytes(out.Bytes()))
}

// plainNodes renders what must not keep its own meaning.
type plainNodes struct{}

func (plainNodes) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, renderRawHTML)
	r.Register(ast.KindHTMLBlock, renderHTMLBlock)
	r.Register(ast.KindImage, renderImage)
	r.Register(ast.KindCodeBlock, renderCodeBlock)
	r.Register(ast.KindFencedCodeBlock, renderCodeBlock)
}

func linesOf(segments *text.Segments, source []byte) []byte {
	var out []byte
	for i := range segments.Len() {
		segment := segments.At(i)
		out = append(out, segment.Value(source)...)
	}
	return out
}

func renderRawHTML(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		escape(w, linesOf(node.(*ast.RawHTML).Segments, source))
	}
	return ast.WalkSkipChildren, nil
}

func renderHTMLBlock(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := node.(*ast.HTMLBlock)
	content := linesOf(block.Lines(), source)
	if block.HasClosure() {
		content = append(content, block.ClosureLine.Value(source)...)
	}
	_, _ = w.WriteString("<p>")
	escape(w, bytes.TrimRight(content, "\n"))
	_, _ = w.WriteString("</p>\n")
	return ast.WalkSkipChildren, nil
}

// renderImage leaves an image's description, with a link to where it is.
func renderImage(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	image := node.(*ast.Image)
	if entering {
		_, _ = w.WriteString(`<a href="`)
		_, _ = w.Write(util.EscapeHTML(util.URLEscape(image.Destination, true)))
		_, _ = w.WriteString(`">`)
		return ast.WalkContinue, nil
	}
	_, _ = w.WriteString("</a>")
	return ast.WalkContinue, nil
}

func renderCodeBlock(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	_, _ = w.WriteString("<pre><code")
	if fenced, ok := node.(*ast.FencedCodeBlock); ok {
		if language := fenced.Language(source); len(language) > 0 {
			_, _ = w.WriteString(` class="language-`)
			escape(w, language)
			_ = w.WriteByte('"')
		}
	}
	_ = w.WriteByte('>')
	writeCode(w, bytes.TrimSuffix(linesOf(node.Lines(), source), []byte("\n")))
	_, _ = w.WriteString("</code></pre>\n")
	return ast.WalkSkipChildren, nil
}

// writeCode shows characters that would make code read otherwise than it runs:
// changes of direction and characters of no width.
func writeCode(w util.BufWriter, code []byte) {
	for _, r := range string(code) {
		if deceives(r) {
			_, _ = fmt.Fprintf(w, `<span class="ctl">U+%04X</span>`, r)
			continue
		}
		_, _ = w.WriteString(html.EscapeString(string(r)))
	}
}

func deceives(r rune) bool {
	switch {
	case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return strings.ContainsRune("\u200B\u200C\u200D\u200E\u200F\u061C\u2060\uFEFF", r)
}

func escape(w util.BufWriter, s []byte) { _, _ = w.WriteString(html.EscapeString(string(s))) }
