package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestACancelledContextEndsTheRendering(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := ChatML.Render(ctx, Input{Messages: []Message{{Role: "user", Content: "hi"}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestALongConversationStaysWithinTheBudgets(t *testing.T) {
	for name, source := range families {
		tmpl, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		var in Input
		for i := range 1000 {
			role := []string{"user", "assistant"}[i%2]
			in.Messages = append(in.Messages, Message{Role: role, Content: fmt.Sprintf("%d %s", i, strings.Repeat("word ", 500))})
		}
		p, err := tmpl.renderInput(context.Background(), in, newOrigins(), noTime)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if n := len(p.String()); n < 2_000_000 {
			t.Errorf("%s: only %d bytes", name, n)
		}
	}
}
