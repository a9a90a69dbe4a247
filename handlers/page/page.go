package page

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/guest"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/handlers/view"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
	"m40-llm/store"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// newChatPage answers GET / with the page of a new chat. The chat is created with its first
// message.
func (h *Handlers) newChatPage(c echo.Context) error {
	p, err := h.page(c, "")
	if err != nil {
		return err
	}
	if preset, err := h.Presets.Get(c.Request().Context(), principal(c), c.QueryParam("preset")); err == nil {
		p.Preset = preset.ID
	}
	return httpio.Render(c, http.StatusOK, web.Playground(p))
}

// chatPage answers GET /c/:id with the last messages of the chat. Later changes arrive over the
// websocket. For a chat that does not exist the page says so, with status 404.
func (h *Handlers) chatPage(c echo.Context) error {
	p, chat, err := h.chat(c, c.Param("id"))
	switch {
	case err != nil:
		return err
	case chat == nil:
		return httpio.Render(c, http.StatusNotFound, web.Playground(p))
	case c.QueryParam("follow") != "" && c.Request().Method == http.MethodGet:
		p.Follows = true
		return h.followPage(c, p, chat)
	}
	return httpio.Render(c, http.StatusOK, web.Playground(p))
}

// chat returns the page of a chat and the chat, which is nil if it does not exist. An empty id
// is that of a new chat.
func (h *Handlers) chat(c echo.Context, id string) (web.Page, *live.Chat, error) {
	p, err := h.page(c, id)
	if err != nil || id == "" {
		return p, nil, err
	}
	chat, err := h.Live.Chat(c.Request().Context(), principal(c), id)
	if errors.Is(err, owned.ErrNotFound) {
		p.Title = lang.T(c.Request().Context(), "Chat")
		return p, nil, nil
	}
	if err != nil {
		return web.Page{}, nil, err
	}
	if text := c.QueryParam("at"); text != "" {
		if p.At, err = strconv.ParseInt(text, 10, 64); err != nil || p.At < 1 {
			return web.Page{}, nil, fault.Invalid("at", "at is %q, but must be the number of a message", httpio.Shorten(text))
		}
	}
	if err := h.showChat(c, &p, chat); err != nil {
		return web.Page{}, nil, err
	}
	conversation, err := h.Live.Conversation(c.Request().Context(), principal(c), id)
	p.Pinned, p.Archived, p.Folder = conversation.Pinned, conversation.Archived, conversation.Folder
	return p, chat, err
}

// showChat adds the last messages of a chat to its page, or those around message p.At.
func (h *Handlers) showChat(c echo.Context, p *web.Page, chat *live.Chat) error {
	snapshot, err := chat.Snapshot(c.Request().Context(), principal(c), p.At)
	if err != nil {
		return err
	}
	p.Title, p.Temporary, p.Raw = snapshot.Title, snapshot.Temporary, snapshot.Raw
	p.Origin, p.OriginTitle = snapshot.Origin, snapshot.OriginTitle
	p.Older, p.Later, p.OffBranch = snapshot.More, snapshot.Later, p.At != 0
	p.Picker.Chosen, p.System = snapshot.Model, snapshot.System
	held, _, err := h.Guests.WriteAccess(c.Request().Context(), principal(c), chat)
	if err != nil {
		return err
	}
	for _, w := range held.Writers {
		if w.State == guest.WriterAsks {
			p.Asks++
		}
	}
	p.Turns = make([]web.Turn, len(snapshot.Messages))
	for i := range snapshot.Messages {
		p.Turns[i] = turnView(c.Request().Context(), &snapshot.Messages[i], p)
		p.OffBranch = p.OffBranch && p.Turns[i].ID != p.At
	}
	if n := len(p.Turns); n > 0 && !p.Later {
		p.Turns[n-1].Last = true
	}
	return nil
}

