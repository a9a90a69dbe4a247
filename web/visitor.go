package web

import "context"

type visitorKey struct{}

// WithVisitor returns a context for pages of a visitor.
func WithVisitor(ctx context.Context) context.Context {
	return context.WithValue(ctx, visitorKey{}, true)
}

// isVisitor reports whether a page is for a visitor.
func isVisitor(ctx context.Context) bool { return ctx.Value(visitorKey{}) != nil }
