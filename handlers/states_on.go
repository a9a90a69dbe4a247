//go:build states

package handlers

import (
	"github.com/labstack/echo/v4"

	"m40-llm/web/states"
)

// addStates adds the storybook.
func addStates(e *echo.Echo) {
	book := echo.WrapHandler(states.Handler())
	e.GET(states.Path, book)
	e.GET(states.Path+"/:name", book)
}
