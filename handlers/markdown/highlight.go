package markdown

import (
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

// Lexers are regular expressions that backtrack: over hostile text some take quadratic time. So
// highlighting is limited to code of a certain size, to languages whose lexers were tested with
// such text, and to a time for each block of Markdown. Other code is shown uncoloured.
const (
	maxHighlight  = 16 << 10
	highlightTime = 250 * time.Millisecond
)

// languages are the lexers by the names that models write after the opening fence.
var languages = sync.OnceValue(func() map[string]chroma.Lexer {
	names := map[string]chroma.Lexer{}
	for _, language := range []string{
		"bash", "c", "c#", "c++", "clojure", "cmake", "css", "dart", "diff", "docker", "elixir", "erlang",
		"fortran", "glsl", "go", "graphql", "haskell", "html", "ini", "java", "javascript", "json", "julia", "kotlin", "latex",
		"lisp", "lua", "makefile", "matlab", "nasm", "nginx", "nix", "objective-c", "ocaml", "perl", "powershell",
		"protobuf", "python", "r", "ruby", "rust", "scala", "scheme", "scss", "sql", "swift", "terraform", "toml",
		"typescript", "vim", "xml", "yaml", "zig",
	} {
		lexer := lexers.Get(language)
		if lexer == nil {
			continue // TestEveryLanguageHasALexer says so
		}
		config := lexer.Config()
		for _, name := range append([]string{language, config.Name}, config.Aliases...) {
			names[strings.ToLower(name)] = lexer
		}
	}
	for name, like := range map[string]string{
		"cs": "c#", "cu": "c++", "cuda": "c++", "json5": "json", "jsonc": "json", "jsx": "javascript", "kt": "kotlin", "patch": "diff",
		"svg": "xml", "tsx": "typescript", "yml": "yaml",
	} {
		names[name] = names[like]
	}
	return names
})

// span is a piece of code and the class that colours it.
type span struct{ class, text string }

// highlight cuts code into spans. It returns nil where code is to be shown plain: in
// no language that it knows, too long, or not done when spent says that the time is
// over, which it asks after every token.
func highlight(code, language string, spent func() bool) []span {
	lexer := languages()[strings.ToLower(language)]
	if lexer == nil || len(code) > maxHighlight || spent() {
		return nil
	}
	return cut(code, lexer, spent)
}

func cut(code string, lexer chroma.Lexer, spent func() bool) (spans []span) {
	defer func() {
		// A lexer panics where its own rules are at fault.
		if recover() != nil {
			spans = nil
		}
	}()
	next, err := lexer.Tokenise(&chroma.TokeniseOptions{State: "root"}, code)
	if err != nil {
		return nil
	}
	rest := code
	for token := next(); token != chroma.EOF; token = next() {
		text := token.Value
		if len(text) > len(rest) {
			text = strings.TrimSuffix(text, "\n") // lexers end the last line
		}
		// Whatever a lexer does, the code that is shown is the code that was written.
		var ok bool
		if rest, ok = strings.CutPrefix(rest, text); !ok || spent() {
			return nil
		}
		class := classOf(token.Type)
		if last := len(spans) - 1; last >= 0 && spans[last].class == class {
			spans[last].text += text
		} else {
			spans = append(spans, span{class, text})
		}
	}
	if rest != "" {
		return nil
	}
	return spans
}

// classOf maps the many types of tokens to the few that look different.
func classOf(t chroma.TokenType) string {
	switch {
	case t.InCategory(chroma.Comment), t == chroma.GenericSubheading:
		return "c"
	case t.InCategory(chroma.Keyword), t == chroma.OperatorWord, t == chroma.NameTag:
		return "k"
	case t.InCategory(chroma.Literal):
		return "s"
	case t == chroma.GenericInserted:
		return "gi"
	case t == chroma.GenericDeleted:
		return "gd"
	}
	return ""
}

// timeout returns a function that reports whether d has passed since it was first
// asked.
func timeout(d time.Duration) func() bool {
	end := sync.OnceValue(func() time.Time { return time.Now().Add(d) })
	return func() bool { return time.Now().After(end()) }
}
