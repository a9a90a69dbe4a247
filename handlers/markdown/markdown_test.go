package markdown

import (
	"fmt"
	"strings"
	"testing"

	"m40-llm/handlers/live"
	"m40-llm/handlers/markdown/markdowntest"
	"m40-llm/store"
	"m40-llm/web/lang"
)

func TestLongAnswersAreRenderedBlockByBlock(t *testing.T) {
	paragraph := strings.Repeat("word ", 200) + "**end**\n\n"
	long := strings.Repeat(paragraph, 3*maxMarkdown/len(paragraph))
	if got, want := strings.Count(Answer(t.Context(), "", long), "<strong>end</strong></p>"), strings.Count(long, "**end**"); got != want {
		t.Errorf("%d of %d paragraphs were rendered", got, want)
	}
	block := strings.Repeat("[a](", maxMarkdown/4+1)
	if got := Answer(t.Context(), "", "# a\n"+block); got != "<h1>a</h1>\n<pre><code>"+block+"</code></pre>\n" {
		t.Errorf("a block over the limit became %.100q", got)
	}
}

func FuzzRenderMarkdown(f *testing.F) {
	for _, payload := range markdowntest.Samples {
		f.Add(payload)
	}
	f.Add("\\(a\\[<b>\\]\n\\) \\[<script>\\]")
	f.Add("$$\n\\text{</math><img onerror=x>}\n$$ $a$ \\begin{cases}<b>&c\\\\")
	f.Fuzz(func(t *testing.T, source string) {
		for _, rendered := range []string{Text(t.Context(), source), Answer(t.Context(), "", source), Answer(t.Context(), source, source)} {
			if harm := markdowntest.Harms(rendered); harm != "" {
				t.Errorf("%q became %q, with %s", source, rendered, harm)
			}
		}
	})
}

const aligned = `<math display="block"><mtable class="aligned"><mtr><mtd><mi>x</mi></mtd><mtd><mrow><mo>=</mo><mn>1</mn></mrow></mtd></mtr><mtr><mtd><mrow><mo>−</mo><mi>y</mi></mrow></mtd><mtd><mrow><mo>=</mo><mn>2</mn></mrow></mtd></mtr></mtable></math>`

