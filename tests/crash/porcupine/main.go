// Judges histories of calls on one log by Porcupine, a checker of linearizability that knows nothing
// of logs. Reads a JSON list of histories, prints a JSON list of "Ok", "Illegal" and "Unknown".
package main

import (
	"encoding/json"
	"hash/fnv"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const patience = 2 * time.Minute

// A call as its client saw it. What a null stands for nobody was told.
type call struct {
	Client   int     `json:"client"`
	Begin    int64   `json:"begin"`
	End      int64   `json:"end"`
	Value    *string `json:"value"`    // of an append; else somebody looked
	Expected *int    `json:"expected"` // the end at which alone it was to be appended
	Offset   *int    `json:"offset"`   // where it was appended
	Length   *int    `json:"length"`   // of the log, as told
	Seen     *uint64 `json:"seen"`     // the digest of all values below that
}

// The log, as far as anyone can tell one from another.
type log struct {
	length int
	digest uint64
}

func (before log) with(value string) log {
	return log{before.length + 1, digest(before.digest, value)}
}

func digest(before uint64, value string) uint64 {
	hash := fnv.New64a()
	for shift := 0; shift < 64; shift += 8 {
		hash.Write([]byte{byte(before >> shift)})
	}
	hash.Write([]byte(value))
	return hash.Sum64()
}

// What one log answers to one call after another.
func step(state, input, _ interface{}) (bool, interface{}) {
	before, asked := state.(log), input.(call)
	if asked.Value == nil || (asked.Expected != nil && *asked.Expected != before.length) {
		if asked.Offset != nil || (asked.Length != nil && *asked.Length != before.length) {
			return false, state
		}
		return asked.Seen == nil || *asked.Seen == before.digest, state
	}
	if asked.Length != nil || (asked.Offset != nil && *asked.Offset != before.length) {
		return false, state
	}
	return true, before.with(*asked.Value)
}

func main() {
	var histories [][]call
	if err := json.NewDecoder(os.Stdin).Decode(&histories); err != nil {
		panic(err)
	}
	model := porcupine.Model{
		Init: func() interface{} { return log{} },
		Step: step,
	}
	verdicts := []porcupine.CheckResult{}
	for _, history := range histories {
		operations := []porcupine.Operation{}
		for _, one := range history {
			operations = append(operations, porcupine.Operation{
				ClientId: one.Client, Input: one, Call: one.Begin, Return: one.End,
			})
		}
		verdicts = append(verdicts, porcupine.CheckOperationsTimeout(model, operations, patience))
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		panic(err)
	}
}
