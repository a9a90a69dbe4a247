package handlers

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/web"
)

// The list of chats, and what is done with a chat as a whole. Changes are forms that
// POST to /c/:id/…, with their fields as a form or as a JSON object. The page's
// scripts ask for JSON and get 204; a form that a browser sends itself leads on to a
// page.

// railFragment answers GET /rail?q=&folder=&archived=&after=&current= with the list alone.
func (h *Handlers) railFragment(c echo.Context) error {
	rail, err := h.rail(c, c.QueryParam("current"))
	if err != nil {
		return err
	}
	return render(c, http.StatusOK, web.RailList(rail))
}

// chatForm is what the changes are made of. Value is what pin and archive set; a
// missing one means true.
type chatForm struct {
	Title  string `json:"title"`
	Folder string `json:"folder"`
	Value  *bool  `json:"value"`
	Model  string `json:"model"` // empty: whichever is loaded
}

func (f chatForm) value() bool { return f.Value == nil || *f.Value }

func readChatForm(c echo.Context) (chatForm, error) {
	var form chatForm
	if sendsJSON(c) {
		return form, readStrictJSON(c, &form)
	}
	form.Title, form.Folder, form.Model = c.FormValue("title"), c.FormValue("folder"), c.FormValue("model")
	if text := c.FormValue("value"); text != "" {
		value, err := strconv.ParseBool(text)
		if err != nil {
			return chatForm{}, invalidf("value", "value is %q, but must be true or false", text)
		}
		form.Value = &value
	}
	return form, nil
}

func (h *Handlers) renameChat(c echo.Context) error {
	form, err := readChatForm(c)
	if err != nil {
		return err
	}
	if err := h.Live.Rename(c.Request().Context(), c.Param("id"), form.Title); err != nil {
		return err
	}
	return changed(c, "/c/"+c.Param("id"))
}

func (h *Handlers) setChatModel(c echo.Context) error {
	form, err := readChatForm(c)
	if err != nil {
		return err
	}
	if err := h.Live.SetModel(c.Request().Context(), c.Param("id"), form.Model); err != nil {
		return err
	}
	return changed(c, "/c/"+c.Param("id"))
}

func (h *Handlers) moveChat(c echo.Context) error {
	form, err := readChatForm(c)
	if err != nil {
		return err
	}
	if err := h.Live.Move(c.Request().Context(), c.Param("id"), form.Folder); err != nil {
		return err
	}
	return changed(c, "/c/"+c.Param("id"))
}

func (h *Handlers) pinChat(c echo.Context) error {
	form, err := readChatForm(c)
	if err != nil {
		return err
	}
	if err := h.Live.Pin(c.Request().Context(), c.Param("id"), form.value()); err != nil {
		return err
	}
	return changed(c, "/c/"+c.Param("id"))
}

func (h *Handlers) archiveChat(c echo.Context) error {
	form, err := readChatForm(c)
	if err != nil {
		return err
	}
	if err := h.Live.Archive(c.Request().Context(), c.Param("id"), form.value()); err != nil {
		return err
	}
	return changed(c, "/c/"+c.Param("id"))
}

func (h *Handlers) deleteChat(c echo.Context) error {
	if err := h.Live.Delete(c.Request().Context(), c.Param("id")); err != nil {
		return err
	}
	return changed(c, "/")
}

func (h *Handlers) restoreChat(c echo.Context) error {
	if err := h.Live.Restore(c.Request().Context(), c.Param("id")); err != nil {
		return err
	}
	return changed(c, "/c/"+c.Param("id"))
}

// changed answers a change that was made.
func changed(c echo.Context, next string) error {
	if wantsJSON(c.Request()) {
		return c.NoContent(http.StatusNoContent)
	}
	return c.Redirect(http.StatusSeeOther, next)
}

// wantsJSON reports whether a script asks.
func wantsJSON(r *http.Request) bool {
	return strings.Contains(r.Header.Get(echo.HeaderAccept), echo.MIMEApplicationJSON)
}
