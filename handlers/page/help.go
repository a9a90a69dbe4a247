package page

import (
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"m40-llm/docs"
	"m40-llm/handlers/help"
	"m40-llm/handlers/httpio"
	"m40-llm/infer/fault"
	"m40-llm/web"
)

// documents are rendered when the first is asked for.
var documents = sync.OnceValues(func() (map[string]*help.Page, error) { return help.Pages(docs.Files, "/help") })

// helpPage answers GET /help and GET /help/:name.
func (h *Handlers) helpPage(c echo.Context) error {
	pages, err := documents()
	if err != nil {
		return err
	}
	name := c.Param("name")
	p := pages[name]
	if p == nil {
		return fault.Errorf(fault.CodeUnknownURL, "There is no document %q; /help lists all of them.", httpio.Shorten(name))
	}
	shown := web.Help{Title: p.Title, HTML: p.HTML, Inner: p.Name != help.Index}
	for _, part := range p.Headings {
		shown.Headings = append(shown.Headings, web.HelpLink{Address: "#" + part.ID, Text: part.Text})
	}
	return httpio.Render(c, http.StatusOK, web.HelpPage(shown))
}
