package bench

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
)

// CasesVariable selects cases by an expression that their names match, such as "node.*64".
const CasesVariable = "UNIFIEDD_BENCH_CASES"

// WantedCases returns the requested expression. Without one, all cases match.
func WantedCases() (*regexp.Regexp, error) {
	wanted, err := regexp.Compile(os.Getenv(CasesVariable))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", CasesVariable, err)
	}
	return wanted, nil
}

// Print writes all forms of the report, each between lines that name its file. It is for machines that keep
// nothing but their output.
func (r *Report) Print(w io.Writer, name string) error {
	for _, part := range []struct {
		ext   string
		write func(io.Writer) error
	}{{"txt", r.Table}, {"json", r.JSON}, {"svg", r.SVG}} {
		_, err1 := fmt.Fprintf(w, "\n-----BEGIN %s.%s-----\n", name, part.ext)
		err2 := part.write(w)
		_, err3 := fmt.Fprintf(w, "\n-----END %s.%s-----\n", name, part.ext)
		if err := cmp.Or(err1, err2, err3); err != nil {
			return fmt.Errorf("print the report: %w", err)
		}
	}
	return nil
}
