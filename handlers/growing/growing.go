// Package growing streams a page to a browser without scripts: HTML is appended while an answer
// is written. What was sent cannot be removed. So text that is superseded, such as the source of
// a block that was rendered later, is hidden by the style sheet once something follows it.
package growing

import (
	"context"
	"html"
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown"
)

// Page is a response to which HTML is appended.
type Page struct {
	ctx      context.Context // of the request, with its language
	response *echo.Response
	open     bool  // whether the element of unrendered text is open
	Err      error // the first error of a write; nothing is written after it
}

// Begin sends the headers of a page and returns it.
func Begin(c echo.Context) *Page {
	r := c.Response()
	r.Header().Set(echo.HeaderContentType, echo.MIMETextHTMLCharsetUTF8)
	r.Header().Set("X-Accel-Buffering", "no")
	r.WriteHeader(http.StatusOK)
	return &Page{ctx: c.Request().Context(), response: r}
}

// Write appends HTML.
func (p *Page) Write(html string) {
	if p.Err == nil {
		_, p.Err = p.response.Write([]byte(html))
	}
}

// Flush sends what was written to the browser.
func (p *Page) Flush() {
	if p.Err == nil {
		p.Err = http.NewResponseController(p.response.Writer).Flush()
	}
}

// Text appends unrendered text of an answer.
func (p *Page) Text(text string) {
	if text == "" {
		return
	}
	if !p.open {
		p.Write(`<div class="prose plain passing" dir="auto">`)
		p.open = true
	}
	p.Write(html.EscapeString(text))
}

// Close ends the unrendered text.
func (p *Page) Close() {
	if p.open {
		p.Write("</div>")
		p.open = false
	}
}

// Block appends a rendered block, which supersedes the unrendered text before it.
func (p *Page) Block(rendered string) {
	if p.Close(); rendered != "" {
		p.Write(`<div class="prose" dir="auto">` + rendered + "</div>")
	}
}

// Add appends what an event changes in the text of an answer. A raw text is not rendered.
func (p *Page) Add(e *live.Event, raw bool) {
	switch e.Type {
	case live.EventText:
		p.Text(e.Reasoning)
		p.Text(e.Text)
	case live.EventBlock:
		if !raw {
			p.Block(markdown.Block(p.ctx, e))
		}
	case live.EventEnd:
		m := e.Message
		if !raw {
			if e.Thinking {
				p.Block(markdown.Reasoning(p.ctx, m.Reasoning))
			}
			p.Block(markdown.Text(p.ctx, m.Text[m.Answer.Blocks:]))
		}
		p.Close()
	}
}

// Note appends a sentence that is not part of the answer.
func (p *Page) Note(text string) {
	p.Close()
	p.Write(`<p class="note">` + html.EscapeString(text) + "</p>")
}

// Passing appends a sentence that is hidden once something follows it.
func (p *Page) Passing(text string) {
	p.Write(`<p class="dim passing">` + html.EscapeString(text) + "</p>")
}
