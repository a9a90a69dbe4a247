package page

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
)

// progressEvery is the least time between two lines of progress.
const progressEvery = 50 * time.Millisecond

// progressLines is a response of newline-delimited JSON: progress, then a result or an error. It begins
// with its first line, so that what fails before is answered as on any other route.
type progressLines struct {
	c     echo.Context
	lines *httpio.Lines
	last  time.Time // of progress
}

// lineError is the last line of a response that began and failed.
type lineError struct {
	Error struct {
		Title   string `json:"title"`
		Message string `json:"message"`
	} `json:"error"`
}

func (p *progressLines) send(line any) error {
	if p.lines == nil {
		opened, err := httpio.OpenLines(p.c)
		if err != nil {
			return err
		}
		p.lines = &opened
	}
	return p.lines.Send(line)
}

// progress sends a line, unless the one before is too recent and this one is not the last.
func (p *progressLines) progress(line any, last bool) {
	if now := time.Now(); last || now.Sub(p.last) >= progressEvery {
		p.last = now
		_ = p.send(line) // a client that is gone cancels the context
	}
}

// fail ends the response with err. what is logged with an error of the server.
func (h *Handlers) fail(p *progressLines, what string, err error) error {
	if p.lines == nil {
		return err
	}
	f := failure.For(p.c.Request().Context(), err)
	if f.Status >= http.StatusInternalServerError {
		h.Log.Error(what, "error", err)
	}
	var line lineError
	line.Error.Title, line.Error.Message = f.Title, f.Text
	return p.send(line)
}
