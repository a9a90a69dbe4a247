package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

type healthBody struct {
	Status        string `json:"status"`
	Model         string `json:"model"`
	Device        string `json:"device"`
	Path          string `json:"path"`
	Units         string `json:"units,omitempty"`
	DeviceNotice  string `json:"device_notice,omitempty"`
	Decode        string `json:"decode,omitempty"`
	DecodeReason  string `json:"decode_reason,omitempty"` // why it is this
	ContextLength int    `json:"n_ctx"`

	Cache    infer.Cache `json:"kv_cache"`
	Unloaded bool        `json:"unloaded,omitempty"` // the next request loads the model

	Ahead infer.Ahead `json:"ahead,omitzero"`

	Running int    `json:"running"`
	Queued  int    `json:"queued"`
	Notice  string `json:"notice,omitempty"`
	Trouble string `json:"trouble,omitempty"`
	Version string `json:"version,omitempty"`

	Upstreams *upstreamsBody `json:"upstreams,omitempty"`
}

// upstreamsBody counts the servers of other engines. /v1/status, which needs a key if there is one, has more.
type upstreamsBody struct {
	Ready   int `json:"ready"`
	Failing int `json:"failing"` // they cannot be asked now
}

// upstreams counts the servers of a status; nil: there are none.
func upstreams(list []infer.UpstreamServer) *upstreamsBody {
	if len(list) == 0 {
		return nil
	}
	var body upstreamsBody
	for _, s := range list {
		if s.Problem == "" {
			body.Ready++
		} else {
			body.Failing++
		}
	}
	return &body
}

// notReadyBody is an error in llama-server's format, with the progress of loading.
type notReadyBody struct {
	failure.Body
	Status  string         `json:"status"`
	Loading *infer.Loading `json:"loading,omitempty"`
	Trouble string         `json:"trouble,omitempty"`
}

// health answers GET /health: with 200 while requests can be answered, with 503 before and
// after a failure.
func (api *API) health(c echo.Context) error {
	s := api.engine.Status()
	if s.State == infer.StateReady || s.State == infer.StateUnloaded {
		return c.JSON(http.StatusOK, healthBody{
			Status:        "ok",
			Model:         s.Model.Name,
			Device:        s.Device.Name,
			Path:          s.Device.Path,
			Units:         s.Device.Units,
			DeviceNotice:  s.Device.Notice,
			Decode:        string(s.Device.Decode),
			DecodeReason:  s.Device.DecodeReason,
			ContextLength: s.ContextLength,
			Cache:         s.Cache,
			Unloaded:      s.State == infer.StateUnloaded,
			Ahead:         s.Ahead,
			Running:       s.Running,
			Queued:        s.Queued,
			Notice:        s.Notice,
			Trouble:       s.Trouble,
			Version:       api.version,
			Upstreams:     upstreams(s.Upstreams),
		})
	}
	body := notReadyBody{Status: string(s.State), Trouble: s.Trouble}
	f := failure.Describe(&fault.Error{Code: fault.CodeLoading})
	switch {
	case s.State == infer.StateLoading:
		body.Loading = &s.Loading
	case s.State == infer.StateRestarting:
		f.Message = "The engine is being restarted"
	case s.Error != nil:
		f.Message = failure.Describe(s.Error).Message
	default:
		f.Message = "the model could not be loaded"
	}
	body.Body = f.Body()
	return c.JSON(http.StatusServiceUnavailable, body)
}
