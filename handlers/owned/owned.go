// Package owned is what use cases about chats and other things of people share: who may do what with them, and
// what is said where one is missing. Who may not see a thing learns of it what they learn of one that does not
// exist.
package owned

import (
	"errors"
	"fmt"

	"m40-llm/handlers/access"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// ErrNotFound says that there is no chat of this name: it never was, it is in the
// trash, or it was a temporary one that is gone.
var ErrNotFound = fault.New(fault.CodeChatNotFound, "there is no such chat on this server")

// ErrClosed says that the server is shutting down.
var ErrClosed = fault.New(fault.CodeClosed, "the server is shutting down")

// ErrGone says that a chat that somebody reads is in memory no more.
var ErrGone = errors.New("chat was dropped")

// Authorize returns nil if who may do what to an object; else ErrNotFound. Every use case comes through here first.
func Authorize(who access.Principal, action access.Action, what access.Object) error {
	err := access.Authorize(who, action, what)
	if err != nil && !errors.Is(err, access.ErrVisitor) {
		return ErrNotFound
	}
	return err
}

// May authorizes what who does with things of its own.
func May(who access.Principal, what access.Action, kind access.Kind) error {
	return Authorize(who, what, access.Object{Kind: kind, Owner: who.Owner})
}

// MayManageModels authorizes who to administer models, and what is stored for them; else the error is
// access.ErrDenied.
func MayManageModels(who access.Principal) error {
	return access.Authorize(who, access.ActionManage, access.Object{Kind: access.KindModel})
}

// StoreError returns what a person learns of an error of the store.
func StoreError(err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return ErrNotFound
	case errors.Is(err, store.ErrClosed):
		return ErrClosed
	}
	return fmt.Errorf("failed to store the change: %w", err)
}

// TakenError says that another preset, folder or writer has the name.
type TakenError struct{ Kind, Name string }

func (e *TakenError) Error() string {
	return fmt.Sprintf("there is a %s “%s” already", e.Kind, e.Name)
}

// Unwrap returns what clients are told.
func (e *TakenError) Unwrap() error {
	return &fault.Error{Code: fault.CodeNameTaken, Param: "name", Message: e.Error()}
}
