package httpio

import (
	"strings"
	"testing"

	"m40-llm/handlers/failure"
)

func TestPathAt(t *testing.T) {
	const body = `{"a": 1, "b": [10, {"c": "x,]:", "d": [[7]]}], "e": {"f": true}}`
	for value, want := range map[string]string{
		"1,":    "a",
		"10":    "b[0]",
		`"x,]`:  "b[1].c",
		"7":     "b[1].d[0][0]",
		"true":  "e.f",
		`"e":`:  "",
		`, "e"`: "",
	} {
		end := strings.Index(body, value)
		if strings.HasPrefix(value, ",") {
			end++
		}
		if got := pathAt([]byte(body), end); got != want {
			t.Errorf("before %s the path is %q, want %q", value, got, want)
		}
	}
	if got := pathAt([]byte(`{"`+strings.Repeat("k", 1000)+`":1`), 2000); len(got) > 80 {
		t.Errorf("a long key makes a path of %d bytes", len(got))
	}
}

func TestPlainNumbers(t *testing.T) {
	for data, want := range map[string]string{
		`{"a":4.0,"b":[1e2,-0.5,-3.0],"c":"4.0 \"5.0","d":0,"e":-1}`: `{"a":4,"b":[100,-0.5,-3],"c":"4.0 \"5.0","d":0,"e":-1}`,
		`[9007199254740992.0,9007199254740994.0,1e400,1.5e0]`:        `[9007199254740992,9007199254740994.0,1e400,1.5e0]`,
		`4.0`: `4`,
	} {
		if got := string(plainNumbers([]byte(data))); got != want {
			t.Errorf("%s becomes %s, want %s", data, got, want)
		}
	}
}

// The error names the field that is wrong, even if whole numbers before it had to be rewritten.
// A field for fractions accepts both.
func TestDecode_FractionsOfWholeNumbersAreRefused(t *testing.T) {
	var dst struct {
		A, B int
		C    []int32
		F    float64
	}
	if err := DecodeJSON([]byte(`{"A":4.0,"B":5e0,"C":[1.0,2],"F":4.5}`), "", &dst); err != nil || dst.A != 4 || dst.B != 5 || dst.C[0] != 1 || dst.F != 4.5 {
		t.Errorf("got %+v, %v", dst, err)
	}
	for body, param := range map[string]string{
		`{"A":4.0,"B":5.5}`:          "B",
		`{"A":4.5}`:                  "A",
		`{"A":4.00,"C":[1.0,2,3.5]}`: "C[2]",
		`{"A":1e300}`:                "A",
	} {
		if f := failure.Describe(DecodeJSON([]byte(body), "", &dst)); f.Status != 400 || f.Param != param || !strings.Contains(f.Message, "whole number") {
			t.Errorf("%s: got %+v", body, f)
		}
	}
}

func TestDecode_ANumberThatIsTooLargeGetsItsRange(t *testing.T) {
	var dst struct {
		Seed  int64 `json:"seed"`
		Inner struct {
			Seed int64 `json:"seed"`
		} `json:"options"`
		Tokens []int32 `json:"tokens"`
		Count  int     `json:"count"`
	}
	for body, want := range map[string]string{
		`{"seed":9223372036854775808}`:              "seed must be a whole number from -1 to 9223372036854775807, not 9223372036854775808",
		`{"options":{"seed":18446744073709551615}}`: "options.seed must be a whole number from -1 to 9223372036854775807, not 18446744073709551615",
		`{"tokens":[1,2147483648]}`:                 "tokens[1] must be a whole number from -2147483648 to 2147483647, not 2147483648",
		`{"count":-9223372036854775809}`:            "count must be a whole number from -9223372036854775808 to 9223372036854775807, not -9223372036854775809",
		`{"count":1.5}`:                             "count must be a whole number, not 1.5",
	} {
		if err := DecodeJSON([]byte(body), "", &dst); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}