func TestMarkdownIsRendered(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"emphasis", "a *b* **c** ~~d~~", "<p>a <em>b</em> <strong>c</strong> <del>d</del></p>\n"},
		{"a code block keeps its language and its text", "```go\na < b\n```", "<pre><code class=\"language-go\">a &lt; b</code></pre>\n"},
		{"HTML is shown as text", "use <b>bold</b>", "<p>use &lt;b&gt;bold&lt;/b&gt;</p>\n"},
		{"a block of HTML is shown as text", "<div>\nx\n</div>", "<p>&lt;div&gt;\nx\n&lt;/div&gt;</p>\n"},
		{"a link opens apart and says nothing of us", "[a](https://b.example/)", `<p><a href="https://b.example/" rel="nofollow noreferrer noopener" target="_blank">a</a></p>` + "\n"},
		{"an image becomes a link", "![cat](https://b.example/c.png)", `<p><a href="https://b.example/c.png" rel="nofollow noreferrer noopener" target="_blank">cat</a></p>` + "\n"},
		{"a list may begin anywhere", "3. a\n4. b", "<ol start=\"3\">\n<li>a</li>\n<li>b</li>\n</ol>\n"},
		{"a table keeps its alignment", "|a|b|\n|-|-:|\n|1|2|", "<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"Table\"><table>\n<thead>\n<tr>\n<th>a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td align=\"right\">2</td>\n</tr>\n</tbody>\n</table></div>\n"},
		{"a task list has boxes that cannot be ticked", "- [ ] a\n- [x] b", "<ul>\n<li><input type=\"checkbox\" disabled=\"\" aria-label=\"to do\"> a</li>\n<li><input type=\"checkbox\" disabled=\"\" checked=\"\" aria-label=\"done\"> b</li>\n</ul>\n"},
		{"code is coloured by classes", "```go\n// a\nif x == \"b\" {\n```", "<pre><code class=\"language-go\"><span class=\"c\">// a</span>\n<span class=\"k\">if</span> x == <span class=\"s\">&#34;b&#34;</span> {</code></pre>\n"},
		{"a difference shows what was added and removed", "```diff\n-a\n+b\n c\n```", "<pre><code class=\"language-diff\"><span class=\"gd\">-a\n</span><span class=\"gi\">+b\n</span> c</code></pre>\n"},
		{"code in a language that is not known is plain", "```klingon\nif \"b\"\n```", "<pre><code class=\"language-klingon\">if &#34;b&#34;</code></pre>\n"},
		{"characters that turn code around are shown inside of colours, too", "```go\n\"a\u202eb\"\n```", "<pre><code class=\"language-go\"><span class=\"s\">&#34;a<span class=\"ctl\">U+202E</span>b&#34;</span></code></pre>\n"},
		{"and in code within a sentence", "see `a\u2066b`", "<p>see <code>a<span class=\"ctl\">U+2066</span>b</code></p>\n"},
		{"prices stay prices", "from $5 to $10 and $x_1", "<p>from $5 to $10 and $x_1</p>\n"},
		{"characters that turn code around are shown", "```\na\u202eb\u200bc\n```", "<pre><code>a<span class=\"ctl\">U+202E</span>b<span class=\"ctl\">U+200B</span>c</code></pre>\n"},
		{"a formula", `so \(a_1 * b_1\), then *d*`, "<p>so <math><mrow><msub><mi>a</mi><mn>1</mn></msub><mo>∗</mo><msub><mi>b</mi><mn>1</mn></msub></mrow></math>, then <em>d</em></p>\n"},
		{"a formula that cannot be converted keeps its backslashes", `so \(a_1 * \unknown \\ c\), then *d*`, "<p>so \\(a_1 * \\unknown \\\\ c\\), then <em>d</em></p>\n"},
		{"a formula of several lines does too", "\\[\n\\unknown{a}{b} < \\{c_1\n\\] so", "<p>\\[<br>\n\\unknown{a}{b} &lt; \\{c_1<br>\n\\] so</p>\n"},
		{"a formula on its own line", "$$x$$", "<p><math display=\"block\"><mi>x</mi></math></p>\n"},
		{"a line of a formula that would be a list", "So\n\\[\nx\n- y\n\\]\nand", "<p>So</p>\n<p><math display=\"block\"><mrow><mi>x</mi><mo>−</mo><mi>y</mi></mrow></math></p>\n<p>and</p>\n"},
		{"a formula in a list", "- $$\n  x\n  $$\n- $y$", "<ul>\n<li>\n<p><math display=\"block\"><mi>x</mi></math></p>\n</li>\n<li><math><mi>y</mi></math></li>\n</ul>\n"},
		{"a formula between dollars", `of $n$ and $m^2$, $k$.`, "<p>of <math><mi>n</mi></math> and <math><msup><mi>m</mi><mn>2</mn></msup></math>, <math><mi>k</mi></math>.</p>\n"},
		{"prices", "It costs $5 and $10, or $5-$10, US$5 a month, AU$7, $ 3 $.", "<p>It costs $5 and $10, or $5-$10, US$5 a month, AU$7, $ 3 $.</p>\n"},
		{"prices with words between them", "between $20 and US$ 30", "<p>between $20 and US$ 30</p>\n"},
		{"a price and one with its sign behind", "$5 or 6$ for one", "<p>$5 or 6$ for one</p>\n"},
		{"a range of prices in two currencies", "$20–US$ 30, $3 million, or 4 million$ then, $9, sometimes 10$.", "<p>$20–US$ 30, $3 million, or 4 million$ then, $9, sometimes 10$.</p>\n"},
		{"prices in another language", "$20 oder 30$, $5 或者 6$ 元", "<p>$20 oder 30$, $5 或者 6$ 元</p>\n"},
		{"a formula that begins with a number", "$2x + 3$ $5 \\text{ or } 6$ $10^{-3}$", "<p><math><mrow><mn>2</mn><mi>x</mi><mo>+</mo><mn>3</mn></mrow></math> <math><mrow><mn>5</mn><mtext>\u00a0or\u00a0</mtext><mn>6</mn></mrow></math> <math><msup><mn>10</mn><mrow><mo>−</mo><mn>3</mn></mrow></msup></math></p>\n"},
		{"a bare environment", "So\n\\begin{align}\nx &= 1 \\\\\n- y &= 2\n\\end{align}\nand", "<p>So</p>\n<p>" + aligned + "</p>\n<p>and</p>\n"},
		{"a bare environment within a line", "so \\begin{align*} x &= 1 \\\\ - y &= 2 \\end{align*}, *d*", "<p>so " + aligned + ", <em>d</em></p>\n"},
		{"an environment with an argument", "\\begin{alignat}{2} x &= 1 \\\\ - y &= 2 \\end{alignat}", "<p>" + aligned + "</p>\n"},
		{"an environment that is none of formulas", "\\begin{itemize}\n*a*\n\\end{itemize}", "<p>\\begin{itemize}<br>\n<em>a</em><br>\n\\end{itemize}</p>\n"},
		{"an environment that has not ended", "\\begin{align}\n*a*", "<p>\\begin{align}<br>\n<em>a</em></p>\n"},
		{"bold beside Chinese punctuation", "这是**重要（注）**的，**“你好”**世界", "<p>这是<strong>重要（注）</strong>的，<strong>“你好”</strong>世界</p>\n"},
		{"text that is struck out beside Japanese brackets", "これは~~「古い」~~です。~~~~ a~~~b", "<p>これは<del>「古い」</del>です。~~~~ a~~~b</p>\n"},
		{"bold beside Japanese brackets", "これは**「太字」**です。**太字。**次", "<p>これは<strong>「太字」</strong>です。<strong>太字。</strong>次</p>\n"},
		{"emphasis beside Latin punctuation and Korean", "*(주의)*는 **\"인용\"**과", "<p><em>(주의)</em>는 <strong>&#34;인용&#34;</strong>과</p>\n"},
		{"asterisks of Chinese that are no emphasis", "2 * 3，* 项", "<p>2 * 3，* 项</p>\n"},
		{"emphasis within and across words", "a**b**c **a *b* c** ***d*** a_b_c", "<p>a<strong>b</strong>c <strong>a <em>b</em> c</strong> <em><strong>d</strong></em> a_b_c</p>\n"},
		{"dollars of code", "`$a$` and $HOME `x$`", "<p><code>$a$</code> and $HOME <code>x$</code></p>\n"},
		{"a formula that has not ended", "so $$\\frac{a}", "<p>so $$\\frac{a}</p>\n"},
		{"a formula on lines that has not ended", "$$\n- a\n\n*b*", "<p>$$</p>\n<ul>\n<li>a</li>\n</ul>\n<p><em>b</em></p>\n"},
		{"markup in a formula", "$\\text{<script>}$ \\(<b>x</b>\\)", "<p><math><mtext>&lt;script&gt;</mtext></math> <math><mrow><mo>&lt;</mo><mi>b</mi><mo>&gt;</mo><mi>x</mi><mo>&lt;</mo><mo stretchy=\"false\">/</mo><mi>b</mi><mo>&gt;</mo></mrow></math></p>\n"},
		{"a formula ends with its own bracket", `\(a\] *b*`, "<p>(a] <em>b</em></p>\n"},
		{"line breaks stay", "a\nb", "<p>a<br>\nb</p>\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Text(t.Context(), c.source); got != c.want {
				t.Errorf("%q became\n%q, want\n%q", c.source, got, c.want)
			}
		})
	}
}

