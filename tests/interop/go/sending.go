package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func sending() []scenario {
	return []scenario{
		{"go-send-sync", sendSync},
		{"go-send-async", sendAsync},
		{"go-send-one-way", sendOneWay},
		{"go-send-batch", sendBatch},
		{"go-send-batch-one-way", sendBatchOneWay},
		{"go-send-properties", sendProperties},
		{"go-send-compressed", sendCompressed},
		{"go-send-by-hash", sendByHash},
		{"go-send-round-robin", sendRoundRobin},
		{"go-send-at-random", sendAtRandom},
		{"go-send-creates-topic", sendCreatesTopic},
		{"go-send-no-queue", sendNoQueue},
		{"go-send-too-large", sendTooLarge},
		{"go-send-empty", sendEmpty},
		{"go-send-namespaced", sendNamespaced},
		{"go-send-traced", sendTraced},
		{"go-send-with-credentials", sendWithCredentials},
		{"go-send-over-fast-port", sendOverFastPort},
	}
}

func sendSync(w *world) {
	w.createTopic(2)
	first, err := w.producer().SendSync(context.Background(), w.message(1, "first"))
	w.put("first", toldOfSend(first, err))
	second, err := w.producer().SendSync(context.Background(), w.message(1, "second"))
	w.put("second", toldOfSend(second, err))
	stored := w.stored(w.topic(), 1, 2)
	w.put("stored", stored)
	w.put("sameId", stored[0].(map[string]interface{})["properties"].(map[string]string)["UNIQ_KEY"] == first.MsgID)
}

func sendAsync(w *world) {
	w.createTopic(1)
	var all sync.WaitGroup
	results := make([]interface{}, 4)
	for i := range results {
		i := i
		all.Add(1)
		must(w.producer().SendAsync(context.Background(), func(_ context.Context, sent *primitive.SendResult, err error) {
			result := toldOfSend(sent, err)
			delete(result, "offset") // they overtake each other
			results[i] = result
			all.Done()
		}, w.message(0, fmt.Sprint("async-", i))))
	}
	all.Wait()
	w.put("sent", results)
	w.put("stored", len(w.stored(w.topic(), 0, 4)))
}

func sendOneWay(w *world) {
	w.createTopic(1)
	must(w.producer().SendOneWay(context.Background(), w.message(0, "one way")))
	w.put("stored", w.stored(w.topic(), 0, 1))
}

func batch(w *world) []*primitive.Message {
	var all []*primitive.Message
	for i := 0; i < 3; i++ {
		message := w.message(1, fmt.Sprint("batch-", i))
		message.WithTag("tag").WithKeys([]string{fmt.Sprint("key-", i)}).WithProperty("number", fmt.Sprint(i))
		all = append(all, message)
	}
	return append(all, w.message(1, "without properties"))
}

func sendBatch(w *world) {
	w.createTopic(2)
	sent, err := w.producer().SendSync(context.Background(), batch(w)...)
	w.put("sent", toldOfSend(sent, err))
	w.put("stored", withoutIds(w.stored(w.topic(), 1, 4)))
}

func sendBatchOneWay(w *world) {
	w.createTopic(2)
	must(w.producer().SendOneWay(context.Background(), batch(w)...))
	w.put("stored", withoutIds(w.stored(w.topic(), 1, 4)))
}

// withoutIds leaves out the ids of a batch's messages: this client gives them none.
func withoutIds(messages []interface{}) []interface{} {
	for _, message := range messages {
		delete(message.(map[string]interface{})["properties"].(map[string]string), "UNIQ_KEY")
	}
	return messages
}

func sendProperties(w *world) {
	w.createTopic(1)
	message := w.message(0, "\u5317\u4eac \U0001F680")
	message.Flag = 7
	message.WithTag("red").WithKeys([]string{"k1", "k2"}).WithShardingKey("shard")
	message.WithProperty("city", "S\u00e3o Paulo")
	message.WithProperty("equation", "a=b:c;d,e")
	message.WithProperty(primitive.PropertyWaitStoreMsgOk, "false")
	sent, err := w.producer().SendSync(context.Background(), message)
	w.put("sent", toldOfSend(sent, err))
	w.put("stored", w.stored(w.topic(), 0, 1))
}

