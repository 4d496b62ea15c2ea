// Go's own Mutex and Election, measured the way benchmarks/players.py measures everybody else.
//
//	harness cycle|contend|lead ENDPOINT mutex|election NAME CONTENDERS-OR-TTL
//
// It says "ready", and then answers each line it reads; the protocol stands in benchmarks/players.py. Times are those of
// CLOCK_MONOTONIC, which all processes of one machine share. A Mutex belongs to its session, so each contender has one.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

const sessionSeconds = 60

type place struct {
	enter func() error
	leave func() error
	close func()
}

func main() {
	mode, endpoint, recipe, name := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	number, err := strconv.Atoi(os.Args[5])
	check(err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	check(err)
	switch mode {
	case "cycle":
		here := open(client, recipe, name, sessionSeconds)
		check(here.enter())
		check(here.leave())
		serve(func(seconds float64, _ int) interface{} { return cycle(here, seconds) })
	case "contend":
		places := make([]place, number)
		for i := range places {
			places[i] = open(client, recipe, name, sessionSeconds)
		}
		serve(func(seconds float64, count int) interface{} { return contend(places[:count], seconds) })
	case "lead":
		lead(open(client, recipe, name, number))
	}
}

func open(client *clientv3.Client, recipe string, name string, ttl int) place {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	check(err)
	all := context.Background()
	leave := func() { check(session.Close()) }
	if recipe == "election" {
		election := concurrency.NewElection(session, name)
		return place{
			func() error { return election.Campaign(all, "10.0.0.7:8080") },
			func() error { return election.Resign(all) },
			leave,
		}
	}
	mutex := concurrency.NewMutex(session, name)
	return place{func() error { return mutex.Lock(all) }, func() error { return mutex.Unlock(all) }, leave}
}

func serve(answer func(seconds float64, count int) interface{}) {
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var seconds float64
		var count int
		_, err := fmt.Sscan(lines.Text(), &seconds, &count)
		check(err)
		told, err := json.Marshal(answer(seconds, count))
		check(err)
		fmt.Println(string(told))
	}
}

func cycle(here place, seconds float64) interface{} {
	samples, worked := []float64{}, cpu()
	for until, began := now()+seconds, now(); began < until || len(samples) < 5; began = now() {
		check(here.enter())
		check(here.leave())
		samples = append(samples, now()-began)
	}
	return map[string]interface{}{"seconds": samples, "cpu_seconds": cpu() - worked}
}

func contend(places []place, seconds float64) interface{} {
	turns := make([][][3]float64, len(places))
	until := now() + seconds
	var all sync.WaitGroup
	for i := range places {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			turns[i] = [][3]float64{}
			for called := now(); called < until; called = now() {
				check(places[i].enter())
				acquired := now()
				turns[i] = append(turns[i], [3]float64{called, acquired, now()})
				check(places[i].leave())
			}
		}(i)
	}
	all.Wait()
	return map[string]interface{}{"turns": turns}
}

func lead(here place) {
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		at := now()
		switch lines.Text() {
		case "campaign":
			check(here.enter())
			at = now()
		case "resign":
			check(here.leave())
		case "exit":
			here.close()
		}
		fmt.Printf("{\"at\": %.9f}\n", at)
	}
}

func now() float64 {
	var at syscall.Timespec
	const monotonic = 1
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&at)), 0)
	return float64(at.Sec) + float64(at.Nsec)/1e9
}

func cpu() float64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
