package communicatortest

import (
	_ "testing" // enough

	_ "github.com/stretchr/testify/require" // want depguard
)
