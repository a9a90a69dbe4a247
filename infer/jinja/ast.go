package jinja

// Expressions.
type (
	expr interface{}

	constExpr struct{ v Value }
	nameExpr  struct{ name string }
	listExpr  struct {
		items []expr
		tuple bool
	}
	dictExpr struct{ keys, vals []expr }
	attrExpr struct {
		x    expr
		name string
	}
	itemExpr  struct{ x, key expr }
	sliceExpr struct{ lo, hi, step expr } // nil if omitted; only as the key of an itemExpr
	callExpr  struct {
		fn   expr
		args callArgs
	}
	filterExpr struct {
		x    expr // nil for the body of a block
		name string
		args callArgs
	}
	testExpr struct {
		x    expr
		name string
		args callArgs
	}
	notExpr  struct{ x expr }
	signExpr struct {
		minus bool
		x     expr
	}
	chainExpr struct { // left-associative operators of one precedence
		first expr
		rest  []operand
	}
	compareExpr struct { // a < b < c
		first expr
		rest  []operand
	}
	boolExpr struct { // a or b or c
		or    bool
		parts []expr
	}
	concatExpr struct{ parts []expr } // a ~ b ~ c
	condExpr   struct{ test, then, otherwise expr }
)

type operand struct {
	op string
	x  expr
}

type callArgs struct {
	pos        []expr
	names      []string // of the keyword arguments
	vals       []expr   // of the keyword arguments
	star       expr     // *args
	doubleStar expr     // **kwargs
}

// Statements.
type (
	stmt interface{}

	dataStmt   struct{ s string }
	outputStmt struct {
		x    expr
		line int
	}
	ifStmt struct {
		line     int
		tests    []expr
		bodies   [][]stmt
		elseBody []stmt
	}
	forStmt struct {
		line      int
		target    target
		iter      expr
		filter    expr // nil: none
		recursive bool
		body      []stmt
		elseBody  []stmt
	}
	setStmt struct {
		line   int
		target target
		x      expr
	}
	setBlockStmt struct {
		line   int
		target target
		filter expr // nil: none
		body   []stmt
	}
	macroStmt struct {
		line int
		def  *macroDef
	}
	callStmt struct {
		line int
		call *callExpr
		def  *macroDef // the block, which the macro calls as caller()
	}
	filterStmt struct {
		line   int
		filter expr
		body   []stmt
	}
	withStmt struct {
		line    int
		targets []target
		vals    []expr
		body    []stmt
	}
	scopeStmt    struct{ body []stmt }
	breakStmt    struct{}
	continueStmt struct{}
)

type macroDef struct {
	name      string
	params    []string
	defaults  []expr // of the last parameters
	body      []stmt
	anonymous bool // the body of a call block
	varargs   bool // the body reads varargs, so more arguments are accepted
	kwargs    bool // the body reads kwargs
	caller    bool // the body reads caller
}

// target is the left side of an assignment: a name, an attribute of a namespace, or a
// tuple of targets.
type target struct {
	name  string
	attr  string   // of the namespace name; "" for the name itself
	tuple []target // nil if it is not a tuple
}
