package api

import "testing"

func TestBillingHeadersAreLeftOutOfSystemPrompts(t *testing.T) {
	const header = "x-anthropic-billing-header: cc_version=2.1.9.1a2; cc_entrypoint=cli; cch=0a1b2;"
	for _, c := range []struct{ name, given, want string }{
		{"before the prompt", header + "\nYou are an agent.\nBe brief.", "You are an agent.\nBe brief."},
		{"twice", header + "\n" + header + "\nYou are an agent.", "You are an agent."},
		{"alone", header, ""},
		{"not at the beginning", "You are an agent.\n" + header, "You are an agent.\n" + header},
		{"none", "You are an agent.", "You are an agent."},
	} {
		if got := withoutBilling(c.given); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
