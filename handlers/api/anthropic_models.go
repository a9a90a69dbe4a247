package api

import (
	"time"

	"m40-llm/infer"
)

// AnthropicModels is the response to GET /v1/models for clients of Anthropic's API. All models are on one page.
type AnthropicModels struct {
	Data    []AnthropicModel `json:"data"`
	HasMore bool             `json:"has_more"`
	FirstID *string          `json:"first_id"`
	LastID  *string          `json:"last_id"`
}

// AnthropicModel is a model in that list.
type AnthropicModel struct {
	Type        string    `json:"type"` // model
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	CreatedAt   time.Time `json:"created_at"`
}

func anthropicModel(info infer.ModelInfo) AnthropicModel {
	return AnthropicModel{Type: "model", ID: info.Name, DisplayName: info.Name, CreatedAt: time.Unix(info.ModifiedUnix, 0).UTC()}
}

// anthropicModels lists the models that can be used.
func anthropicModels(infos []infer.ModelInfo) AnthropicModels {
	list := AnthropicModels{Data: []AnthropicModel{}}
	for _, info := range infos {
		if info.Error == "" {
			list.Data = append(list.Data, anthropicModel(info))
		}
	}
	if n := len(list.Data); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return list
}
