package markdown

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	gmhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown/blocks"
	"m40-llm/web/lang"
)

// maxMarkdown bounds what is parsed at once: some inputs, such as "[a](" repeated, take
// quadratic time.
const maxMarkdown = 32 << 10

// converter turns what a model wrote into HTML that is safe to insert. goldmark
// renders without raw HTML; the allow-list then has the last word, so that no
// rendering step comes after the check. There are no images: they would tell
// their server who reads. HTML in the source is shown as text, because models
// write about tags, and line breaks stay, because models write poems.
var converter = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough,
			extension.TaskList,
			extension.NewLinkify(extension.WithLinkifyAllowedProtocols([]string{"http:", "https:"})),
		),
		goldmark.WithParserOptions(parser.WithInlineParsers(util.Prioritized(inlineFormulas{}, 0), util.Prioritized(emphasis, 100), util.Prioritized(strikethrough, 100)), parser.WithBlockParsers(util.Prioritized(blockFormulas{}, 0))),
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
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^(ctl|k|s|c|gi|gd)$`)).OnElements("span")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^table$`)).OnElements("div")
	p.AllowAttrs("role").Matching(regexp.MustCompile(`^region$`)).OnElements("div")
	p.AllowAttrs("tabindex").Matching(regexp.MustCompile(`^0$`)).OnElements("div")
	p.AllowAttrs("aria-label").Matching(labels("Table")).OnElements("div")
	p.AllowAttrs("type").Matching(regexp.MustCompile(`^checkbox$`)).OnElements("input")
	p.AllowAttrs("checked", "disabled").Matching(regexp.MustCompile(`^$`)).OnElements("input")
	p.AllowAttrs("aria-label").Matching(labels("done", "to do")).OnElements("input")
	p.AllowElements("details", "summary")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^thought$`)).OnElements("details")
	p.AllowNoAttrs().OnElements("math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mtable", "mtr", "mtd")
	p.AllowAttrs("display").Matching(regexp.MustCompile(`^block$`)).OnElements("math")
	p.AllowAttrs("stretchy", "movablelimits").Matching(regexp.MustCompile(`^(true|false)$`)).OnElements("mo")
	p.AllowAttrs("accent").Matching(regexp.MustCompile(`^true$`)).OnElements("mover")
	p.AllowAttrs("linethickness").Matching(regexp.MustCompile(`^0$`)).OnElements("mfrac")
	p.AllowAttrs("width").Matching(regexp.MustCompile(`^-?[0-9.]{1,5}em$`)).OnElements("mspace")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^(aligned|cases)$`)).OnElements("mtable")
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

// labels matches texts of the catalogue in all languages.
func labels(texts ...string) *regexp.Regexp {
	for _, translated := range lang.Texts(lang.German, texts) {
		texts = append(texts, translated)
	}
	for i, text := range texts {
		texts[i] = regexp.QuoteMeta(text)
	}
	return regexp.MustCompile("^(" + strings.Join(texts, "|") + ")$")
}

// Answer renders a whole answer, a long one block by block.
func Answer(ctx context.Context, reasoning, source string) string {
	var out strings.Builder
	out.WriteString(Reasoning(ctx, reasoning))
	if len(source) <= maxMarkdown {
		out.WriteString(Text(ctx, source))
		return out.String()
	}
	for _, block := range blocks.Split(source) {
		out.WriteString(Text(ctx, block))
	}
	return out.String()
}

// Message renders an answer that is complete, with the call with which it ended.
func Message(ctx context.Context, m *live.Message) string {
	return Answer(ctx, m.Reasoning, m.Text) + call(ctx, m.Answer)
}

// call renders the call with which an answer ended; "" without one.
func call(ctx context.Context, a *live.Answer) string {
	if a == nil || a.Call == nil {
		return ""
	}
	var arguments bytes.Buffer
	if json.Indent(&arguments, []byte(a.Call.Arguments), "", "  ") != nil {
		arguments.WriteString(strconv.Quote(a.Call.Arguments))
	}
	return `<p class="call">` + lang.T(ctx, "Calls %s", "<code>"+html.EscapeString(a.Call.Name)+"</code>") + "</p>\n" + Text(ctx, "```json\n"+arguments.String()+"\n```\n")
}

// Block renders the block of an answer that an event says is finished.
func Block(ctx context.Context, e *live.Event) string {
	if e.Thinking {
		return Reasoning(ctx, e.Reasoning)
	}
	return Text(ctx, e.Text)
}

// Reasoning renders the reasoning of an answer, folded; "" if it is empty, as models write it
// that are told not to think.
func Reasoning(ctx context.Context, reasoning string) string {
	if strings.TrimSpace(reasoning) == "" {
		return ""
	}
	n := words(reasoning)
	title := lang.N(ctx, n, "Thinking, %s word", "Thinking, %s words", lang.Count(ctx, n))
	var out strings.Builder
	fmt.Fprintf(&out, "<details class=\"thought\"><summary>%s</summary>\n", html.EscapeString(title))
	for _, block := range blocks.Split(reasoning) {
		out.WriteString(toHTML(ctx, block))
	}
	out.WriteString("</details>\n")
	return allowed().Sanitize(out.String())
}

// words counts the words of a text. Each Chinese or Japanese character counts as one.
func words(text string) int {
	n, inside := 0, false
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
			n, inside = n+1, false
		case unicode.IsSpace(r):
			inside = false
		case !inside:
			n, inside = n+1, true
		}
	}
	return n
}

// Text renders a block, or a whole text that is short.
func Text(ctx context.Context, source string) string {
	return allowed().Sanitize(toHTML(ctx, source))
}

