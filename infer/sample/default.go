package sample

// DefaultParams are the settings used where neither the request nor a preset
// says anything.
func DefaultParams() Params {
	return Params{Temperature: 0.7, TopK: 40, TopP: 0.95, MinP: 0.05, TypicalP: 1, RepeatPenalty: 1, RepeatLastN: 64, Seed: -1}
}
