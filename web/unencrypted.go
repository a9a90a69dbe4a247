package web

import "context"

type unencryptedKey struct{}

// WithoutEncryption returns a context for pages that are sent to another machine without encryption.
func WithoutEncryption(ctx context.Context) context.Context {
	return context.WithValue(ctx, unencryptedKey{}, true)
}

// IsUnencrypted reports whether a page is sent to another machine without encryption.
func IsUnencrypted(ctx context.Context) bool { return ctx.Value(unencryptedKey{}) != nil }
