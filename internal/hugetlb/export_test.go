package hugetlb

// SetPlace has notes lie where no others do, and returns what undoes that.
func SetPlace(to string) (undo func()) {
	before := place
	place = to
	return func() { place = before }
}
