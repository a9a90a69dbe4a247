package mathml

import "strings"

// table makes a map of a list of commands and what they show, in turn. Commands lack their backslash.
func table(list string) map[string]string {
	words := strings.Fields(list)
	m := make(map[string]string, len(words)/2)
	for i := 0; i+1 < len(words); i += 2 {
		m[`\`+words[i]] = words[i+1]
	}
	return m
}

var identifiers = table(`
	alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ
	omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω
	Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω
	infty ∞ partial ∂ nabla ∇ ell ℓ hbar ℏ Re ℜ Im ℑ aleph ℵ emptyset ∅ varnothing ∅ imath ı jmath ȷ top ⊤ bot ⊥ angle ∠
	ldots … dots … cdots ⋯ dotsc … dotsb ⋯ vdots ⋮ ddots ⋱ degree ° circ ∘ prime ′ $ $ % % # #`)

var operators = table(`
	times × cdot ⋅ div ÷ pm ± mp ∓ ast ∗ star ⋆ bullet • oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙ wedge ∧ land ∧ vee ∨ lor ∨ neg ¬ lnot ¬
	cap ∩ cup ∪ setminus ∖ backslash \ le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ll ≪ gg ≫ lt < gt > ne ≠ neq ≠ equiv ≡ approx ≈ sim ∼ simeq ≃ cong ≅
	propto ∝ mid ∣ nmid ∤ parallel ∥ perp ⊥ in ∈ notin ∉ ni ∋ subset ⊂ subseteq ⊆ supset ⊃ supseteq ⊇ subsetneq ⊊ forall ∀ exists ∃ nexists ∄
	to → rightarrow → leftarrow ← gets ← leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ implies ⟹ impliedby ⟸ iff ⟺ mapsto ↦ hookrightarrow ↪
	longrightarrow ⟶ longleftarrow ⟵ Longrightarrow ⟹ uparrow ↑ downarrow ↓ rightharpoonup ⇀ rightleftharpoons ⇌ leadsto ⇝
	langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ lvert | rvert | vert | lVert ‖ rVert ‖ Vert ‖ | ‖ { { } } lbrace { rbrace } lbrack [ rbrack ]
	colon : models ⊨ vdash ⊢ therefore ∴ because ∵ triangle △ square □ blacksquare ■ Box □ checkmark ✓ dagger † ddagger ‡ prec ≺ succ ≻ preceq ⪯ succeq ⪰
	doteq ≐ triangleq ≜ coloneqq ≔ lesssim ≲ gtrsim ≳ asymp ≍ vartriangle △ & & _ _ `)

var bigOperators = table(`
	sum ∑ prod ∏ coprod ∐ int ∫ iint ∬ iiint ∭ oint ∮ bigcup ⋃ bigcap ⋂ bigoplus ⨁ bigotimes ⨂ bigvee ⋁ bigwedge ⋀ bigsqcup ⨆`)

var negated = map[string]string{"=": "≠", `\in`: "∉", "<": "≮", ">": "≯", `\equiv`: "≢", `\subset`: "⊄", `\subseteq`: "⊈", `\exists`: "∄", `\mid`: "∤", `\approx`: "≉", `\sim`: "≁"}

var spaces = map[string]string{
	`\,`: "0.17em", `\:`: "0.22em", `\>`: "0.22em", `\;`: "0.28em", `\ `: "0.33em", "\\\n": "0.33em", `\!`: "-0.17em", `\quad`: "1em", `\qquad`: "2em", `\enspace`: "0.5em", `\thinspace`: "0.17em",
}

func names(list string) map[string]string {
	m := map[string]string{}
	for _, word := range strings.Fields(list) {
		m[`\`+word] = word
	}
	return m
}

var functions = names("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp dim ker deg arg hom bmod mod")

var limitFunctions = names("lim max min sup inf det gcd Pr limsup liminf argmax argmin")

var accents = map[string]string{
	`\hat`: "<mo>^</mo>", `\widehat`: `<mo stretchy="true">^</mo>`, `\bar`: "<mo>¯</mo>", `\vec`: "<mo>→</mo>", `\dot`: "<mo>˙</mo>", `\ddot`: "<mo>¨</mo>",
	`\tilde`: "<mo>~</mo>", `\widetilde`: `<mo stretchy="true">~</mo>`, `\check`: "<mo>ˇ</mo>", `\acute`: "<mo>´</mo>", `\grave`: "<mo>`</mo>", `\breve`: "<mo>˘</mo>", `\mathring`: "<mo>˚</mo>",
}

// ignored commands change sizes and styles that are left to the browser.
var ignored = map[string]bool{
	`\displaystyle`: true, `\textstyle`: true, `\scriptstyle`: true, `\limits`: true, `\nolimits`: true, `\nonumber`: true, `\notag`: true, `\hline`: true, `\rm`: true, `\bf`: true,
}

// alphabet is where the letters of one are in Unicode. 0: it has none of these.
type alphabet struct {
	capitals, small, digits rune
	others                  map[rune]rune // that were in Unicode before
}

func (a alphabet) letter(r rune) (rune, bool) {
	if other, ok := a.others[r]; ok {
		return other, true
	}
	for _, part := range []struct{ first, last, to rune }{{'A', 'Z', a.capitals}, {'a', 'z', a.small}, {'0', '9', a.digits}} {
		if part.to != 0 && part.first <= r && r <= part.last {
			return part.to + r - part.first, true
		}
	}
	return 0, false
}

var bold = alphabet{0x1D400, 0x1D41A, 0x1D7CE, nil}

var alphabets = map[string]alphabet{
	`\mathbf`: bold, `\boldsymbol`: bold, `\bm`: bold,
	`\mathbb`:   {0x1D538, 0x1D552, 0x1D7D8, map[rune]rune{'C': 'ℂ', 'H': 'ℍ', 'N': 'ℕ', 'P': 'ℙ', 'Q': 'ℚ', 'R': 'ℝ', 'Z': 'ℤ'}},
	`\mathcal`:  {0x1D49C, 0, 0, map[rune]rune{'B': 'ℬ', 'E': 'ℰ', 'F': 'ℱ', 'H': 'ℋ', 'I': 'ℐ', 'L': 'ℒ', 'M': 'ℳ', 'R': 'ℛ'}},
	`\mathscr`:  {0x1D49C, 0, 0, map[rune]rune{'B': 'ℬ', 'E': 'ℰ', 'F': 'ℱ', 'H': 'ℋ', 'I': 'ℐ', 'L': 'ℒ', 'M': 'ℳ', 'R': 'ℛ'}},
	`\mathfrak`: {0x1D504, 0x1D51E, 0, map[rune]rune{'C': 'ℭ', 'H': 'ℌ', 'I': 'ℑ', 'R': 'ℜ', 'Z': 'ℨ'}},
}

type environment struct{ open, shut, class string }

// IsEnvironment reports whether \begin{name} begins an environment that Render converts.
func IsEnvironment(name string) bool {
	_, known := environments[strings.TrimSuffix(name, "*")]
	return known
}

var environments = map[string]environment{
	"matrix": {}, "array": {}, "smallmatrix": {}, "gathered": {}, "gather": {}, "equation": {}, "split": {class: "aligned"},
	"multline": {}, "eqnarray": {class: "aligned"}, "flalign": {class: "aligned"},
	"pmatrix": {open: "(", shut: ")"}, "bmatrix": {open: "[", shut: "]"}, "Bmatrix": {open: "{", shut: "}"}, "vmatrix": {open: "|", shut: "|"}, "Vmatrix": {open: "‖", shut: "‖"},
	"cases": {open: "{", class: "cases"}, "aligned": {class: "aligned"}, "align": {class: "aligned"}, "alignat": {class: "aligned"},
}
