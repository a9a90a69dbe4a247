package web

// LoginForm is the login page.
type LoginForm struct {
	Problem string // with the previous login; empty: none
	Link    string // secret of the invitation in the address; empty: none
	Plain   bool   // the connection is not encrypted and comes from another machine
}
