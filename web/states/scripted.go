package states

// scripted are the states that states.js shows.
var scripted = []string{
	"answer-queued", "answer-loading", "answer-reading", "answer-looking", "answer-writing", "answer-thinking", "answer-done",
	"answer-figures", "answer-stopped", "answer-length", "answer-stop-string", "answer-loop", "answer-interrupted",
	"answer-context", "answer-edited", "answer-failed", "answer-too-long", "answer-versions", "answer-formulas",
	"answer-code", "answer-call", "answer-result", "question-guest", "question-pictures", "question-picture", "question-file", "replay-running", "replay-equal", "replay-differs",
	"replay-stopped", "replay-failed", "tokens", "tokens-hints", "tokens-entropy", "tokens-candidates", "tokens-judged", "tokens-forked", "answer-judged",
	"tokens-stored", "microscope", "microscope-reason", "scoring", "scoring-failed", "prompt-scored",
	"models-compared", "models-compare", "branches",
}
