package hugetlb

// SetPlace sets a separate place for notes, and returns a function that restores the old one.
func SetPlace(to string) (undo func()) {
	before := place
	place = to
	return func() { place = before }
}
