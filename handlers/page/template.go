package page

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer/fault"
	"m40-llm/store"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// previewChats is on how many of the last chats a template can be previewed.
const previewChats = 20

// templatePage answers GET /models/template?name=&chat= with the chat template of a model and what it makes of a chat.
func (h *Handlers) templatePage(c echo.Context) error {
	t, err := h.chatTemplate(c, c.QueryParam("name"), c.QueryParam("chat"))
	if err != nil {
		return err
	}
	t.Saved = c.QueryParam("saved") != ""
	return h.showTemplate(c, http.StatusOK, t)
}

// changeTemplate answers POST /models/template: it previews, saves or resets.
func (h *Handlers) changeTemplate(c echo.Context) error {
	t, err := h.chatTemplate(c, c.FormValue("name"), c.FormValue("chat"))
	if err != nil {
		return err
	}
	t.Source = strings.ReplaceAll(c.FormValue("source"), "\r\n", "\n") // as forms send line ends
	switch c.FormValue("do") {
	case "save":
		if strings.TrimSpace(t.Source) == "" {
			err = fault.Invalid("source", "the template is empty; to use that of the file again, reset it")
		} else {
			err = h.Models.WriteTemplate(t.Name, t.Source)
		}
	case "reset":
		err = h.Models.WriteTemplate(t.Name, "")
	default:
		return h.showTemplate(c, http.StatusOK, t)
	}
	if err != nil {
		f := h.Gate.Failed(c, err)
		t.Problem = f.Text
		return h.showTemplate(c, f.Status, t)
	}
	return c.Redirect(http.StatusSeeOther, string(web.TemplateAddress(t.Name))+"&saved=1")
}

// chatTemplate describes the chat template of a model on this machine, without a preview.
func (h *Handlers) chatTemplate(c echo.Context, name, chat string) (web.ChatTemplate, error) {
	info, err := h.Models.Details(name)
	if err != nil {
		return web.ChatTemplate{}, err
	}
	ctx := c.Request().Context()
	t := web.ChatTemplate{Name: info.Name, Chat: chat}
	if info.Template != nil {
		t.Source, t.Own = info.Template.Source, info.Template.File
	}
	switch {
	case !info.Writes():
		t.Fixed = lang.T(ctx, "This model writes no text, so that it has no use for a template.")
	case info.Path == "":
		t.Fixed = lang.T(ctx, "The built-in model keeps its template. You can preview another one.")
	}
	list, err := h.Live.List.Conversations(c.Request().Context(), principal(c), store.Filter{Limit: previewChats})
	if err != nil {
		return web.ChatTemplate{}, err
	}
	for _, conversation := range list {
		t.Chats = append(t.Chats, web.Fact{Name: conversation.Title, Value: conversation.ID})
	}
	return t, nil
}

// showTemplate responds with the page, with the prompt that the template in t makes.
func (h *Handlers) showTemplate(c echo.Context, status int, t web.ChatTemplate) error {
	rendered, err := h.Inspect.PreviewTemplate(c.Request().Context(), principal(c), t.Chat, t.Name, strings.TrimSpace(t.Source))
	if err != nil {
		f := h.Gate.Failed(c, err)
		if t.Problem == "" {
			t.Problem, status = f.Text, f.Status
		}
		return httpio.Render(c, status, web.ChatTemplatePage(t))
	}
	ctx := c.Request().Context()
	t.Preview, t.Notes = rendered.Prompt, nil
	for _, note := range rendered.Notes {
		t.Notes = append(t.Notes, lang.Message(ctx, note))
	}
	n := len(rendered.Tokens)
	t.Tokens = lang.N(ctx, n, "%s token", "%s tokens", lang.Count(ctx, n))
	return httpio.Render(c, status, web.ChatTemplatePage(t))
}
