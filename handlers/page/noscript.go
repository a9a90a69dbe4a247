package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/growing"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/handlers/view"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/store"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// The chat without scripts. The composer is a form that POSTs to the address of the page; the
// response redirects to /c/ID?follow=1, whose HTML ends when the answer does.

// question is the form of the composer.
type question struct {
	text, system string
	detail       string        // in which the model reads the pictures
	pictures     []string      // by their names, as attached.ParseName reads them
	opening      store.Opening // of a new chat
	preset       string        // whose settings a new chat has; empty: the defaults
	temporary    bool
	once         string // id of the form: a form that is sent twice asks once
}

// ask answers POST / and POST /c/:id. If the question cannot be sent, it responds with the
// page, the question and the error.
func (h *Handlers) ask(c echo.Context) error {
	id := c.Param("id")
	lines := func(name string) string { return strings.ReplaceAll(c.FormValue(name), "\r\n", "\n") } // forms encode line breaks as CRLF
	q := question{
		text: lines("text"), system: lines("system"), detail: c.FormValue("detail"), preset: c.FormValue("preset"), once: c.FormValue("once"),
		temporary: c.FormValue("temporary") != "", opening: store.Opening{Model: c.FormValue("model"), Raw: c.FormValue("raw") != ""},
	}
	chat, err := h.asked.do(q.once, func() (string, error) {
		sent := q
		var err error
		if sent.text, err = h.withFiles(c, q.text); err != nil {
			return "", err
		}
		if sent.pictures, err = h.formPictures(c, q.detail); err != nil {
			return "", err
		}
		return h.send(c, id, sent)
	})
	if err == nil {
		return c.Redirect(http.StatusSeeOther, "/c/"+chat+"?follow=1#end")
	}
	f := h.Gate.Failed(c, err)
	p, _, pageErr := h.chat(c, id)
	if pageErr != nil {
		return pageErr
	}
	p.Draft, p.Detail, p.System, p.Problem = q.text, q.detail, q.system, web.Problem{Title: f.Title, Message: f.Text}
	if id == "" {
		p.Picker.Chosen, p.Preset = q.opening.Model, q.preset
	}
	return httpio.Render(c, f.Status, web.Playground(p))
}

// send asks q in the chat with this id, with the chat's settings, or in a new chat if id is
// empty. It returns the chat's id.
func (h *Handlers) send(c echo.Context, id string, q question) (chat string, err error) {
	ctx, who := c.Request().Context(), principal(c)
	if id == "" {
		first := live.Question{Text: q.text, System: q.system, Opening: q.opening, Settings: setting.Default(), Pictures: q.pictures}
		if own, ok := h.Presets.ModelsOwn(); ok && q.preset == "" && (q.opening.Model == "" || q.opening.Model == h.Live.Status().Model.Name) {
			first.Settings, first.Preset = own.Settings, own.ID
		}
		if q.preset != "" {
			p, err := h.Presets.Get(ctx, who, q.preset)
			if err != nil {
				return "", err
			}
			first.Settings, first.Preset, first.System = p.Settings, p.ID, cmp.Or(q.system, p.System)
		}
		started, err := h.Live.Start(ctx, who, first, q.temporary)
		if err != nil {
			return "", err
		}
		return started.ID(), nil
	}
	open, err := h.Live.Chat(ctx, who, id)
	if err != nil {
		return "", err
	}
	return id, open.SendWithPanel(ctx, who, live.Question{Text: q.text, System: q.system, Pictures: q.pictures})
}

// answerQuestion answers POST /c/:id/answer: it starts an answer to the last question of a chat,
// with the chat's settings. It does nothing if the question has an answer already.
func (h *Handlers) answerQuestion(c echo.Context) error {
	id := c.Param("id")
	question, err := strconv.ParseInt(c.FormValue("question"), 10, 64)
	if err != nil {
		return fault.Invalid("question", "question is %q, but must be the number of a message", httpio.Shorten(c.FormValue("question")))
	}
	chat, err := h.Live.Chat(c.Request().Context(), principal(c), id)
	if err != nil {
		return err
	}
	if err := chat.Answer(c.Request().Context(), principal(c), question); err != nil {
		return err
	}
	return changed(c, "/c/"+id+"?follow=1#end")
}

