package page

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/compare"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/live"
	"m40-llm/handlers/view"
	"m40-llm/infer/fault"
	"m40-llm/store"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// VotesFormat is the value of format in the files that GET /blind/export.json writes.
const VotesFormat = "m40-llm-votes-1"

// blindPage answers GET /blind?first=ID&chat=ID&question=ID with the page on which two presets or models are compared without
// their names, and the person's leaderboard. first is the preset to begin with; with a chat, the answers are to a question of it.
func (h *Handlers) blindPage(c echo.Context) error {
	ctx, who := c.Request().Context(), principal(c)
	presets, err := h.Presets.List(ctx, who)
	if err != nil {
		return err
	}
	board, votes, err := h.Compare.Leaderboard(ctx, who)
	if err != nil {
		return err
	}
	pair, err := h.Compare.Pair(who)
	if err != nil {
		return err
	}
	p := web.Blind{Presets: make([]web.Preset, len(presets)), Models: usable(h.picker(c, "").Rows), First: c.QueryParam("first"), Votes: len(votes), MaxTokens: 256, Limit: compare.MaxPairTokens}
	for i, preset := range presets {
		p.Presets[i] = web.Preset{ID: preset.ID, Name: preset.Name}
	}
	for _, s := range board {
		p.Board = append(p.Board, standingView(c.Request().Context(), s))
	}
	switch id := c.QueryParam("chat"); {
	case id != "":
		chat, err := h.Live.Chat(ctx, who, id)
		if err != nil {
			return err
		}
		question, err := strconv.ParseInt(c.QueryParam("question"), 10, 64)
		if err != nil || question < 1 {
			return fault.Invalid("question", "question is %q, but must be the number of a message", httpio.Shorten(c.QueryParam("question")))
		}
		m, _, title, err := chat.Question(who, question)
		if err != nil {
			return err
		}
		p.Chat, p.ChatTitle, p.Question, p.Text = id, title, m.ID, m.Text
	case pair != nil:
		p.Shown, p.Text = true, pair.Text
	}
	return httpio.Render(c, http.StatusOK, web.BlindPage(p))
}

func standingView(ctx context.Context, s compare.Standing) web.Standing {
	percent := func(v float64) string { return strconv.Itoa(int(math.Round(100 * v))) }
	v := web.Standing{Name: s.Name, Won: s.Won, Lost: s.Lost, Tied: s.Tied, Bad: s.Bad, Share: "–", Low: s.Low, High: s.High, At: s.Share}
	if s.Won+s.Lost > 0 {
		v.Share, v.Interval = percent(s.Share)+" %", lang.T(ctx, "%s to %s %%", percent(s.Low), percent(s.High))
	}
	return v
}

// startPair answers POST /blind, whose body is a compare.NewPair.
func (h *Handlers) startPair(c echo.Context) error {
	var n compare.NewPair
	if err := httpio.ReadStrictJSON(c, &n); err != nil {
		return err
	}
	if err := h.Compare.StartPair(c.Request().Context(), principal(c), n); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// stopPair answers POST /blind/stop.
func (h *Handlers) stopPair(c echo.Context) error {
	if err := h.Compare.StopPair(principal(c)); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// vote answers POST /blind/vote, whose body has a vote, with the names of both answers.
func (h *Handlers) vote(c echo.Context) error {
	var body struct {
		Vote compare.Side `json:"vote"`
	}
	if err := httpio.ReadStrictJSON(c, &body); err != nil {
		return err
	}
	pair, err := h.Compare.Vote(c.Request().Context(), principal(c), body.Vote)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, namesOf(pair))
}

// namesOf describes what wrote the answers of a pair, for the page.
func namesOf(pair *compare.Pair) map[string]any {
	a, b, vote := pair.Names()
	return map[string]any{"a": a, "b": b, "vote": vote, "chat": pair.Chat}
}

// keepOfPair answers POST /blind/keep, whose body has a side, with the chat and the message that the answer became.
func (h *Handlers) keepOfPair(c echo.Context) error {
	var body struct {
		Side compare.Side `json:"side"`
	}
	if err := httpio.ReadStrictJSON(c, &body); err != nil {
		return err
	}
	chat, message, err := h.Compare.KeepOfPair(c.Request().Context(), principal(c), body.Side)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"chat": chat, "message": message})
}

// resetVotes answers POST /blind/reset.
func (h *Handlers) resetVotes(c echo.Context) error {
	if err := h.Compare.ResetVotes(c.Request().Context(), principal(c)); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/blind")
}

// exportedVote is a vote in a file.
type exportedVote struct {
	First  string           `json:"first"`
	Second string           `json:"second"`
	Result store.VoteResult `json:"result"`
	At     int64            `json:"at"` // milliseconds since 1970
}

