package view

import (
	"context"
	"maps"
	"slices"
	"strings"

	"m40-llm/handlers/failure"
	"m40-llm/infer"
	"m40-llm/web"
	"m40-llm/web/lang"
)

// noControls are the keys of infer.Upstream.Lacks whose controls are not grey: the panel has none for tokens and ranges,
// and a seed is passed on.
var noControls = []string{"seed", "tokens", "range"}

// Lacks describes what another engine cannot do; it is empty for an exact one. label returns what the page calls a setting.
func Lacks(ctx context.Context, up *infer.Upstream, label func(key string) string) (l web.Lacks) {
	var reasons []string
	named := map[string][]string{} // settings by reason
	for _, setting := range slices.Sorted(maps.Keys(up.Lacks)) {
		reason := up.Lacks[setting]
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
		if !slices.Contains(noControls, setting) {
			l.Settings = append(l.Settings, setting)
			named[reason] = append(named[reason], label(setting))
		}
	}
	for _, reason := range reasons {
		text := failure.Sentence(ctx, "the engine "+reason)
		if settings := named[reason]; len(settings) > 0 {
			text = strings.TrimSuffix(text, ".") + ": " + strings.Join(settings, ", ") + "."
		}
		l.Reasons = append(l.Reasons, text)
	}
	if len(l.Settings) > 0 {
		l.Reasons = append([]string{lang.T(ctx, "Grey settings have no effect at %s.", strings.Join(up.Servers, ", "))}, l.Reasons...)
	}
	return l
}
