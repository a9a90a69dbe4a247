package web

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"
)

func TestTimesInSentencesHaveTheSpacesOfSentences(t *testing.T) {
	at := time.Date(2026, 3, 9, 18, 0, 0, 0, time.Local)
	account := Account{ID: "a", Name: "A", Own: true, Devices: []Credential{{ID: 1, Name: "Firefox", Use: "last seen", Used: at, Since: at}}, Keys: []Credential{{ID: 2, Name: "script", Since: at}}}
	for name, c := range map[string]struct {
		page templ.Component
		want []string
	}{
		"an account":      {AccountPage(account), []string{"last seen 9 Mar 2026, 18:00; since 9 Mar 2026, 18:00", "never used; since 9 Mar 2026, 18:00"}},
		"a shared chat":   {SharedChat{Live: true, Ends: at}.ends(), []string{"Live · ends Mon 9 Mar, 18:00"}},
		"links of a chat": {SharePage(Sharing{Chat: "c", Shares: []Share{{ID: 1, What: "all", Links: []string{"http://x/s/a"}, Live: true, Ends: at, Accepts: true}}}), []string{"Works until Mon 9 Mar, 18:00. Readers can"}},
	} {
		t.Run(name, func(t *testing.T) {
			var page strings.Builder
			if err := c.page.Render(context.Background(), &page); err != nil {
				t.Fatal(err)
			}
			text := strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page.String(), "")), " ")
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("the page lacks %q: %s", want, text[max(0, strings.Index(text, "18:00")-80):][:min(240, len(text))])
				}
			}
		})
	}
}
