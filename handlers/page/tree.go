package page

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/view"
)

// chatTree answers GET /c/:id/tree: the messages of all branches of a chat, parents before their children.
func (h *Handlers) chatTree(c echo.Context) error {
	chat, err := h.Live.Chat(c.Request().Context(), principal(c), c.Param("id"))
	if err != nil {
		return err
	}
	nodes, more, err := chat.Tree(c.Request().Context(), principal(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"nodes": view.NodesOf(nodes), "more": more})
}
