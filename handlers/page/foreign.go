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
	out, omitted, failures := imported{}, foreign.Omitted{}, 0
	leaveOut := func(why error) {
		if failures++; failures <= namedFailures {
			out.LeftOut = append(out.LeftOut, failure.Sentence(why.Error()))
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
		out.LeftOut = append(out.LeftOut, "The rest of the file: "+failure.Sentence(err.Error()))
		break read
	}
	if out.Chats == 0 {
		return false, fault.Invalid("file", "nothing was imported: %s", strings.Join(out.LeftOut, " "))
	}
	if failures > namedFailures {
		out.LeftOut = append(out.LeftOut, web.Counted(failures-namedFailures, "more chat")+" could not be read.")
	}
	for _, what := range slices.Sorted(omitted.All()) {
		out.LeftOut = append(out.LeftOut, what)
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
	text := "Imported " + web.Counted(i.Chats, "chat") + " of " + i.Program + " with " + web.Counted(i.Messages, "message") + "."
	if len(i.LeftOut) > 0 {
		text += " Left out: " + strings.Join(i.LeftOut, " ")
	}
	return httpio.Render(c, http.StatusCreated, web.Message("Imported", text))
}
