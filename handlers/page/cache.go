package page

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
	"m40-llm/infer/fault"
)

// chatCache answers GET /c/:id/cache: whether the KV cache of the chat is stored, how large it and those of
// all chats are, and whether the asker may set their limit.
func (h *Handlers) chatCache(c echo.Context) error {
	chat, err := h.Live.Chat(c.Request().Context(), principal(c), c.Param("id"))
	if err != nil {
		return err
	}
	return h.showCache(c, chat)
}

func (h *Handlers) showCache(c echo.Context, chat *live.Chat) error {
	k, err := chat.KVCache(principal(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{
		"stored": k.Stored, "tokens": k.Tokens, "bytes": k.Bytes, "total": k.Total, "megabytes": k.Megabytes, "may": mayManageModels(c) == nil,
	})
}

// removeChatCache answers POST /c/:id/cache/remove.
func (h *Handlers) removeChatCache(c echo.Context) error {
	chat, err := h.Live.Chat(c.Request().Context(), principal(c), c.Param("id"))
	if err == nil {
		err = chat.RemoveKVCache(principal(c))
	}
	if err != nil {
		return err
	}
	return h.showCache(c, chat)
}

// setCacheLimit answers POST /caches, whose body has the megabytes that the KV caches of all chats may take.
func (h *Handlers) setCacheLimit(c echo.Context) error {
	var limit struct {
		Megabytes *int `json:"megabytes"`
	}
	if err := httpio.ReadStrictJSON(c, &limit); err != nil {
		return err
	}
	if limit.Megabytes == nil {
		return missingMegabytes
	}
	if err := h.Live.Disk.SetKVLimit(c.Request().Context(), principal(c), *limit.Megabytes); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

var missingMegabytes = fault.Invalid("megabytes", "megabytes is missing: it must be a number of megabytes")
