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
	d, err := h.document(c, file)
	if known := (*document.Error)(nil); errors.As(err, &known) {
		err = fault.Invalid("file", "%s", known)
	}
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, d)
}

// document returns the text of a file. The error for one that has none is a *document.Error.
func (h *Handlers) document(c echo.Context, file []byte) (document.Document, error) {
	if h.Documents == nil {
		return document.Document{}, &document.Error{Reason: "cannot be attached: this server does not read PDF and DOCX files"}
	}
	return h.Documents.Read(c.Request().Context(), file)
}
