package page

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer/fault"
	"m40-llm/web"
)

// The list of chats, and changes of a chat as a whole. A change is a POST to /c/:id/… with a
// form or a JSON object. The page's scripts ask for JSON and get 204; a form that the browser
// submits itself is redirected to a page.

// railFragment answers GET /rail?q=&folder=&archived=&after=&current= with the list alone.
func (h *Handlers) railFragment(c echo.Context) error {
	rail, err := h.rail(c, c.QueryParam("current"))
	if err != nil {
		return err
	}
	return httpio.Render(c, http.StatusOK, web.RailList(rail))
}

// chatForm has the fields of all changes of a chat.
type chatForm struct {
	Title  string `json:"title"`
	Folder string `json:"folder"`
	Value  *bool  `json:"value"` // for pin and archive; nil: true
	Model  string `json:"model"` // empty: whichever is loaded
}

func (f chatForm) value() bool { return f.Value == nil || *f.Value }

func readChatForm(c echo.Context) (chatForm, error) {
	var form chatForm
	if httpio.SendsJSON(c) {
		return form, httpio.ReadStrictJSON(c, &form)
	}
	form.Title, form.Folder, form.Model = c.FormValue("title"), c.FormValue("folder"), c.FormValue("model")
	if text := c.FormValue("value"); text != "" {
		value, err := strconv.ParseBool(text)
		if err != nil {
			return chatForm{}, fault.Invalid("value", "value is %q, but must be true or false", text)
		}
		form.Value = &value
	}
	return form, nil
}

// changeChat returns the handler of a change. It redirects to the chat.
func changeChat(change func(c echo.Context, chat string, form chatForm) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		form, err := readChatForm(c)
		if err != nil {
			return err
		}
		if err := change(c, c.Param("id"), form); err != nil {
			return err
		}
		return changed(c, "/c/"+c.Param("id"))
	}
}

func (h *Handlers) renameChat(c echo.Context, chat string, form chatForm) error {
	return h.Live.Rename(c.Request().Context(), principal(c), chat, form.Title)
}

func (h *Handlers) setChatModel(c echo.Context, chat string, form chatForm) error {
	return h.Live.SetModel(c.Request().Context(), principal(c), chat, form.Model)
}

func (h *Handlers) moveChat(c echo.Context, chat string, form chatForm) error {
	return h.Live.List.Move(c.Request().Context(), principal(c), chat, form.Folder)
}

func (h *Handlers) pinChat(c echo.Context, chat string, form chatForm) error {
	return h.Live.List.Pin(c.Request().Context(), principal(c), chat, form.value())
}

func (h *Handlers) archiveChat(c echo.Context, chat string, form chatForm) error {
	return h.Live.List.Archive(c.Request().Context(), principal(c), chat, form.value())
}

func (h *Handlers) deleteChat(c echo.Context) error {
	if err := h.Live.Delete(c.Request().Context(), principal(c), c.Param("id")); err != nil {
		return err
	}
	return changed(c, "/")
}

// copyChat answers POST /c/:id/copy with the id of the copy.
func (h *Handlers) copyChat(c echo.Context) error {
	copied, err := h.Live.Copy(c.Request().Context(), principal(c), c.Param("id"))
	if err != nil {
		return err
	}
	if httpio.WantsJSON(c.Request()) {
		return c.JSON(http.StatusOK, map[string]string{"chat": copied})
	}
	return c.Redirect(http.StatusSeeOther, "/c/"+copied)
}

func (h *Handlers) restoreChat(c echo.Context) error {
	if err := h.Live.Restore(c.Request().Context(), principal(c), c.Param("id")); err != nil {
		return err
	}
	return changed(c, "/c/"+c.Param("id"))
}

// renameFolder answers POST /folders/rename with the fields folder and name.
func (h *Handlers) renameFolder(c echo.Context) error {
	name, err := h.Live.List.RenameFolder(c.Request().Context(), principal(c), c.FormValue("folder"), c.FormValue("name"))
	if err != nil {
		return err
	}
	return changed(c, web.FolderAddress(name))
}

// changed responds to a change that succeeded: with 204 to scripts, with a redirect to next to
// forms.
func changed(c echo.Context, next string) error {
	if httpio.WantsJSON(c.Request()) {
		return c.NoContent(http.StatusNoContent)
	}
	return c.Redirect(http.StatusSeeOther, next)
}
