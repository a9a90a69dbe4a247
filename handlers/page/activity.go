package page

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/view"
	"m40-llm/web"
)

// activityPage answers GET /activity with what the engine does at this moment.
func (h *Handlers) activityPage(c echo.Context) error {
	list, err := h.Activity.List(c.Request().Context(), principal(c))
	if err != nil {
		return err
	}
	shown := view.Activity(c.Request().Context(), list, h.Live.Status())
	shown.Manages = principal(c).Role == access.RoleOwner
	return httpio.Render(c, http.StatusOK, web.ActivityPage(shown))
}

// stopAnswer answers POST /activity/:answer/stop.
func (h *Handlers) stopAnswer(c echo.Context) error {
	if err := h.Activity.Stop(principal(c), c.Param("answer")); err != nil {
		return err
	}
	if httpio.WantsJSON(c.Request()) {
		return c.NoContent(http.StatusNoContent)
	}
	return c.Redirect(http.StatusSeeOther, "/activity")
}
