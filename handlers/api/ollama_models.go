package api

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/handlers/models"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// OllamaPull is the body of POST /api/pull.
type OllamaPull struct {
	ollamaModel
	Stream *bool `json:"stream"` // absent: true
}

// OllamaStatus is a line about a download.
type OllamaStatus struct {
	Status    string `json:"status"`
	Digest    string `json:"digest,omitempty"`
	Total     int64  `json:"total,omitempty"`     // bytes
	Completed int64  `json:"completed,omitempty"` // of them
}

// pullEvery is how often the progress of a download is looked at.
const pullEvery = 100 * time.Millisecond

// ollamaPull answers POST /api/pull. A client that disconnects pauses the download that it began.
func (api *API) ollamaPull(c echo.Context) error {
	if err := mayManage(c); err != nil {
		return err
	}
	var body OllamaPull
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	name := body.name()
	if name == "" {
		return fault.Invalid("model", "model is missing: it is the name of the model to pull")
	}
	if body.Stream != nil && !*body.Stream {
		if err := api.pull(c.Request().Context(), name, func(OllamaStatus) error { return nil }); err != nil {
			return err
		}
		return c.JSON(http.StatusOK, OllamaStatus{Status: "success"})
	}
	lines, err := httpio.OpenLines(c)
	if err != nil {
		return err
	}
	send := func(s OllamaStatus) error { return lines.Send(s) }
	if err := api.pull(c.Request().Context(), name, send); err != nil {
		if err := lines.Send(api.gate.Failed(c, err).Ollama()); err != nil {
			api.gate.LogUnsent(c, err)
		}
		return nil
	}
	return lines.Send(OllamaStatus{Status: "success"})
}

// pull downloads the model called name and tells report what is done.
func (api *API) pull(ctx context.Context, name string, report func(OllamaStatus) error) error {
	if err := report(OllamaStatus{Status: "pulling manifest"}); err != nil {
		return err
	}
	d, started, err := api.list.Pull(ctx, name)
	if err != nil {
		return err
	}
	last, err := api.followPull(ctx, d, report)
	if err != nil {
		if started {
			_ = api.list.Pause(context.WithoutCancel(ctx), d.File)
		}
		return err
	}
	if last.State != models.Done {
		return &fault.Error{Code: fault.CodeClosed, Message: "the download was paused; pull the model again to resume it"}
	}
	for _, status := range []string{"verifying sha256 digest", "writing manifest"} {
		if err := report(OllamaStatus{Status: status}); err != nil {
			return err
		}
	}
	return nil
}

// followPull reports the progress of d until it runs no more.
func (api *API) followPull(ctx context.Context, d infer.Download, report func(OllamaStatus) error) (models.Download, error) {
	tick := time.NewTicker(pullEvery)
	defer tick.Stop()
	var told OllamaStatus
	said := time.Now()
	for {
		now, err := api.list.Progress(d.File)
		if err != nil {
			return now, err
		}
		status := pullStatus(now)
		if status != told || time.Since(said) > api.ping {
			if err := report(status); err != nil {
				return now, err
			}
			told, said = status, time.Now()
		}
		if now.State != models.Running {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// pullStatus describes a download as Ollama does.
func pullStatus(d models.Download) OllamaStatus {
	s := OllamaStatus{Status: "pulling " + d.File, Total: d.Size, Completed: d.Progress.Done}
	if d.SHA256 != "" {
		s.Digest = "sha256:" + d.SHA256
		s.Status = "pulling " + d.SHA256[:min(12, len(d.SHA256))]
	}
	if d.State == models.Done {
		s.Completed = d.Size
	}
	return s
}

// ollamaDelete answers DELETE /api/delete.
func (api *API) ollamaDelete(c echo.Context) (err error) {
	if err := mayManage(c); err != nil {
		return err
	}
	var body ollamaModel
	defer func() { err = ollamaErr(err, body.name()) }()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	if body.name() == "" {
		return fault.Invalid("model", "model is missing: it is the name of the model to delete")
	}
	if err := api.list.Delete(body.name()); err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}

// OllamaCopy is the body of POST /api/copy.
type OllamaCopy struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

// ollamaCopy answers POST /api/copy.
func (api *API) ollamaCopy(c echo.Context) (err error) {
	if err := mayManage(c); err != nil {
		return err
	}
	var body OllamaCopy
	defer func() { err = ollamaErr(err, body.Source) }()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	if body.Source == "" || body.Destination == "" {
		return fault.Invalid("destination", "source and destination are the names of the model and of its copy")
	}
	if err := api.list.Copy(c.Request().Context(), untagged(body.Source), untagged(body.Destination)); err != nil {
		return err
	}
	return c.NoContent(http.StatusOK)
}
