package web

// LoginForm is the login page.
type LoginForm struct {
	Problem string // with the previous login; empty: none
	Link    string // secret of the invitation in the address; empty: none
	ByName  bool   // the previous login was one with name and passphrase
	Name    string // of the previous login

	Passphrases bool // somebody can log in with name and passphrase

	Plain bool // the connection is not encrypted and comes from another machine
}

// problem returns the problem with the previous login, for one of the two forms.
func (p LoginForm) problem(byName bool) string {
	if p.ByName != byName {
		return ""
	}
	return p.Problem
}