func TestEveryInvisibleCharacterInCodeIsShown(t *testing.T) {
	var characters []rune
	for _, r := range [][2]rune{{0x202A, 0x202E}, {0x2066, 0x2069}, {0x200B, 0x200F}, {0x2060, 0x2064}, {0x206A, 0x206F}, {0xE0020, 0xE003F}} {
		for c := r[0]; c <= r[1]; c++ {
			characters = append(characters, c)
		}
	}
	characters = append(characters, 0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x180E, 0x3164, 0xFEFF, 0xFFA0)
	if len(characters) < 50 {
		t.Fatalf("there are only %d samples", len(characters))
	}
	for _, c := range characters {
		want := fmt.Sprintf(`<span class="ctl">U+%04X</span>`, c)
		for _, source := range []string{"```\nif a%cb {\n```", "```go\nif a%cb {\n```", "```python\n# a%c\n```", "    indented%c", "say `a%cb` now"} {
			source = fmt.Sprintf(source, c)
			if got := Text(t.Context(), source); strings.Count(got, want) != 1 || strings.ContainsRune(got, c) {
				t.Errorf("%q became %q", source, got)
			}
		}
	}
	for _, plain := range []string{"ключ", "العربية", "日本語", "é", "👍🏽", "\t"} {
		if got := Text(t.Context(), "```\n"+plain+"\n```"); got != "<pre><code>"+plain+"</code></pre>\n" {
			t.Errorf("%q became %q", plain, got)
		}
	}
}

func TestWordsOfThePageAreInItsLanguageAndThoseOfTheModelAsTheyAre(t *testing.T) {
	const source = "- [ ] to do\n- [x] done\n\n|Table|\n|-|\n|1|\n"
	m := &live.Message{}
	m.Reasoning, m.Text, m.Answer = "Table done", source, &live.Answer{}
	m.Answer.Call = &store.Call{Name: "find", Arguments: "{}"}
	for language, want := range map[lang.Language][]string{
		lang.English: {"<summary>Thinking, 2 words</summary>", `aria-label="to do"> to do`, `checked="" aria-label="done"> done`, `aria-label="Table">`, "<th>Table</th>", "<p class=\"call\">Calls <code>find</code></p>"},
		lang.German:  {"<summary>Gedanken, 2 Wörter</summary>", `aria-label="offen"> to do`, `checked="" aria-label="erledigt"> done`, `aria-label="Tabelle">`, "<th>Table</th>", "<p class=\"call\">Ruft <code>find</code> auf</p>"},
	} {
		got := Message(lang.With(t.Context(), language), m)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q is not in %q", language, part, got)
			}
		}
	}
}
