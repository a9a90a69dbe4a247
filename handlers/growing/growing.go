// Package growing writes HTML that only ever gets longer, for browsers without scripts that read
// an answer while it is written. Text that is superseded, such as the source of a block that has
// ended, stays in it; the style sheet hides it for what follows.
package growing

import (
	"html"
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown"
)

// Page is a response that grows. After an error it writes nothing more.
type Page struct {
	response *echo.Response
	open     bool // the paragraph of the text as it comes
	Err      error
}

// Begin sends the headers of a page.
func Begin(c echo.Context) *Page {
	r := c.Response()
	r.Header().Set(echo.HeaderContentType, echo.MIMETextHTMLCharsetUTF8)
	r.Header().Set("X-Accel-Buffering", "no")
	r.WriteHeader(http.StatusOK)
	return &Page{response: r}
}

// Write adds HTML.
func (p *Page) Write(html string) {
	if p.Err == nil {
		_, p.Err = p.response.Write([]byte(html))
	}
}

// Flush sends what was written.
func (p *Page) Flush() {
	if p.Err == nil {
		p.Err = http.NewResponseController(p.response.Writer).Flush()
	}
}

// Text adds text as it comes.
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

// Close ends the text as it comes.
func (p *Page) Close() {
	if p.open {
		p.Write("</div>")
		p.open = false
	}
}

// Block adds a rendered block, which takes the place of the text as it came.
func (p *Page) Block(rendered string) {
	if p.Close(); rendered != "" {
		p.Write(`<div class="prose" dir="auto">` + rendered + "</div>")
	}
}

// Add adds what an event says of the text of an answer. Raw text has no blocks.
func (p *Page) Add(e *live.Event, raw bool) {
	switch e.Type {
	case live.EventText:
		p.Text(e.Reasoning)
		p.Text(e.Text)
	case live.EventBlock:
		if !raw {
			p.Block(markdown.Block(e))
		}
	case live.EventEnd:
		m := e.Message
		if !raw {
			if e.Thinking {
				p.Block(markdown.Thought(m.Reasoning))
			}
			p.Block(markdown.Text(m.Text[m.Answer.Blocks:]))
		}
		p.Close()
	}
}

// Note adds a sentence that is not part of an answer.
func (p *Page) Note(text string) {
	p.Close()
	p.Write(`<p class="note">` + html.EscapeString(text) + "</p>")
}

// Passing adds a sentence that what follows supersedes.
func (p *Page) Passing(text string) {
	p.Write(`<p class="dim passing">` + html.EscapeString(text) + "</p>")
}
