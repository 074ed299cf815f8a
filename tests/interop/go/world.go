package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	brokerName = "broker-a"       // the same on both sides
	waitMax    = 90 * time.Second // an Apache broker on a busy machine may need more than half a minute
)

// world is what a scenario works with: the addresses, clients that end with it, and what was seen.
//
// Topic and group are named after the scenario. What fails unexpectedly panics, and the scenario is broken.
type world struct {
	name       string
	nameServer string
	broker     string

	mutex    sync.Mutex
	seen     map[string]interface{}
	toStop   []func()
	usual    rocketmq.Producer
	tools    admin.Admin
	instance int
}

func newWorld(name, nameServer, broker string) *world {
	return &world{name: name, nameServer: nameServer, broker: broker, seen: map[string]interface{}{}}
}

func (w *world) topic() string { return "topic-" + w.name }
func (w *world) group() string { return "group-" + w.name }

func (w *world) put(name string, value interface{}) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.seen[name] = value
}

func (w *world) observed() map[string]interface{} {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return masked(w.seen).(map[string]interface{})
}

func (w *world) onClose(stop func()) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.toStop = append(w.toStop, stop)
}

func (w *world) close() {
	for i := len(w.toStop) - 1; i >= 0; i-- {
		w.toStop[i]()
	}
}

// --- clients -------------------------------------------------------------------------------------------

func (w *world) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver(strings.Split(w.nameServer, ";"))
}

// newInstance names a client of its own: clients of one name share connections.
func (w *world) newInstance() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.instance++
	return fmt.Sprintf("%s-%d-%d", w.name, os.Getpid(), w.instance)
}

func (w *world) startProducer(options ...producer.Option) rocketmq.Producer {
	usual := []producer.Option{
		producer.WithGroupName("producers-" + w.name),
		producer.WithInstanceName(w.newInstance()),
		producer.WithNsResolver(w.resolver()),
		producer.WithRetry(0),
	}
	p, err := rocketmq.NewProducer(append(usual, options...)...)
	must(err)
	must(p.Start())
	w.onClose(func() { _ = p.Shutdown() })
	return p
}

// producer is the scenario's usual one, started on first use.
func (w *world) producer() rocketmq.Producer {
	if w.usual == nil {
		w.usual = w.startProducer(producer.WithQueueSelector(producer.NewManualQueueSelector()))
	}
	return w.usual
}

// admin is the scenario's tool for topics, started on first use.
func (w *world) admin() admin.Admin {
	if w.tools == nil {
		tools, err := admin.NewAdmin(admin.WithResolver(w.resolver()))
		must(err)
		w.tools = tools
		w.onClose(func() { _ = tools.Close() })
	}
	return w.tools
}

type listener func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

var everything = consumer.MessageSelector{}

// startPush starts a push consumer of the scenario's topic and group, from the first message.
func (w *world) startPush(selector consumer.MessageSelector, heard listener, options ...consumer.Option) rocketmq.PushConsumer {
	c := w.newPush(options...)
	must(c.Subscribe(w.topic(), selector, heard))
	must(c.Start())
	return c
}

