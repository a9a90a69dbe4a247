package web

import (
	"context"
	"strings"
	"testing"
)

func TestASentenceHasItsPartsInTheirPlaces(t *testing.T) {
	var b strings.Builder
	err := sentence("[Models] take %s: <%s>, %s.", link("/models?a&b"), "<b>", code("--lan"), "[x] %s").Render(context.Background(), &b)
	if want := `<a href="/models?a&amp;b">Models</a> take &lt;b&gt;: &lt;<code>--lan</code>&gt;, [x] %s.`; err != nil || b.String() != want {
		t.Errorf("got %s, %v, want %s", b.String(), err, want)
	}
	for _, parts := range [][]any{{}, {"a", "b"}, {1}} {
		if err := sentence("One %s.", parts...).Render(context.Background(), &b); err == nil {
			t.Errorf("%v: no error", parts)
		}
	}
}