// turnView describes a message for the page as it is served, before scripts run.
func turnView(ctx context.Context, m *live.Message, p *web.Page) web.Turn {
	t := web.Turn{ID: m.ID, You: m.Role != live.RoleModel, Result: m.Role == live.RoleTool, Author: m.Author, At: m.At, Text: m.Text}
	if m.Answer == nil {
		t.Pictures = view.Pictures("/c/"+p.Chat, m.Pictures)
		return t
	}
	t.Speaker = view.Speaker(ctx, m.Answer)
	t.Running = m.Answer.State.Running()
	if !p.Raw {
		t.Text, t.HTML = "", markdown.Message(ctx, m)
	}
	if m.Answer.Error != nil {
		t.Error = failure.For(ctx, m.Answer.Error).Text
		if e := m.Answer.Error; e.Code == fault.CodeContext {
			advice := p.Engine.TooLong
			if len(p.Turns) == 2 && !p.Older { // a question and this
				advice = p.Engine.TooLongFirst
			}
			larger := e.ContextTrain > e.ContextLength
			advice = cmp.Or(failure.TooLongBecause(ctx, e.Largest, e.LargestTokens, e.ContextLength, larger), advice)
			t.Error = lang.T(ctx, "The prompt has %s tokens, and the context %s.", lang.Count(ctx, e.PromptTokens), lang.Count(ctx, e.ContextLength)) + " " + failure.NothingCut(ctx, advice)
		}
	}
	ending, tokens, edited := lang.T(ctx, "being written; load the page again for more"), "", ""
	if end := view.End(ctx, m.Answer); end != nil {
		ending = end.String()
	}
	if m.Answer.Edited {
		edited = lang.T(ctx, "edited by you")
	}
	if n := m.Answer.Usage.CompletionTokens; n > 0 {
		tokens = lang.N(ctx, n, "%s token", "%s tokens", lang.Count(ctx, n))
	}
	t.Notes = view.Joined(" · ", ending, edited, tokens, m.Answer.Receipt.Model, m.Answer.Receipt.Device, view.PromptNotes(ctx, m.Answer.Notes))
	return t
}

// Asset answers GET /static/{hash}/{name}.
func Asset(c echo.Context) error {
	hash, name, _ := strings.Cut(c.Param("*"), "/")
	a, ok := web.FindAsset(hash, name)
	if !ok {
		return echo.ErrNotFound
	}
	header := c.Response().Header()
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	header.Set(echo.HeaderVary, echo.HeaderAcceptEncoding)
	if a.Gzip != nil && httpio.AcceptsGzip(c.Request()) {
		header.Set(echo.HeaderContentEncoding, "gzip")
		return c.Blob(http.StatusOK, a.Type, a.Gzip)
	}
	return c.Blob(http.StatusOK, a.Type, a.Body)
}

// page returns the parts that all chat pages have in common, with the title of a new chat.
func (h *Handlers) page(c echo.Context, chat string) (web.Page, error) {
	ctx := c.Request().Context()
	rail, err := h.rail(c, chat)
	if err != nil {
		return web.Page{}, err
	}
	presets, err := h.Presets.List(c.Request().Context(), principal(c))
	newcomer, newcomerErr := h.newcomer(c)
	choices := make([]web.Preset, len(presets))
	for i, p := range presets {
		choices[i] = web.Preset{ID: p.ID, Name: p.Name}
	}
	var suggested []web.Suggestion
	if here, err := h.Models.List(c.Request().Context()); newcomer && err == nil {
		suggested = h.suggestions(c, here)
	}
	return web.Page{
		Chat:     chat,
		Title:    lang.T(ctx, "New chat"),
		Once:     rand.Text(),
		Newcomer: newcomer,
		Rail:     rail,
		Picker:   h.picker(c, chat),
		Engine:   view.Engine(c.Request().Context(), h.Live.Status()),
		Space:    view.Space(c.Request().Context(), h.Live.Disk.Space()),
		Left:     h.Left(c.Request().Context(), principal(c)),
		Params:   params(setting.Default()),
		MaxSeed:  setting.MaxSeed,
		Lists:    textLists,
		Stages:   stages(),
		Presets:  choices,

		Suggestions: suggested,
	}, errors.Join(err, newcomerErr)
}

// newcomer reports whether the person has no chats yet, in the list or in the archive.
func (h *Handlers) newcomer(c echo.Context) (bool, error) {
	for _, archived := range []bool{false, true} {
		list, err := h.Live.List.Conversations(c.Request().Context(), principal(c), store.Filter{Archived: archived, Limit: 1})
		if err != nil || len(list) > 0 {
			return false, err
		}
	}
	return true, nil
}

