package httpio

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// Picture sends a picture file whose hash is part of the address, so that it never changes. Browsers ask again each time
// whether they still may see it.
func Picture(c echo.Context, hash, kind string, data []byte) error {
	header := c.Response().Header()
	tag := `"` + hash + `"`
	header.Set("Cache-Control", "private, no-cache")
	header.Set("ETag", tag)
	header.Set("Content-Disposition", "inline")
	if c.Request().Header.Get("If-None-Match") == tag {
		return c.NoContent(http.StatusNotModified)
	}
	return c.Blob(http.StatusOK, kind, data)
}
