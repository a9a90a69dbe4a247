package page

import (
	"errors"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/document"
	"m40-llm/infer/fault"
)

// readDocument answers POST /documents, whose body is a PDF or DOCX file, with its text. The file is stored nowhere.
func (h *Handlers) readDocument(c echo.Context) error {
	if err := access.Authorize(principal(c), access.ActionAsk, access.Object{Kind: access.KindChat, Owner: principal(c).Owner}); err != nil {
		return err
	}
	file, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return err
	}
	d, err := h.document(c, "the file", file)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, d)
}

// document returns the text of a file, which is called name in errors.
func (h *Handlers) document(c echo.Context, name string, file []byte) (document.Document, error) {
	if h.Documents == nil {
		return document.Document{}, fault.Invalid("file", "%s cannot be attached: this server does not read PDF and DOCX files", name)
	}
	d, err := h.Documents.Read(c.Request().Context(), file)
	if known := (*document.Error)(nil); errors.As(err, &known) {
		return d, fault.Invalid("file", "%s %s", name, known.Reason)
	}
	return d, err
}
