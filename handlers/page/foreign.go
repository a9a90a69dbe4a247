package page

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/foreign"
	"m40-llm/handlers/httpio"
	"m40-llm/infer/fault"
	"m40-llm/store"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// imported is what an import of another program's file made.
type imported struct {
	Chat     string   `json:"chat"`  // the first
	Title    string   `json:"title"` // of it
	Chats    int      `json:"chats"`
	Messages int      `json:"messages"`
	Program  string   `json:"program"`
	LeftOut  []string `json:"left_out,omitempty"` // what was not imported, and why
}

// namedFailures is how many chats that were left out are named.
const namedFailures = 5

// importForeign imports the chats of another program, and reports whether the file has any. What was imported before an
// error stays.
func (h *Handlers) importForeign(c echo.Context, file *received) (done bool, err error) {
	var beginning [512]byte
	n, err := file.file.ReadAt(beginning[:], 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	if !foreign.Known(beginning[:n]) {
		return false, nil
	}
	ctx, out, omitted, failures := c.Request().Context(), imported{}, foreign.Omitted{}, 0
	var named []string
	leaveOut := func(why error) {
		if failures++; failures <= namedFailures {
			named = append(named, why.Error())
			out.LeftOut = append(out.LeftOut, failure.Sentence(ctx, why.Error()))
		}
	}
read:
	for chat, err := range foreign.Read(file.file, file.bytes, omitted) {
		if err == nil {
			err = h.importOne(c, chat, &out)
		}
		var one *foreign.ChatError
		switch {
		case err == nil:
			continue
		case errors.Is(err, foreign.ErrUnknown) && out.Chats+failures == 0:
			return false, nil // its error is that of our own files
		case errors.As(err, &one):
			leaveOut(one)
			continue
		case out.Chats == 0:
			return false, discardRest(c, err)
		}
		out.LeftOut = append(out.LeftOut, lang.T(ctx, "The rest of the file:")+" "+failure.Sentence(ctx, err.Error()))
		break read
	}
	if out.Chats == 0 {
		return false, fault.Invalid("file", "nothing was imported: %s", strings.Join(named, "; "))
	}
	if failures > namedFailures {
		out.LeftOut = append(out.LeftOut, lang.N(ctx, failures-namedFailures, "%s more chat could not be read.", "%s more chats could not be read.", lang.Count(ctx, failures-namedFailures)))
	}
	for _, what := range slices.Sorted(omitted.All()) {
		out.LeftOut = append(out.LeftOut, lang.Message(ctx, what))
	}
	return true, out.respond(c)
}

// importOne imports a chat. An error that is about the chat alone is a *foreign.ChatError.
func (h *Handlers) importOne(c echo.Context, chat foreign.Chat, out *imported) error {
	list := func(yield func(store.Message, error) bool) {
		for _, m := range chat.Messages {
			if !yield(m, nil) {
				return
			}
		}
	}
	made, err := h.Live.Import(c.Request().Context(), principal(c), list, func() (store.Metadata, int64, error) { return chat.Metadata, chat.Leaf, nil })
	if known := (*fault.Error)(nil); errors.As(err, &known) && known.Code == fault.CodeInvalid {
		return chat.Failed(err)
	}
	if err != nil {
		return err
	}
	if out.Chats++; out.Chats == 1 {
		out.Chat, out.Title, out.Program = made.ID, made.Title, chat.Program
	}
	out.Messages += len(chat.Messages)
	return nil
}

func (i imported) respond(c echo.Context) error {
	if httpio.WantsJSON(c.Request()) {
		return c.JSON(http.StatusCreated, i)
	}
	if i.Chats == 1 && len(i.LeftOut) == 0 {
		return c.Redirect(http.StatusSeeOther, "/c/"+i.Chat)
	}
	ctx := c.Request().Context()
	text := lang.T(ctx, "Imported %s of %s with %s.", lang.N(ctx, i.Chats, "%s chat", "%s chats", lang.Count(ctx, i.Chats)), i.Program, lang.N(ctx, i.Messages, "%s message", "%s messages", lang.Count(ctx, i.Messages)))
	if len(i.LeftOut) > 0 {
		text += " " + lang.T(ctx, "Left out:") + " " + strings.Join(i.LeftOut, " ")
	}
	return httpio.Render(c, http.StatusCreated, web.Message(lang.T(ctx, "Imported"), text))
}
