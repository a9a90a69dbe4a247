package page

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/compare"
	"m40-llm/handlers/httpio"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/handlers/view"
	"m40-llm/infer/fault"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// sheetPause is the least time between two events of a contact sheet.
const sheetPause = 100 * time.Millisecond

// sheetPage answers GET /c/:id/sheet?question=N with the page of the contact sheet of a question; N may be
// "last". Without a question, it is the one that the sheet is of, or the last one.
func (h *Handlers) sheetPage(c echo.Context) error {
	ctx, who := c.Request().Context(), principal(c)
	wanted, id := c.QueryParam("question"), int64(0)
	if wanted != "" && wanted != "last" {
		var err error
		if id, err = strconv.ParseInt(wanted, 10, 64); err != nil || id < 1 {
			return fault.Invalid("question", "question is %q, but must be the number of a message, or last", httpio.Shorten(wanted))
		}
	}
	chat, err := h.Live.Chat(ctx, who, c.Param("id"))
	if err != nil {
		return err
	}
	sheet, err := h.Compare.Sheet(ctx, who, chat.ID())
	if err != nil {
		return err
	}
	shown := sheet != nil && (wanted == "" || id == sheet.Question)
	if shown {
		id = sheet.Question
	}
	question, settings, title, err := chat.Question(who, id)
	if err != nil {
		return err
	}
	p := web.Sheet{Chat: chat.ID(), Title: title, Question: question.ID, Prompt: question.Text, Shown: shown, MaxTokens: sheetTokens(settings), Settings: axes(settings)}
	if shown {
		p.Prompt = sheet.Prompt
	}
	return httpio.Render(c, http.StatusOK, web.SheetPage(p))
}

// sheetTokens returns the limit that the form suggests for each answer: with it, the largest sheet fits.
func sheetTokens(panel setting.Settings) int {
	const most = compare.MaxSheetTokens / compare.MaxCells
	if panel.MaxTokens < 1 {
		return most
	}
	return min(panel.MaxTokens, most)
}

// axes returns the settings that a sheet can vary, each with values to begin with.
func axes(panel setting.Settings) (list []web.SheetSetting) {
	for _, p := range params(panel) {
		if p.Key == "max_tokens" || p.On != 0 {
			continue
		}
		list = append(list, web.SheetSetting{Key: p.Key, Label: p.Label, Values: axisValues(p)})
	}
	return list
}

// axisValues returns four values over the range of a slider, one of which is that of the panel.
func axisValues(p web.Param) string {
	values := []float64{0.2, 0.6, 1, 1.4} // temperatures
	for i := range values {
		share := float64(i+1) / 4
		switch {
		case p.Logarithmic:
			values[i] = math.Round(p.Lo * math.Pow(p.Hi/p.Lo, share))
		case p.Key != "temperature":
			values[i] = p.Lo + share*(p.Hi-p.Lo)
		}
	}
	if p.Default >= p.Lo && p.Default <= p.Hi {
		nearest := 0
		for i, v := range values {
			if math.Abs(v-p.Default) < math.Abs(values[nearest]-p.Default) {
				nearest = i
			}
		}
		values[nearest] = p.Default
	}
	var list []string
	for _, v := range values {
		list = append(list, strconv.FormatFloat(v, 'f', -1, 64))
	}
	return strings.Join(slices.Compact(list), " ")
}

// settingLabel returns the name that the page has for a setting.
func settingLabel(ctx context.Context, key string) string {
	for _, p := range sliders {
		if p.Key == key {
			label := lang.T(ctx, p.Label)
			if lang.Of(ctx) == lang.English { // German nouns begin with a capital
				label = strings.ToLower(label[:1]) + label[1:]
			}
			return label
		}
	}
	return key
}

