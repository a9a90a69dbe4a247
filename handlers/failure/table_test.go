package failure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"m40-llm/infer/fault"
)

// A code that the table does not know would reach clients as an internal error without its text.
func TestTheTableHasEachCode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../infer/fault/codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[fault.Code]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, v := range spec.Values {
			code, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			codes[fault.Code(code)] = true
			if _, ok := table[fault.Code(code)]; !ok {
				t.Errorf("the table has no row for %s, %q", spec.Names[0].Name, code)
			}
		}
		return true
	})
	for code := range table {
		if !codes[code] {
			t.Errorf("the table has a row for %q, which is no code", code)
		}
	}
}
