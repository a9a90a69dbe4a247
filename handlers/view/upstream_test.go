package view

import (
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
)

func TestWhatAnEngineLacksIsSaidOnceForEachReasonWithTheSettings(t *testing.T) {
	up := &infer.Upstream{Servers: []string{"a:1", "b:2"}, Lacks: map[string]string{
		"top_k": "does not list this in /props", "min_p": "does not list this in /props", "banned_strings": "cannot ban strings",
		"range": "gets the nearest value", "tokens": "shows no tokens", "seed": "ignores the seed",
	}}
	l := Lacks(t.Context(), up, strings.ToUpper)
	want := []string{
		"Grey settings have no effect at a:1, b:2.", "The engine cannot ban strings: BANNED_STRINGS.", "The engine does not list this in /props: MIN_P, TOP_K.",
		"The engine gets the nearest value.", "The engine ignores the seed.", "The engine shows no tokens.",
	}
	if !slices.Equal(l.Reasons, want) || !slices.Equal(l.Settings, []string{"banned_strings", "min_p", "top_k"}) {
		t.Errorf("got %q for %q", l.Reasons, l.Settings)
	}
	if l := Lacks(t.Context(), &infer.Upstream{Exact: true}, strings.ToUpper); len(l.Reasons)+len(l.Settings) != 0 {
		t.Errorf("an engine that lacks nothing has %+v", l)
	}
}
