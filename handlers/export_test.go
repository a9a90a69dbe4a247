package handlers

// PublicRoutes is publicRoutes for the tests, which are outside of this package because they share handlerstest.
var PublicRoutes = publicRoutes
