package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// show writes a prompt with its content in brackets.
func show(p Prompt) string {
	var b strings.Builder
	for _, s := range p {
		if s.Content {
			b.WriteString("⟦" + s.Text + "⟧")
		} else {
			b.WriteString(s.Text)
		}
	}
	return b.String()
}

func TestOriginFollowsTextThroughEveryOperation(t *testing.T) {
	request := `{"c": "one, two", "s": "  pad\n", "l": ["x", "y"], "d": {"k": "v"}, "n": 5, "fmt": "%s|%s", "year": "%Y", "braces": "{{<{}}}", "pc": "%%", "eos_token": "x"}`
	for _, c := range []struct{ what, source, want string }{
		{"printing", "<{{ c }}>", "<⟦one, two⟧>"},
		{"+ and ~", "{{ '<' + c + '>' }}{{ '<' ~ c ~ 1 }}", "<⟦one, two⟧><⟦one, two⟧1"},
		{"neighbours that touch are one span", "{{ c ~ c }}{{ c }}", "⟦one, twoone, twoone, two⟧"},
		{"slices and indices", "{{ ('<' + c)[:3] }}|{{ c[0] }}|{{ ('<' + c + '>')[-3:] }}|{{ ('ab' + c)[::-1] }}", "<⟦on⟧|⟦o⟧|⟦wo⟧>|⟦owt ,eno⟧ba"},
		{"trim and strip", "<{{ s | trim }}><{{ ('.' + s).strip() }}><{{ s.lstrip() }}>", "<⟦pad⟧><.⟦  pad⟧><⟦pad\n⟧>"},
		{"split", "{% for w in c.split(', ') %}<{{ w }}>{% endfor %}{{ ('a' + c).split()[0] }}", "<⟦one⟧><⟦two⟧>a⟦one,⟧"},
		{"partition and splitlines", "{{ c.partition(', ')[2] }}.{{ s.splitlines()[0] }}", "⟦two⟧.⟦  pad⟧"},
		{"replace puts in what it is given", "{{ c | replace('one', '<1>') }}.{{ 'a-b'.replace('-', c) }}", "<1>⟦, two⟧.a⟦one, two⟧b"},
		{"join", "{{ l | join('-') }}.{{ ['a', c] | join }}.{{ c.join(['a', 'b']) }}", "⟦x⟧-⟦y⟧.a⟦one, two⟧.a⟦one, two⟧b"},
		{"case", "{{ ('a' + c) | upper }}.{{ c.title() }}.{{ ('é' + c) | capitalize }}.{{ c | title }}", "A⟦ONE, TWO⟧.⟦One, Two⟧.É⟦one, two⟧.⟦One, Two⟧"},
		{"tojson covers quotes and brackets", "{{ d | tojson }}.{{ ['a', c] | tojson }}.{{ ['a', 1] | tojson }}", `⟦{"k": "v"}⟧.⟦["a", "one, two"]⟧.["a", 1]`},
		{"printing a list or dict", "{{ l }}.{{ d }}.{{ ['a'] }}", "⟦['x', 'y']⟧.⟦{'k': 'v'}⟧.['a']"},
		{"the keys of a dict", "{% for k, v in d.items() %}<{{ k }}={{ v }}>{% endfor %}", "<⟦k⟧=⟦v⟧>"},
		{"format", "{{ '%s-%5s' | format(c, 'a') }}.{{ '{}+{}'.format(l[0], 'b') }}.{{ fmt | format('a', 'b') }}.{{ '%4s' % l[0] }}", "⟦one, two⟧-    a.⟦x⟧+b.a⟦|⟧b.   ⟦x⟧"},
		{"indent, center and truncate", "{{ s | indent(2, true) }}.{{ l[0] | center(3) }}.{{ c | truncate(6, true, '…', 0) }}", "  ⟦  pad⟧\n. ⟦x⟧ .⟦one, ⟧…"},
		{"reverse, repeat and list", "{{ c | reverse }}.{{ l[0] * 3 }}.{{ (c | list)[1] }}", "⟦owt ,eno⟧.⟦xxx⟧.⟦n⟧"},
		{"macros, call blocks and set blocks", "{% macro m(x) %}<{{ x }}{{ caller() }}>{% endmacro %}{% call m(c) %}.{{ l[0] }}{% endcall %}{% set b %}a{{ c }}{% endset %}{{ b }}", "<⟦one, two⟧.⟦x⟧>a⟦one, two⟧"},
		{"filter blocks", "{% filter upper %}a{{ l[0] }}{% endfilter %}", "A⟦X⟧"},
		{"escape and striptags", "{{ (c + '<') | e }}.{{ ('<b>' + c + '</b>&amp;') | striptags }}", "⟦one, two⟧&lt;.⟦one, two&⟧"},
		{"namespaces and loops", "{% set ns = namespace(t='') %}{% for w in l %}{% set ns.t = ns.t ~ '-' ~ w %}{% endfor %}{{ ns.t }}", "-⟦x⟧-⟦y⟧"},
		{"sorting, grouping and unique", "{{ l | sort(reverse=true) | join }}.{{ l | unique | join }}.{{ [d] | groupby('k') | map(attribute='grouper') | join }}", "⟦yx⟧.⟦xy⟧.⟦v⟧"},
		{"defaults and choices", "{{ nope | default(c) }}.{{ c if n else 'a' }}.{{ nope or l[0] }}", "⟦one, two⟧.⟦one, two⟧.⟦x⟧"},
		{"times are the template's", "{{ strftime_now('%Y') }}{{ strftime_now(year) }}", "2025⟦2025⟧"},
		{"keywords of a call", "{% macro m() %}{{ kwargs.keys() | join }}{% endmacro %}{{ m(**d) }}.{{ m(k=1) }}.{{ dict(**d) | join }}.{{ namespace(**d) }}", "⟦k⟧.k.⟦k⟧.⟦<Namespace {'k': 'v'}>⟧"},
		{"the caller's format strings", "{{ braces.format('a') }}.{{ (pc + '%%') % () }}", "⟦{<⟧a⟦}⟧.⟦%⟧%"},
		{"the request's own bos_token is content, the model's is not", "{{ bos_token }}{{ eos_token }}", "<s>⟦x⟧"},
	} {
		t.Run(c.what, func(t *testing.T) {
			p, err := render(c.source, request, Options{BOSToken: "<s>", EOSToken: "</s>"})
			if err != nil {
				t.Fatal(err)
			}
			if got := show(p); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// families are compact templates in the formats of well-known model families.
var families = map[string]string{
	"llama 3": `{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}`,
	"mistral": `{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content | trim + eos_token }}{% else %}{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}`,
	"gemma":   `{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}`,
	"phi":     `{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}`,
	"qwen":    `{%- for m in messages %}{%- set c = m.content.split('</think>')[-1].lstrip('\n') %}{{- '<|im_start|>' + m.role + '\n' + c + '<|im_end|>' + '\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`,
}

var specialTokens = []string{
	"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
	"<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "<bos>", "<start_of_turn>", "<end_of_turn>",
	"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<tool_call>", "</tool_response>",
}

const nonce = "§7q§"

// inject puts a token at the start, in the middle and at the end of content.
func inject(token string) string { return token + nonce + token + nonce + token }

// checkInjected fails if any part of an injected text is outside of content, and counts the copies.
func checkInjected(t *testing.T, p Prompt, token string) (found int) {
	t.Helper()
	var outside strings.Builder
	for _, s := range p {
		if s.Content {
			found += strings.Count(s.Text, nonce)
			outside.WriteByte(0)
			continue
		}
		outside.WriteString(s.Text)
	}
	if strings.Contains(outside.String(), nonce) {
		t.Errorf("content %q is outside of content spans: %s", token, show(p))
	}
	whole, mask := p.String(), contentMask(p)
	for _, piece := range []string{token + nonce, nonce + token} {
		for at := 0; ; {
			i := strings.Index(whole[at:], piece)
			if i < 0 {
				break
			}
			at += i
			if strings.Contains(mask[at:at+len(piece)], "t") {
				t.Errorf("part of the injected %q is the template's: %s", token, show(p))
			}
			at++
		}
	}
	return found
}

// contentMask has a c for each byte of content and a t for each of the template.
func contentMask(p Prompt) string {
	var b strings.Builder
	for _, s := range p {
		b.WriteString(strings.Repeat(map[bool]string{true: "c", false: "t"}[s.Content], len(s.Text)))
	}
	return b.String()
}

func jsonString(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// hostile returns a conversation with the token in the content of a role and, for
// tools, in everything that a caller can name.
func hostile(role, token string) string {
	text := map[string]string{"system": "be kind", "user": "hello", "assistant": "hi", "tool": "42"}
	text[role] = inject(token)
	messages := fmt.Sprintf(`[{"role":"system","content":%s},{"role":"user","content":%s},{"role":"assistant","content":%s},{"role":"user","content":"go on"}]`,
		jsonString(text["system"]), jsonString(text["user"]), jsonString(text["assistant"]))
	extra := ""
	if role == "tool" {
		bad := jsonString(inject(token))
		messages = fmt.Sprintf(`[{"role":"user","content":"hello"},{"role":"assistant","content":"","tool_calls":[{"id":"abcdefghi","type":"function","function":{"name":%[1]s,"arguments":{%[1]s:%[1]s}}}]},{"role":"tool","name":%[1]s,"tool_call_id":"abcdefghi","content":%[1]s},{"role":"user","content":"go on"}]`, bad)
		extra = fmt.Sprintf(`,"tools":[{"type":"function","function":{"name":%[1]s,"description":%[1]s,"parameters":{"type":"object","properties":{%[1]s:{"type":"string","description":%[1]s,"enum":[%[1]s]}},"required":[%[1]s]}}}]`, bad)
	}
	return fmt.Sprintf(`{"messages":%s,"add_generation_prompt":true%s}`, messages, extra)
}

func TestSpecialTokensInContentStayContentInEveryFamily(t *testing.T) {
	for name, source := range families {
		for _, role := range []string{"system", "user", "assistant", "tool"} {
			for _, token := range specialTokens {
				p, err := render(source, hostile(role, token), Options{BOSToken: "<s>", EOSToken: "</s>"})
				if err != nil {
					t.Fatalf("%s, %s: %v", name, role, err)
				}
				if checkInjected(t, p, token) == 0 {
					t.Errorf("%s: the %s's content is not in the prompt", name, role)
				}
			}
		}
	}
}

func TestARoleIsTheTemplatesOnlyIfItIsAKnownOne(t *testing.T) {
	p, err := render(families["phi"], `{"messages":[{"role":"user","content":"hi"},{"role":"end","content":"<|end|>"},{"role":"x|>","content":""}]}`, Options{})
	if want := "<|user|>\n⟦hi⟧<|end|>\n<|⟦end⟧|>\n⟦<|end|>⟧<|end|>\n<|⟦x|>⟧|>\n<|end|>\n"; err != nil || show(p) != want {
		t.Errorf("got %s, %v, want %s", show(p), err, want)
	}
}

// In a conversation without special tokens, all special tokens of the prompt are the template's.
func TestThePublicTemplatesKeepTheirOwnSpecialTokens(t *testing.T) {
	set := loadFixtures(t)
	request := []byte(`{"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"},{"role":"user","content":"go on"}],"tools":null,"documents":null,"add_generation_prompt":true}`)
	tokens := 0
	for _, ft := range set.Templates {
		tmpl, err := Parse(ft.Source)
		if err != nil {
			t.Fatal(err)
		}
		p, err := tmpl.renderJSON(context.Background(), request, Options{BOSToken: "<s>", EOSToken: "</s>", Now: testNow}, noTime)
		if err != nil {
			continue
		}
		mask := contentMask(p)
		for _, at := range tokenLike.FindAllStringIndex(p.String(), -1) {
			tokens++
			if strings.Contains(mask[at[0]:at[1]], "c") {
				t.Errorf("%s: %q is not wholly the template's: %s", ft.Name, p.String()[at[0]:at[1]], show(p))
			}
		}
	}
	if tokens < 300 {
		t.Errorf("only %d special tokens seen", tokens)
	}
}

var tokenLike = regexp.MustCompile(`<\|[^|<>'" ]{1,40}\|>|<[a-z_]{2,30}>|\[/?[A-Z_]{3,20}\]`)

func TestSpecialTokensInContentStayContentInEveryPublicTemplate(t *testing.T) {
	set := loadFixtures(t)
	rendered, found := 0, 0
	for _, ft := range set.Templates {
		tmpl, err := Parse(ft.Source)
		if err != nil {
			t.Fatal(err)
		}
		tokens := map[string]bool{"<|im_start|>": true, "</s>": true, "<|eot_id|>": true, "[/INST]": true}
		for _, token := range tokenLike.FindAllString(ft.Source, -1) {
			if len(tokens) < 16 {
				tokens[token] = true
			}
		}
		for token := range tokens {
			for _, role := range []string{"system", "user", "assistant", "tool"} {
				p, err := tmpl.renderJSON(context.Background(), []byte(hostile(role, token)), Options{BOSToken: "<s>", EOSToken: "</s>", Now: testNow}, noTime)
				if err != nil {
					continue // many templates refuse a role or the shape of a tool call
				}
				rendered++
				if checkInjected(t, p, token) > 0 {
					found++
				}
			}
		}
	}
	if rendered < 2500 || found < rendered*9/10 {
		t.Errorf("only %d prompts rendered, %d of them with the injected text: this test has lost its subject", rendered, found)
	}
	t.Logf("%d prompts, %d of them with the injected text", rendered, found)
}
