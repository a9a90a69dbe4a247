package handlers_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"m40-llm/infer/sample"
)

// The table of docs/api.md says of each setting what the engine does.
func TestDocs_TheTableOfSamplerSettingsIsTrue(t *testing.T) {
	data, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "## Sampler settings")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (.*?) \\| (.*?) ?\\| (.*?) \\|").FindAllStringSubmatch(section, -1) {
		rows[row[1]] = strings.Join([]string{row[2], row[3], row[4]}, ", ")
	}
	defaults := sample.DefaultParams()
	for _, n := range sample.Numbers() {
		off := ""
		if !math.IsNaN(n.Off) {
			off = fmt.Sprint(n.Off)
		}
		number := func(v float64) string {
			if n.Whole {
				return fmt.Sprint(int(v))
			}
			return fmt.Sprint(v)
		}
		want := fmt.Sprintf("%s to %s, %s, %s", number(n.Min), number(n.Max), off, number(n.Get(&defaults)))
		if rows[n.Name] != want {
			t.Errorf("%s: the table says %q, the engine %q", n.Name, rows[n.Name], want)
		}
	}
	for _, name := range sample.StageNames() {
		if !strings.Contains(rows["samplers"], `"`+name+`"`) {
			t.Errorf("samplers: the table does not know %s", name)
		}
	}
}
