package api

import (
	"testing"
	"time"

	"m40-llm/infer"
)

func TestExpiryIsWhenAModelIsUnloaded(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("", 3600))
	for want, s := range map[string]infer.Status{
		forever:                     {},
		"2026-03-01T11:30:00+00:00": {KeepAliveS: 1800},
		"2026-03-01T11:00:40+00:00": {KeepAliveS: 1800, UnloadUnix: now.Unix() + 40},
	} {
		if got := expiry(s, now); got != want {
			t.Errorf("%+v: got %s, want %s", s, got, want)
		}
	}
}
