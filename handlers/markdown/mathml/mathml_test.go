package mathml

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

func TestFormulasBecomeMathML(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"letters and numbers", `2.5x+y`, `<mrow><mn>2.5</mn><mi>x</mi><mo>+</mo><mi>y</mi></mrow>`},
		{"a power of one digit", `x^10`, `<mrow><msup><mi>x</mi><mn>1</mn></msup><mn>0</mn></mrow>`},
		{"a power and an index", `a_{ij}^2`, `<msubsup><mi>a</mi><mrow><mi>i</mi><mi>j</mi></mrow><mn>2</mn></msubsup>`},
		{"primes", `f''(x)`, `<mrow><msup><mi>f</mi><mo>′′</mo></msup><mo stretchy="false">(</mo><mi>x</mi><mo stretchy="false">)</mo></mrow>`},
		{"a fraction", `\frac12`, `<mfrac><mn>1</mn><mn>2</mn></mfrac>`},
		{"a root", `\sqrt[3]{x}`, `<mroot><mi>x</mi><mn>3</mn></mroot>`},
		{"a sum with limits", `\sum_{i=1}^n i`, `<mrow><munderover><mo movablelimits="true">∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi></mrow>`},
		{"an integral has its limits beside it", `\int_0^1`, `<msubsup><mo movablelimits="true">∫</mo><mn>0</mn><mn>1</mn></msubsup>`},
		{"brackets that grow", `\left(\frac ab\right]`, `<mrow><mo stretchy="true">(</mo><mfrac><mi>a</mi><mi>b</mi></mfrac><mo stretchy="true">]</mo></mrow>`},
		{"text", `\text{if } x<0`, "<mrow><mtext>if\u00a0</mtext><mi>x</mi><mo>&lt;</mo><mn>0</mn></mrow>"},
		{"letters of alphabets", `\mathbb{R}\mathcal L`, `<mrow><mrow><mi>ℝ</mi></mrow><mrow><mi>ℒ</mi></mrow></mrow>`},
		{"an accent", `\hat{y}`, `<mover accent="true"><mi>y</mi><mo>^</mo></mover>`},
		{"a matrix", `\begin{pmatrix}1&0\\0&1\end{pmatrix}`, `<mrow><mo stretchy="true">(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>0</mn></mtd></mtr><mtr><mtd><mn>0</mn></mtd><mtd><mn>1</mn></mtd></mtr></mtable><mo stretchy="true">)</mo></mrow>`},
		{"cases", `\begin{cases}1\\2\\\end{cases}`, `<mrow><mo stretchy="true">{</mo><mtable class="cases"><mtr><mtd><mn>1</mn></mtd></mtr><mtr><mtd><mn>2</mn></mtd></mtr></mtable></mrow>`},
		{"lines", `a&=b\\c&=d`, `<mtable class="aligned"><mtr><mtd><mi>a</mi></mtd><mtd><mrow><mo>=</mo><mi>b</mi></mrow></mtd></mtr><mtr><mtd><mi>c</mi></mtd><mtd><mrow><mo>=</mo><mi>d</mi></mrow></mtd></mtr></mtable>`},
		{"markup in text", `\text{<script>"&}`, `<mtext>&lt;script&gt;&#34;&amp;</mtext>`},
		{"markup", `<b>&amp`, ""},
		{"an unknown command", `\href{javascript:x}{y}`, ""},
		{"a macro", `\def\a{\a\a}\a`, ""},
		{"an open group", `\frac{a`, ""},
		{"an open environment", `\begin{matrix}1`, ""},
		{"the end of another environment", `\begin{matrix}1\end{cases}`, ""},
		{"two powers", `x^1^2`, ""},
		{"a command without its argument", `\sqrt`, ""},
		{"a lonely backslash", `a\`, ""},
		{"nothing", ` `, emptyRow},
		{"an invisible character", "a\u202eb", ""},
		{"deep groups", strings.Repeat("{", maxDepth+1) + "x" + strings.Repeat("}", maxDepth+1), ""},
		{"deep scripts", strings.Repeat("x^{", maxDepth+1) + "x" + strings.Repeat("}", maxDepth+1), ""},
		{"deep arguments", strings.Repeat(`\hat`, maxDepth+1) + "x", ""},
		{"a long one", strings.Repeat("x", maxSource+1), ""},
	} {
		got, err := Render(c.source, false)
		if want := "<math>" + c.want + "</math>"; c.want != "" && (err != nil || got != want) {
			t.Errorf("%s: got %s, %v\nwant %s", c.name, got, err, want)
		}
		if c.want == "" && err == nil {
			t.Errorf("%s became %s", c.name, got)
		}
	}
	if got, err := Render("x", true); err != nil || got != `<math display="block"><mi>x</mi></math>` {
		t.Errorf("on its own line: %s, %v", got, err)
	}
}

// Whatever the source is, the result is well-formed, has no elements but those of the package, and is
// not much longer than the source.
func FuzzRender(f *testing.F) {
	for _, source := range []string{`\frac{a}{b}^2_3`, `\begin{cases}a&b\\c\end{cases}`, `\left(x\right.`, `\sqrt[\frac12]{x}`, `\mathbb{<}`, `\text{</math><script>}`, `x'^{2}`, `\not\in`, `\overset{a}{b}`, "\\\xff", `\\[`} {
		f.Add(source, true)
	}
	f.Fuzz(func(t *testing.T, source string, display bool) {
		got, err := Render(source, display)
		if err != nil {
			return
		}
		if !utf8.ValidString(got) || len(got) > 200+80*len(source) {
			t.Fatalf("%d bytes became %d", len(source), len(got))
		}
		body := &html.Node{Type: html.ElementNode, Data: "body", DataAtom: atom.Body}
		nodes, err := html.ParseFragment(strings.NewReader(got), body)
		if err != nil || len(nodes) != 1 || nodes[0].Data != "math" {
			t.Fatalf("%q became %d nodes, %v", source, len(nodes), err)
		}
		for node := range nodes[0].Descendants() {
			if node.Type == html.ElementNode && (node.Namespace != "math" || !strings.HasPrefix(node.Data, "m")) {
				t.Fatalf("%q has the element %s", source, node.Data)
			}
		}
	})
}