// showMessage answers POST /c/:id/show: it switches the chat to the branch with a message.
func (h *Handlers) showMessage(c echo.Context) error {
	id, text := c.Param("id"), c.FormValue("message")
	message, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fault.Invalid("message", "message is %q, but must be the number of a message", httpio.Shorten(text))
	}
	chat, err := h.Live.Chat(c.Request().Context(), principal(c), id)
	if err != nil {
		return err
	}
	if err := chat.Select(c.Request().Context(), principal(c), message, 0); err != nil {
		return err
	}
	return changed(c, fmt.Sprintf("/c/%s?at=%d#m-%d", id, message, message))
}

// stop answers POST /c/:id/stop: it ends the answer, or with a value of thinking its reasoning alone. It is no error if the
// answer has ended already.
func (h *Handlers) stop(c echo.Context) error {
	chat, err := h.Live.Chat(c.Request().Context(), principal(c), c.Param("id"))
	if err != nil {
		return err
	}
	if c.FormValue("thinking") != "" {
		if err := chat.StopThinking(c.Request().Context(), principal(c), 0); err != nil {
			return err
		}
		return changed(c, "/c/"+c.Param("id")+"?follow=1#end")
	}
	var idle *owned.Conflict
	if err := chat.Stop(c.Request().Context(), principal(c), 0); err != nil && !errors.As(err, &idle) {
		return err
	}
	return changed(c, "/c/"+c.Param("id")+"#end")
}

// sentForms stores which forms have been sent, so that a double click or a reload does not ask
// again. A form that is sent twice at the same time waits for the first to return its chat.
type sentForms struct {
	mu    sync.Mutex
	forms map[string]*sentForm
	order []string
}

// sentForm is a form that is being sent or was sent.
type sentForm struct {
	mu   sync.Mutex
	chat string // id of the chat that it asked in; empty: not yet known
}

const (
	maxSentForms = 1000
	maxOnce      = 64 // bytes of a form's id; those of the page are shorter
)

// do returns the chat of the form with the id once. It calls send unless an earlier call for
// the same form has succeeded.
func (o *sentForms) do(once string, send func() (chat string, err error)) (string, error) {
	if len(once) > maxOnce {
		return "", fault.Invalid("once", "once has %d bytes, but can have at most %d", len(once), maxOnce)
	}
	if once == "" {
		return send()
	}
	f := o.form(once)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.chat != "" {
		return f.chat, nil
	}
	chat, err := send()
	if err == nil {
		f.chat = chat
	}
	return chat, err
}

// form returns the form with the id once.
func (o *sentForms) form(once string) *sentForm {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f := o.forms[once]; f != nil {
		return f
	}
	if o.forms == nil {
		o.forms = map[string]*sentForm{}
	}
	if len(o.order) >= maxSentForms {
		delete(o.forms, o.order[0])
		o.order = slices.Delete(o.order, 0, 1)
	}
	f := &sentForm{}
	o.forms[once] = f
	o.order = append(o.order, once)
	return f
}

// followPage writes the page of a chat up to its running answer, the answer as it is written,
// and then the rest of the page.
func (h *Handlers) followPage(c echo.Context, p web.Page, chat *live.Chat) error {
	subscription, snapshot, err := chat.Subscribe(c.Request().Context(), principal(c), 0)
	if err != nil {
		return err
	}
	defer subscription.Close()
	var page bytes.Buffer
	if err := web.Playground(p).Render(c.Request().Context(), &page); err != nil {
		return err
	}
	before, after, found := bytes.Cut(page.Bytes(), []byte(web.GrowingAnswerMark))
	last := len(snapshot.Messages) - 1
	if !found || last < 0 || snapshot.Messages[last].Answer == nil {
		return c.HTMLBlob(http.StatusOK, page.Bytes())
	}
	w := &growingPage{Page: growing.Begin(c), page: &p, raw: snapshot.Raw}
	w.Write(string(before))
	w.begin(c.Request().Context(), &snapshot.Messages[last])
	h.grow(c.Request().Context(), w, subscription)
	w.Write(string(after))
	return w.Err
}