// exportVotes answers GET /blind/export.json with the votes of the person and what they add up to.
func (h *Handlers) exportVotes(c echo.Context) error {
	board, votes, err := h.Compare.Leaderboard(c.Request().Context(), principal(c))
	if err != nil {
		return err
	}
	list := make([]exportedVote, len(votes))
	for i, v := range votes {
		list[i] = exportedVote{v.First, v.Second, v.Result, v.Created.UnixMilli()}
	}
	file, err := json.MarshalIndent(map[string]any{"format": VotesFormat, "votes": list, "leaderboard": board}, "", "  ")
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderContentDisposition, `attachment; filename="votes.json"`)
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, file)
}

// blindCell is what a person may see of an answer before the vote: nothing that tells the settings.
type blindCell struct {
	Index int              `json:"index"`
	State live.AnswerState `json:"state"`
	Text  string           `json:"text,omitempty"` // what was appended
	Note  string           `json:"note,omitempty"`
}

// pairEvents answers GET /blind/events with a stream of {"cells":[…]} with what has changed in the two
// answers, and {"over":{"a","b","vote","chat"}} when both have ended, with the names if the person has voted. Answers
// of two models are sent when both have ended. Without a pair it has no content.
func (h *Handlers) pairEvents(c echo.Context) error {
	pair, err := h.Compare.Pair(principal(c))
	if err != nil {
		return err
	}
	if pair == nil {
		return c.NoContent(http.StatusNoContent)
	}
	reader := pair.Read()
	defer reader.Close()
	sse, err := httpio.OpenSSE(c)
	if err != nil {
		return err
	}
	feed := cellFeed{cells: make([]compare.Cell, 2)}
	latest := map[int]compare.Cell{} // that are not sent yet
	ctx, said := c.Request().Context(), ""
	for {
		changed, running := reader.Take()
		for _, c := range changed {
			latest[c.Index] = c
		}
		if note := togetherNote(latest); pair.OneByOne && running != nil && (said == "" || note != together) && note != said {
			said = note
			shown := lang.T(ctx, note)
			if err := sse.Send(map[string]any{"cells": []blindCell{{0, live.Waiting, "", shown}, {1, live.Waiting, "", shown}}}); err != nil {
				return err
			}
		}
		if (!pair.OneByOne || running == nil) && len(latest) > 0 {
			if err := sse.Send(map[string]any{"cells": blindCells(ctx, feed.take(ctx, slices.Collect(maps.Values(latest))))}); err != nil {
				return err
			}
			clear(latest)
		}
		if running == nil {
			return sse.Send(map[string]any{"over": namesOf(pair)})
		}
		if err := h.waitForCells(ctx, sse, running); err != nil {
			return err
		}
	}
}

// What is said while the answers of two models are written. It is said of both, so that it does not tell which model is loaded.
var (
	together = lang.Key("Both are shown when both are written.")
	oneByOne = lang.Key("They are written one after the other, because both models do not fit into memory at once. Both are shown when both are written.")
)

// togetherNote returns what is said while two models write.
func togetherNote(cells map[int]compare.Cell) string {
	for _, c := range cells {
		if p := c.Answer.Progress; p != nil && (p.Queued != nil && p.Queued.ForMemory || p.Loading != nil && p.Loading.InPlaceOf != "") {
			return oneByOne
		}
	}
	return together
}

func blindCells(ctx context.Context, cells []view.Cell) (list []blindCell) {
	for _, c := range cells {
		list = append(list, blindCell{c.Index, c.State, c.Text, blindNote(ctx, c)})
	}
	return list
}

// cutNotes are what is said of an answer that did not end by itself, by the kind of its ending.
var cutNotes = map[string]string{
	"length":      lang.Key("Cut off at its limit."),
	"context":     lang.Key("Cut off: the context is full."),
	"stopped":     lang.Key("You stopped it."),
	"interrupted": lang.Key("Cut off: the server stopped."),
	"repetition":  lang.Key("Paused, because it repeats itself."),
}

// blindNote returns what the person is told about an answer without text, and of one that failed or was cut.
func blindNote(ctx context.Context, c view.Cell) string {
	if c.State == live.Failed || c.State == live.Waiting {
		return c.Note
	}
	if c.Ending == nil {
		return ""
	}
	return lang.T(ctx, cutNotes[c.Ending.Kind])
}

// usable returns the models that can answer.
func usable(rows []web.ModelRow) (list []web.ModelRow) {
	for _, row := range rows {
		if row.Chats() {
			list = append(list, row)
		}
	}
	return list
}
