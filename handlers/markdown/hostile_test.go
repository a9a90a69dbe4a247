package markdown

import (
	"slices"
	"testing"

	"m40-llm/handlers/markdown/markdowntest"
	"m40-llm/infer/fixtures"
)

func TestNothingHostileSurvivesTheSanitiser(t *testing.T) {
	listed := map[string]bool{}
	for _, payload := range markdowntest.Samples {
		if listed[payload] {
			t.Errorf("%q is listed twice", payload)
		}
		listed[payload] = true
		// Streamed, a payload is rendered cut off anywhere. Within a word one place is as
		// good as another.
		for i := range payload {
			if !fixtures.Torture() && i > 0 && isWord(payload[i-1]) && isWord(payload[i]) {
				continue
			}
			if harm := markdowntest.Harms(Text(t.Context(), payload[:i])); harm != "" {
				t.Errorf("%q became %q, with %s", payload[:i], Text(t.Context(), payload[:i]), harm)
			}
		}
	}
	if n := len(listed); n < 200 {
		t.Errorf("there are only %d payloads", n)
	}
	raw := 0 // how many are harmful as they are
	for _, payload := range slices.Concat(markdowntest.Payloads(), markdowntest.Mutants(200)) {
		if harm := markdowntest.Harms(Text(t.Context(), payload)); harm != "" {
			t.Errorf("%q became %q, with %s", payload, Text(t.Context(), payload), harm)
		}
		// The allow-list holds even if no step before it escapes anything.
		if harm := markdowntest.Harms(allowed().Sanitize(payload)); harm != "" {
			t.Errorf("%q was let through as %q, with %s", payload, allowed().Sanitize(payload), harm)
		}
		if markdowntest.Harms(payload) != "" {
			raw++
		}
	}
	if raw < 100 {
		t.Errorf("the check finds harm in only %d of the payloads themselves", raw)
	}
}

func isWord(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}
