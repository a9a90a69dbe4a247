package web

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"m40-llm/web/lang"
)

// People is the page of the people of a server, for its owner.
type People struct {
	List    []Account
	Problem string // with the submitted name; empty: none
	Name    string // the submitted name, if it has a problem
	Alone   bool   // other machines cannot reach the server
}

// Account is the page of one person: devices, API keys and limits.
type Account struct {
	ID, Name string
	IsOwner  bool // the person is the owner of the server
	Manages  bool // the viewer is the owner of the server
	Own      bool // the viewer is this person
	Limits   PersonLimits
	Devices  []Credential
	Keys     []Credential
	Problem  string

	Renaming    string // the submitted name, if it has a problem
	NameProblem string

	HasPassphrase     bool
	PassphraseProblem string // with the submitted change; empty: none
	MinPassphrase     int    // the smallest number of characters

	Invitation *Invitation // just created; else nil
	NewKey     string      // API key just created, shown only once; else empty
	Alone      bool        // other machines cannot reach the server
	Plain      bool        // other machines reach the server without encryption

	Fingerprint string // of the server's self-signed certificate; empty: it has another one, or none
}

// PersonLimits are those of a person; 0: there is none.
type PersonLimits struct {
	AtOnce  int // answers that are written at the same time
	Answers int // a day
	Tokens  int // a day
}

// Credential is a device or an API key.
type Credential struct {
	ID    int64
	Name  string
	Use   string    // what the last use is called: last seen, last used
	Used  time.Time // zero: never
	Since time.Time
}

// Invitation allows one device to log in.
type Invitation struct {
	Code  string
	Links []InvitationLink // the best first
}

// InvitationLink is an address at which a device logs in.
type InvitationLink struct {
	Address string
	QR      QRCode // of the address and the secret; empty for all but the best address and the name
}

// codes returns the links with a QR code.
func (i *Invitation) codes() (with []InvitationLink) {
	for _, link := range i.Links {
		if link.QR.Path != "" {
			with = append(with, link)
		}
	}
	return with
}

// address returns the path of a page or a form of the person.
func (a Account) address(what string) string { return "/people/" + a.ID + what }

// limit returns a limit for its field, which is empty without one.
func limit(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// summary returns the line about the person in the list of people, up to when their first device was last seen.
func (a Account) summary(ctx context.Context) string {
	text := lang.N(ctx, len(a.Devices), "%d device", "%d devices", len(a.Devices)) + ", " + lang.N(ctx, len(a.Keys), "%d API key", "%d API keys", len(a.Keys))
	if len(a.Devices) > 0 {
		text += ", "
	}
	return text
}

// newName returns the name in the form for another one.
func (a Account) newName() string { return cmp.Or(a.Renaming, a.Name) }
