package config_test

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/config"
)

// Parse reports a mistake with its place and a suggestion.
func ExampleParse() {
	_, err := config.Parse("unifiedd.yaml", []byte(`
flows:
  - name: md
    from: {interfce: eth1}
    to: {file: /var/lib/unifiedd/md}
`), config.Options{})
	fmt.Println(err)
	// Output:
	// unifiedd.yaml:4:12: unknown key "interfce" in flows[0].from
	//         from: {interfce: eth1}
	//                ^ did you mean "interface"?
}
