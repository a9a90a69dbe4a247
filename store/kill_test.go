package store

func playChats(path string) error     { return nil }
func playMigration(path string) error { return nil }
func playHolder(path string) error    { return nil }
