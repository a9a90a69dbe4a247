package view

import (
	"maps"
	"slices"
	"strings"

	"m40-llm/handlers/failure"
	"m40-llm/infer"
	"m40-llm/web"
)

// noControls are the keys of infer.Upstream.Lacks whose controls are not grey: the panel has none for tokens, and a
// seed is passed on.
var noControls = []string{"seed", "tokens"}

// Lacks describes what another engine cannot do; it is empty for an exact one.
func Lacks(up *infer.Upstream) (l web.Lacks) {
	for _, setting := range slices.Sorted(maps.Keys(up.Lacks)) {
		if !slices.Contains(noControls, setting) {
			l.Settings = append(l.Settings, setting)
		}
		if reason := failure.Sentence("the engine " + up.Lacks[setting]); !slices.Contains(l.Reasons, reason) {
			l.Reasons = append(l.Reasons, reason)
		}
	}
	if len(l.Settings) > 0 {
		l.Reasons = append([]string{"Grey settings have no effect at " + strings.Join(up.Servers, ", ") + "."}, l.Reasons...)
	}
	return l
}