func sendCompressed(w *world) {
	w.createTopic(1)
	noise := make([]byte, 6000)
	rand.New(rand.NewSource(1)).Read(noise)
	for _, body := range [][]byte{bytes.Repeat([]byte("kourou "), 1000), noise} {
		message := w.message(0, string(body))
		sent, err := w.producer().SendSync(context.Background(), message)
		must(err)
		w.put(fmt.Sprintf("sent %d", len(body)), toldOfSend(sent, err))
	}
	w.put("stored", w.stored(w.topic(), 0, 2))
	received := &heard{}
	w.startPush(everything, received.listen)
	received.waitFor(2)
	w.put("received", received.sortedBodies())
}

func sendByHash(w *world) {
	w.createTopic(4)
	hashing := w.startProducer(producer.WithGroupName("hashing-"+w.name), producer.WithQueueSelector(producer.NewHashQueueSelector()))
	queues := map[string]interface{}{}
	for i := 0; i < 12; i++ {
		key := fmt.Sprint("customer-", i%3)
		message := primitive.NewMessage(w.topic(), []byte(fmt.Sprint("order-", i))).WithShardingKey(key)
		sent, err := hashing.SendSync(context.Background(), message)
		must(err)
		if known, ok := queues[key]; ok && known != sent.MessageQueue.QueueId {
			panic(key + " went to two queues")
		}
		queues[key] = sent.MessageQueue.QueueId
	}
	w.put("queues", queues)
}

func sendRoundRobin(w *world) {
	w.createTopic(4)
	turning := w.startProducer(producer.WithGroupName("turning-" + w.name))
	queues := []interface{}{}
	for i := 0; i < 8; i++ {
		sent, err := turning.SendSync(context.Background(), primitive.NewMessage(w.topic(), []byte("x")))
		must(err)
		queues = append(queues, sent.MessageQueue.QueueId)
	}
	w.put("queues", queues)
}

func sendAtRandom(w *world) {
	w.createTopic(4)
	random := w.startProducer(producer.WithGroupName("random-"+w.name), producer.WithQueueSelector(producer.NewRandomQueueSelector()))
	places := map[string]bool{}
	for i := 0; i < 20; i++ {
		sent, err := random.SendSync(context.Background(), primitive.NewMessage(w.topic(), []byte("x")))
		must(err)
		places[fmt.Sprint(sent.MessageQueue.QueueId, "/", sent.QueueOffset)] = true
	}
	w.put("places", len(places))
}

func sendCreatesTopic(w *world) {
	making := w.startProducer(producer.WithGroupName("making-"+w.name), producer.WithDefaultTopicQueueNums(3))
	sent, err := making.SendSync(context.Background(), primitive.NewMessage(w.topic(), []byte("x")))
	must(err)
	w.put("status", int(sent.Status))
	eventually("the topic has a route", func() bool {
		found, err := w.admin().FetchPublishMessageQueues(context.Background(), w.topic())
		w.put("queues", len(found))
		return err == nil
	})
}

func sendNoQueue(w *world) {
	w.createTopic(2)
	sent, err := w.producer().SendSync(context.Background(), w.message(9, "x"))
	w.put("sent", toldOfSend(sent, err))
	stranger := w.startProducer(producer.WithGroupName("stranger-"+w.name), producer.WithCreateTopicKey("no-such-topic"))
	_, err = stranger.SendSync(context.Background(), primitive.NewMessage("nowhere-"+w.name, []byte("x")))
	w.put("unknown", failure(err))
}

