package view

import (
	"maps"
	"slices"
	"strings"

	"m40-llm/handlers/failure"
	"m40-llm/infer"
	"m40-llm/web"
)

// noControls are what an engine can lack that is no setting of the panel, or one that stays in use.
var noControls = []string{"seed", "tokens"}

// Lacks describes what another engine cannot do.
func Lacks(up *infer.Upstream) (l web.Lacks) {
	for _, setting := range slices.Sorted(maps.Keys(up.Lacks)) {
		if !slices.Contains(noControls, setting) {
			l.Settings = append(l.Settings, setting)
		}
		if reason := failure.Sentence("it " + up.Lacks[setting]); !slices.Contains(l.Reasons, reason) {
			l.Reasons = append(l.Reasons, reason)
		}
	}
	if len(l.Settings) > 0 {
		l.Reasons = append([]string{"Grey settings have no effect at " + strings.Join(up.Servers, ", ") + "."}, l.Reasons...)
	}
	return l
}