// startSheet answers POST /c/:id/sheet, whose body is a compare.NewSheet.
func (h *Handlers) startSheet(c echo.Context) error {
	chat, err := h.Live.Chat(c.Request().Context(), principal(c), c.Param("id"))
	if err != nil {
		return err
	}
	var n compare.NewSheet
	if err := httpio.ReadStrictJSON(c, &n); err != nil {
		return err
	}
	if _, err := h.Compare.StartSheet(c.Request().Context(), principal(c), chat.ID(), n); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// stopSheet answers POST /c/:id/sheet/stop, whose body may name a cell; without it, all are stopped.
func (h *Handlers) stopSheet(c echo.Context) error {
	cell, err := h.cellOf(c)
	if err != nil {
		return err
	}
	if err := h.Compare.StopSheet(c.Request().Context(), principal(c), c.Param("id"), cell); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// keepCell answers POST /c/:id/sheet/keep, whose body names a cell, with the message that it became.
func (h *Handlers) keepCell(c echo.Context) error {
	cell, err := h.cellOf(c)
	if err != nil {
		return err
	}
	message, err := h.Compare.Keep(c.Request().Context(), principal(c), c.Param("id"), cell)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]int64{"message": message})
}

// cellOf returns the cell that the body names; -1 if it names none. Whose chat it is comes first.
func (h *Handlers) cellOf(c echo.Context) (int, error) {
	if _, err := h.Live.Chat(c.Request().Context(), principal(c), c.Param("id")); err != nil {
		return 0, err
	}
	body := struct {
		Cell int `json:"cell"`
	}{-1}
	err := httpio.ReadStrictJSON(c, &body)
	return body.Cell, err
}

// sheetEvents answers GET /c/:id/sheet/events with a stream: first {"sheet":…}, then {"cells":[…],
// "figures":…} with the cells that have changed, and {"over":true} when all have ended. A chat without a
// sheet has no content, which ends the tries of a browser to connect again.
func (h *Handlers) sheetEvents(c echo.Context) error {
	ctx := c.Request().Context()
	sheet, err := h.Compare.Sheet(ctx, principal(c), c.Param("id"))
	if err != nil {
		return err
	}
	if sheet == nil {
		return c.NoContent(http.StatusNoContent)
	}
	reader := sheet.Read()
	defer reader.Close()
	sse, err := httpio.OpenSSE(c)
	if err != nil {
		return err
	}
	if err := sse.Send(map[string]any{"sheet": view.SheetOf(sheet, func(key string) string { return settingLabel(ctx, key) })}); err != nil {
		return err
	}
	feed := cellFeed{cells: make([]compare.Cell, len(sheet.Columns)*len(sheet.Rows))}
	for {
		changed, running := reader.Take()
		if list := feed.take(ctx, changed); len(list) > 0 {
			for i := range list {
				list[i].HTML = view.CellHTML(ctx, feed.cells[list[i].Index])
			}
			if err := sse.Send(map[string]any{"cells": list, "figures": view.FiguresOf(ctx, feed.cells)}); err != nil {
				return err
			}
		}
		if running == nil {
			return sse.Send(map[string]bool{"over": true})
		}
		if err := h.waitForCells(ctx, sse, running); err != nil {
			return err
		}
	}
}

// waitForCells waits until something has changed, and sheetPause for what comes with it.
func (h *Handlers) waitForCells(ctx context.Context, sse httpio.SSE, changed <-chan struct{}) error {
	silence := time.NewTicker(h.PingInterval)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.Live.Closing():
			return owned.ErrClosed
		case <-silence.C:
			if err := sse.Comment("ping"); err != nil {
				return err
			}
		case <-changed:
			pause := time.NewTimer(sheetPause)
			defer pause.Stop()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-pause.C:
				return nil
			}
		}
	}
}

// cellFeed is what a reader of a group was sent last.
type cellFeed struct{ cells []compare.Cell }

// take notes cells that have changed, and returns what the reader is sent of them.
func (f *cellFeed) take(ctx context.Context, changed []compare.Cell) (list []view.Cell) {
	had := make([]int, len(changed))
	for i, c := range changed {
		had[i] = len(f.cells[c.Index].Text)
		f.cells[c.Index] = c
	}
	for i, c := range changed {
		list = append(list, view.CellOf(ctx, c, had[i], &f.cells[0]))
	}
	return list
}
