package lang

import "testing"

func TestNumbersHaveTheSeparatorsOfTheLanguage(t *testing.T) {
	english, german := t.Context(), With(t.Context(), German)
	for _, c := range []struct{ got, want string }{
		{Count(english, 1234567), "1,234,567"},
		{Count(german, 1234567), "1.234.567"},
		{Count(german, 999), "999"},
		{Size(english, 1_100_000_000), "1.1 GB"},
		{Size(german, 1_100_000_000), "1,1 GB"},
		{Figure(german, "99.9 tok/s"), "99,9 tok/s"},
		{T(english, "Ready in %.1f s.", 0.14), "Ready in 0.1 s."},
		{T(german, "Ready in %.1f s.", 0.14), "Bereit nach 0,1 s."},
		{Message(german, "the model needs 9.5 GB (weights 8.1 GB, KV cache for 4096 positions 500 MB, scratch and reserve 900 MB), 3 GB are free; use a smaller model"),
			"das Modell braucht 9,5 GB (Gewichte 8,1 GB, KV-Cache für 4096 Positionen 500 MB, Puffer und Reserve 900 MB), frei sind 3 GB; nimm ein kleineres Modell"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestAValueOfAMessageIsANumberIfItHasGroupsOfDigitsOrAUnit(t *testing.T) {
	for value, want := range map[string]string{
		"8,192": "8.192", "12,345,678": "12.345.678", "1.1 GB": "1,1 GB", "0.5 s": "0,5 s",
		"0.5": "0.5", "1.2.3": "1.2.3", "4096": "4096", "1,2": "1,2", "a 1.5 GB": "a 1.5 GB", "127.0.0.1": "127.0.0.1",
	} {
		if got := germanValue(value); got != want {
			t.Errorf("%q becomes %q, want %q", value, got, want)
		}
	}
}