// grow writes the events of an answer until it ends.
func (h *Handlers) grow(ctx context.Context, w *growingPage, subscription *live.Subscription) {
	silence := time.NewTicker(h.PingInterval)
	defer silence.Stop()
	for w.Err == nil && !w.ended {
		w.Flush()
		select {
		case <-ctx.Done():
			w.Err = ctx.Err()
		case <-h.Live.Closing():
			w.Note(lang.T(ctx, "The server is stopping. Load the page again later."))
			return
		case <-silence.C:
			w.Write("<!-- -->")
		case <-subscription.Ready():
			events, err := subscription.Take()
			for i := range events {
				w.apply(ctx, &events[i])
			}
			if err != nil {
				w.Note(lang.T(ctx, "The connection is too slow for the answer. Load the page again for the rest."))
				return
			}
		}
	}
}

// growingPage is the page of a chat while its answer is written.
type growingPage struct {
	*growing.Page
	page  *web.Page
	raw   bool
	id    int64           // of the answer
	phase infer.EventType // what wait has written last
	ended bool
}

// begin writes the part of the answer that exists already.
func (w *growingPage) begin(ctx context.Context, m *live.Message) {
	w.id = m.ID
	if !m.Answer.State.Running() {
		w.ended = true
	}
	if w.raw {
		w.Text(m.Text)
		return
	}
	if m.Answer.Thinking {
		w.Text(m.Reasoning)
	} else {
		w.Block(markdown.Reasoning(ctx, m.Reasoning))
	}
	for _, block := range m.FinishedBlocks() {
		w.Block(markdown.Text(ctx, block))
	}
	w.Text(m.Text[m.Answer.Blocks:])
}

func (w *growingPage) apply(ctx context.Context, e *live.Event) {
	if e.ID != w.id {
		return
	}
	w.Add(e, w.raw)
	switch e.Type {
	case live.EventProgress:
		w.wait(ctx, e.Progress)
	case live.EventEnd:
		w.end(ctx, e.Message)
	}
}

// wait writes what the answer is waiting for, once for each phase.
func (w *growingPage) wait(ctx context.Context, p *live.Progress) {
	phase, text := infer.EventPrefill, lang.T(ctx, "Reading the prompt.")
	switch {
	case p.Pictures != nil:
		phase, text = infer.EventPictures, view.Looking(ctx, p.Pictures)+"."
	case p.Queued != nil:
		phase, text = infer.EventQueued, lang.T(ctx, "Waiting for other answers")+view.Wait(ctx, *p.Queued)+". "+lang.T(ctx, "The message is kept and will be answered in turn.")
	case p.Loading != nil:
		phase, text = infer.EventLoading, lang.T(ctx, "Loading the model")+view.LoadTime(ctx, *p.Loading)+". "+lang.T(ctx, "The message is kept and will be answered as soon as it is there.")
	}
	if phase == w.phase {
		return
	}
	w.phase = phase
	w.Passing(text)
}

// end writes the error and the footer of an answer.
func (w *growingPage) end(ctx context.Context, m *live.Message) {
	w.ended = true
	t := turnView(ctx, m, w.page)
	if t.Error != "" {
		w.Write(`<div class="errbox"><p>` + html.EscapeString(t.Error) + "</p></div>")
	}
	w.Write(`<footer class="foot">` + html.EscapeString(t.Notes) + "</footer>")
}