// toHTML is what the allow-list then looks through. It never fails: what cannot be
// rendered is shown as it is.
func toHTML(ctx context.Context, source string) string {
	plain := "<pre><code>" + html.EscapeString(source) + "</code></pre>\n"
	if len(source) > maxMarkdown {
		return plain
	}
	document := converter().Parser().Parse(text.NewReader([]byte(source)))
	document.OwnerDocument().AddMeta(metaSpent, timeout(highlightTime))
	document.OwnerDocument().AddMeta(metaContext, ctx)
	var out bytes.Buffer
	if converter().Renderer().Render(&out, []byte(source), document) != nil {
		return plain
	}
	return out.String()
}

// Keys of what all blocks of a document share: metaSpent says whether the time for colouring its code is spent, and
// metaContext has the language of the page.
const (
	metaSpent   = "spent"
	metaContext = "context"
)

// label returns a text in the language of the page of node.
func label(node ast.Node, text string) string {
	ctx, ok := node.OwnerDocument().Meta()[metaContext].(context.Context)
	if !ok {
		return text
	}
	return lang.T(ctx, text)
}

// plainNodes renders the nodes that are not rendered as Markdown defines them.
type plainNodes struct{}

func (plainNodes) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindRawHTML, renderRawHTML)
	r.Register(ast.KindHTMLBlock, renderHTMLBlock)
	r.Register(ast.KindImage, renderImage)
	r.Register(ast.KindCodeBlock, renderCodeBlock)
	r.Register(ast.KindFencedCodeBlock, renderCodeBlock)
	r.Register(ast.KindCodeSpan, renderCodeSpan)
	r.Register(extast.KindTable, renderTable)
	r.Register(kindFormula, renderFormula)
	r.Register(kindFormulaBlock, renderFormulaBlock)
	r.Register(extast.KindTaskCheckBox, renderTask)
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
	code := string(bytes.TrimSuffix(linesOf(node.Lines(), source), []byte("\n")))
	var spans []span
	_, _ = w.WriteString("<pre><code")
	if fenced, ok := node.(*ast.FencedCodeBlock); ok {
		if language := fenced.Language(source); len(language) > 0 {
			_, _ = w.WriteString(` class="language-`)
			escape(w, language)
			_ = w.WriteByte('"')
			if spent, ok := node.OwnerDocument().Meta()[metaSpent].(func() bool); ok {
				spans = highlight(code, string(language), spent)
			}
		}
	}
	_ = w.WriteByte('>')
	if spans == nil {
		spans = []span{{text: code}}
	}
	for _, s := range spans {
		if s.class == "" {
			writeCode(w, s.text)
			continue
		}
		_, _ = fmt.Fprintf(w, `<span class="%s">`, s.class)
		writeCode(w, s.text)
		_, _ = w.WriteString("</span>")
	}
	_, _ = w.WriteString("</code></pre>\n")
	return ast.WalkSkipChildren, nil
}

func renderCodeSpan(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	_, _ = w.WriteString("<code>")
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		if piece, ok := child.(*ast.Text); ok {
			writeCode(w, strings.ReplaceAll(string(piece.Segment.Value(source)), "\n", " "))
		}
	}
	_, _ = w.WriteString("</code>")
	return ast.WalkSkipChildren, nil
}

// renderTable puts a table into a box that scrolls, and can be scrolled by keyboard.
func renderTable(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<div class="table" role="region" tabindex="0" aria-label="` + label(node, lang.Key("Table")) + `"><table>` + "\n")
	} else {
		_, _ = w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}

func renderTask(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	checked, state := "", lang.Key("to do")
	if node.(*extast.TaskCheckBox).IsChecked {
		checked, state = `checked="" `, lang.Key("done")
	}
	_, _ = w.WriteString(`<input type="checkbox" disabled="" ` + checked + `aria-label="` + label(node, state) + `"> `)
	return ast.WalkContinue, nil
}

// writeCode shows characters that would make code read otherwise than it runs:
// changes of direction and characters that are not seen.
func writeCode(w util.BufWriter, code string) {
	plain := 0
	for i, r := range code {
		if unicode.Is(deceptive, r) {
			escape(w, []byte(code[plain:i]))
			_, _ = fmt.Fprintf(w, `<span class="ctl">U+%04X</span>`, r)
			plain = i + utf8.RuneLen(r)
		}
	}
	escape(w, []byte(code[plain:]))
}

// deceptive are the characters that turn the direction of text (Unicode's
// Bidi_Control), have no width, or look like nothing.
var deceptive = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x00AD, Hi: 0x00AD, Stride: 1}, // soft hyphen
		{Lo: 0x034F, Hi: 0x034F, Stride: 1},
		{Lo: 0x061C, Hi: 0x061C, Stride: 1},
		{Lo: 0x115F, Hi: 0x1160, Stride: 1}, // Hangul fillers, letters to a compiler
		{Lo: 0x17B4, Hi: 0x17B5, Stride: 1},
		{Lo: 0x180E, Hi: 0x180E, Stride: 1},
		{Lo: 0x200B, Hi: 0x200F, Stride: 1},
		{Lo: 0x2028, Hi: 0x202E, Stride: 1},
		{Lo: 0x2060, Hi: 0x206F, Stride: 1},
		{Lo: 0x3164, Hi: 0x3164, Stride: 1},
		{Lo: 0xFEFF, Hi: 0xFEFF, Stride: 1},
		{Lo: 0xFFA0, Hi: 0xFFA0, Stride: 1},
		{Lo: 0xFFF9, Hi: 0xFFFB, Stride: 1},
	},
	R32:         []unicode.Range32{{Lo: 0xE0000, Hi: 0xE007F, Stride: 1}}, // tags
	LatinOffset: 1,
}

func escape(w util.BufWriter, s []byte) { _, _ = w.WriteString(html.EscapeString(string(s))) }
