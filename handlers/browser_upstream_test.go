package handlers_test

import (
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/models"
	"m40-llm/infer"
)

func TestModelsOfOtherEnginesAreListedWhileTheEngineHangs(t *testing.T) {
	remote := infer.ModelInfo{Name: "far", Upstream: &infer.Upstream{Servers: []string{"a:1"}}}
	engine := &handlerstest.FakeEngine{OnStatus: func() infer.Status { return infer.Status{Remote: []infer.ModelInfo{remote}} }}
	list, err := models.New(models.Options{Engine: engine}).List(t.Context())
	if err != nil || len(list) != 2 || list[1].Name != "far" {
		t.Errorf("got %+v, %v", list, err)
	}
	var body struct {
		Data []struct {
			ID   string
			Meta struct{ Upstream string }
		}
	}
	mustDecode(t, handlerstest.Call(t, handlerstest.Server(t, engine), "GET", "/v1/models", ""), &body)
	if len(body.Data) != 2 || body.Data[1].Meta.Upstream != "a:1" || body.Data[0].Meta.Upstream != "" {
		t.Errorf("the API lists %+v", body)
	}
}
