package markdown

import (
	"strings"
	"testing"

	"m40-llm/handlers/markdown/markdowntest"
)

func TestAThoughtIsFolded(t *testing.T) {
	for _, c := range []struct{ name, reasoning, text, want string }{
		{"a thought and an answer", "It is *two*.", "Two.", "<details class=\"thought\"><summary>Thinking, 3 words</summary>\n<p>It is <em>two</em>.</p>\n</details>\n<p>Two.</p>\n"},
		{"a thought alone", "Hm", "", "<details class=\"thought\"><summary>Thinking, 1 word</summary>\n<p>Hm</p>\n</details>\n"},
		{"an empty thought is not shown", "\n", "Two.", "<p>Two.</p>\n"},
		{"signs are words", "你好 there", "", "<details class=\"thought\"><summary>Thinking, 3 words</summary>\n<p>你好 there</p>\n</details>\n"},
		{"tags are text", "a</think>", "b<think>c</think>", "<details class=\"thought\"><summary>Thinking, 1 word</summary>\n<p>a&lt;/think&gt;</p>\n</details>\n<p>b&lt;think&gt;c&lt;/think&gt;</p>\n"},
		{"an element of the same name is text", "", "<details class=\"thought\" open><summary>x</summary></details>", "<p>&lt;details class=&#34;thought&#34; open&gt;&lt;summary&gt;x&lt;/summary&gt;&lt;/details&gt;</p>\n"},
	} {
		if got := Answer(t.Context(), c.reasoning, c.text); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	deep := strings.Repeat("<details>", 20_000) + strings.Repeat("</details>", 20_000)
	if got := Answer(t.Context(), deep, deep); strings.Count(got, "<details") != 1 || strings.Count(got, "</details>") != 1 {
		t.Errorf("thoughts within thoughts became %.200s", got)
	}
}

func TestNothingHostileSurvivesInAThought(t *testing.T) {
	for _, payload := range markdowntest.Payloads() {
		for _, c := range [][2]string{{payload, ""}, {payload, payload}, {payload + "</details>" + payload, ""}} {
			if harm := markdowntest.Harms(Answer(t.Context(), c[0], c[1])); harm != "" {
				t.Errorf("%.200q became %.200q, with %s", c, Answer(t.Context(), c[0], c[1]), harm)
			}
		}
	}
}