// ownSettings are the numeric settings that do not belong to samplers.
var ownSettings = []web.Param{
	{Key: "max_tokens", Label: lang.Key("Max tokens"), Lo: 16, Hi: 4096, FieldLo: 1, FieldHi: setting.MaxTokens, Step: 1, Logarithmic: true, OffAt: -1, Off: lang.Key("no limit"),
		About: lang.Key("Longest answer, in tokens; -1 for no limit but the context")},
	{Key: "thinking_budget", Label: lang.Key("Thinking budget"), Group: web.Thoughts, Lo: 16, Hi: 16384, FieldHi: setting.MaxTokens, Step: 1, Logarithmic: true, OffAt: 0, Off: lang.Key("no limit"),
		About: lang.Key("Tokens of thoughts after which the answer begins; 0 for no limit")},
	{Key: "pause_repetition", Label: lang.Key("Pause when it repeats itself"), Group: web.Repetition, Lo: 0, Hi: 1, FieldHi: 1, On: 1, Off: lang.Key("off"),
		About: lang.Key("Stop an answer whose last tokens are the same passage several times; without this the page only says so")},
	{Key: "must_call", Label: lang.Key("Must call one"), Group: web.Tools, Lo: 0, Hi: 1, FieldHi: 1, On: 1, Off: lang.Key("off"),
		About: lang.Key("The answer to a question is a call of one of the tools; after its result the model decides")},
}

// groups are those of the settings, in the order in which they are listed.
var groups = []string{web.Everyday, web.Thoughts, web.Cutting, web.Variety, web.Repetition, web.Tools}

// sliders are the numeric settings: those of sample.Numbers, and ownSettings.
var sliders = func() []web.Param {
	var list []web.Param
	for _, n := range sample.Numbers() {
		s := n.Slider
		list = append(list, web.Param{
			Key: n.Name, Label: n.Label, About: n.About, Group: s.Group, DependsOn: n.DependsOn, Truncates: n.Truncates, FieldLo: n.Min, FieldHi: n.Max,
			Lo: s.Lo, Hi: s.Hi, Step: s.Step, Digits: s.Digits, Logarithmic: s.Logarithmic, OffAt: s.OffAt, Off: s.Off, On: s.On,
		})
	}
	list = append(list, ownSettings...)
	slices.SortStableFunc(list, func(a, b web.Param) int { return slices.Index(groups, a.Group) - slices.Index(groups, b.Group) })
	return list
}()

// params returns the numeric settings for the page, with the defaults d.
func params(d setting.Settings) []web.Param {
	list, defaults := slices.Clone(sliders), settingValues(d)
	for i := range list {
		list[i].Default = defaults[list[i].Key]
	}
	return list
}

// textLists are the settings that are lists of texts.
var textLists = []web.TextList{
	{Key: "dry_sequence_breakers", Label: lang.Key("DRY breakers"), Group: web.Repetition, DependsOn: "dry_multiplier", Most: setting.Breakers.Most, Bytes: setting.Breakers.Bytes, Default: sample.DefaultParams().DryBreakers,
		One: lang.Key("breaker"), Add: lang.Key("Add a breaker"), About: lang.Key("DRY does not count a repetition across one of these.")},
	{Key: "stop", Label: lang.Key("Stop strings"), Group: web.Lists, Most: setting.Stops.Most, Bytes: setting.Stops.Bytes,
		One: lang.Key("stop string"), Add: lang.Key("Add a stop string"), About: lang.Key("Stops before any of these.")},
	{Key: "banned_strings", Label: lang.Key("Banned strings"), Group: web.Lists, Most: setting.Banned.Most, Bytes: setting.Banned.Bytes,
		One: lang.Key("banned string"), Add: lang.Key("Add a banned string"), About: lang.Key("The answer never contains one of these: where one begins, the answer is rewritten from there.")},
}

// panelLabel returns what the panel calls the setting with a key.
func panelLabel(ctx context.Context, key string) string {
	for _, p := range sliders {
		if p.Key == key {
			return lang.T(ctx, p.Label)
		}
	}
	for _, l := range textLists {
		if l.Key == key {
			return lang.T(ctx, l.Label)
		}
	}
	switch key {
	case "samplers":
		return lang.T(ctx, "Order of the samplers")
	case "json_schema":
		return lang.T(ctx, "JSON and JSON schema as output format")
	case "grammar":
		return lang.T(ctx, "GBNF as output format")
	}
	return key
}

// stages returns the stages of the sampler chain in their default order.
func stages() []web.Stage {
	var list []web.Stage
	for _, name := range sample.StageNames() {
		list = append(list, web.Stage{Key: name, Label: sample.StageLabel(name), Truncates: sample.Truncates(name)})
	}
	return list
}
