// Scenarios with the official Go client, against whatever name server and broker it is given.
//
//	interop NAMESERVER BROKER [NAME ...]    runs those that are named, or all; each prints one line of JSON
//	interop member NAMESERVER GROUP TOPIC INSTANCE [orderly]
//	                                        a push consumer, until its standard input ends; a line for each message
//	interop keep-on NAMESERVER TOPIC SECONDS
//	                                        sends whatever fails, ten times a second, and tells of each send
//	interop traffic NAMESERVER TOPIC        sends in every way and consumes it all: what the recorder records
//
// Several scenarios run at a time, each on topics and groups of its own name, so that none sees another's
// messages. One that fails or takes too long says so in its own line; the others go on.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	atATime    = 12
	secondsMax = 150 * time.Second
)

// A scenario tries something in a world, and puts down what was seen.
type scenario struct {
	name   string
	script func(*world)
}

var scenarios = concat(finding(), sending(), receiving(), pulling(), later())

func main() {
	rlog.SetLogLevel(logLevel()) // the client tells of every failed try, and scenarios fail on purpose
	arguments := os.Args[1:]
	if len(arguments) < 2 {
		fmt.Fprintln(os.Stderr, "interop NAMESERVER BROKER [NAME ...] | member | keep-on | traffic: see main.go")
		os.Exit(2)
	}
	switch arguments[0] {
	case "member":
		member(arguments[1], arguments[2], arguments[3], arguments[4], arguments[5:])
	case "keep-on":
		keepOn(arguments[1], arguments[2], arguments[3])
	case "traffic":
		traffic(arguments[1], arguments[2])
	default:
		runAll(arguments[0], arguments[1], arguments[2:])
	}
}

func runAll(nameServer, broker string, names []string) {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	var all sync.WaitGroup
	places := make(chan struct{}, atATime)
	for _, each := range scenarios {
		if len(names) > 0 && !wanted[each.name] {
			continue
		}
		all.Add(1)
		places <- struct{}{}
		go func(each scenario) {
			defer all.Done()
			observed := each.run(nameServer, broker)
			printLine(map[string]interface{}{"scenario": each.name, "observed": observed})
			<-places
		}(each)
	}
	all.Wait()
}

// run gives what was observed; a scenario that broke has put down why.
func (s scenario) run(nameServer, broker string) map[string]interface{} {
	w := newWorld(s.name, nameServer, broker)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if why := recover(); why != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n%s", s.name, why, debug.Stack())
				w.put("BROKEN", fmt.Sprint(why))
			}
		}()
		s.script(w)
	}()
	select {
	case <-done:
		w.close()
	case <-time.After(secondsMax):
		w.put("BROKEN", fmt.Sprintf("not done after %v", secondsMax))
	}
	return w.observed()
}

var printing sync.Mutex

func printLine(value interface{}) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

func logLevel() string {
	if level := os.Getenv("ROCKETMQ_GO_LOG_LEVEL"); level != "" {
		return level
	}
	return "fatal"
}

func concat(families ...[]scenario) []scenario {
	var all []scenario
	for _, family := range families {
		all = append(all, family...)
	}
	return all
}