func sendTooLarge(w *world) {
	w.createTopic(1)
	noise := make([]byte, 5*1024*1024)
	rand.New(rand.NewSource(2)).Read(noise)
	sent, err := w.producer().SendSync(context.Background(), w.message(0, string(noise)))
	w.put("body", toldOfSend(sent, err))
	message := w.message(0, "x")
	message.WithProperty("long", strings.Repeat("y", 40000))
	sent, err = w.producer().SendSync(context.Background(), message)
	w.put("properties", toldOfSend(sent, err))
	sent, err = w.producer().SendSync(context.Background(), w.message(0, "after"))
	w.put("after", toldOfSend(sent, err))
}

func sendEmpty(w *world) {
	w.createTopic(1)
	_, err := w.producer().SendSync(context.Background(), w.message(0, ""))
	w.put("refused", err != nil)
}

func sendNamespaced(w *world) {
	w.createTopicNamed("space-go%"+w.topic(), 1)
	inside := w.startProducer(producer.WithGroupName("inside-"+w.name), producer.WithNamespace("space-go"))
	sent, err := inside.SendSync(context.Background(), primitive.NewMessage(w.topic(), []byte("inside")).WithTag("t"))
	w.put("sent", toldOfSend(sent, err))
	w.put("stored", w.stored("space-go%"+w.topic(), 0, 1))
	received := &heard{}
	w.startPush(everything, received.listen, consumer.WithNamespace("space-go"))
	received.waitFor(1)
	w.put("received", received.all())
}

func sendTraced(w *world) {
	w.createTopic(1)
	trace := &primitive.TraceConfig{
		GroupName: "tracers-" + w.name,
		Access:    primitive.Local,
		Resolver:  w.resolver(),
	}
	traced := w.startProducer(producer.WithGroupName("traced-"+w.name), producer.WithTrace(trace))
	message := primitive.NewMessage(w.topic(), []byte("traced")).WithTag("red").WithKeys([]string{"key-" + w.name})
	sent, err := traced.SendSync(context.Background(), message)
	w.put("sent", toldOfSend(sent, err))
	received := &heard{}
	consumed := &primitive.TraceConfig{GroupName: "consumers-" + w.name, Access: primitive.Local, Resolver: w.resolver()}
	w.startPush(everything, received.listen, consumer.WithTrace(consumed))
	received.waitFor(1)

	kinds := map[string]int{}
	var mutex sync.Mutex
	traces := w.newPush(consumer.WithGroupName("trace-readers-" + w.name))
	must(traces.Subscribe("RMQ_SYS_TRACE_TOPIC", everything, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mutex.Lock()
		defer mutex.Unlock()
		for _, each := range messages {
			if !strings.Contains(each.GetKeys(), sent.MsgID) {
				continue
			}
			for _, line := range strings.Split(string(each.Body), "\x02") {
				if fields := strings.Split(line, "\x01"); strings.Contains(line, sent.MsgID) {
					kinds[fmt.Sprintf("%s of %d fields", fields[0], len(fields))]++
				}
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	must(traces.Start())
	eventually("the send and the receipt were traced", func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return len(kinds) >= 2
	})
	quiet()
	mutex.Lock()
	defer mutex.Unlock()
	w.put("traces", len(kinds))
	for kind, count := range kinds {
		w.put(kind, count)
	}
}

// sendWithCredentials signs requests to a broker that asks for no signature.
func sendWithCredentials(w *world) {
	w.createTopic(1)
	signing := w.startProducer(
		producer.WithGroupName("signing-"+w.name),
		producer.WithCredentials(primitive.Credentials{AccessKey: "somebody", SecretKey: "1234567890"}),
	)
	sent, err := signing.SendSync(context.Background(), primitive.NewMessage(w.topic(), []byte("signed")))
	w.put("sent", toldOfSend(sent, err))
}

func sendOverFastPort(w *world) {
	w.createTopic(1)
	fast := w.startProducer(producer.WithGroupName("fast-"+w.name), producer.WithVIPChannel(true))
	sent, err := fast.SendSync(context.Background(), primitive.NewMessage(w.topic(), []byte("fast")))
	w.put("sent", toldOfSend(sent, err))
	received := &heard{}
	w.startPush(everything, received.listen, consumer.WithVIPChannel(true))
	received.waitFor(1)
	w.put("received", received.bodies())
}