func (w *world) newPush(options ...consumer.Option) rocketmq.PushConsumer {
	usual := []consumer.Option{
		consumer.WithGroupName(w.group()),
		consumer.WithInstance(w.newInstance()),
		consumer.WithNsResolver(w.resolver()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	c, err := rocketmq.NewPushConsumer(append(usual, options...)...)
	must(err)
	w.onClose(func() { _ = c.Shutdown() })
	return c
}

func (w *world) startPull(topic string, selector consumer.MessageSelector, options ...consumer.Option) rocketmq.PullConsumer {
	usual := []consumer.Option{
		consumer.WithGroupName("pullers-" + w.name),
		consumer.WithInstance(w.newInstance()),
		consumer.WithNsResolver(w.resolver()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	c, err := rocketmq.NewPullConsumer(append(usual, options...)...)
	must(err)
	must(c.Subscribe(topic, selector))
	must(c.Start())
	w.onClose(func() { _ = c.Shutdown() })
	return c
}

// --- what most scenarios need first --------------------------------------------------------------------

func (w *world) createTopic(queues int) { w.createTopicNamed(w.topic(), queues) }

// createTopicNamed returns when the name server knows the route.
func (w *world) createTopicNamed(topic string, queues int) {
	must(w.admin().CreateTopic(
		context.Background(),
		admin.WithTopicCreate(topic),
		admin.WithBrokerAddrCreate(w.broker),
		admin.WithReadQueueNums(queues),
		admin.WithWriteQueueNums(queues),
	))
	eventually("the topic has a route", func() bool {
		found, err := w.admin().FetchPublishMessageQueues(context.Background(), topic)
		return err == nil && len(found) == queues
	})
}

func (w *world) queue(id int) *primitive.MessageQueue {
	return &primitive.MessageQueue{Topic: w.topic(), BrokerName: brokerName, QueueId: id}
}

func (w *world) message(queue int, body string) *primitive.Message {
	message := primitive.NewMessage(w.topic(), []byte(body))
	message.Queue = w.queue(queue)
	return message
}

// fill sends bodies to one queue, each before the next.
func (w *world) fill(queue int, bodies ...string) {
	for _, body := range bodies {
		sent, err := w.producer().SendSync(context.Background(), w.message(queue, body))
		must(err)
		if sent.Status != primitive.SendOK {
			panic(fmt.Sprint("not stored: ", sent))
		}
	}
}

// stored reads the first so many messages of a queue as they lie there, by a group of its own.
func (w *world) stored(topic string, queue, count int) []interface{} {
	eventually("the topic "+topic+" has a route", func() bool {
		found, err := w.admin().FetchPublishMessageQueues(context.Background(), topic)
		return err == nil && len(found) > 0
	})
	reader := w.startPull(topic, everything, consumer.WithGroupName("readers-"+w.newInstance()))
	place := &primitive.MessageQueue{Topic: topic, BrokerName: brokerName, QueueId: queue}
	var all []interface{}
	next := int64(0)
	eventually(fmt.Sprintf("%d messages can be read from %s", count, topic), func() bool {
		found, err := reader.PullFrom(context.Background(), place, next, 32)
		if err != nil {
			return false
		}
		next = found.NextBeginOffset
		for _, message := range found.GetMessageExts() {
			all = append(all, told(message))
		}
		return len(all) >= count
	})
	return all
}

// --- what is told ----------------------------------------------------------------------------------------

// told is a message as a consumer has it. Left out is what every message would tell of.
func told(message *primitive.MessageExt) map[string]interface{} {
	properties := message.GetProperties()
	for _, name := range []string{"__CRC32#", "CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET"} {
		delete(properties, name)
	}
	if properties["WAIT"] == "true" {
		delete(properties, "WAIT")
	}
	return map[string]interface{}{
		"topic":          message.Topic,
		"queue":          message.Queue.QueueId,
		"offset":         message.QueueOffset,
		"body":           bodyOf(message.Body),
		"flag":           message.Flag,
		"sysFlag":        message.SysFlag,
		"reconsumeTimes": message.ReconsumeTimes,
		"transactionId":  message.TransactionId,
		"properties":     properties,
	}
}

// bodyOf gives long bodies by their length and checksum.
func bodyOf(body []byte) string {
	if len(body) > 200 {
		return fmt.Sprintf("%d bytes, checksum %d", len(body), crc32.ChecksumIEEE(body))
	}
	return string(body)
}

func toldOfSend(sent *primitive.SendResult, err error) map[string]interface{} {
	if err != nil {
		return failure(err)
	}
	return map[string]interface{}{
		"status":        int(sent.Status),
		"ids":           len(strings.Split(sent.MsgID, ",")),
		"id":            sent.MsgID,
		"offsetIds":     len(strings.Split(sent.OffsetMsgID, ",")),
		"queue":         sent.MessageQueue.QueueId,
		"offset":        sent.QueueOffset,
		"transactionId": sent.TransactionID,
		"region":        sent.RegionID,
		"traceOn":       sent.TraceOn,
	}
}

var code = regexp.MustCompile(`(?i)CODE: ?(\d+)`)

// failure is an error as two brokers can be compared by: its code, and that there are words.
func failure(err error) map[string]interface{} {
	if found := code.FindStringSubmatch(err.Error()); found != nil {
		return map[string]interface{}{"code": found[1], "remark": err.Error()}
	}
	return map[string]interface{}{"error": err.Error()}
}

var masks = []struct {
	pattern *regexp.Regexp
	mask    string
}{
	{regexp.MustCompile(`\d+\.\d+\.\d+\.\d+@[\w-]+`), "CLIENT"},
	{regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+`), "ADDRESS"},
	{regexp.MustCompile(`\b[0-9A-Fa-f]{32}\b`), "ID"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "ID"},
	{regexp.MustCompile(`\b1[6-9]\d{11}\b`), "TIME"},
}

// masked replaces what legitimately differs from run to run.
func masked(value interface{}) interface{} {
	switch value := value.(type) {
	case map[string]interface{}:
		all := map[string]interface{}{}
		for name, inside := range value {
			all[name] = masked(inside)
		}
		return all
	case map[string]string:
		all := map[string]interface{}{}
		for name, inside := range value {
			all[name] = masked(inside)
		}
		return all
	case []interface{}:
		all := []interface{}{}
		for _, inside := range value {
			all = append(all, masked(inside))
		}
		return all
	case string:
		for _, each := range masks {
			value = each.pattern.ReplaceAllString(value, each.mask)
		}
		return value
	default:
		return value
	}
}

// --- collecting ------------------------------------------------------------------------------------------

// heard collects messages that listeners got, and answers success.
type heard struct {
	mutex    sync.Mutex
	messages []map[string]interface{}
}

func (h *heard) listen(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	h.add(messages...)
	return consumer.ConsumeSuccess, nil
}

func (h *heard) add(messages ...*primitive.MessageExt) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, message := range messages {
		h.messages = append(h.messages, told(message))
	}
}

func (h *heard) count() int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return len(h.messages)
}

func (h *heard) waitFor(count int) {
	eventually(fmt.Sprintf("%d messages came", count), func() bool { return h.count() >= count })
}

func (h *heard) waitForBody(wanted string) {
	eventually(wanted+" came", func() bool {
		for _, body := range h.bodies() {
			if body == wanted {
				return true
			}
		}
		return false
	})
}

// bodies in the order they came.
func (h *heard) bodies() []string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	all := []string{}
	for _, message := range h.messages {
		all = append(all, message["body"].(string))
	}
	return all
}

func (h *heard) sortedBodies() []string {
	all := h.bodies()
	sort.Strings(all)
	return all
}

// all messages, by queue and place in it.
func (h *heard) all() []interface{} {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	sorted := append([]map[string]interface{}{}, h.messages...)
	sort.SliceStable(sorted, func(i, j int) bool {
		one, other := sorted[i], sorted[j]
		if one["queue"] != other["queue"] {
			return one["queue"].(int) < other["queue"].(int)
		}
		return one["offset"].(int64) < other["offset"].(int64)
	})
	all := []interface{}{}
	for _, message := range sorted {
		all = append(all, message)
	}
	return all
}

func eventually(what string, happened func() bool) {
	deadline := time.Now().Add(waitMax)
	for !happened() {
		if time.Now().After(deadline) {
			panic(fmt.Sprintf("%v passed before %s", waitMax, what))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// within tells whether something happened in that time.
func within(limit time.Duration, happened func() bool) bool {
	for deadline := time.Now().Add(limit); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// quiet gives what should not come time to come.
func quiet() { time.Sleep(1500 * time.Millisecond) }

func numbered(prefix string, count int) []string {
	all := []string{}
	for i := 0; i < count; i++ {
		all = append(all, fmt.Sprintf("%s%02d", prefix, i))
	}
	return all
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
