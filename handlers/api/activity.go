package api

import (
	"cmp"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
)

// activityBody is the body of GET /v1/activity.
type activityBody struct {
	Answers []activeAnswer `json:"answers"`
	Others  struct {
		Running int `json:"running"`
		Waiting int `json:"waiting"`
	} `json:"others"`
}

// activeAnswer is an answer that is being generated or waits.
type activeAnswer struct {
	ID       int64          `json:"id"`
	Person   string         `json:"person"`
	Kind     string         `json:"kind"`          // chat or api
	Key      string         `json:"key,omitempty"` // name of the API key
	Model    string         `json:"model"`
	State    activity.State `json:"state"`
	Since    time.Time      `json:"since"`
	Tokens   int            `json:"tokens"`
	Rate     float64        `json:"tok_s,omitempty"`
	Position int            `json:"queue_position,omitempty"`
	WaitS    float64        `json:"wait_s,omitempty"`
}

// listActivity answers GET /v1/activity.
func (api *API) listActivity(c echo.Context) error {
	list, err := api.activity.List(c.Request().Context(), access.PrincipalOf(c.Request().Context()))
	if err != nil {
		return err
	}
	loaded := api.engine.Status().Model.Name
	body := activityBody{Answers: []activeAnswer{}}
	body.Others.Running, body.Others.Waiting = list.Others.Running, list.Others.Waiting
	for _, a := range list.Answers {
		body.Answers = append(body.Answers, newActiveAnswer(a, loaded))
	}
	return c.JSON(http.StatusOK, body)
}

func newActiveAnswer(a activity.Answer, loaded string) activeAnswer {
	out := activeAnswer{
		ID: a.ID, Person: a.Name, Kind: "api", Key: a.Key, Model: cmp.Or(a.Model, loaded), State: a.State(),
		Since: a.Since.UTC().Truncate(time.Millisecond), Tokens: a.Tokens, Rate: a.Rate,
	}
	if a.Chat != "" {
		out.Kind = "chat"
	}
	if q := a.Last.Queued; q != nil && a.Tokens == 0 {
		out.Position, out.WaitS = q.Position, q.WaitS
	}
	return out
}

// stopAnswer answers POST /v1/activity/:answer/stop.
func (api *API) stopAnswer(c echo.Context) error {
	if err := api.activity.Stop(access.PrincipalOf(c.Request().Context()), c.Param("answer")); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
