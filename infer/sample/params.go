package sample

// Params are the sampler settings of one request.
type Params struct {
	Temperature      float64           `json:"temperature"`       // 0: greedy
	TopK             int               `json:"top_k"`             // 0: off
	TopP             float64           `json:"top_p"`             // 1: off
	MinP             float64           `json:"min_p"`             // 0: off
	TypicalP         float64           `json:"typical_p"`         // 1: off
	RepeatPenalty    float64           `json:"repeat_penalty"`    // 1: off
	RepeatLastN      int               `json:"repeat_last_n"`     // window of the three penalties in tokens; 0: off, -1: whole context
	PresencePenalty  float64           `json:"presence_penalty"`  // 0: off
	FrequencyPenalty float64           `json:"frequency_penalty"` // 0: off
	LogitBias        map[int32]float64 `json:"logit_bias,omitempty"`
	Seed             int64             `json:"seed"` // -1: drawn for each answer
}
